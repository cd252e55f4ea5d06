"""A graph in another floating type: what `--as-dtype` does."""

from collections.abc import Mapping

from fusesolve.builder import GraphBuilder
from fusesolve.graph import AttrValue, DType, Graph, Literal, Node, Operand, TensorType
from fusesolve.ops import OPS
from fusesolve.ops.rules import is_integer


def retype_graph(graph: Graph, dtype: DType) -> Graph:
    """`graph` with every floating value in `dtype` (a float or an integer type); shapes and names stay.

    Casts between floats that lose their meaning are dropped, except where their result is an output. A result whose
    type would not follow from its operands (exp of an integer) carries the attribute `as`: the kernel stores it in
    that type, as quantised kernels do. It models cost: with an integer type the NumPy reference truncates.
    """
    builder = GraphBuilder(graph.name)
    builder.inputs_of(graph, lambda name: _type(graph.type_of(name), dtype))
    renamed: dict[str, str] = {}
    for node in graph.nodes:
        _retype_node(builder, graph, node, dtype, renamed)
    for name in graph.outputs:
        builder.output(renamed.get(name, name))
    return builder.build()


def _type(kind: TensorType, dtype: DType) -> TensorType:
    return TensorType(dtype, kind.shape) if kind.dtype.is_float else kind


def _retype_node(builder: GraphBuilder, graph: Graph, node: Node, dtype: DType, renamed: dict[str, str]) -> None:
    inputs = [_operand(item, dtype, renamed) for item in node.inputs]
    types = [_type(graph.type_of(name), dtype) for name in node.outputs]
    if _is_idle_cast(builder, graph, node, inputs, types):
        renamed[node.outputs[0]] = str(inputs[0])
        return
    attrs = {name: _attr(node, name, value, dtype) for name, value in node.attrs}
    if not OPS[node.op].declared and node.op != "cast":
        attrs |= _stored_type(graph, node, dtype)
    builder.add(node.op, inputs, attrs, outputs=node.outputs, source=node.source, types=types)
    for name in node.outputs:
        value = graph.values[name]
        if value.external or value.strides is not None:
            builder.mark(name, external=value.external, strides=value.strides)


def _operand(item: Operand, dtype: DType, renamed: Mapping[str, str]) -> Operand:
    """A renamed value, or a literal; a whole number becomes a float beside integer types, which it may exceed."""
    if isinstance(item, str):
        return renamed.get(item, item)
    if is_integer(dtype) and isinstance(item.value, int) and not isinstance(item.value, bool):
        return Literal(float(item.value))
    return item


def _is_idle_cast(
    builder: GraphBuilder, graph: Graph, node: Node, inputs: list[Operand], types: list[TensorType]
) -> bool:
    if node.op != "cast" or not isinstance(inputs[0], str) or node.outputs[0] in graph.outputs:
        return False
    return builder.type(inputs[0]) == types[0]


def _attr(node: Node, name: str, value: AttrValue, dtype: DType) -> AttrValue:
    is_type = name in ("to", "as") and isinstance(value, str)
    return dtype.value if is_type and DType(str(value)).is_float else value


def _stored_type(graph: Graph, node: Node, dtype: DType) -> dict[str, AttrValue]:
    """The attribute `as` where a floating result becomes `dtype`: the builder drops it where it changes nothing."""
    return {"as": dtype.value} if graph.type_of(node.outputs[0]).dtype.is_float else {}
