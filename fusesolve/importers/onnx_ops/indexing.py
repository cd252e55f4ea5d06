"""ONNX operators that index by data: gathers, scatters, sorts, scans. Source: the ONNX operator specification."""

from collections.abc import Mapping, Sequence

from fusesolve.graph import Operand
from fusesolve.importers.onnx_lower import Handler
from fusesolve.importers.onnx_node import NodeView
from fusesolve.importers.onnx_ops.movement import cut


def _axis(node: NodeView, default: int) -> int:
    return int(node.attr("axis", default)) % len(node.type(0).shape)


def _gather(node: NodeView) -> Operand:
    """One constant index, or a constant range with one step, is a slice."""
    axis, index = _axis(node, 0), node.array(1)
    items = None if index is None or index.ndim > 1 or not index.size else [int(item) for item in index.reshape(-1)]
    if items is None:
        return node.emit("gather", node.tensor(0), node.tensor(1), axis=axis)
    extent = node.type(0).shape[axis]
    wrapped = [item + extent if item < 0 else item for item in items]
    step = wrapped[1] - wrapped[0] if len(wrapped) > 1 else 1
    if step < 1 or wrapped != list(range(wrapped[0], wrapped[-1] + 1, step)):
        return node.emit("gather", node.tensor(0), node.tensor(1), axis=axis)
    part = cut(node, node.tensor(0), axis, wrapped[0], wrapped[-1] + 1, step)
    return node.reshape(part, node.result().shape)


def _gather_elements(node: NodeView) -> Operand:
    return node.emit("gather_elements", node.tensor(0), node.tensor(1), axis=_axis(node, 0))


def _gather_nd(node: NodeView) -> Operand:
    return node.emit("gather_nd", node.tensor(0), node.tensor(1), batch=int(node.attr("batch_dims", 0)))


def _scatter_elements(node: NodeView) -> Operand:
    tensors = (node.tensor(0), node.tensor(1), node.tensor(2))
    reduction = str(node.attr("reduction", "none"))
    return node.emit("scatter_elements", *tensors, axis=_axis(node, 0), reduction=reduction)


def _scatter_nd(node: NodeView) -> Operand:
    reduction = str(node.attr("reduction", "none"))
    return node.emit("scatter_nd", node.tensor(0), node.tensor(1), node.tensor(2), reduction=reduction)


def _cumsum(node: NodeView) -> Operand | None:
    axis = node.scalar(1)
    if axis is None:
        return None
    flags = {name: bool(node.attr(name, 0)) for name in ("exclusive", "reverse")}
    return node.emit("cumsum", node.tensor(0), axis=int(axis) % len(node.type(0).shape), **flags)


def _topk(node: NodeView) -> Sequence[Operand | None]:
    """K is an attribute up to opset 9; where it depends on data the result's shape would not be static."""
    axis = _axis(node, -1)
    largest = bool(node.attr("largest", 1))
    return node.emit_many(
        "topk", [node.tensor(0)], axis=axis, k=node.result(0 if node.wants(0) else 1).shape[axis], largest=largest
    )


INDEXING: Mapping[str, Handler] = {
    "Gather": _gather, "GatherElements": _gather_elements, "GatherND": _gather_nd,
    "ScatterElements": _scatter_elements, "Scatter": _scatter_elements, "ScatterND": _scatter_nd,
    "CumSum": _cumsum, "TopK": _topk,
}  # fmt: skip
