"""The executable specification of a graph, checked between the stages of fusesolve.

A graph that breaks it was made wrong by fusesolve itself, not by the user: every finding is an InternalError that
names the stage, the node and the rule.
"""

from collections.abc import Mapping

from fusesolve.errors import InputError, InternalError
from fusesolve.graph import Graph, Node, TensorType, Value
from fusesolve.ops import OPS, STORED_TYPE, infer_results
from fusesolve.ops.rules import resolve_operands


def check_graph(graph: Graph, stage: str) -> None:
    """Raise InternalError at the first broken rule; `stage` names the step that made the graph.

    The rules: values are stored under their own names; inputs, weights and results are disjoint; every operand is
    defined before it is read; every value has one producer; node names are unique and sources set; operators,
    operand counts and attributes are those of the operator table, in canonical form; result types are the inferred
    ones; outputs exist and are not repeated; strides and aliases fit.
    """
    defined = _check_interface(graph, stage)
    names: set[str] = set()
    for node in graph.nodes:
        where = f"after {stage}: node {node.name!r} ({node.op})"
        if node.name in names or not node.name or not node.source:
            raise InternalError(f"{where}: names must be unique, name and source not empty")
        names.add(node.name)
        _check_node(graph, node, defined, where)
        for output in node.outputs:
            if output in defined:
                raise InternalError(f"{where}: the value {output!r} has two producers")
            defined.add(output)
    _check_outputs(graph, stage, defined)


def _check_interface(graph: Graph, stage: str) -> set[str]:
    fed = [*graph.inputs, *graph.weights]
    if len(set(fed)) != len(fed):
        raise InternalError(f"after {stage}: an input or weight of {graph.name!r} is listed twice")
    for name, value in graph.values.items():
        if name != value.name:
            raise InternalError(f"after {stage}: value {value.name!r} is stored as {name!r}")
        if any(extent < 0 for extent in value.type.shape):
            raise InternalError(f"after {stage}: value {name!r} has a negative extent: {value.type}")
        if value.strides is not None and len(value.strides) != len(value.type.shape):
            raise InternalError(f"after {stage}: value {name!r} has {len(value.strides)} strides for {value.type}")
    missing = [name for name in fed if name not in graph.values]
    if missing:
        raise InternalError(f"after {stage}: {missing[0]!r} has no value")
    return set(fed)


def _check_node(graph: Graph, node: Node, defined: set[str], where: str) -> None:
    row = OPS.get(node.op)
    if row is None:
        raise InternalError(f"{where}: no such operator")
    unknown = [name for name in node.reads if name not in defined]
    if unknown:
        raise InternalError(f"{where}: reads {unknown[0]!r} before it is defined")
    if not node.outputs or any(name not in graph.values for name in node.outputs):
        raise InternalError(f"{where}: has no results, or results without a value")
    least, most = row.operands
    if len(node.inputs) < least or (most is not None and len(node.inputs) > most):
        raise InternalError(f"{where}: {len(node.inputs)} operands")
    if not row.declared:
        _check_types(graph.values, node, where)


def _check_types(values: Mapping[str, Value], node: Node, where: str) -> None:
    row, attrs = OPS[node.op], dict(node.attrs)
    unknown = [name for name in attrs if name not in row.attrs and name != STORED_TYPE]
    if unknown or list(attrs) != sorted(attrs):
        raise InternalError(f"{where}: attributes {list(attrs)} are unknown or not sorted")
    operands = resolve_operands(node.inputs, {name: values[name].type for name in node.reads})
    try:
        inferred, canonical = infer_results(row, operands, attrs)
    except InputError as error:
        raise InternalError(f"{where}: {error}") from error
    if canonical != attrs:
        raise InternalError(f"{where}: attributes {attrs} are not canonical, which is {canonical}")
    stored: tuple[TensorType, ...] = tuple(values[name].type for name in node.outputs)
    if stored != tuple(inferred):
        raise InternalError(f"{where}: results are {_text(stored)}, inferred {_text(inferred)}")


def _text(types: tuple[TensorType, ...]) -> str:
    return ", ".join(map(str, types))


def _check_outputs(graph: Graph, stage: str, defined: set[str]) -> None:
    lost = [name for name in graph.outputs if name not in defined]
    if lost or len(set(graph.outputs)) != len(graph.outputs):
        raise InternalError(f"after {stage}: outputs {lost or list(graph.outputs)} are undefined or repeated")
    extra = [name for name in graph.values if name not in defined]
    if extra:
        raise InternalError(f"after {stage}: nothing produces the value {extra[0]!r}")
    for value in graph.values.values():
        target = value.alias_out
        if target is not None and (target not in defined or graph.values[target].type != value.type):
            raise InternalError(f"after {stage}: {value.name!r} is written back from {target!r}, which does not fit")
