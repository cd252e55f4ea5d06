"""Predicted against measured kernels on this CPU: bandwidth reached, winners, rank correlation, error.

Runs memory-bound groups of many sizes as CPU kernels, those of 64 MiB of traffic or more operator by operator too, and
calibrates this machine from probe kernels, none of which is one of the groups:

    python benchmarks/bench_cpu.py [--json FILE] [--hw PROFILE]

Everything is compiled first and then timed in rounds, with one sample of each probe, kernel and operator in a round: a
machine that is slower for a while is slower for all of them. Times are medians over the rounds, constants are fitted to
them, and the last line says how much else ran. `--hw` takes a profile that `fusesolve calibrate --device cpu` wrote in
place of the run's own. A streaming copy is timed in the rounds too: b[i] = a[i] in a parallel loop, bytes read plus
bytes written (STREAM's copy). Its stores go through the caches; a copy around them is printed beside it.
"""

import argparse
import json
import os
import platform
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
from numba import njit, prange

from fusesolve.candidates.loops import build_nest
from fusesolve.candidates.pricing import price_workloads
from fusesolve.candidates.space import inspect_group
from fusesolve.codegen.cpu.runtime import Timing
from fusesolve.codegen.planned import PlannedKernel, PlannedProgram
from fusesolve.cost.table import PriceOptions
from fusesolve.graph import Graph
from fusesolve.hardware import HardwareProfile
from fusesolve.hardware_yaml import load_profile, profile_from_definition
from fusesolve.importers.native import parse_native
from fusesolve.metrics import measure_errors
from fusesolve.study.machine import calibrate_beside
from fusesolve.validate.cpu import Arrays, BoundGroup, bind_group
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A group of the benchmark in place."""

    family: str
    rows: int
    cols: int
    planned: PlannedProgram
    bound: BoundGroup

    def row(self, profile: HardwareProfile, times: Sequence[Timing], stream: float) -> dict[str, object]:
        """The row of the table; `stream`: bytes/s of the streaming copy."""
        kernel, size = self.planned.kernels[0], moved(self.planned)
        found, parts = self.bound.measured(times), split_group(self.planned, kernel, 1)
        return {
            "family": self.family, "rows": self.rows, "cols": self.cols, "bytes": size, "operators": len(parts),
            "predicted_us": 1e6 * predicted(self.planned, (kernel,), profile),
            "measured_us": 1e6 * found.fused.median, "p20_us": 1e6 * found.fused.p20, "p80_us": 1e6 * found.fused.p80,
            "samples_us": list(map(microseconds, found.fused.samples)),
            "apart_predicted_us": 1e6 * predicted(self.planned, parts, profile),
            "apart_us": None if found.unfused is None else 1e6 * found.unfused,
            "stream": stream if size >= LARGE else None,
        }  # fmt: skip


def cases(arrays: Arrays) -> Iterator[Case]:
    """One case a family and size."""
    for family, (inputs, ops) in FAMILIES.items():
        for r, c in SIZES:
            planned, _ = one_kernel(graph_of([item.format(r=r, c=c) for item in inputs], ops))
            bound = bind_group(planned, planned.kernels[0], arrays, apart=moved(planned) >= LARGE)
            yield Case(family=family, rows=r, cols=c, planned=planned, bound=bound)


def moved(planned: PlannedProgram) -> int:
    """Bytes that a plan's first kernel reads and writes."""
    kernel, storage = planned.kernels[0], planned.program.storage
    return sum(storage[s].type.size * 4 for s in (*kernel.reads, *kernel.writes))


def stream_calls(arrays: Arrays) -> list[Callable[[], object]]:
    """STREAM's copy of `STREAM` numbers, and the emitter's, whose stores go around the caches."""
    planned, _ = one_kernel(graph_of([f"x: f32[{STREAM}]"], ["y = copy(x)"]))
    kernel = planned.kernels[0]
    held = arrays.of(planned, [kernel])
    bound = bind_group(planned, kernel, arrays, apart=False)
    return [partial(stream_copy, held[kernel.reads[0]], held[kernel.writes[0]]), bound.calls[0]]


@njit(parallel=True)
def stream_copy(a: np.ndarray, b: np.ndarray) -> None:
    """STREAM's copy."""
    for i in prange(a.size):
        b[i] = a[i]


def microseconds(seconds: float) -> float:
    """To the nanosecond."""
    return round(1e6 * seconds, 3)


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
    arrays = Arrays()
    kernels, streams = list(cases(arrays)), stream_calls(arrays)
    calls = [*streams, *(call for case in kernels for call in case.bound.calls)]
    found = calibrate_beside(calls, arrays, print)
    profile = load_profile(chosen.hw) if chosen.hw else profile_from_definition(found.definition, "this CPU")
    stream, around = (2 * 4 * STREAM / item.median for item in found.beside[:2])
    print(f"streaming copy: {stream / 1e9:.3g} GB/s, around the caches {around / 1e9:.3g} GB/s\n")
    print(f"{'family':14s} {'size':>11s} {'predicted':>10s} {'measured':>10s} {'error':>6s} {'GB/s':>6s} {'gain':>11s}")
    table, left = [], iter(found.beside[2:])
    for case in kernels:
        row = case.row(profile, list(islice(left, len(case.bound.calls))), stream)
        table.append(row)
        print_row(row)
    errors = measure_errors(*np.array([(row["predicted_us"], row["measured_us"]) for row in table]).T)
    right = winners(table)
    print(
        f"\n{len(table)} kernels: rank correlation {errors.spearman:.3f}, median error {100 * errors.median_ape:.1f} %"
    )
    print(f"winner between fused and apart right on {sum(right)} of {len(right)}")
    print("by family: predicted over measured (median; lowest to highest); from 64 MiB on the share of the")
    print("streaming copy, and of a copy around the caches:")
    for family in FAMILIES:
        print(family_line(family, [row for row in table if row["family"] == family], around))
    others, whole = others_share(start)
    print(f"other processes had {100 * others / whole:.1f} % of the processor time of this run")
    if chosen.json is not None:
        document = {
            "cpu": platform.processor(), "around_bytes_per_s": around, "spearman": errors.spearman,
            "median_ape": errors.median_ape, "others": others / whole, "winners_right": sum(right),
            "probes_us": {name: list(map(microseconds, item.timing.samples)) for name, item in found.probes.items()},
            "winners": len(right), "rows": table, "profile": profile.definition,
        }  # fmt: skip
        chosen.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
