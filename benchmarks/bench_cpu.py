"""Predicted against measured kernels on this CPU: bandwidth reached, winners, rank correlation, error.

Calibrates this machine, then runs memory-bound groups of many sizes as CPU kernels, fused and operator by operator:

    python benchmarks/bench_cpu.py [--json FILE] [--hw PROFILE]

`--hw` takes a profile that `fusesolve calibrate --device cpu` wrote instead of measuring again. Medians of nine
repeats; anything else that runs on the machine shows in them.
"""

import argparse
import json
import platform
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fusesolve.candidates.loops import build_nest
from fusesolve.candidates.pricing import price_workloads
from fusesolve.candidates.space import inspect_group
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


def rows(profile: HardwareProfile) -> Iterator[dict[str, object]]:
    """One row a family and size."""
    for family, (inputs, ops) in FAMILIES.items():
        for r, c in SIZES:
            planned, _ = one_kernel(graph_of([item.format(r=r, c=c) for item in inputs], ops))
            kernel, storage = planned.kernels[0], planned.program.storage
            moved = sum(storage[s].type.size * 4 for s in (*kernel.reads, *kernel.writes))
            found = measure_groups(planned)[0]
            parts = split_group(planned, kernel, 1)
            yield {
                "family": family, "rows": r, "cols": c, "bytes": moved,
                "predicted_us": 1e6 * predicted(planned, (kernel,), profile), "measured_us": 1e6 * found.fused.median,
                "p20_us": 1e6 * found.fused.p20, "p80_us": 1e6 * found.fused.p80,
                "apart_predicted_us": 1e6 * predicted(planned, parts, profile),
                "apart_us": 1e6 * (found.unfused or 0.0), "operators": len(parts),
            }  # fmt: skip


def streaming() -> float:
    """Bytes/s of copying 256 MiB with a parallel loop, read plus written, best of nine: STREAM's copy."""
    planned, _ = one_kernel(graph_of([f"x: f32[{1 << 25}]"], ["y = copy(x)"]))
    return 2 * 4 * (1 << 25) / measure_groups(planned)[0].fused.best


def main() -> None:
    """Run and print."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--json", type=Path)
    options.add_argument("--hw")
    chosen = options.parse_args()
    definition = None if chosen.hw else calibrate_cpu(print)
    profile = load_profile(chosen.hw) if chosen.hw else profile_from_definition(definition, "this CPU")
    stream = streaming()
    print(f"streaming copy: {stream / 1e9:.3g} GB/s\n")
    print(f"{'family':14s} {'size':>11s} {'predicted':>10s} {'measured':>10s} {'error':>6s} {'GB/s':>6s} {'gain':>11s}")
    found = []
    for row in rows(profile):
        found.append(row)
        gains = row["apart_predicted_us"] / row["predicted_us"], row["apart_us"] / row["measured_us"]
        guess, real = row["predicted_us"], row["measured_us"]
        print(
            f"{row['family']:14s} {row['rows']:>6d}x{row['cols']:<5d} {guess:10.1f} {real:10.1f}"
            f" {100 * (guess / real - 1):+5.0f}% {row['bytes'] / real / 1e3:6.2f} {gains[0]:5.2f} {gains[1]:5.2f}"
        )
    errors = measure_errors(*np.array([(row["predicted_us"], row["measured_us"]) for row in found]).T)
    correlation, error = errors.spearman, errors.median_ape
    fused = [row for row in found if row["operators"] > 1]
    right = [
        (row["apart_predicted_us"] >= row["predicted_us"]) == (row["apart_us"] >= row["measured_us"]) for row in fused
    ]
    large = [row["bytes"] / row["measured_us"] * 1e6 / stream for row in found if row["bytes"] >= LARGE]
    print(f"\n{len(found)} kernels: rank correlation {correlation:.3f}, median error {100 * error:.1f} %")
    print(f"winner between fused and apart right on {sum(right)} of {len(right)}")
    print(
        f"{len(large)} kernels of 64 MiB or more: {100 * min(large):.0f} to {100 * max(large):.0f} % of the streaming "
        f"bandwidth, median {100 * float(np.median(large)):.0f} %"
    )
    if chosen.json is not None:
        document = {
            "cpu": platform.processor(), "streaming_bytes_per_s": stream, "spearman": correlation, "median_ape": error,
            "winners_right": sum(right), "winners": len(right), "rows": found, "profile": profile.definition,
        }  # fmt: skip
        chosen.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
