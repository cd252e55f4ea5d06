"""Liger-Kernel's benchmarks: unfused PyTorch code against one Triton kernel.

Source: linkedin/Liger-Kernel, benchmark/data; times are medians of triton's do_bench: events around a call on a busy
stream, the L2 cache flushed before. So every kernel pays the launch of a stream, and the first finds the cache empty.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np

from fusesolve.graph import DType
from fusesolve.hardware_yaml import load_profile
from fusesolve.study.devices import profile_name
from fusesolve.study.gains.aten import Traced
from fusesolve.study.gains.cases import Case, measure_gain
from fusesolve.study.gains.execution import Executed, Program, execute
from fusesolve.study.gains.liger_programs import PROGRAMS, Code
from fusesolve.study.gains.outcome import Outcome, Request, Row, Times
from fusesolve.study.readers import DTYPES
from fusesolve.study.samples import Skipped, Timing

Key: TypeAlias = tuple[str, str, str]  # kernel, type, configuration

COLUMNS = frozenset({"gpu", "kernel", "provider", "pass", "dtype", "config", "latency_us"})
MICROSECOND = 1e-6
PREDICTED = ("forward",)  # passes whose kernels are known
EVENTS = 3.5e-6  # seconds between two events with nothing between them on a busy stream
UNFUSED = frozenset({"huggingface", "torch", "megatron-unfused"})
FUSED = ("liger", "liger_fused_add_rms_norm")  # in this order where a row has both
UNKNOWN = "the kernels of its two sides are not known"
WHY = {
    "cross_entropy": "the fused kernel writes the gradient over its input, and its number of passes is not known",
    "fused_linear_cross_entropy": "the fused side cuts its matrix product into chunks to save memory",
    "embedding": "both sides are one gather kernel",
    "megatron_rms_norm": "both sides are one kernel",
}


def read(request: Request, rows: Sequence[Row]) -> Outcome:
    """Gains of the forward passes whose kernels are known, by device; the other rows are listed with why."""
    outcome = Outcome()
    programs: dict[Key, Program] = {}
    for device, counted in outcome.counted(rows, lambda row: _unknown(row, request.hardware)).items():
        items: dict[Key, dict[str, float]] = defaultdict(dict)
        for row in counted:
            key = (row["kernel"], row["dtype"], row["config"])
            items[key][row["provider"]] = float(row["latency_us"]) * MICROSECOND
        name = request.hardware or profile_name(device) or device
        profile = load_profile(name)
        for key in items:
            if key not in programs:
                programs[key] = Program(_program(key), profile)
        executed = execute([programs[key] for key in items], profile)
        cases = {
            key: case
            for key, found in zip(items, executed, strict=True)
            if (case := _case(key, items[key], found, profile.launch.stream or 0.0)) is not None
        }
        lacking = sum(len(items[key]) for key in items if key not in cases)
        outcome.skipped.extend([Skipped(device, "one of the two sides is missing")] * lacking)
        _report(request.file, device, name, cases, outcome)
    return outcome


def _unknown(row: Row, hardware: str | None) -> str | None:
    if row["kernel"] not in PROGRAMS:
        return f"{row['kernel']}: {WHY.get(row['kernel'], UNKNOWN)}"
    if row["pass"] not in PREDICTED:
        return "backward passes are not predicted"
    if hardware is None and profile_name(row["gpu"]) is None:
        return f"no bundled profile stands for the device '{row['gpu']}'"
    if row["provider"] not in UNFUSED and row["provider"] not in FUSED:
        return f"{row['kernel']}: a third variant, {row['provider']}"
    return None


def _program(key: Key) -> Traced:
    kernel, dtype, text = key
    build, usual = PROGRAMS[kernel]
    return build(Code(kernel, parse_config(text), DType(DTYPES[dtype]) if dtype else usual))


def parse_config(text: str) -> dict[str, str]:
    """`{B:8,T:2048}` as a mapping of texts."""
    return dict(item.split(":", 1) for item in text.strip("{}").split(",") if item)


def _case(key: Key, times: Mapping[str, float], found: Executed, launch: float) -> Case | None:
    unfused = next((times[name] for name in sorted(UNFUSED) if name in times), None)
    fused = next((times[name] for name in reversed(FUSED) if name in times), None)
    if unfused is None or fused is None:
        return None

    def total(kernels: np.ndarray) -> float:
        return EVENTS + float(np.sum(kernels + launch))

    return Case(
        label=f"{key[0]} {key[1]} {key[2]}", unfused=unfused, fused=fused, predicted_unfused=total(found.eager),
        predicted_fused=total(found.compiled), planned=total(found.planned),
    )  # fmt: skip


def _report(file: str, device: str, name: str, cases: Mapping[Key, Case], outcome: Outcome) -> None:
    if not cases:
        return
    everything = list(cases.values())
    outcome.gains.append(measure_gain(everything, file=file, device=device, host=None, profile=name, split="forward"))
    for kernel in dict.fromkeys(key[0] for key in cases):
        mine = [case for key, case in cases.items() if key[0] == kernel]
        for side, measured, predicted in (
            ("unfused", [c.unfused for c in mine], [c.predicted_unfused for c in mine]),
            ("fused", [c.fused for c in mine], [c.predicted_fused for c in mine]),
        ):
            outcome.times.append(
                Times(
                    device=device, profile=name, op=f"{kernel} {side}", timing=Timing.QUEUED.value,
                    labels=tuple(case.label for case in mine), measured=tuple(measured), predicted=tuple(predicted),
                )
            )  # fmt: skip
