"""A group of a plan as a plan of its own: the graph of its operators alone, whose extents nothing else ties."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fusesolve.codegen.planned import PlannedKernel, PlannedProgram
from fusesolve.graph import Graph


def plan_apart(document: Mapping[str, Any], planned: PlannedProgram, kernel: PlannedKernel) -> dict[str, Any]:
    """The plan document of one group over its own graph, where it has the number 0."""
    (group,) = (item for item in document["groups"] if item["id"] == kernel.id)

    def names(members: Sequence[int]) -> list[str]:
        return [planned.graph.nodes[planned.program.operators[member].node].name for member in members]

    own = {"id": 0, "nodes": names(kernel.members), "parts": [names(part.members) for part in kernel.parts]}
    return {**document, "groups": [{**group, **own}]}


def graph_apart(planned: PlannedProgram, kernel: PlannedKernel) -> Graph | None:
    """The operators of a kernel with the views between them, each its own source; what others make is an input.

    None where the kernel writes in place: what it writes to is more than its own.
    """
    graph, program = planned.graph, planned.program
    if any(program.operators[member].in_place for member in kernel.members):
        return None
    inside = {program.operators[member].node for member in kernel.members}
    others = {operator.node for operator in program.operators} - inside
    outputs = tuple(program.storage[written].value for written in kernel.writes)
    nodes: set[int] = set()
    given: dict[str, None] = {}
    left = list(outputs)
    while left:
        name = left.pop()
        producer = graph.producer.get(name)
        if producer is None or producer in others:
            given[name] = None
        elif producer not in nodes:
            nodes.add(producer)
            left += graph.nodes[producer].reads
    ordered = tuple(replace(node, source=node.name) for node in (graph.nodes[number] for number in sorted(nodes)))
    weights = tuple(name for name in given if name in set(graph.weights))
    inputs = tuple(name for name in given if name not in weights)
    names = (*given, *(name for node in ordered for name in node.outputs))
    values = {name: replace(graph.values[name], alias_out=None, external=False) for name in names}
    return Graph(name=graph.name, inputs=inputs, weights=weights, outputs=outputs, nodes=ordered, values=values)


def pattern_of(graph: Graph) -> str:
    """What a graph computes, whatever its values are called: equal for graphs that differ in names alone."""
    number: dict[str, int] = {}

    def known(name: str) -> tuple[int, str]:
        return number.setdefault(name, len(number)), str(graph.type_of(name))

    given = [known(name) for name in (*graph.inputs, *graph.weights)]
    nodes = [
        (
            node.op, [known(item) if isinstance(item, str) else item for item in node.inputs], node.attrs,
            [known(name) for name in node.outputs],
        )
        for node in graph.nodes
    ]  # fmt: skip
    return repr((given, nodes, [known(name) for name in graph.outputs]))
