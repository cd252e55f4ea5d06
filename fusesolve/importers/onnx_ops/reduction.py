"""ONNX reductions. Source of the formulas: the ONNX operator specification.

Axes are an attribute in older operator sets and an operand in newer ones (ReduceSum from 13, the others from 18).
"""

from collections.abc import Mapping

from fusesolve.graph import Literal, Operand
from fusesolve.importers.onnx_lower import Handler
from fusesolve.importers.onnx_node import NodeView


def _axes(node: NodeView) -> tuple[int, ...] | None:
    """Axes to fold, ascending; None: none at all (noop_with_empty_axes)."""
    rank = len(node.type(0).shape)
    axes = node.ints(1, "axes")
    if not axes:
        return None if node.attr("noop_with_empty_axes", 0) else tuple(range(rank))
    return tuple(sorted(axis % rank for axis in axes))


def _fold(node: NodeView, op: str, x: str) -> str:
    axes = _axes(node)
    if axes is None or not node.type(0).shape:
        return x
    return node.emit(op, x, axis=axes, keepdims=bool(node.attr("keepdims", 1)))


def _reduce(op: str) -> Handler:
    def emit(node: NodeView) -> Operand:
        return _fold(node, op, node.tensor(0))

    return emit


def _l1(node: NodeView) -> Operand:
    return _fold(node, "reduce_sum", node.emit("abs", node.tensor(0)))


def _sum_square(node: NodeView) -> str:
    return _fold(node, "reduce_sum", node.emit("square", node.tensor(0)))


def _l2(node: NodeView) -> Operand:
    return node.cast(node.emit("sqrt", _sum_square(node)), node.result().dtype)


def _log_sum(node: NodeView) -> Operand:
    return node.emit("log", _fold(node, "reduce_sum", node.tensor(0)))


def _log_sum_exp(node: NodeView) -> Operand:
    """Formula: max + log(sum(exp(x - max))), which does not overflow."""
    axes, x = _axes(node), node.tensor(0)
    if axes is None or not node.type(0).shape:
        return x
    top = node.emit("reduce_max", x, axis=axes, keepdims=True)
    total = node.emit("reduce_sum", node.emit("exp", node.emit("sub", x, top)), axis=axes, keepdims=True)
    return node.reshape(node.emit("add", node.emit("log", total), top), node.result().shape)


def _arg(op: str) -> Handler:
    """The first of equal extremes; the last one, where asked for, is the first of the reversed axis."""

    def emit(node: NodeView) -> Operand:
        rank = len(node.type(0).shape)
        axis = int(node.attr("axis", 0)) % rank
        x, keepdims = node.tensor(0), bool(node.attr("keepdims", 1))
        if not node.attr("select_last_index", 0):
            return node.emit(op, x, axis=axis, keepdims=keepdims)
        extent = node.type(0).shape[axis]
        reverse = node.emit("slice", x, axis=axis, start=extent - 1, end=-(extent + 1), step=-1)
        first = node.emit(op, reverse, axis=axis, keepdims=keepdims)
        return node.emit("sub", Literal(extent - 1), first)

    return emit


def _global(op: str) -> Handler:
    """Pooling over all spatial axes is a reduction that keeps them with extent 1."""

    def emit(node: NodeView) -> Operand:
        axes = tuple(range(2, len(node.type(0).shape)))
        return node.emit(op, node.tensor(0), axis=axes, keepdims=True) if axes else node.tensor(0)

    return emit


REDUCTIONS: Mapping[str, Handler] = {
    "ReduceSum": _reduce("reduce_sum"), "ReduceMean": _reduce("reduce_mean"), "ReduceMax": _reduce("reduce_max"),
    "ReduceMin": _reduce("reduce_min"), "ReduceProd": _reduce("reduce_prod"), "ReduceL1": _l1, "ReduceL2": _l2,
    "ReduceSumSquare": _sum_square, "ReduceLogSum": _log_sum, "ReduceLogSumExp": _log_sum_exp,
    "ArgMax": _arg("argmax"), "ArgMin": _arg("argmin"), "GlobalAveragePool": _global("reduce_mean"),
    "GlobalMaxPool": _global("reduce_max"),
}  # fmt: skip
