"""Concats of more operands than the arguments of one kernel can name, done in steps that fit."""

from collections.abc import Sequence
from itertools import accumulate

from fusesolve.builder import GraphBuilder
from fusesolve.cost.gpu.terms import ARGUMENT_BYTES, FIXED_ARGUMENT_BYTES
from fusesolve.graph import Graph, Node, Operand
from fusesolve.hardware import HardwareProfile

STEP_OPERANDS = 64  # of a step at most: each element tests every boundary, which soon takes longer than one more pass


def most_operands(profile: HardwareProfile) -> int | None:
    """Operands that a kernel with one result can name on the profile; None where no limit is known."""
    if profile.kind != "gpu" or profile.limits is None:
        return None
    return max(2, (profile.limits.argument_bytes - FIXED_ARGUMENT_BYTES) // ARGUMENT_BYTES - 1)


def fit_arguments(graph: Graph, profile: HardwareProfile) -> tuple[Graph, tuple[str, ...]]:
    """The graph with its wide concats in steps, and a warning for each.

    A step joins the neighbours that are fewest bytes together, STEP_OPERANDS or as many as are too many; its result
    stands in their place. So what is moved twice is little, and the last step writes the result as before.
    """
    most = most_operands(profile)
    wide = () if most is None else [n for n in graph.nodes if n.op == "concat" and len(set(n.reads)) > most]
    if most is None or not wide:
        return graph, ()
    builder = GraphBuilder(graph.name)
    builder.inputs_of(graph, graph.type_of)
    width = min(most, STEP_OPERANDS)
    warnings = []
    for node in graph.nodes:
        operands = _join(builder, node, width) if node in wide else list(node.inputs)
        types = [graph.type_of(name) for name in node.outputs]
        builder.add(node.op, operands, dict(node.attrs), outputs=node.outputs, source=node.source, types=types)
        for name in node.outputs:
            builder.mark(name, external=graph.values[name].external, strides=graph.values[name].strides)
        if node in wide:
            warnings.append(
                f"{node.source}: {len(node.inputs)} operands are joined in steps of at most {width}, "
                f"as a kernel can name {most} of them on {profile.name}"
            )
    for name in graph.outputs:
        builder.output(name)
    return builder.build(), tuple(warnings)


def _join(builder: GraphBuilder, node: Node, most: int) -> list[Operand]:
    """Add all steps of a concat but the last; returns the operands of that, at most `most`."""
    left: list[Operand] = list(node.inputs)
    number = 0
    while len(left) > most:
        count = min(most, len(left) - most + 1)
        first = _lightest([builder.type(name).nbytes for name in left], count)
        while (name := f"{node.outputs[0]}/step{number}") in builder:
            number += 1
        builder.add("concat", left[first : first + count], dict(node.attrs), outputs=(name,), source=node.source)
        left[first : first + count] = [name]
    return left


def _lightest(weights: Sequence[int], count: int) -> int:
    """Where the `count` neighbours begin that weigh least together, the first of several."""
    sums = list(accumulate(weights, initial=0))
    return min(range(len(weights) - count + 1), key=lambda first: sums[first + count] - sums[first])
