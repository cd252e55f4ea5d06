"""Counterfactuals benchmark: every pair of adjacent operators that a plan leaves apart, forced together, solved again.

Run `python benchmarks/bench_explain.py [--hw h100] [GRAPH ...]`. The graph is enumerated and solved once; then each
pair is explained. Prints, for each graph, the pairs, seconds of the first solve, and mean and worst seconds of a pair,
by the clock and by the processor, with the dearest pair and the resources that make it so.
"""

import argparse
import statistics
import time

from fusesolve.explanation import Explanation, explain_pair
from fusesolve.pipeline import Planning, PlanOptions, begin

BLOCKS = (
    "gpt2_block", "bert_layer", "llama_block_prefill", "llama_block_decode", "resnet50_bottleneck",
    "inception_branches", "mobilenet_inverted_residual", "unet_up_block", "moe_router", "gelu_mlp",
)  # fmt: skip


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


def measure(graph: str, hardware: str) -> None:
    """Explain all pairs of a graph and print one line."""
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
        print(f"{graph:<30}{0:>6}{first:>9.2f}", flush=True)
        return
    dearest = max(found, key=lambda item: item.delta_ns or 0)
    print(
        f"{graph:<30}{len(pairs):>6}{first:>9.2f}{statistics.mean(clock):>9.3f}{max(clock):>9.3f}"
        f"{statistics.mean(processor):>9.3f}{max(processor):>9.3f}  {describe(dearest)}",
        flush=True,
    )


def main() -> None:
    """Parse the options and measure each graph."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("graphs", nargs="*", default=BLOCKS)
    parser.add_argument("--hw", default="h100")
    options = parser.parse_args()
    heads = "".join(f"{head:>9}" for head in ("first s", "mean s", "worst s", "mean cpu", "worst"))
    print(f"{'graph':<30}{'pairs':>6}{heads}  dearest pair")
    for graph in options.graphs:
        measure(graph, options.hw)


if __name__ == "__main__":
    main()
