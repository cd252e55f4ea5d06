"""ONNX quantisation: real = (integer - zero_point) * scale. Source of the formulas: the ONNX operator specification.

Dequantised weights stay kernels (a prologue of the product that reads them): they are read as 8-bit integers.
Integer products accumulate in i32. Block-wise scales and 4-bit types are not decomposed.
"""

from collections.abc import Mapping, Sequence

from fusesolve.graph import DType, Literal, Operand
from fusesolve.importers.onnx_lower import Handler
from fusesolve.importers.onnx_node import NodeView
from fusesolve.importers.onnx_ops.contraction import add_channels, convolve, per_channel, product

_LARGEST = {DType.F8E4M3: 448.0, DType.F8E5M2: 57344.0}
_RANGE = {
    DType.U8: (0, 255), DType.I8: (-128, 127), DType.U16: (0, 65535), DType.I16: (-32768, 32767),
}  # fmt: skip


def _lies_along(node: NodeView, index: int, shape: tuple[int, ...], axis: int) -> Operand | None:
    """Scale or zero point `index` as it broadcasts to `shape`: a number, or a vector along `axis`; None for blocks."""
    kind = node.type(index).shape
    if node.type(index).size == 1:
        item = node.operand(index)
        return item if isinstance(item, Literal) else node.reshape(item, ())
    if len(kind) != 1 or not shape:
        return None
    return per_channel(node, node.tensor(index), len(shape), axis % len(shape))


def _zero(node: NodeView, index: int) -> bool:
    """Whether a zero point is absent or the number 0."""
    return not node.has(index) or node.scalar(index) == 0


def _dequantise(node: NodeView) -> Operand | None:
    """(x - zero_point) * scale, in the type of the scale."""
    shape, axis, target = node.type(0).shape, int(node.attr("axis", 1)), node.result().dtype
    scale = _lies_along(node, 1, shape, axis)
    if scale is None or node.attr("block_size", 0):
        return None
    x = node.cast(node.tensor(0), target)
    if not _zero(node, 2):
        point = _lies_along(node, 2, shape, axis)
        if point is None:
            return None
        point = Literal(float(point.value)) if isinstance(point, Literal) else node.cast(point, target)
        x = node.emit("sub", x, point)
    return node.emit("mul", x, scale)


def saturate(node: NodeView, x: str, point: Operand | None, dtype: DType) -> str:
    """round(x), plus the zero point, clipped to the range of the integer type `dtype`, cast to it."""
    rounded = node.emit("round", x)
    if isinstance(point, str):
        point = node.cast(point, node.known(rounded).dtype)
    elif isinstance(point, Literal):
        point = Literal(float(point.value))
    if point is not None:
        rounded = node.emit("add", rounded, point)
    low, high = _RANGE[dtype]
    return node.cast(node.emit("clip", rounded, min=float(low), max=float(high)), dtype)


def _quantise(node: NodeView) -> Operand | None:
    """saturate(round(x / scale) + zero_point)."""
    shape, axis, target = node.type(0).shape, int(node.attr("axis", 1)), node.result().dtype
    scale = _lies_along(node, 1, shape, axis)
    if scale is None or node.attr("block_size", 0):
        return None
    x = node.tensor(0)
    divided = node.emit("div", x if node.type(0).dtype.is_float else node.cast(x, DType.F32), scale)
    if target in _LARGEST:
        return node.cast(node.emit("clip", divided, min=-_LARGEST[target], max=_LARGEST[target]), target)
    if target not in _RANGE:
        return None
    point = None if _zero(node, 2) else _lies_along(node, 2, shape, axis)
    if point is None and not _zero(node, 2):
        return None
    return saturate(node, divided, point, target)


def _dynamic_quantise(node: NodeView) -> Sequence[Operand]:
    """Formula: scale = (max(0, x) - min(0, x)) / 255; zero_point = saturate(round(-min / scale)); y = quantised x."""
    x = node.tensor(0)
    high = node.emit("maximum", node.emit("reduce_max", x), Literal(0.0))
    low = node.emit("minimum", node.emit("reduce_min", x), Literal(0.0))
    scale = node.emit("div", node.emit("sub", high, low), Literal(255.0))
    point = saturate(node, node.emit("neg", node.emit("div", low, scale)), None, DType.U8)
    return [saturate(node, node.emit("div", x, scale), point, DType.U8), scale, point]


# --- integer products ---


def _centred(node: NodeView, index: int, point: int, axis: int) -> str | None:
    """Operand `index` minus its zero point (operand `point`, one number or a vector along `axis`), widened to i32.

    The operand itself, 8 bits wide, where the zero point is 0; None where the zero point is neither.
    """
    x = node.tensor(index)
    if _zero(node, point):
        return x
    item = _lies_along(node, point, node.type(index).shape, axis)
    if item is None:
        return None
    wide = node.cast(x, DType.I32)
    return node.emit("sub", wide, item if isinstance(item, Literal) else node.cast(item, DType.I32))


def _matmul_integer(node: NodeView) -> Operand | None:
    left, right = _centred(node, 0, 2, -2), _centred(node, 1, 3, -1)
    return None if left is None or right is None else product(node, left, right, to="i32")


def _conv_integer(node: NodeView) -> Operand | None:
    x, w = _centred(node, 0, 2, 1), _centred(node, 1, 3, 0)
    if x is None or w is None or not 1 <= len(node.type(1).shape) - 2 <= 3:
        return None
    return convolve(node, x, w, to="i32")


def _requantised(node: NodeView, total: str, scales: tuple[int, int, int], point: int, axis: int) -> Operand | None:
    """saturate(round(total * (a_scale * b_scale / y_scale)) + y_zero_point) of an i32 sum."""
    shape = node.known(total).shape
    parts = [_lies_along(node, index, shape, axis) for index in scales]
    zero = None if _zero(node, point) else _lies_along(node, point, shape, axis)
    if any(part is None for part in parts) or (zero is None and not _zero(node, point)):
        return None
    made = node.cast(total, DType.F32)
    for part, op in zip(parts, ("mul", "mul", "div"), strict=True):
        assert part is not None
        made = node.emit(op, made, part)
    return saturate(node, made, zero, node.result().dtype)


def _qlinear_matmul(node: NodeView) -> Operand | None:
    left, right = _centred(node, 0, 2, -2), _centred(node, 3, 5, -1)
    if left is None or right is None or node.result().dtype not in _RANGE:
        return None
    return _requantised(node, product(node, left, right, to="i32"), (1, 4, 6), 7, -1)


def _qlinear_conv(node: NodeView) -> Operand | None:
    x, w = _centred(node, 0, 2, 1), _centred(node, 3, 5, 0)
    if x is None or w is None or not 1 <= len(node.type(3).shape) - 2 <= 3:
        return None
    return _requantised(node, add_channels(node, convolve(node, x, w, to="i32"), 8), (1, 4, 6), 7, 1)


QUANTISATION: Mapping[str, Handler] = {
    "QuantizeLinear": _quantise, "DequantizeLinear": _dequantise, "DynamicQuantizeLinear": _dynamic_quantise,
    "MatMulInteger": _matmul_integer, "ConvInteger": _conv_integer, "QLinearMatMul": _qlinear_matmul,
    "QLinearConv": _qlinear_conv,
}  # fmt: skip
