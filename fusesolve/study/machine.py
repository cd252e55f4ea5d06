"""This machine as a calibrated profile: probe kernels of the emitter, timed, and the constants that they give.

All probes are timed in rounds, so that a machine that is slower for a while is slower for all of them, and every time
is the median over the rounds, as it is of the kernels that predictions are compared with.
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fusesolve.codegen.cpu.runtime import Timing, timed
from fusesolve.codegen.runtime import check_extra
from fusesolve.cost.cpu import Machine
from fusesolve.detect import CpuFacts, cpu_definition, match_gpu, measure_copy_bandwidth, read_cpu_facts
from fusesolve.detect.machine import Definition
from fusesolve.errors import InputError, MissingError
from fusesolve.hardware_yaml import profile_from_definition
from fusesolve.study.machine_fit import CONSTANTS, MachineFit, fit_machine
from fusesolve.study.probes import Probe, prepare, probe_specs
from fusesolve.validate.cpu import Arrays
from fusesolve.validate.cuda import run_on_device

Say = Callable[[str], None]
Call = Callable[[], object]

LIBRARY = 1024  # rows and columns of the matrices that the library under NumPy multiplies


def calibrate_cpu(say: Say) -> Definition:
    """The definition of this machine's CPU with every constant of `fusesolve.cost.cpu` measured; takes a minute."""
    return calibrate_beside((), Arrays(), say).definition


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """A measured machine, the probes that it was made from, and the times of the calls beside them."""

    definition: Definition
    probes: Mapping[str, Probe]
    beside: Sequence[Timing]


def calibrate_beside(calls: Sequence[Call], arrays: Arrays, say: Say) -> Calibration:
    """As `calibrate_cpu`, and the times of other calls from the same rounds. The probes use `arrays` too."""
    facts = read_cpu_facts()
    definition = cpu_definition(facts, measure_copy_bandwidth).definition
    kernels = {name: prepare(spec, arrays) for name, spec in probe_specs(facts).items()}
    times = timed([*(kernel.call for kernel in kernels.values()), *calls])
    pairs = zip(kernels.items(), times, strict=False)
    probes = {name: Probe(workload=kernel.workload, timing=time) for (name, kernel), time in pairs}
    size, source = facts.core_cache * facts.cores, f"read: {facts.cache_source}, private caches"
    definition["calibration"] = {
        "uncalibrated": False, "cpu_core_cache": {"value": f"{size} B", "source": source}
    }  # fmt: skip
    fit = fit_machine(Machine.of(profile_from_definition(definition, "local-cpu")), probes)
    write_constants(definition, facts, probes, fit)
    say_fit(fit, say)
    measure_library(definition, say)
    return Calibration(definition=definition, probes=probes, beside=times[len(kernels) :])


def write_constants(definition: Definition, facts: CpuFacts, probes: Mapping[str, Probe], fit: MachineFit) -> None:
    """Put a fitted machine into a profile's definition."""
    machine, memory, calibration = fit.machine, definition["memory"], definition["calibration"]

    def fitted(name: str, value: object) -> dict[str, Any]:
        probe = CONSTANTS[name][2]
        how = f"fitted to {len(probes)} probes, median error {100 * fit.error:.0f} %; most to '{probe}'"
        return _measured(value, how, probes[probe].timing)

    def leaf(name: str, value: object) -> dict[str, Any]:
        return {**fitted(name, value), "accuracy": "microbenchmark"}

    clock = float(definition["compute"]["clock"]["value"].removesuffix(" GHz")) * 1e9
    per_clock = float(f"{machine.vector / (facts.cores * clock):.4g}")
    definition["compute"]["pipes"] = {"fma": {"per_clock": {"f32": leaf("vector", per_clock)}}}
    definition["launch"] = {"dispatch": leaf("call", f"{1e6 * machine.call:.4g} us")}
    memory["dram"]["sustained"] = leaf("memory_rate", f"{machine.memory_rate:.4g} B/s")
    best = machine.memory_rate * probes["sum"].seconds / probes["sum"].timing.best
    memory["dram"]["bandwidth"] = {**memory["dram"]["sustained"], "value": f"{best:.4g} B/s"}
    memory["l2"]["bandwidth"] = leaf("shared_rate", f"{machine.shared_rate:.4g} B/s")
    calibration["cpu_argument"] = fitted("argument", f"{1e6 * machine.argument:.4g} us")
    calibration["cpu_region"] = fitted("region", f"{1e6 * machine.region:.4g} us")
    calibration["cpu_row"] = fitted("row", f"{1e9 * machine.row:.4g} ns")
    calibration["cpu_core_bandwidth"] = fitted("core_rate", f"{machine.core_rate:.4g} B/s")
    calibration["cpu_contraction"] = fitted("contraction", f"{2 * machine.contraction:.4g} FLOP/s")
    calibration["cpu_overlap"] = fitted("exposed", round(machine.overlap, 3))
    calibration["cpu_window"] = fitted("window", round(machine.window, 1))
    for name in ("write_factor", "stream_factor", "row_stream_factor", "stride_factor"):
        calibration[f"cpu_{name}"] = fitted(name, round(getattr(machine, name), 3))


def say_fit(fit: MachineFit, say: Say) -> None:
    """The machine in four lines, and the probes that it does not fit."""
    m = fit.machine
    say(f"call {1e6 * m.call:.2f} us, {1e6 * m.argument:.2f} us an array, parallel region {1e6 * m.region:.2f} us")
    caches = f"last cache {m.shared_rate / 1e9:.3g} GB/s, cores' caches {m.core_rate / 1e9:.3g} GB/s"
    say(f"memory {m.memory_rate / 1e9:.3g} GB/s, {caches}; strided bytes count {m.stride_factor:.3g}")
    say(
        f"a written byte counts {m.write_factor:.2f}, around the caches {m.stream_factor:.2f}, of rows "
        f"{m.row_stream_factor:.2f}; overlap {m.overlap:.2f}"
    )
    say(
        f"vector instructions: {m.vector / 1e9:.3g} G elements/s, half of that at {m.window:.0f} of them; a pass over "
        f"a row {1e9 * m.row:.3g} ns; contractions {m.contraction / 1e9:.3g} G multiply-adds/s"
    )
    worst = sorted(fit.ratios.items(), key=lambda item: -abs(np.log(item[1])))[:5]
    found = ", ".join(f"{name} {ratio:.2f}" for name, ratio in worst)
    say(f"{len(fit.ratios)} probes: median error {100 * fit.error:.1f} %; predicted over measured at worst {found}")


def measure_library(definition: Definition, say: Say) -> None:
    """Multiply-adds per second of the library under NumPy, and one call of it.

    By itself: its threads go on waiting for work for a while, on the cores of the kernels.
    """
    random = np.random.Generator(np.random.PCG64(0))
    a, b = (random.standard_normal((LIBRARY, LIBRARY), np.float32) for _ in range(2))
    out, few = np.empty_like(a), random.standard_normal((8, 8), np.float32)
    large, call = timed([lambda: np.matmul(a, b, out=out), lambda: np.matmul(few, few)])
    rate, calibration = LIBRARY**3 / large.median, definition["calibration"]
    how = f"{LIBRARY} x {LIBRARY} matrices with NumPy"
    calibration["cpu_gemm"] = _measured(f"{2 * rate:.4g} FLOP/s", how, large)
    calibration["cpu_library_call"] = _measured(f"{1e6 * call.median:.4g} us", "8 x 8 matrices with NumPy", call)
    say(f"contractions of the library: {rate / 1e9:.3g} G multiply-adds/s")


def _measured(value: object, how: str, timing: Timing) -> dict[str, Any]:
    spread = (timing.p80 - timing.p20) / timing.median
    return {"value": value, "source": f"measured: {how}; 20th to 80th percentile {100 * spread:.0f} % of the median"}


def calibrate_cuda(say: Say) -> Definition:
    """This machine's first GPU as a profile: the bundled one of its name with launch, bandwidth and L2 knee measured.

    MissingError without a GPU or numba-cuda; InputError for a GPU that no bundled profile describes.
    """
    check_extra("--device cuda")
    with tempfile.TemporaryDirectory(prefix="fusesolve-") as name:
        (Path(name) / "plans.json").write_text("[]", encoding="utf-8")
        found = run_on_device(Path(name), "--device cuda")
    device, machine = found["device"], found["machine"]
    if machine is None:
        raise MissingError(f"--device cuda: {device['name']} could not be measured: {found['fault']}")
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
