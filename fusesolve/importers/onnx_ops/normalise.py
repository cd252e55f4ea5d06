"""ONNX normalisations and softmaxes. Source of the formulas: the ONNX operator specification."""

import math
from collections.abc import Mapping, Sequence

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


def softmax_of_masked(node: NodeView, x: str, axis: int) -> str:
    """Softmax along one axis, in f32 inside for 16-bit floats, that gives zeros for a row of minus infinities.

    The maximum of such a row is taken as the least finite number and its sum as 1, which changes no other row: their
    sums contain exp(0).
    """
    wide = _wide(node, x)
    top = node.emit("maximum", node.emit("reduce_max", wide, axis=axis, keepdims=True), Literal(_LEAST_F32))
    powers = node.emit("exp", node.emit("sub", wide, top))
    total = node.emit("maximum", node.emit("reduce_sum", powers, axis=axis, keepdims=True), Literal(1.0))
    return node.cast(node.emit("div", powers, total), node.known(x).dtype)


def _over_rows(composite: str) -> Handler:
    """Up to opset 12 the axes from `axis` (default 1) on are one row; from 13 on one axis (default the last) is."""

    def emit(node: NodeView) -> Operand:
        shape = node.type(0).shape
        axis = int(node.attr("axis", 1 if node.opset < 13 else -1))
        if not shape:
            return node.composite(composite, node.reshape(node.tensor(0), (1,)), axis=0)[0]
        axis = axis % len(shape) if axis < len(shape) else axis
        if node.opset >= 13 or axis == len(shape) - 1:
            return node.composite(composite, node.tensor(0), axis=axis)[0]
        rows = node.reshape(node.tensor(0), (math.prod(shape[:axis]), math.prod(shape[axis:])))
        return node.composite(composite, rows, axis=1)[0]

    return emit


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


def _last_axes(node: NodeView) -> tuple[int, ...]:
    rank = len(node.type(0).shape)
    return tuple(range(int(node.attr("axis", -1)) % rank, rank))


def _epsilon(node: NodeView) -> float:
    return float(node.attr("epsilon", 1e-5))


def _layer_norm(node: NodeView) -> Sequence[Operand | None]:
    """The result, and the mean and reciprocal deviation that training asks for."""
    operands = [node.tensor(index) for index in range(node.count) if node.has(index)]
    return node.composite("layernorm", *operands, axis=_last_axes(node), eps=_epsilon(node))


def _rms_norm(node: NodeView) -> Operand:
    return node.composite("rmsnorm", node.tensor(0), node.tensor(1), axis=_last_axes(node), eps=_epsilon(node))[0]


def _instance_norm(node: NodeView) -> Operand:
    scale, shift = (per_channel(node, node.tensor(index), len(node.type(0).shape)) for index in (1, 2))
    return node.composite("instancenorm", node.tensor(0), scale, shift, eps=_epsilon(node))[0]


def _group_norm(node: NodeView) -> Operand:
    """Scale and bias are one number per group in opset 18 and one per channel from 21 on."""
    shape, groups = node.type(0).shape, int(node.attr("num_groups"))
    parameters = [node.tensor(1), node.tensor(2)]
    if node.type(1).shape == (groups,) and groups != shape[1]:
        pairs = [node.reshape(name, (groups, 1)) for name in parameters]
        wide = [node.emit("broadcast", name, to=(groups, shape[1] // groups)) for name in pairs]
        parameters = [node.reshape(name, (shape[1],)) for name in wide]
    parameters = [per_channel(node, name, len(shape)) for name in parameters]
    return node.composite("groupnorm", node.tensor(0), *parameters, groups=groups, eps=_epsilon(node))[0]


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
    return list(node.composite("batchnorm", node.tensor(0), *operands, axis=1 if rank > 1 else 0, eps=_epsilon(node)))


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
    given = {name: float(node.attr(name)) for name in ("alpha", "beta", "bias") if node.attr(name) is not None}
    return node.composite("lrn", node.tensor(0), size=int(node.attr("size")), **given)[0]


NORMALISATION: Mapping[str, Handler] = {
    "Softmax": _over_rows("softmax"), "LogSoftmax": _over_rows("log_softmax"), "Hardmax": _hardmax,
    "LayerNormalization": _layer_norm, "RMSNormalization": _rms_norm,
    "InstanceNormalization": _instance_norm, "GroupNormalization": _group_norm,
    "BatchNormalization": _batch_norm, "LpNormalization": _lp_norm, "LRN": _local_response,
}  # fmt: skip
