"""ONNX pooling and resizing. Source of the rules: the ONNX operator specification."""

from collections.abc import Mapping, Sequence

from fusesolve.graph import AttrValue, Literal, Operand
from fusesolve.importers.onnx_lower import Handler
from fusesolve.importers.onnx_node import NodeView
from fusesolve.importers.onnx_ops.contraction import window_attrs


def _pool(node: NodeView, op: str, x: str, **more: AttrValue) -> str:
    kernel = tuple(node.attr("kernel_shape"))
    window = window_attrs(node, kernel)
    return node.emit(op, x, k=kernel, ceil=bool(node.attr("ceil_mode", 0)), **window, **more)


def _max_pool(node: NodeView) -> Sequence[Operand | None] | None:
    """The indices of the greatest elements, where somebody reads them, leave an opaque kernel."""
    return None if node.wants(1) or node.attr("storage_order", 0) else [_pool(node, "maxpool", node.tensor(0)), None]


def _average_pool(node: NodeView) -> Operand:
    return _pool(node, "avgpool", node.tensor(0), count_pad=bool(node.attr("count_include_pad", 0)))


def _lp_pool(node: NodeView) -> Operand | None:
    """(sum |x|^p)^(1/p), the sum as the mean over the padded window times its size."""
    p = int(node.attr("p", 2))
    if node.attr("ceil_mode", 0) or p not in (1, 2):
        return None
    x = node.emit("abs" if p == 1 else "square", node.tensor(0))
    size = 1
    for extent in node.attr("kernel_shape"):
        size *= extent
    total = node.emit("mul", _pool(node, "avgpool", x, count_pad=True), Literal(float(size)))
    return total if p == 1 else node.emit("sqrt", total)


def _global_lp_pool(node: NodeView) -> Operand | None:
    p = int(node.attr("p", 2))
    if p not in (1, 2):
        return None
    axes = tuple(range(2, len(node.type(0).shape)))
    x = node.emit("abs" if p == 1 else "square", node.tensor(0))
    total = node.emit("reduce_sum", x, axis=axes, keepdims=True)
    return total if p == 1 else node.emit("sqrt", total)




_COORDINATES = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")


def _resize(node: NodeView) -> Operand | None:
    """Nearest and linear interpolation; cubic, antialiased and cropping forms leave an opaque kernel.

    Opset 10 has no attributes but the mode: its coordinates are asymmetric, its rounding is down.
    """
    old = node.opset < 11
    mode = str(node.attr("mode", "nearest"))
    coordinates = "asymmetric" if old else str(node.attr("coordinate_transformation_mode", "half_pixel"))
    special = node.attr("antialias", 0) or node.attr("exclude_outside", 0)
    if mode not in ("nearest", "linear") or coordinates not in _COORDINATES or special:
        return None
    rounding = "floor" if old else str(node.attr("nearest_mode", "round_prefer_floor"))
    return _interpolate(node, mode, coordinates, rounding)


def _upsample(node: NodeView) -> Operand | None:
    """Upsample (opset 7 to 9): asymmetric coordinates, rounded down."""
    mode = str(node.attr("mode", "nearest"))
    return _interpolate(node, mode, "asymmetric", "floor") if mode in ("nearest", "linear") else None


def _interpolate(node: NodeView, mode: str, coordinates: str, rounding: str) -> Operand:
    shape = node.result().shape
    if shape == node.type(0).shape:
        return node.tensor(0)
    scales = node.array(2 if node.opset >= 11 else 1)
    if scales is not None and scales.size == len(shape):
        exact = zip(shape, node.type(0).shape, scales, strict=True)
        if any(abs(wide - extent * float(scale)) > 1e-3 for wide, extent, scale in exact):
            node.warn(f"its scales do not give whole extents: {list(shape)} and their ratios are used instead")
    if mode == "linear":
        return node.emit("resize_linear", node.tensor(0), to=shape, coordinates=coordinates)
    return node.emit("resize_nearest", node.tensor(0), to=shape, coordinates=coordinates, rounding=rounding)


WINDOWS: Mapping[str, Handler] = {
    "MaxPool": _max_pool, "AveragePool": _average_pool, "LpPool": _lp_pool, "GlobalLpPool": _global_lp_pool,
    "Resize": _resize, "Upsample": _upsample,
}  # fmt: skip
