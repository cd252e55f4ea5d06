"""This machine as a calibrated profile: probe kernels of the emitter, timed, and the constants that they give.

Each probe is a small graph written as one kernel. What a probe moves and computes is counted by the same rules as a
candidate's workload, so a measured rate is in the model's own units (`fusesolve.cost.cpu`).
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fusesolve.codegen.cpu.module import generate_cpu
from fusesolve.codegen.cpu.runtime import CpuRunner, Timing, aligned, timed
from fusesolve.codegen.runtime import check_extra
from fusesolve.cost.cpu import TASK_POINTS, Machine
from fusesolve.cost.table import WorkloadTable
from fusesolve.detect import CpuFacts, cpu_definition, match_gpu, measure_copy_bandwidth, read_cpu_facts
from fusesolve.detect.machine import Definition
from fusesolve.errors import InputError, InternalError
from fusesolve.group import Workload
from fusesolve.hardware_yaml import profile_from_definition
from fusesolve.importers.native import parse_native
from fusesolve.ops.numpy_reference import numpy_dtype
from fusesolve.validate.cuda import run_on_device
from fusesolve.validate.parts import one_kernel

Say = Callable[[str], None]
PLAIN_BYTES = 60 << 20  # of a copy that memory serves and whose stores still go through the caches
PLAIN = ("mul($, 0.5)", "add($, 1.5)", "sub($, 0.7)", "mul($, 1.1)")
CHAINS = (
    2 * PLAIN, 4 * PLAIN, ("exp($)",), ("erf($)", "add($, 1.5)"), ("tanh($)",), ("exp($)", "mul($, 0.5)", "exp($)"),
)  # fmt: skip
BALANCED = (("erf($)",), 4 * PLAIN)  # chains whose arithmetic takes about as long as memory
LARGE = 1 << 24  # numbers that memory serves: 64 MiB in, 64 MiB out


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One graph as one kernel: what it moves and computes, and the seconds that it took."""

    workload: Workload
    timing: Timing

    @property
    def seconds(self) -> float:
        """The 20th percentile of the repeats: what the machine does undisturbed."""
        return self.timing.p20

    @property
    def spread(self) -> float:
        """Distance of the 20th and 80th percentile over the median."""
        return (self.timing.p80 - self.timing.p20) / self.timing.median


def run_probe(inputs: Sequence[str], ops: Sequence[str], output: str) -> Probe:
    """Write the graph of native `ops` as one kernel and time it at its own extents on random numbers."""
    text = "\n".join(
        ["format: fusesolve-graph/1", "name: probe", "inputs:", *(f'  - "{item}"' for item in inputs), "ops:",
         *(f'  - "{item}"' for item in ops), f"outputs: [{output}]"]
    )  # fmt: skip
    planned, group = one_kernel(parse_native(text, "probe", {}, False))
    program, kernel = planned.program, planned.kernels[0]
    made = generate_cpu(program, [kernel])
    if 0 not in made.kernels:
        raise InternalError(f"a probe has no source: {made.refused[0]}")
    random = np.random.Generator(np.random.PCG64(0))
    kinds = [(program.storage[s].type.size, numpy_dtype(program.storage[s].type.dtype)) for s in group.reads]
    reads = [aligned(size, kind) for size, kind in kinds]
    for array in reads:
        block = random.standard_normal(min(array.size, 65_536), np.float32)
        array[:] = np.resize(block.astype(array.dtype), array.size)
    stored = [program.storage[s].type for s in group.writes]
    writes = [aligned(kind.size, numpy_dtype(kind.dtype)) for kind in stored]
    return Probe(workload=group.workload, timing=CpuRunner(made).time(0, reads, writes))


def pointwise(count: int, *ops: str, dtype: str = "f32") -> Probe:
    """A chain of elementwise operators (`relu($)`: `$` is the one before) over `count` numbers."""
    lines, last = [], "x"
    for n, op in enumerate(ops):
        lines.append(f"v{n} = {op.replace('$', last)}")
        last = f"v{n}"
    return run_probe([f"x: {dtype}[{count}]"], lines, last)


def calibrate_cpu(say: Say, facts: CpuFacts | None = None) -> Definition:
    """The definition of this machine's CPU with every constant of `fusesolve.cost.cpu` measured; takes a minute."""
    found = facts or read_cpu_facts()
    definition = cpu_definition(found, measure_copy_bandwidth).definition
    constants: dict[str, Any] = {"uncalibrated": False}
    definition["calibration"] = constants
    _measure_overheads(found, definition, constants, say)
    _measure_memory(found, definition, constants, say)
    _measure_compute(definition, constants, say)
    _measure_rows(definition, constants, say)
    _measure_overlap(definition, constants, say)
    _measure_contractions(definition, constants, say)
    return definition


def _measured(value: object, how: str, probe: Probe | Timing) -> dict[str, Any]:
    spread = probe.spread if isinstance(probe, Probe) else (probe.p80 - probe.p20) / probe.median
    return {"value": value, "source": f"measured: {how}; 20th to 80th percentile {100 * spread:.0f} % of the median"}


def _leaf(value: object, how: str, probe: Probe | Timing) -> dict[str, Any]:
    return {**_measured(value, how, probe), "accuracy": "microbenchmark"}


def _measure_overheads(facts: CpuFacts, definition: Definition, constants: dict[str, Any], say: Say) -> None:
    """A call, one of its arguments, a parallel region, and the bandwidth of the cores' own caches."""
    pointwise(1 << 22, "exp($)")  # the threads of the parallel loops start and settle on their cores
    call, few, many = pointwise(16, "relu($)"), _adding(2), _adding(8)
    argument = max(0.0, (many.seconds - few.seconds) / 6)
    start = max(0.1 * call.seconds, call.seconds - 2 * argument)
    one, each, more = (pointwise(TASK_POINTS * n, "relu($)") for n in (1, facts.cores, 4 * facts.cores))
    region = max(0.0, each.seconds - one.seconds)  # one task on one core, or one on each
    moved = 8.0 * 3 * facts.cores * TASK_POINTS
    core = moved / max(more.seconds - each.seconds, 0.1 * more.seconds)  # a disturbed repeat makes no endless cache
    say(f"call {1e6 * start:.2f} us and {1e6 * argument:.2f} us an array, parallel region {1e6 * region:.2f} us")
    definition["launch"] = {"dispatch": _leaf(f"{1e6 * start:.4g} us", "a kernel of 16 points", call)}
    constants["cpu_argument"] = _measured(f"{1e6 * argument:.4g} us", "kernels of 16 points and 3 or 9 arrays", many)
    constants["cpu_region"] = _measured(f"{1e6 * region:.4g} us", "a task on every core against one on one", each)
    constants["cpu_core_bandwidth"] = _measured(f"{core:.4g} B/s", "one task a core against four", more)
    size = facts.core_cache * facts.cores
    constants["cpu_core_cache"] = {"value": f"{size} B", "source": f"read: {facts.cache_source}, private caches"}


def _adding(count: int) -> Probe:
    """A sum of `count` arrays of 16 numbers."""
    names = [f"x{n}" for n in range(count)]
    ops = [f"v{n} = add({'x0' if n == 1 else f'v{n - 1}'}, x{n})" for n in range(1, count)]
    return run_probe([f"{name}: f32[16]" for name in names], ops, f"v{count - 1}")


def _measure_memory(facts: CpuFacts, definition: Definition, constants: dict[str, Any], say: Say) -> None:
    """Bandwidths of memory and the last cache, and what a written byte costs, through the caches and around them."""
    large = max(8 * facts.last_level, 128 << 20) // 8
    copy, total = pointwise(large, "relu($)"), _sum_probe(large)
    plain = pointwise(PLAIN_BYTES // 8, "relu($)")
    rate = total.workload.read_bytes / total.seconds

    def factor(probe: Probe) -> float:
        w = probe.workload
        return float(np.clip((probe.seconds * rate - w.read_bytes) / w.write_bytes, 0.1, 4.0))

    constants["cpu_stream_factor"] = _measured(round(factor(copy), 3), "copies around the caches against sums", copy)
    rows = ["m = reduce_mean(x; axis=1, keepdims=true)", "y = sub(x, m)"]
    apart = run_probe([f"x: f32[{large // 2048},2048]"], rows, "y")
    how = "rows minus their means, around the caches, against sums"
    constants["cpu_row_stream_factor"] = _measured(round(factor(apart), 3), how, apart)
    constants["cpu_write_factor"] = _measured(round(factor(plain), 3), "copies through the caches against sums", plain)
    core = float(constants["cpu_core_bandwidth"]["value"].removesuffix(" B/s")) * (1.0 + factor(plain)) / 2
    constants["cpu_core_bandwidth"]["value"] = f"{core:.4g} B/s"
    small = int(0.4 * facts.last_level) // 8
    cached = pointwise(small, "relu($)")
    shared = (1.0 + factor(plain)) * 4 * small / cached.seconds
    say(f"memory {rate / 1e9:.3g} GB/s, last cache {shared / 1e9:.3g} GB/s, cores' caches {core / 1e9:.3g} GB/s")
    say(f"a written byte counts {factor(plain):.2f}, around the caches {factor(copy):.2f}, of rows {factor(apart):.2f}")
    memory = definition["memory"]
    memory["dram"]["sustained"] = _leaf(f"{rate:.4g} B/s", f"summing {4 * large >> 20} MiB", total)
    memory["dram"]["bandwidth"] = _leaf(f"{rate * (1 + total.spread):.4g} B/s", "the same, best repeats", total)
    memory["l2"]["bandwidth"] = _leaf(f"{max(shared, rate):.4g} B/s", f"copying {4 * small >> 10} KiB", cached)


def _sum_probe(count: int) -> Probe:
    return run_probe([f"x: f32[{count // 1024},1024]"], ["y = reduce_sum(x; axis=1)"], "y")


def _measure_compute(definition: Definition, constants: dict[str, Any], say: Say) -> None:
    """Plain vector instructions a second, and the length of a loop body at which they take twice as long.

    Both from chains of functions of several lengths on data in the cores' caches: seconds an instruction over length.
    """
    machine = _machine(definition)
    count = 2 * definition["compute"]["units"]["value"] * TASK_POINTS
    probes = [pointwise(count, *chain) for chain in CHAINS]
    bodies = np.array([probe.workload.vector / count + 2.0 for probe in probes])  # one load, one store
    spent = np.array([probe.timing.best - _terms(machine, probe.workload)["launch"] for probe in probes])
    each = spent / (count * bodies)
    slopes = [(each[j] - each[i]) / (bodies[j] - bodies[i]) for j in range(len(probes)) for i in range(j)]
    slope = float(np.median(slopes))  # medians: a disturbed probe moves nothing
    start = max(float(np.median(each - slope * bodies)), 0.2 * float(np.median(each)))
    window = float(np.clip(start / max(slope, 1e-18), 10.0, 1000.0))
    rate = 1.0 / float(np.median(each / (1.0 + bodies / window)))
    units = definition["compute"]["units"]["value"]
    leaf = _leaf(float(f"{rate / (units * _hertz(definition)):.4g}"), f"{len(CHAINS)} chains of functions", probes[0])
    definition["compute"]["pipes"] = {"fma": {"per_clock": {"f32": leaf}}}
    constants["cpu_window"] = _measured(round(window, 1), f"{len(CHAINS)} chains of functions by length", probes[-1])
    found = ", ".join(f"{1e12 * s:.1f} at {b:.0f}" for s, b in zip(each, bodies, strict=True))
    say(f"vector instructions: {rate / 1e9:.3g} G elements/s, half of that at {window:.0f} of them (ps each: {found})")


def _measure_rows(definition: Definition, constants: dict[str, Any], say: Say) -> None:
    """What a pass over a row takes to begin and end: short rows against long ones of as many numbers."""
    cores = definition["compute"]["units"]["value"]
    short, long = (
        run_probe([f"x: f32[{cores * TASK_POINTS // length},{length}]"], ["y = rmsnorm(x; axis=1)"], "y")
        for length in (128, 1024)
    )
    passes = short.workload.passes * (short.workload.outer - long.workload.outer)
    row = max(0.0, short.seconds - long.seconds) * cores / passes
    constants["cpu_row"] = _measured(f"{1e9 * row:.4g} ns", "norms of rows of 128 against 1024 numbers", short)
    say(f"a pass over a row {1e9 * row:.3g} ns beside its elements")


def _hertz(definition: Definition) -> float:
    return float(definition["compute"]["clock"]["value"].removesuffix(" GHz")) * 1e9


def _machine(definition: Definition) -> Machine:
    return Machine.of(profile_from_definition(definition, "local-cpu"))


def _terms(machine: Machine, workload: Workload) -> Mapping[str, float]:
    row = WorkloadTable([workload]).rows(np.array([0]))
    _, terms = machine.generated(row, {})
    return {name: float(np.asarray(value).ravel()[0]) for name, value in terms.items()}


def _measure_overlap(definition: Definition, constants: dict[str, Any], say: Say) -> None:
    """How much of the shorter of memory and compute is hidden, and what a strided access costs.

    A chain over data in the cores' caches shows its arithmetic, a copy shows memory, a chain over data in memory both:
    best repeats, since a difference of times has the disturbances of all of them.
    """
    machine = _machine(definition)
    count = 2 * definition["compute"]["units"]["value"] * TASK_POINTS
    copy = pointwise(LARGE, "relu($)")
    hidden = []
    for chain in BALANCED:
        near, far = pointwise(count, *chain), pointwise(LARGE, *chain)
        compute = (near.timing.best - _terms(machine, near.workload)["launch"]) * LARGE / count
        shorter, longer = sorted((compute, copy.timing.best))
        hidden.append(1.0 - max(0.0, far.timing.best - longer) / shorter)
    overlap = float(np.clip(np.mean(hidden), 0.0, 1.0))
    constants["cpu_overlap"] = _measured(round(overlap, 3), "chains over 64 MiB, over caches, and a copy", copy)
    turned = run_probe(["x: f32[4096,4096]"], ["y = transpose(x; perm=1-0)"], "y")
    terms = _terms(machine, turned.workload)
    staged = turned.workload.staged_bytes / machine.memory_rate
    factor = 1.0 + max(0.0, turned.seconds - terms["launch"] - terms["dram"]) / staged if staged else 4.0
    constants["cpu_stride_factor"] = _measured(round(factor, 3), "transposing 64 MiB", turned)
    say(f"overlap {overlap:.2f}, strided bytes count {factor:.2f}")


def _measure_contractions(definition: Definition, constants: dict[str, Any], say: Say) -> None:
    """Multiply-adds per second of the emitter's contractions and of the library under NumPy."""
    size = 512
    own = run_probe([f"a: f32[{size},{size}]", f"b: f32[{size},{size}]"], ["y = matmul(a, b)"], "y")
    rate = own.workload.mma / own.seconds
    random = np.random.Generator(np.random.PCG64(0))
    a, b = (random.standard_normal((1024, 1024), np.float32) for _ in range(2))
    out = np.empty_like(a)
    library = timed(lambda: np.matmul(a, b, out=out))
    few = random.standard_normal((8, 8), np.float32)
    call = timed(lambda: np.matmul(few, few))
    constants["cpu_contraction"] = _measured(f"{2 * rate:.4g} FLOP/s", f"a product of {size} x {size} matrices", own)
    constants["cpu_gemm"] = _measured(
        f"{2 * 1024**3 / library.best:.4g} FLOP/s", "1024 x 1024 matrices with NumPy", library
    )
    constants["cpu_library_call"] = _measured(f"{1e6 * call.best:.4g} us", "8 x 8 matrices with NumPy", call)
    say(f"contractions: {rate / 1e9:.3g} G multiply-adds/s, library {1024**3 / library.best / 1e9:.3g} G/s")


def calibrate_cuda(say: Say) -> Definition:
    """This machine's first GPU as a profile: the bundled one of its name with launch, bandwidth and L2 knee measured.

    MissingError without a GPU or numba-cuda; InputError for a GPU that no bundled profile describes.
    """
    check_extra("--device cuda")
    with tempfile.TemporaryDirectory(prefix="fusesolve-") as name:
        (Path(name) / "plans.json").write_text("[]", encoding="utf-8")
        found = run_on_device(Path(name), "--device cuda")
    device, machine = found["device"], found["machine"]
    bundled = match_gpu(device["name"])
    if bundled is None:
        raise InputError(f"GPU {device['name']!r} has no bundled profile: write one that extends a related device")
    return cuda_definition(bundled, device["name"], machine, say)


def cuda_definition(bundled: str, device: str, machine: Mapping[str, Any], say: Say) -> Definition:
    """The profile `bundled` with what `fusesolve.codegen.device.measure_device` has measured on `device`.

    The knee is the largest working set of copies that still runs faster than halfway (geometrically) between the
    slowest rate, which is taken as memory's, and the fastest one.
    """
    curve = [(float(step["bytes"]), float(step["bytes_per_s"])) for step in machine["copy_by_working_set"]]
    slow, fast = curve[-1][1], max(rate for _, rate in curve)
    knee = max((size for size, rate in curve if rate > (slow * fast) ** 0.5), default=0.0)
    launch = float(machine["launch_stream_s"])
    say(f"{device}: launch {1e6 * launch:.2f} us, memory {slow / 1e9:.4g} GB/s, L2 knee {knee / 2**20:.3g} MiB")

    def leaf(value: str, how: str) -> dict[str, Any]:
        return {"value": value, "source": f"measured: {how} on this machine", "accuracy": "microbenchmark"}

    memory: dict[str, Any] = {"dram": {"sustained": leaf(f"{slow:.5g} B/s", "copying 1 GiB")}}
    if knee:
        memory["l2"] = {"knee": leaf(f"{int(knee)} B", "copies by working set, half way between memory and cache")}
    return {
        "format": "fusesolve-hardware/1", "extends": bundled, "name": f"{device} (measured)",
        "launch": {"stream": leaf(f"{1e6 * launch:.4g} us", "empty kernels back to back")}, "memory": memory,
    }  # fmt: skip
