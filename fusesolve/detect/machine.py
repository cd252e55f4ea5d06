"""This machine as a hardware profile: its NVIDIA GPU where `nvidia-smi` knows one, else its CPU.

Every number of a detected profile says in its source whether it was measured here, read from the system, or assumed.
"""

import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fusesolve.detect.cpu_facts import CpuFacts, measure_copy_bandwidth, read_cpu_facts
from fusesolve.hardware_yaml import load_profile

Definition = dict[str, Any]
Query = Callable[[], str | None]

_SMI_FIELDS = ("name", "memory.total", "clocks.max.sm", "compute_cap")

# What nvidia-smi calls a device -> bundled profile; the first match counts.
GPU_NAMES: tuple[tuple[str, str], ...] = (
    (r"A100.*PCIE.*40GB|A100 PCIe 40", "a100-pcie-40gb"),
    (r"A100.*(PCIE|80GB PCIe)", "a100-pcie-80gb"),
    (r"A100.*SXM.*40GB", "a100-sxm-40gb"),
    (r"A100.*SXM.*80GB", "a100-sxm-80gb"),
    (r"H100 PCIe", "h100-pcie"),
    (r"H100.*(HBM3|SXM)", "h100-sxm"),
    (r"\bH200\b(?! NVL)", "h200"),
    (r"\bB200\b", "b200"),
    (r"V100-SXM2", "v100"),
    (r"\bT4$", "t4"),
    (r"\bL40S\b", "l40s"),
    (r"\bL4$", "l4"),
    (r"RTX PRO 6000 Blackwell (Workstation|Server)", "rtx-pro-6000"),
    (r"RTX 3090$", "rtx-3090"),
    (r"RTX 4090$", "rtx-4090"),
    (r"RTX A6000", "a6000"),
    (r"\bA40$", "a40"),
    (r"\bA10G\b", "a10g"),
    (r"P100-PCIE-16GB", "p100"),
    (r"\bP4$", "p4"),
)


@dataclass(frozen=True, slots=True)
class Detection:
    """A plain definition for `hardware_yaml.profile_from_definition`, and notes for the user, one line each."""

    definition: Definition
    notes: tuple[str, ...]


def detect_profile(
    query_gpu: Query | None = None,
    read_cpu: Callable[[], CpuFacts] = read_cpu_facts,
    measure: Callable[[int, int], tuple[float, float]] = measure_copy_bandwidth,
) -> Detection:
    """The profile of this machine's first NVIDIA GPU if it is one of the bundled ones, else of its CPU.

    The CPU's memory and cache copy bandwidths are measured (about a second). `query_gpu` returns the output of
    nvidia-smi or None, `read_cpu` the facts of the system, `measure` (array bytes, threads) -> (median, best) bytes/s.
    """
    answer = (query_gpu or query_nvidia_smi)()
    found = _gpu(answer) if answer else None
    if isinstance(found, Detection):
        return found
    note = found or "no NVIDIA GPU found (nvidia-smi is absent or silent)"
    cpu = cpu_definition(read_cpu(), measure)
    return Detection(cpu.definition, (note, *cpu.notes))


def query_nvidia_smi() -> str | None:
    """The CSV answer of nvidia-smi (no header, no units) about all GPUs; None where it is absent or fails."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    command = [tool, f"--query-gpu={','.join(_SMI_FIELDS)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(  # noqa: S603  # the command is a constant list, its path comes from PATH
            command, capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 and done.stdout.strip() else None


def match_gpu(name: str) -> str | None:
    """The bundled profile of the device that nvidia-smi calls `name`; None where there is none."""
    return next((profile for pattern, profile in GPU_NAMES if re.search(pattern, name.strip())), None)


def _gpu(answer: str) -> Detection | str:
    """The first GPU of an nvidia-smi answer, or a note that says why it cannot be used."""
    lines = answer.strip().splitlines()
    fields = [field.strip() for field in lines[0].split(",")]
    if len(fields) != len(_SMI_FIELDS):
        return f"nvidia-smi answered {lines[0]!r}, which is not '{', '.join(_SMI_FIELDS)}'"
    name, memory, clock, capability = fields
    bundled = match_gpu(name)
    if bundled is None:
        base = f"sm_{capability.replace('.', '')}"
        return f"GPU '{name}' (compute capability {capability}) has no bundled profile: write one that extends {base}"
    profile = load_profile(bundled)
    definition: Definition = {**profile.definition}
    notes = [f"GPU '{name}': bundled profile {bundled}; its numbers come from that profile, not from this machine"]
    if memory.isdigit():
        definition["memory"] = {**definition["memory"]}
        definition["memory"]["dram"] = {**definition["memory"]["dram"], "size": _read(f"{memory} MiB", "nvidia-smi")}
        notes.append(f"read from nvidia-smi: {memory} MiB of memory")
    if clock.isdigit() and int(clock) * 1e6 < profile.compute.clock:
        definition["compute"] = {**definition["compute"], "clock": _read(f"{clock} MHz", "nvidia-smi clocks.max.sm")}
        notes.append(f"read from nvidia-smi: the highest clock is {clock} MHz, below the profile's")
    if len(lines) > 1:
        notes.append(f"{len(lines)} GPUs are there; the first one is described")
    return Detection(definition, tuple(notes))


def _read(value: object, where: str) -> Definition:
    """A leaf that the system states."""
    return {"value": value, "source": f"read: {where}", "accuracy": "vendor_doc"}


def _assumed(value: object, why: str) -> Definition:
    """A leaf that nobody states."""
    return {"value": value, "source": f"assumed: {why}", "accuracy": "estimate"}


def _measured(value: object, how: str) -> Definition:
    """A leaf that was measured on this machine."""
    return {"value": value, "source": f"measured: {how}", "accuracy": "microbenchmark"}


# Results per clock and core: (needed CPU flags, f32 FMA lanes, name). Two FMA pipes are assumed on vector units.
_VECTOR_UNITS: tuple[tuple[frozenset[str], int, str], ...] = (
    (frozenset({"avx512f"}), 32, "two 512-bit FMA pipes"),
    (frozenset({"avx2", "fma"}), 16, "two 256-bit FMA pipes"),
    (frozenset({"asimd"}), 8, "two 128-bit FMA pipes"),
    (frozenset(), 4, "one 128-bit pipe"),
)


def cpu_definition(facts: CpuFacts, measure: Callable[[int, int], tuple[float, float]]) -> Detection:
    """The CPU profile: caches and clock as the system states them, bandwidths measured, the rest assumed."""
    lanes, unit = next((lanes, unit) for flags, lanes, unit in _VECTOR_UNITS if flags <= facts.flags)
    array = min(max(4 * facts.last_level, 64 << 20), max(facts.memory // 16, 1 << 20))
    median, best = measure(array, facts.cores)
    _, cached = measure(max(facts.last_level // 4, 1 << 16), facts.cores)
    definition: Definition = {
        "format": "fusesolve-hardware/1",
        "name": "local-cpu",
        "vendor": facts.vendor,
        "kind": "cpu",
        "description": f"{facts.model}, {facts.cores} cores, as detected",
        "compute": _cpu_compute(facts, lanes, unit),
        "memory": {
            "l1": {
                "size": _read(f"{facts.l1_data} B", facts.cache_source),
                "latency": _assumed(f"{5e9 / facts.clock:.3g} ns", "5 cycles"),
            },
            "l2": {
                "size": _read(f"{facts.last_level} B", f"{facts.cache_source}, last level"),
                "knee": _assumed("75 %", "code and other data share the cache"),
                "bandwidth": _measured(f"{cached:.4g} B/s", "best of several copies within the last-level cache"),
                "latency": _assumed(f"{50e9 / facts.clock:.3g} ns", "50 cycles"),
            },
            "dram": {
                "size": _read(f"{facts.memory} B", "/proc/meminfo, and the control group's limit"),
                "bandwidth": _measured(f"{best:.4g} B/s", f"best copy of {array >> 20} MiB arrays on all cores"),
                "sustained": _measured(f"{min(median, best):.4g} B/s", f"median copy of {array >> 20} MiB arrays"),
                "latency": _assumed("90 ns", "typical DDR4 and DDR5"),
            },
        },
        "code": {
            "l0": _assumed("4 KiB", "decoded-instruction cache"),
            "l1": _read(f"{facts.l1_code} B", facts.cache_source),
            "bytes_per_instruction": _assumed("5 B", "vector instructions of 4 to 7 bytes"),
        },
        "launch": {"dispatch": _assumed("5 us", "starting and joining a parallel loop")},
        "calibration": {"uncalibrated": True},
    }
    notes = (
        f"CPU '{facts.model}': read from the system: {facts.cores} cores, caches, memory; clock: {facts.clock_source}",
        f"measured: copies at {best / 1e9:.3g} GB/s (median {median / 1e9:.3g}), in cache at {cached / 1e9:.3g} GB/s",
        f"assumed: {unit}, latencies, a dispatch of 5 us",
    )
    return Detection(definition, notes)


def _cpu_compute(facts: CpuFacts, lanes: int, unit: str) -> Definition:
    """Cores, clock and vector pipes of a CPU."""
    exact = "assumed" if facts.clock_source.startswith("assumed") else "read"
    source = f"{exact}: {facts.clock_source.removeprefix('assumed ')}"
    return {
        "units": _read(facts.cores, "cores that this process may use"),
        "clock": {"value": f"{facts.clock / 1e9:.4g} GHz", "source": source, "accuracy": "estimate"},
        "pipes": {
            "fma": {"per_clock": {"f32": _assumed(lanes, unit), "f64": _assumed(lanes / 2, unit)}},
            "alu": {
                "per_clock": {"f32": _assumed(lanes, "as the FMA pipes"), "i32": _assumed(lanes, "as the FMA pipes")}
            },
            "sfu": {"per_clock": {"f32": _assumed(lanes / 16, "polynomials of about 16 vector instructions")}},
        },
    }
