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
from fusesolve.codegen.cpu.runtime import CpuRunner, Timing, timed
from fusesolve.codegen.runtime import check_extra
from fusesolve.cost.cpu import Machine
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
STEADY = 3  # short parallel kernels are timed so many times apart: a thread that sleeps makes a whole series slow


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One graph as one kernel: what it moves and computes, and the seconds that it took."""

    workload: Workload
    timing: Timing

    @property
    def seconds(self) -> float:
        """The least disturbed repeat: what the machine can do."""
        return self.timing.best

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
    reads = [random.standard_normal(size, np.float32).astype(kind) for size, kind in kinds]
    writes = [np.zeros_like(reads[0], shape=program.storage[s].type.size) for s in group.writes]
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
    _measure_memory(found, definition, constants, say)
    _measure_compute(definition, constants, say)
    definition["calibration"] = constants
    _measure_overlap(definition, constants, say)
    _measure_contractions(definition, constants, say)
    return definition


def _measured(value: object, how: str, probe: Probe | Timing) -> dict[str, Any]:
    spread = probe.spread if isinstance(probe, Probe) else (probe.p80 - probe.p20) / probe.median
    return {"value": value, "source": f"measured: {how}; 20th to 80th percentile {100 * spread:.0f} % of the median"}


def _leaf(value: object, how: str, probe: Probe | Timing) -> dict[str, Any]:
    return {**_measured(value, how, probe), "accuracy": "microbenchmark"}


def _measure_memory(facts: CpuFacts, definition: Definition, constants: dict[str, Any], say: Say) -> None:
    """Call, parallel region, and the bandwidths of the core's caches, the last cache and memory."""
    pointwise(1 << 22, "exp($)")  # the threads of the parallel loops start and settle on their cores
    call = pointwise(16, "relu($)")
    counts = (32_768, 65_536, 131_072)
    steps = [
        min((pointwise(count, "relu($)") for _ in range(STEADY)), key=lambda step: step.seconds) for count in counts
    ]
    slope = (steps[2].seconds - steps[0].seconds) / (counts[2] - counts[0])
    slope = max(slope, 0.1 * steps[2].seconds / counts[2])  # a disturbed repeat must not make the caches endless
    region = max(0.0, steps[0].seconds - slope * counts[0] - call.seconds)
    core = 8.0 / slope
    say(f"call {1e6 * call.seconds:.2f} us, parallel region {1e6 * region:.2f} us, core caches {core / 1e9:.3g} GB/s")
    definition["launch"] = {"dispatch": _leaf(f"{1e6 * call.seconds:.4g} us", "a kernel of 16 points", call)}
    constants["cpu_region"] = _measured(
        f"{1e6 * region:.4g} us", "intercept of kernels of 32 to 128 Ki points", steps[1]
    )
    core_cache = facts.core_cache * facts.cores
    constants["cpu_core_cache"] = {"value": f"{core_cache} B", "source": f"read: {facts.cache_source}, private caches"}
    large = max(8 * facts.last_level, 128 << 20) // 8
    copy, total = pointwise(large, "relu($)"), _sum_probe(large)
    rate = total.workload.read_bytes / total.seconds
    factor = (copy.seconds * rate - copy.workload.read_bytes) / copy.workload.write_bytes
    factor = float(np.clip(factor, 1.0, 3.0))
    moved = copy.workload.read_bytes + factor * copy.workload.write_bytes
    dram = moved / copy.seconds
    small = max(int(0.4 * facts.last_level) // 8, 2 * counts[-1])
    cached = pointwise(small, "relu($)")
    shared = (1.0 + factor) * 4 * small / max(cached.seconds - call.seconds - region, 0.1 * cached.seconds)
    say(f"memory {dram / 1e9:.3g} GB/s (a written byte counts {factor:.2f}), last cache {shared / 1e9:.3g} GB/s")
    constants["cpu_core_bandwidth"] = _measured(
        f"{core * (1.0 + factor) / 2:.4g} B/s", "slope of kernels of 32 to 128 Ki points", steps[1]
    )
    constants["cpu_write_factor"] = _measured(round(factor, 3), "copies against sums of arrays in memory", copy)
    memory = definition["memory"]
    memory["dram"]["sustained"] = _leaf(
        f"{dram:.4g} B/s", f"copying {4 * large >> 20} MiB, written bytes weighted", copy
    )
    memory["dram"]["bandwidth"] = _leaf(f"{dram * (1 + copy.spread):.4g} B/s", "the same, best repeats", copy)
    memory["l2"]["bandwidth"] = _leaf(f"{max(shared, dram):.4g} B/s", f"copying {4 * small >> 10} KiB", cached)


def _sum_probe(count: int) -> Probe:
    return run_probe([f"x: f32[{count // 1024},1024]"], ["y = reduce_sum(x; axis=1)"], "y")


def _measure_compute(definition: Definition, constants: dict[str, Any], say: Say) -> None:
    """Rates of the vector pipes in the model's instructions, on data in the core's caches."""
    count = 131_072
    clock = definition["compute"]["units"]["value"] * _hertz(definition)
    base = pointwise(count, "relu($)").seconds
    chains = {
        "fma": ("f32", ("mul($, 1.0001)", "add($, 0.001)") * 16),
        "alu": ("i32", ("add($, 3)", "xor($, 5)") * 16),
        "sfu": ("f32", ("exp($)", "tanh($)", "sigmoid($)", "erf($)")),
    }  # fmt: skip
    pipes = definition["compute"]["pipes"]
    for name, (dtype, chain) in chains.items():
        probe = pointwise(count, *chain, dtype=dtype)
        rate = max(getattr(probe.workload, name), 1.0) / max(probe.seconds - base, 0.1 * probe.seconds)
        leaf = _leaf(float(f"{rate / clock:.4g}"), f"a chain of {len(chain)} operators on 512 KiB", probe)
        pipes[name] = {"per_clock": {dtype: leaf}}
        say(f"{name}: {rate / 1e9:.3g} G instructions/s")


def _hertz(definition: Definition) -> float:
    return float(definition["compute"]["clock"]["value"].removesuffix(" GHz")) * 1e9


def _machine(definition: Definition) -> Machine:
    return Machine.of(profile_from_definition(definition, "local-cpu"))


def _terms(machine: Machine, workload: Workload) -> Mapping[str, float]:
    row = WorkloadTable([workload]).rows(np.array([0]))
    _, terms = machine.generated(row, {})
    return {name: float(np.asarray(value).ravel()[0]) for name, value in terms.items()}


def _measure_overlap(definition: Definition, constants: dict[str, Any], say: Say) -> None:
    """How much of the shorter of memory and compute is hidden, and what a strided access costs."""
    machine = _machine(definition)
    rows = ["x: f32[8192,2048]"]
    softmax = run_probe(rows, ["y = softmax(x; axis=1)"], "y")
    gelu = pointwise(16_777_216, "gelu($)")
    hidden = []
    for probe in (softmax, gelu):
        terms = _terms(machine, probe.workload)
        memory = terms["dram"] + terms["staging"]
        compute = sum(terms[name] for name in ("fma", "alu", "sfu", "tensor", "reread"))
        rest = probe.seconds - terms["launch"] - max(memory, compute)
        hidden.append(1.0 - rest / min(memory, compute))
    overlap = float(np.clip(np.mean(hidden), 0.0, 1.0))
    constants["cpu_overlap"] = _measured(round(overlap, 3), "softmax and GELU of 64 MiB", softmax)
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
