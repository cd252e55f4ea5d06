"""Predicted against measured kernels on this CPU: bandwidth reached, winners, rank correlation, error.

Calibrates this machine, then runs memory-bound groups of many sizes as CPU kernels; those of 64 MiB of traffic or more
operator by operator too:

    python benchmarks/bench_cpu.py [--json FILE] [--hw PROFILE]

`--hw` takes a profile that `fusesolve calibrate --device cpu` wrote instead of measuring again. Medians of nine
repeats or more; anything else that runs on the machine shows in them, and the last line says how much that was. A
streaming copy is timed right before and after each large kernel: b[i] = a[i] in a parallel loop, bytes read plus bytes
written (STREAM's copy). Its stores go through the caches; what a copy around them reaches is printed beside it.
"""

import argparse
import json
import os
import platform
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numba import njit, prange

from fusesolve.candidates.loops import build_nest
from fusesolve.candidates.pricing import price_workloads
from fusesolve.candidates.space import inspect_group
from fusesolve.codegen.cpu.runtime import aligned, timed
from fusesolve.codegen.cpu.threads import pinned
from fusesolve.codegen.planned import PlannedKernel, PlannedProgram
from fusesolve.cost.table import PriceOptions
from fusesolve.graph import Graph
from fusesolve.hardware import HardwareProfile
from fusesolve.hardware_yaml import load_profile, profile_from_definition
from fusesolve.importers.native import parse_native
from fusesolve.metrics import measure_errors
from fusesolve.study.machine import calibrate_cpu
from fusesolve.validate.cpu import measure_groups
from fusesolve.validate.parts import one_kernel, split_group

LARGE = 64 << 20  # bytes of traffic from which the bandwidth is judged
STREAM = 1 << 24  # numbers of the streaming copy: 64 MiB to 64 MiB

# Family -> inputs and operators over {r} rows of {c} f32 numbers.
FAMILIES = {
    "softmax": (["x: f32[{r},{c}]"], ["y = softmax(x; axis=1)"]),
    "layer norm": (
        ["x: f32[{r},{c}]", "g: f32[{c}]", "b: f32[{c}]"],
        ["n = layernorm(x; axis=1)", "s = mul(n, g)", "y = add(s, b)"],
    ),
    "rms norm": (["x: f32[{r},{c}]", "g: f32[{c}]"], ["n = rmsnorm(x; axis=1)", "y = mul(n, g)"]),
    "gelu mlp tail": (["x: f32[{r},{c}]", "b: f32[{c}]"], ["a = add(x, b)", "y = gelu(a)"]),
    "residual norm": (
        ["x: f32[{r},{c}]", "z: f32[{r},{c}]", "g: f32[{c}]"],
        ["a = add(x, z)", "n = rmsnorm(a; axis=1)", "y = mul(n, g)"],
    ),
    "chain of 12": (
        ["x: f32[{r},{c}]", "z: f32[{r},{c}]"],
        ["v0 = add(x, z)", "v1 = mul(v0, 0.5)", "v2 = relu(v1)", "v3 = sub(v2, z)", "v4 = square(v3)",
         "v5 = add(v4, 1.0)", "v6 = sqrt(v5)", "v7 = mul(v6, x)", "v8 = maximum(v7, z)", "v9 = neg(v8)",
         "v10 = add(v9, x)", "y = abs(v10)"],
    ),
}  # fmt: skip
SIZES = (
    (64, 256), (64, 1024), (256, 1024), (333, 777), (1024, 1024), (1024, 4096), (4096, 1024), (2048, 4096),
    (8192, 2048), (16384, 1024), (4096, 8192),
)  # fmt: skip


def graph_of(inputs: list[str], ops: list[str]) -> Graph:
    """A native graph with the result `y`."""
    lines = ["format: fusesolve-graph/1", "name: bench", "inputs:", *(f'  - "{item}"' for item in inputs), "ops:"]
    return parse_native("\n".join([*lines, *(f'  - "{item}"' for item in ops), "outputs: [y]"]), "bench", {}, False)


def predicted(planned: PlannedProgram, kernels: tuple[PlannedKernel, ...], profile: HardwareProfile) -> float:
    """Seconds of kernels one after the other."""
    program = planned.program
    groups = [
        inspect_group(program, build_nest(program, kernel.members), frozenset(kernel.writes)) for kernel in kernels
    ]
    prices = price_workloads([g.workload for g in groups], profile, PriceOptions(implementation="generated"))
    return float(prices.latency.sum())


class Streams:
    """A streaming copy between two arrays that are in place."""

    def __init__(self) -> None:
        kind = np.dtype(np.float32)
        self.arrays = aligned(STREAM, kind), aligned(STREAM, kind)
        self.copy()

    def copy(self) -> float:
        """Bytes/s of STREAM's copy, read plus written."""
        with pinned():
            return 2 * 4 * STREAM / timed(lambda: stream_copy(*self.arrays), repeats=5).median

    @staticmethod
    def around() -> float:
        """Bytes/s of the emitter's copy of the same size, whose stores go around the caches."""
        planned, _ = one_kernel(graph_of([f"x: f32[{STREAM}]"], ["y = copy(x)"]))
        return 2 * 4 * STREAM / measure_groups(planned)[0].fused.median


def rows(profile: HardwareProfile, streams: Streams) -> Iterator[dict[str, object]]:
    """One row a family and size."""
    for family, (inputs, ops) in FAMILIES.items():
        for r, c in SIZES:
            planned, _ = one_kernel(graph_of([item.format(r=r, c=c) for item in inputs], ops))
            kernel, storage = planned.kernels[0], planned.program.storage
            moved = sum(storage[s].type.size * 4 for s in (*kernel.reads, *kernel.writes))
            large = moved >= LARGE
            parts = split_group(planned, kernel, 1)
            before = streams.copy() if large else None
            found = measure_groups(planned, apart=large)[0]
            yield {
                "family": family, "rows": r, "cols": c, "bytes": moved, "operators": len(parts),
                "predicted_us": 1e6 * predicted(planned, (kernel,), profile), "measured_us": 1e6 * found.fused.median,
                "p20_us": 1e6 * found.fused.p20, "p80_us": 1e6 * found.fused.p80,
                "apart_predicted_us": 1e6 * predicted(planned, parts, profile),
                "apart_us": None if found.unfused is None else 1e6 * found.unfused,
                "stream": None if before is None else (before + streams.copy()) / 2,
            }  # fmt: skip


@njit(parallel=True)
def stream_copy(a: np.ndarray, b: np.ndarray) -> None:
    """STREAM's copy."""
    for i in prange(a.size):
        b[i] = a[i]


def others_share(before: tuple[float, float] | None = None) -> tuple[float, float]:
    """(seconds of all cores that other processes had, seconds of all cores) since the start, or since `before`."""
    ticks = [int(item) for item in Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]]
    second = os.sysconf("SC_CLK_TCK")
    own = os.times()
    found = (sum(ticks) - ticks[3] - ticks[4]) / second - own.user - own.system, sum(ticks) / second
    return found if before is None else (found[0] - before[0], found[1] - before[1])


def print_row(row: dict[str, object]) -> None:
    """One line of the table."""
    guess, real, apart = row["predicted_us"], row["measured_us"], row["apart_us"]
    gain = "" if apart is None else f"{row['apart_predicted_us'] / guess:5.2f} {apart / real:5.2f}"
    print(
        f"{row['family']:14s} {row['rows']:>6d}x{row['cols']:<5d} {guess:10.1f} {real:10.1f}"
        f" {100 * (guess / real - 1):+5.0f}% {row['bytes'] / real / 1e3:6.2f} {gain}",
        flush=True,
    )


def winners(found: list[dict[str, object]]) -> list[bool]:
    """Whether fused against apart comes out as predicted, for every kernel that was timed both ways."""
    fused = [row for row in found if row["operators"] > 1 and row["apart_us"] is not None]
    return [
        (row["apart_predicted_us"] >= row["predicted_us"]) == (row["apart_us"] >= row["measured_us"]) for row in fused
    ]


def family_line(family: str, found: list[dict[str, object]], around: float) -> str:
    """One line of the summary."""
    ratios = sorted(row["predicted_us"] / row["measured_us"] for row in found)
    large = [row for row in found if row["stream"] is not None]
    rates = [1e6 * row["bytes"] / row["measured_us"] for row in large]
    beside = sorted(rate / row["stream"] for rate, row in zip(rates, large, strict=True))
    return (
        f"{family:14s} {np.median(ratios):.2f}; {ratios[0]:.2f} to {ratios[-1]:.2f}    "
        f"{100 * np.median(beside):.0f} %; {100 * beside[0]:.0f} to {100 * beside[-1]:.0f} %    "
        f"{100 * np.median(rates) / around:.0f} %"
    )


def main() -> None:
    """Run and print."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--json", type=Path)
    options.add_argument("--hw")
    chosen = options.parse_args()
    start = others_share()
    definition = None if chosen.hw else calibrate_cpu(print)
    profile = load_profile(chosen.hw) if chosen.hw else profile_from_definition(definition, "this CPU")
    streams = Streams()
    around = streams.around()
    print(f"streaming copy: {streams.copy() / 1e9:.3g} GB/s, around the caches {around / 1e9:.3g} GB/s\n")
    print(f"{'family':14s} {'size':>11s} {'predicted':>10s} {'measured':>10s} {'error':>6s} {'GB/s':>6s} {'gain':>11s}")
    found = []
    for row in rows(profile, streams):
        found.append(row)
        print_row(row)
    errors = measure_errors(*np.array([(row["predicted_us"], row["measured_us"]) for row in found]).T)
    right = winners(found)
    print(
        f"\n{len(found)} kernels: rank correlation {errors.spearman:.3f}, median error {100 * errors.median_ape:.1f} %"
    )
    print(f"winner between fused and apart right on {sum(right)} of {len(right)}")
    print("by family: predicted over measured (median; lowest to highest); from 64 MiB on the share of the")
    print("streaming copy beside each, and of a copy around the caches:")
    for family in FAMILIES:
        print(family_line(family, [row for row in found if row["family"] == family], around))
    others, whole = others_share(start)
    print(f"other processes had {100 * others / whole:.1f} % of the processor time of this run")
    if chosen.json is not None:
        document = {
            "cpu": platform.processor(), "around_bytes_per_s": around, "spearman": errors.spearman,
            "median_ape": errors.median_ape, "others": others / whole, "winners_right": sum(right),
            "winners": len(right), "rows": found, "profile": profile.definition,
        }  # fmt: skip
        chosen.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
