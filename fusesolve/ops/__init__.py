"""The operator table: every primitive that a graph may hold, by name. A new operator is one row in one family file."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from fusesolve.access import AccessMap
from fusesolve.graph import Graph, Node, TensorType
from fusesolve.ops.contractions import CONTRACTIONS
from fusesolve.ops.definition import OpDef, OpKind, Work
from fusesolve.ops.elementwise import ELEMENTWISE
from fusesolve.ops.generators import GENERATORS, OPAQUE
from fusesolve.ops.indexing import INDEXING
from fusesolve.ops.movement import MOVEMENT, VIEWS
from fusesolve.ops.reductions import REDUCTIONS
from fusesolve.ops.rules import parse_dtype, resolve_operands
from fusesolve.ops.windows import WINDOWS

__all__ = [
    "OPS",
    "STORED_TYPE",
    "OpDef",
    "OpKind",
    "Work",
    "access_map",
    "infer_results",
    "jumps",
    "operand_types",
    "result_types",
]

JUMPS = frozenset({
    "floor", "ceil", "round", "trunc", "sign", "mod", "fmod", "intdiv", "equal", "not_equal", "less", "less_equal",
    "greater", "greater_equal", "argmax", "argmin", "topk", "argsort", "isnan", "isinf",
})  # fmt: skip

# The one attribute that every inferred operator may carry: the element type in which its first result is stored,
# where that is not the inferred one (quantised execution).
STORED_TYPE = "as"

OPS: Mapping[str, OpDef] = MappingProxyType(
    {
        row.name: row
        for family in (
            ELEMENTWISE,
            REDUCTIONS,
            CONTRACTIONS,
            WINDOWS,
            MOVEMENT,
            VIEWS,
            INDEXING,
            GENERATORS,
            OPAQUE,
        )
        for row in family
    }
)


def infer_results(
    row: OpDef, operands: Sequence[TensorType], attrs: Mapping[str, Any]
) -> tuple[tuple[TensorType, ...], dict[str, Any]]:
    """Result types of an operator and its attributes in canonical form; InputError where they do not fit.

    The attribute `as` is kept only where it changes the type of the first result.
    """
    canonical = row.prepare(operands, {name: value for name, value in attrs.items() if name != STORED_TYPE})
    results = row.infer(operands, canonical)
    if STORED_TYPE in attrs:
        dtype = parse_dtype(attrs[STORED_TYPE])
        if dtype is not results[0].dtype:
            canonical[STORED_TYPE] = dtype.value
            results = (TensorType(dtype, results[0].shape), *results[1:])
    return results, canonical


def operand_types(graph: Graph, node: Node) -> tuple[TensorType, ...]:
    """Types of the node's operands in order; a literal has the 0-d type that it adapts to."""
    return resolve_operands(node.inputs, {name: graph.values[name].type for name in node.reads})


def result_types(graph: Graph, node: Node) -> tuple[TensorType, ...]:
    """Types of the node's results in order."""
    return tuple(graph.values[name].type for name in node.outputs)


def access_map(graph: Graph, node: Node) -> AccessMap:
    """How the node's operands are indexed from its first result and its reduction axes."""
    return OPS[node.op].access(node, operand_types(graph, node), result_types(graph, node))


def jumps(graph: Graph, node: Node) -> bool:
    """Whether the result may change by more than rounding where an operand changes by a rounding error."""
    return node.op in JUMPS or (node.op == "cast" and not graph.type_of(node.outputs[0]).dtype.is_float)
