"""The operator table: every primitive that a graph may hold, by name. A new operator is one row in one family file."""

from collections.abc import Mapping
from types import MappingProxyType

from fusesolve.access import AccessMap
from fusesolve.graph import Graph, Node, TensorType
from fusesolve.ops.contractions import CONTRACTIONS
from fusesolve.ops.definition import OpDef, OpKind, Pipe, Work
from fusesolve.ops.elementwise import ELEMENTWISE
from fusesolve.ops.generators import GENERATORS, OPAQUE
from fusesolve.ops.indexing import INDEXING
from fusesolve.ops.movement import MOVEMENT, VIEWS
from fusesolve.ops.reductions import REDUCTIONS
from fusesolve.ops.rules import resolve_operands
from fusesolve.ops.windows import WINDOWS

__all__ = ["OPS", "OpDef", "OpKind", "Pipe", "Work", "access_map", "operand_types", "result_types"]

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


def operand_types(graph: Graph, node: Node) -> tuple[TensorType, ...]:
    """Types of the node's operands in order; a literal has the 0-d type that it adapts to."""
    return resolve_operands(node.inputs, {name: graph.values[name].type for name in node.reads})


def result_types(graph: Graph, node: Node) -> tuple[TensorType, ...]:
    """Types of the node's results in order."""
    return tuple(graph.values[name].type for name in node.outputs)


def access_map(graph: Graph, node: Node) -> AccessMap:
    """How the node's operands are indexed from its first result and its reduction axes."""
    return OPS[node.op].access(node, operand_types(graph, node), result_types(graph, node))
