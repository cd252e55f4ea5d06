"""Graphs as a person reads them: the list of the bundled ones, and one graph node by node."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from fusesolve.graph import Graph, Literal, Node
from fusesolve.report.text import Column, render_facts, render_table, short_names
from fusesolve.units import format_bytes

LIST_COLUMNS = (
    Column(head="graph"),
    Column(head="operators", right=True),
    Column(head="primitives", right=True),
    Column(head="inputs", flexible=True),
)
NODE_COLUMNS = (
    Column(head="#", right=True),
    Column(head="result", flexible=True),
    Column(head="type"),
    Column(head="primitive"),
    Column(head="reads", flexible=True),
    Column(head="operator", flexible=True),
)
NAME_ROOM = 40


def graph_rows(graphs: Mapping[str, Graph]) -> list[dict[str, Any]]:
    """The list of graphs as plain data: name, operators of the source, primitives, input types as text."""
    return [
        {
            "name": name,
            "operators": len({node.source or node.name for node in graph.nodes}),
            "primitives": len(graph.nodes),
            "inputs": {value: str(graph.type_of(value)) for value in graph.inputs},
        }
        for name, graph in graphs.items()
    ]


def graphs_table(graphs: Mapping[str, Graph], *, width: int, colour: bool) -> str:
    """The list of graphs, one line each."""
    rows = [
        (
            row["name"],
            str(row["operators"]),
            str(row["primitives"]),
            ", ".join(f"{name}: {kind}" for name, kind in row["inputs"].items()),
        )
        for row in graph_rows(graphs)
    ]
    return render_table(LIST_COLUMNS, rows, width=width, colour=colour)


def graph_document(graph: Graph) -> dict[str, Any]:
    """One graph as plain data: values with their types, nodes with what they read, write and came from."""
    return {
        "name": graph.name,
        "inputs": list(graph.inputs),
        "weights": list(graph.weights),
        "outputs": list(graph.outputs),
        "values": {name: str(value.type) for name, value in graph.values.items()},
        "nodes": [_node_row(node) for node in graph.nodes],
        "warnings": list(graph.warnings),
    }


def _node_row(node: Node) -> dict[str, Any]:
    return {
        "name": node.name,
        "op": node.op,
        "inputs": [item.value if isinstance(item, Literal) else item for item in node.inputs],
        "outputs": list(node.outputs),
        "attrs": {key: list(value) if isinstance(value, tuple) else value for key, value in node.attrs},
        "source": node.source or node.name,
    }


def graph_table(graph: Graph, *, width: int, colour: bool) -> str:
    """One graph: a line per primitive, then inputs, weights, outputs, the count of each primitive, warnings."""
    rows = [
        (
            str(index),
            node.outputs[0] if node.outputs else "",
            str(graph.type_of(node.outputs[0])) if node.outputs else "",
            node.op,
            ", ".join(str(item.value) if isinstance(item, Literal) else item for item in node.inputs),
            short_names([node.source or node.name], NAME_ROOM),
        )
        for index, node in enumerate(graph.nodes)
    ]
    table = render_table(NODE_COLUMNS, rows, width=width, colour=colour) if rows else ""
    return f"{graph.name}\n\n{table}\n" + render_facts(_facts(graph), width=width)


def _facts(graph: Graph) -> list[tuple[str, str]]:
    weights = sum(graph.type_of(name).nbytes for name in graph.weights)
    counts = Counter(node.op for node in graph.nodes)
    operators = len({node.source or node.name for node in graph.nodes})
    return [
        ("inputs", ", ".join(f"{name}: {graph.type_of(name)}" for name in graph.inputs) or "none"),
        ("weights", f"{len(graph.weights)}, {format_bytes(weights)}"),
        ("outputs", ", ".join(f"{name}: {graph.type_of(name)}" for name in graph.outputs)),
        ("nodes", f"{len(graph.nodes)} primitives of {operators} operators"),
        ("primitives", ", ".join(f"{op} {count}" for op, count in sorted(counts.items()))),
        *(("warning", text) for text in graph.warnings),
    ]
