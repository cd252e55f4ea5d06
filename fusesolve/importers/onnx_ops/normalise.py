"""ONNX normalisations and softmaxes. Source of the formulas: the ONNX operator specification."""

import math
from collections.abc import Callable, Mapping, Sequence

from fusesolve.graph import DType, Literal, Operand, TensorType
from fusesolve.importers.onnx_lower import Handler
from fusesolve.importers.onnx_node import NodeView
from fusesolve.importers.onnx_ops.contraction import channel_shape, per_channel

_NARROW = (DType.F16, DType.BF16)
_LEAST_F32 = -3.4028234663852886e38
_TINY = {DType.F16: 2.0**-24, DType.BF16: 2.0**-126, DType.F32: 2.0**-126, DType.F64: 2.0**-1022}  # above 0, exact


def _wide(node: NodeView, x: str) -> str:
    """`x` in f32 where it is 16 bits wide: statistics are computed in f32, as frameworks do."""
    return node.cast(x, DType.F32) if node.known(x).dtype in _NARROW else x


# --- softmax ---


def softmax(node: NodeView, x: str, axis: int, *, may_be_empty: bool = False) -> str:
    """exp(x - max) / sum(exp(x - max)) along one axis, in f32 inside for 16-bit floats.

    `may_be_empty`: a row of minus infinities gives zeros, not NaN; its maximum is taken as the least finite number and
    its sum as 1, which changes no other row (their sums contain exp(0)).
    """
    wide = _wide(node, x)
    top = node.emit("reduce_max", wide, axis=axis, keepdims=True)
    if may_be_empty:
        top = node.emit("maximum", top, Literal(_LEAST_F32))
    powers = node.emit("exp", node.emit("sub", wide, top))
    total = node.emit("reduce_sum", powers, axis=axis, keepdims=True)
    if may_be_empty:
        total = node.emit("maximum", total, Literal(1.0))
    return node.cast(node.emit("div", powers, total), node.known(x).dtype)


def _log_of_softmax(node: NodeView, x: str, axis: int) -> str:
    """(x - max) - log(sum(exp(x - max))) along one axis."""
    wide = _wide(node, x)
    low = node.emit("sub", wide, node.emit("reduce_max", wide, axis=axis, keepdims=True))
    total = node.emit("reduce_sum", node.emit("exp", low), axis=axis, keepdims=True)
    return node.cast(node.emit("sub", low, node.emit("log", total)), node.known(x).dtype)


def _over_rows(node: NodeView, along: Callable[[NodeView, str, int], str]) -> Operand:
    """Up to opset 12 the axes from `axis` (default 1) on are one row; from 13 on one axis (default the last) is."""
    shape = node.type(0).shape
    if not shape:
        return node.reshape(along(node, node.reshape(node.tensor(0), (1,)), 0), ())
    axis = int(node.attr("axis", 1 if node.opset < 13 else -1))
    axis = axis % len(shape) if axis < len(shape) else axis
    if node.opset >= 13 or axis == len(shape) - 1:
        return along(node, node.tensor(0), axis)
    rows = node.reshape(node.tensor(0), (math.prod(shape[:axis]), math.prod(shape[axis:])))
    return node.reshape(along(node, rows, 1), shape)


def _softmax(node: NodeView) -> Operand:
    return _over_rows(node, softmax)


def _log_softmax(node: NodeView) -> Operand:
    return _over_rows(node, _log_of_softmax)


def _hardmax(node: NodeView) -> Operand | None:
    """1 at the first greatest element along the axis, 0 elsewhere."""
    shape = node.type(0).shape
    axis = int(node.attr("axis", 1 if node.opset < 13 else -1)) % len(shape)
    if node.opset < 13 and axis != len(shape) - 1:
        return None
    first = node.emit("argmax", node.tensor(0), axis=axis, keepdims=True)
    line = node.emit("arange", n=shape[axis], to="i64")
    hit = node.emit("equal", first, per_channel(node, line, len(shape), axis))
    return node.cast(hit, node.result().dtype)


# --- statistics over axes ---


def _mean(node: NodeView, x: str, axes: Sequence[int]) -> str:
    return node.emit("reduce_mean", x, axis=tuple(axes), keepdims=True)


def _centred(node: NodeView, x: str, axes: Sequence[int], epsilon: float) -> tuple[str, str, str]:
    """(x - mean), mean and 1 / sqrt(variance + epsilon) over `axes`, which are kept with extent 1."""
    mean = _mean(node, x, axes)
    centred = node.emit("sub", x, mean)
    variance = _mean(node, node.emit("square", centred), axes)
    return centred, mean, node.emit("rsqrt", node.emit("add", variance, Literal(epsilon)))


def _affine(node: NodeView, x: str, scale: str | None, shift: str | None) -> str:
    """Apply x * scale + shift, with scale and shift in the type of x."""
    if scale is not None:
        x = node.emit("mul", x, node.cast(scale, node.known(x).dtype))
    if shift is not None:
        x = node.emit("add", x, node.cast(shift, node.known(x).dtype))
    return x


def _layer_norm(node: NodeView) -> Sequence[Operand | None]:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias over the axes from `axis` on; also mean and 1/sqrt."""
    rank = len(node.type(0).shape)
    axes = range(int(node.attr("axis", -1)) % rank, rank)
    x = _wide(node, node.tensor(0))
    centred, mean, inverse = _centred(node, x, axes, float(node.attr("epsilon", 1e-5)))
    normal = node.emit("mul", centred, inverse)
    made = _affine(node, normal, node.tensor(1), node.tensor(2) if node.has(2) else None)
    return [node.cast(made, node.result().dtype), mean, inverse]


def _rms_norm(node: NodeView) -> Operand:
    """Formula: x / sqrt(mean(x^2) + epsilon) * scale over the axes from `axis` on."""
    rank = len(node.type(0).shape)
    axes = range(int(node.attr("axis", -1)) % rank, rank)
    x = _wide(node, node.tensor(0))
    square = _mean(node, node.emit("square", x), axes)
    inverse = node.emit("rsqrt", node.emit("add", square, Literal(float(node.attr("epsilon", 1e-5)))))
    return node.cast(_affine(node, node.emit("mul", x, inverse), node.tensor(1), None), node.result().dtype)


def _instance_norm(node: NodeView) -> Operand:
    """The mean and variance of each channel of each sample."""
    rank = len(node.type(0).shape)
    x = _wide(node, node.tensor(0))
    centred, _, inverse = _centred(node, x, range(2, rank), float(node.attr("epsilon", 1e-5)))
    scale, shift = (per_channel(node, node.tensor(index), rank) for index in (1, 2))
    return node.cast(_affine(node, node.emit("mul", centred, inverse), scale, shift), node.result().dtype)


def _group_norm(node: NodeView) -> Operand:
    """Mean and variance of each group of channels; scale and bias per group (opset 18) or per channel (21)."""
    shape, groups = node.type(0).shape, int(node.attr("num_groups"))
    apart = (shape[0], groups, shape[1] // groups, *shape[2:])
    x = _wide(node, node.reshape(node.tensor(0), apart))
    centred, _, inverse = _centred(node, x, range(2, len(apart)), float(node.attr("epsilon", 1e-5)))
    normal = node.emit("mul", centred, inverse)
    if node.type(1).shape == (groups,) and groups != shape[1]:
        scale, shift = (per_channel(node, node.tensor(index), len(apart)) for index in (1, 2))
        made = node.reshape(_affine(node, normal, scale, shift), shape)
    else:
        scale, shift = (per_channel(node, node.tensor(index), len(shape)) for index in (1, 2))
        made = _affine(node, node.reshape(normal, shape), scale, shift)
    return node.cast(made, node.result().dtype)


def _batch_norm(node: NodeView) -> Sequence[Operand | None] | None:
    """Inference: (x - mean) * (scale / sqrt(variance + epsilon)) + bias, statistics per channel.

    Where all four vectors are constants this is x * factor + offset, both computed ahead from them: two weights.
    """
    if node.attr("training_mode", 0) or any(node.wants(index) for index in range(1, 5)) or not node.attr("spatial", 1):
        return None
    rank = len(node.type(0).shape)
    x = _wide(node, node.tensor(0))
    dtype = node.known(x).dtype
    operands = [node.tensor(index) for index in range(1, 5)]
    if all(map(node.constant, operands)):
        kind = TensorType(dtype, channel_shape(node.type(1).size, rank))
        made = node.emit("add", node.emit("mul", x, node.weight("factor", kind)), node.weight("offset", kind))
        return [node.cast(made, node.result().dtype)]
    scale, shift, mean, variance = (node.cast(item, dtype) for item in operands)
    inverse = node.emit("rsqrt", node.emit("add", variance, Literal(float(node.attr("epsilon", 1e-5)))))
    factor = per_channel(node, node.emit("mul", inverse, scale), rank)
    centred = node.emit("sub", x, per_channel(node, mean, rank))
    made = node.emit("add", node.emit("mul", centred, factor), per_channel(node, shift, rank))
    return [node.cast(made, node.result().dtype)]


def _lp_norm(node: NodeView) -> Operand | None:
    """Formula: x / (sum |x|^p)^(1/p) along one axis; zeros where the norm is 0, which the least number stands for."""
    p, rank = int(node.attr("p", 2)), len(node.type(0).shape)
    if p not in (1, 2):
        return None
    x = node.tensor(0)
    power = node.emit("abs" if p == 1 else "square", x)
    total = node.emit("reduce_sum", power, axis=int(node.attr("axis", -1)) % rank, keepdims=True)
    norm = total if p == 1 else node.emit("sqrt", total)
    return node.emit("div", x, node.emit("maximum", norm, Literal(_TINY[node.type(0).dtype])))


def _local_response(node: NodeView) -> Operand:
    """Formula: x / (bias + alpha / size * sum of squares of `size` neighbouring channels) ^ beta."""
    x, size = node.tensor(0), int(node.attr("size"))
    offsets = tuple(range(-((size - 1) // 2), size // 2 + 1))
    total = node.emit("stencil", node.emit("square", x), axis=1, offsets=offsets)
    scaled = node.emit("mul", total, Literal(float(node.attr("alpha", 1e-4)) / size))
    base = node.emit("add", scaled, Literal(float(node.attr("bias", 1.0))))
    return node.emit("div", x, node.emit("pow", base, Literal(float(node.attr("beta", 0.75)))))


NORMALISATION: Mapping[str, Handler] = {
    "Softmax": _softmax, "LogSoftmax": _log_softmax, "Hardmax": _hardmax, "LayerNormalization": _layer_norm,
    "RMSNormalization": _rms_norm, "InstanceNormalization": _instance_norm, "GroupNormalization": _group_norm,
    "BatchNormalization": _batch_norm, "LpNormalization": _lp_norm, "LRN": _local_response,
}  # fmt: skip
