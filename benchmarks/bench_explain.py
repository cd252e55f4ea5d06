"""Counterfactuals benchmark: every pair of adjacent operators that a plan leaves apart, forced together, solved again.

Run `python benchmarks/bench_explain.py [--hw h100,a100,mobile-npu] [GRAPH ...]`; without graphs all bundled ones. A
graph is enumerated and solved once on each profile; then each pair is explained. Prints, for each, the pairs, seconds
of the first solve, and mean and worst seconds of a pair, by the clock and by the processor, with the dearest pair and
the resources that make it so; at last the median and the worst processor seconds of all pairs.
"""

import argparse
import statistics
import time

from fusesolve.bundled import bundled_dir
from fusesolve.explanation import Explanation, explain_pair
from fusesolve.pipeline import Planning, PlanOptions, begin

GRAPHS = tuple(sorted(path.stem for path in bundled_dir("graphs").glob("*.yaml")))
PROFILES = "h100,a100,mobile-npu"


def pairs_apart(planning: Planning) -> list[tuple[str, str]]:
    """Source operators, one reading the other, no kernel of the plan holding parts of both."""
    columns, result = planning.best
    program = planning.priced.space.program
    source = [program.graph.nodes[op.node].source for op in program.operators]
    held = [{source[m] for m in columns.kernels[i].members} for i in result.selected]
    edges = {(source[a], source[b]) for b in range(len(source)) for a in program.preds[b] if source[a] != source[b]}
    return sorted(edge for edge in edges if not any(edge[0] in names and edge[1] in names for names in held))


def describe(found: Explanation) -> str:
    """The cost of the dearest pair and what makes it so."""
    if found.together_ns is None:
        return f"{' + '.join(found.between or ())}: refused, {found.rule}"
    why = [item["message"] for item in found.because if item["term"] == "resources"]
    return f"{' + '.join(found.between or ())}: {(found.delta_ns or 0) / 1e3:+.2f} us; {why[0] if why else ''}"


def measure(graph: str, hardware: str) -> list[tuple[float, str]]:
    """Explain all pairs of a graph and print one line; returns processor seconds and names of each pair."""
    planning = begin(graph, hardware, PlanOptions(), time_limit=None)
    started = time.perf_counter()
    pairs = pairs_apart(planning)
    first = time.perf_counter() - started
    clock, processor, found = [], [], []
    for pair in pairs:
        started, used = time.perf_counter(), time.process_time()
        found.append(explain_pair(planning, pair))
        clock.append(time.perf_counter() - started)
        processor.append(time.process_time() - used)
    if not pairs:
        print(f"{graph:<30}{hardware:<12}{0:>6}{first:>9.2f}", flush=True)
        return []
    dearest = max(found, key=lambda item: item.delta_ns or 0)
    print(
        f"{graph:<30}{hardware:<12}{len(pairs):>6}{first:>9.2f}{statistics.mean(clock):>9.3f}{max(clock):>9.3f}"
        f"{statistics.mean(processor):>9.3f}{max(processor):>9.3f}  {describe(dearest)}",
        flush=True,
    )
    return [(used, f"{graph} {hardware}: {' + '.join(pair)}") for used, pair in zip(processor, pairs, strict=True)]


def main() -> None:
    """Parse the options and measure each graph."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("graphs", nargs="*", default=GRAPHS)
    parser.add_argument("--hw", default=PROFILES, help="profiles, with commas between them")
    options = parser.parse_args()
    heads = "".join(f"{head:>9}" for head in ("first s", "mean s", "worst s", "mean cpu", "worst"))
    print(f"{'graph':<30}{'profile':<12}{'pairs':>6}{heads}  dearest pair")
    found: list[tuple[float, str]] = []
    for graph in options.graphs:
        for hardware in options.hw.split(","):
            found += measure(graph, hardware)
    if found:
        median, (worst, where) = statistics.median(used for used, _ in found), max(found)
        print(f"{len(found)} pairs: median {median:.3f}, worst {worst:.3f} processor seconds ({where})")


if __name__ == "__main__":
    main()
