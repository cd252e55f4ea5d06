"""Solver benchmark: repeated layers of a language model and a residual CNN, with and without recomputation.

Run `python benchmarks/bench_solver.py [--layers 1,4,12,80] [--repeat 3]`. Prints one line per problem: columns, rows
and pivots of the relaxation, columns left for the search, medians of the stages' seconds, gap; then the growth. Lines
marked "noisy" scale each cost by a factor of 0.7 to 1.3 drawn from its content, which takes all regularity away.
"""

import argparse
import statistics
import time

from solver_instances import add_noise, make_gpt, make_resnet

from fusesolve.solve import Limits, PartitionProblem, SolveResult, check_solution, solve

STAGES = ("prepare", "greedy", "relax", "search", "ties")
HEADER = (
    f"{'problem':<24}{'ops':>6}{'columns':>9}{'rows':>7}{'pivots':>8}{'kept':>7}"
    + "".join(f"{stage + ' s':>11}" for stage in STAGES)
    + f"{'total s':>10}{'gap %':>8}{'greedy/opt':>12}"
)


def measure(name: str, problem: PartitionProblem, repeat: int, time_s: float) -> float:
    """Solve `repeat` times, print the medians, return the median of the total seconds."""
    results = [solve(problem, limits=Limits(time_s=time_s)) for _ in range(repeat)]
    for result in results:
        assert check_solution(problem, result) == [], name
        assert result.selected == results[0].selected, f"{name}: two runs differ"
    greedy = solve(problem, strategy="greedy")
    print(format_line(name, problem, results, greedy), flush=True)
    return statistics.median(result.seconds["total"] for result in results)


def format_line(name: str, problem: PartitionProblem, results: list[SolveResult], greedy: SolveResult) -> str:
    """One line of the table."""
    last = results[-1]
    stages = [statistics.median(result.seconds.get(stage, 0.0) for result in results) for stage in STAGES]
    total = statistics.median(result.seconds["total"] for result in results)
    kept = last.stats.get("kept", last.stats.get("tied", 0))
    gap = "-" if last.gap is None else f"{100 * last.gap:.3f}"
    ratio = "-" if not greedy.objective or not last.objective else f"{greedy.objective / last.objective:.3f}"
    return (
        f"{name:<24}{problem.n_ops:>6}{len(problem.columns):>9}{last.stats.get('rows', 0):>7}"
        f"{last.stats.get('pivots', 0):>8}{kept:>7}"
        + "".join(f"{seconds:>11.3f}" for seconds in stages)
        + f"{total:>10.3f}{gap:>8}{ratio:>12}  {last.status}"
    )


def main() -> None:
    """Parse the options, run all problems, print the growth with the number of layers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", default="1,2,4,8,12")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--time-limit", type=float, default=60.0)
    options = parser.parse_args()
    layers = [int(item) for item in options.layers.split(",")]
    started = time.perf_counter()
    print(HEADER)
    totals: dict[tuple[bool, int], float] = {}
    for recompute in (False, True):
        suffix = " recompute" if recompute else ""
        measure(f"resnet{suffix}", make_resnet(recompute=recompute), options.repeat, options.time_limit)
        for count in layers:
            problem = make_gpt(count, recompute=recompute)
            totals[recompute, count] = measure(f"gpt x{count}{suffix}", problem, options.repeat, options.time_limit)
        noisy = add_noise(make_gpt(layers[-1], recompute=recompute), 0.3)
        measure(f"gpt x{layers[-1]} noisy{suffix}", noisy, options.repeat, options.time_limit)
    for recompute in (False, True):
        base = totals[recompute, layers[0]]
        growth = ", ".join(f"x{count}: {totals[recompute, count] / base:.1f}" for count in layers)
        print(f"time over that of {layers[0]} layer(s), recompute {recompute}: {growth}")
    print(f"all: {time.perf_counter() - started:.1f} s")


if __name__ == "__main__":
    main()
