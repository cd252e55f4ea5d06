"""ATen calls of traces and the native operators that they are, one function per family and one table."""

from collections.abc import Mapping
from functools import partial
from math import prod
from types import MappingProxyType

from fusesolve.graph import AttrValue, DType, Literal, Operand
from fusesolve.study.gains.aten import AtenOp, Call, Lower, Lowering, NoFormError, Shape

SCALAR = Literal(0.7)  # of an operator with a number that the trace does not give


def _unary(native: str, low: Lowering, source: str, op: AtenOp, inputs: list[str], **attrs: AttrValue) -> list[str]:
    return [low.run(source, native, inputs[0], call=None, **attrs)]


def _binary(native: str, low: Lowering, source: str, op: AtenOp, inputs: list[str]) -> list[str]:
    other: Operand = inputs[1] if len(inputs) > 1 else SCALAR
    if op.dtype in (DType.I64, DType.I32) and not isinstance(other, str):
        other = Literal(1)
    spread = isinstance(other, str) and low.shape(other) != low.shape(inputs[0]) and low.size(other) > 1
    return [low.run(source, native, inputs[0], other, call=Call(kind="broadcast") if spread else None)]


def _reversed_sub(low: Lowering, source: str, op: AtenOp, inputs: list[str]) -> list[str]:
    return [low.run(source, "sub", SCALAR, inputs[0])]


def _xlogy(low: Lowering, source: str, op: AtenOp, inputs: list[str]) -> list[str]:
    logarithm = low.run(source, "log", inputs[1])
    return [low.run(source, "mul", inputs[0], logarithm)]


def _random(low: Lowering, source: str, op: AtenOp, inputs: list[str]) -> list[str]:
    return [low.run(source, "random_uniform", shape=op.outputs[0])]


def _filled(low: Lowering, source: str, op: AtenOp, inputs: list[str]) -> list[str]:
    return [low.run(source, "fill", shape=op.outputs[0] or (1,), const=0.0)]


def _reduce(native: str, low: Lowering, source: str, op: AtenOp, inputs: list[str]) -> list[str]:
    kind = low.shape(inputs[0])
    axes = reduced_axes(kind, op.outputs[0])
    keep = len(op.outputs[0]) == len(kind)
    call = Call(kind="spatial" if max(axes) > 1 and len(kind) > 3 else "fold")
    return [low.run(source, native, inputs[0], axis=axes, keepdims=keep, call=call)]


def _variance(low: Lowering, source: str, op: AtenOp, inputs: list[str]) -> list[str]:
    axes = reduced_axes(low.shape(inputs[0]), op.outputs[0])
    keep = len(op.outputs[0]) == len(low.shape(inputs[0]))
    return [low.run(source, "reduce_var", inputs[0], axis=axes, keepdims=keep, call=Call(kind="row-moments"))]


def _extreme_at(native: str, low: Lowering, source: str, op: AtenOp, inputs: list[str]) -> list[str]:
    axes = reduced_axes(low.shape(inputs[0]), op.outputs[0])
    return [low.run(source, native, inputs[0], axis=axes[0], keepdims=False)]


def _logsumexp(low: Lowering, source: str, op: AtenOp, inputs: list[str]) -> list[str]:
    """Largest, difference, exponential, sum, logarithm, sum: a kernel each, the last two on the small result."""
    axes = reduced_axes(low.shape(inputs[0]), op.outputs[0])
    top = low.run(f"{source}_max", "reduce_max", inputs[0], axis=axes, keepdims=True)
    weight = low.run(f"{source}_exp", "exp", low.run(f"{source}_sub", "sub", inputs[0], top))
    total = low.run(f"{source}_sum", "reduce_sum", weight, axis=axes, keepdims=True)
    found = low.run(f"{source}_add", "add", low.run(f"{source}_log", "log", total), top)
    return [low.reshape(found, op.outputs[0])]


def _softmax(native: str, low: Lowering, source: str, op: AtenOp, inputs: list[str]) -> list[str]:
    """Over the axis that the next calls leave open: the trace has no axis, so channels of an image, else the last."""
    kind = low.shape(inputs[0])
    axis = 1 if len(kind) > 2 else len(kind) - 1
    call = Call(kind="softmax") if axis == len(kind) - 1 else Call(kind="softmax-strided")
    return [low.run(source, native, inputs[0], axis=axis, call=call)]


def _cumsum(low: Lowering, source: str, op: AtenOp, inputs: list[str]) -> list[str]:
    return [low.run(source, "cumsum", inputs[0], axis=len(low.shape(inputs[0])) - 1, call=Call(kind="scan"))]


def _concat(low: Lowering, source: str, op: AtenOp, inputs: list[str]) -> list[str]:
    kind = low.shape(inputs[0])
    axis = next(i for i, extent in enumerate(op.outputs[0]) if extent != kind[i])
    return [low.run(source, "concat", *inputs, axis=axis)]


def _class_loss(low: Lowering, source: str, op: AtenOp, inputs: list[str]) -> list[str]:
    rows = low.shape(inputs[0])[0]
    index = low.leaf("in_index", (rows, 1), DType.I64)
    picked = low.run(source, "gather_elements", inputs[0], index, axis=1)
    return [low.run(source, "reduce_mean", picked)]


def _smooth_l1(low: Lowering, source: str, op: AtenOp, inputs: list[str]) -> list[str]:
    """An elementwise kernel and a mean."""
    away = low.run(f"{source}_pointwise", "abs", low.run(f"{source}_pointwise", "sub", inputs[0], inputs[1]))
    loss = low.run(f"{source}_pointwise", "mul", away, away)
    return [low.run(source, "reduce_mean", loss)]


def _matmul(low: Lowering, source: str, op: AtenOp, inputs: list[str]) -> list[str]:
    """Products as they are; `addmm` and `baddbmm` have their bias in front and add it in the library's epilogue."""
    bias, (left, right) = (inputs[0], inputs[1:3]) if op.op in ("addmm", "baddbmm") else (None, inputs[:2])
    found = low.run(source, "matmul", left, right, call=Call(kind="gemm"))
    return [found if bias is None else low.run(source, "add", found, bias)]


def _convolution(low: Lowering, source: str, op: AtenOp, inputs: list[str]) -> list[str]:
    """The convolution, then its bias as a pass of its own (cuDNN's convolution adds none)."""
    image, weight, result = low.shape(inputs[0]), low.shape(inputs[1]), op.outputs[0]
    rank = len(image) - 2
    transposed, group = conv_form(image, weight, result, op.flops)
    sizes = [conv_window(image[2 + i], weight[2 + i], result[2 + i], transposed=transposed) for i in range(rank)]
    attrs: dict[str, AttrValue] = {"stride": tuple(s for s, _, _, _ in sizes), "group": group}
    attrs["pad"] = tuple(p for _, p, _, _ in sizes)
    attrs["dilation"] = tuple(d for _, _, d, _ in sizes)
    if transposed:
        attrs["output_pad"] = tuple(e for _, _, _, e in sizes)
    native = f"conv{rank}d_transpose" if transposed else f"conv{rank}d"
    kind = f"conv{rank}d{'t' if transposed else ''}"
    call = Call(
        kind=kind, channels=image[1] // group, taps=prod(weight[2:]), dense=group == 1, first=op.inputs[0][0][0] != "#",
        last=source == f"convolution_{low.last}",
    )  # fmt: skip
    found = low.run(source, native, inputs[0], inputs[1], call=call, **attrs)
    if len(inputs) < 3:
        return [found]
    bias = low.reshape(inputs[2], (1, result[1], *(1,) * rank))
    return [low.run(f"{source}_bias", "add", found, bias, call=Call(kind=f"{kind}-bias"))]


def conv_form(image: Shape, weight: Shape, result: Shape, flops: float) -> tuple[bool, int]:
    """Whether a convolution is transposed, and its groups, from shapes and the FLOP of the trace.

    w[O, C/group, ...] forward and w[C, O/group, ...] transposed; FLOP = 2 x result x C/group x kernel forward and
    2 x image x O/group x kernel transposed. NoFormError where neither fits.
    """
    kernel, fits = prod(weight[2:]), []
    for transposed in (False, True):
        outer, inner = (result[1], image[1]) if not transposed else (image[1], result[1])
        if weight[0] == outer and inner % weight[1] == 0:
            points = prod(image) if transposed else prod(result)
            fits.append(
                (abs(2.0 * points * weight[1] * kernel / max(flops, 1.0) - 1.0), transposed, inner // weight[1])
            )
    if not fits:
        raise NoFormError(f"no convolution of {list(image)} with {list(weight)} gives {list(result)}")
    _, transposed, group = min(fits)
    return transposed, group


def conv_window(extent: int, kernel: int, result: int, *, transposed: bool) -> tuple[int, int, int, int]:
    """Stride, padding, dilation and output padding that turn `extent` into `result`: the smallest ones that do."""
    for dilation in (1, 2, 3, 4):
        span = dilation * (kernel - 1)
        for stride in range(1, 9):
            for pad in range(span + 1):
                if not transposed:
                    room = extent + 2 * pad - span - 1
                    if room >= 0 and room // stride + 1 == result:
                        return stride, pad, dilation, 0
                else:
                    extra = result - ((extent - 1) * stride - 2 * pad + span + 1)
                    if 0 <= extra < max(stride, 1):
                        return stride, pad, dilation, extra
    raise NoFormError(f"no window of {kernel} turns {extent} into {result}")


def _pool(native: str, low: Lowering, source: str, op: AtenOp, inputs: list[str]) -> list[str]:
    """Windows as wide as their step where that fits, else three wide; a maximum keeps 64-bit indices."""
    kind, result = low.shape(inputs[0]), op.outputs[0]
    if len(result) != len(kind):
        raise NoFormError(f"pooling of {list(kind)} to {list(result)}")
    windows = [_pool_window(a, b) for a, b in zip(kind[2:], result[2:], strict=True)]
    attrs: dict[str, AttrValue] = {
        name: tuple(window[i] for window in windows) for i, name in enumerate(("k", "stride", "pad", "dilation"))
    }
    taps = prod(window[0] for window in windows)
    call = Call(kind=native, taps=taps, extra_write=8 * prod(result) if native == "maxpool" else 0)
    return [low.run(source, native, inputs[0], call=call, **attrs)]


def _pool_window(extent: int, result: int) -> tuple[int, int, int, int]:
    """Width, step, padding and dilation of a pooling from `extent` to `result`."""
    step = max(1, extent // result)
    width = extent - result + 1 if step == 1 else step
    if (extent - width) // step + 1 == result:
        return width, step, 0, 1
    stride, pad, dilation, _ = conv_window(extent, 3, result, transposed=False)
    return 3, stride, pad, dilation


def _statistics(low: Lowering, source: str, x: str, axes: Shape, kind: str) -> tuple[str, str]:
    """Mean and reciprocal deviation over `axes`, as a kernel of its own."""
    stats = f"{source}_stats"
    low.calls[stats] = Call(kind=kind)
    mean = low.run(stats, "reduce_mean", x, axis=axes, keepdims=True)
    centred = low.run(stats, "sub", x, mean)
    variance = low.run(stats, "reduce_mean", low.run(stats, "square", centred), axis=axes, keepdims=True)
    return mean, low.run(stats, "rsqrt", low.run(stats, "add", variance, Literal(1e-5)))


def _batch_norm(low: Lowering, source: str, op: AtenOp, inputs: list[str]) -> list[str]:
    """In training mode: statistics over all but the channels, then a pass that applies them."""
    x, rank = inputs[0], len(low.shape(inputs[0]))
    axes = tuple(axis for axis in range(rank) if axis != 1)
    mean, inverse = _statistics(low, source, x, axes, "batch-moments")
    return [_apply(low, source, x, mean, inverse, inputs[1:3])]


def _apply(low: Lowering, source: str, x: str, mean: str, inverse: str, parameters: list[str]) -> str:
    rank = len(low.shape(x))
    y = low.run(source, "mul", low.run(source, "sub", x, mean), inverse)
    for native, name in zip(("mul", "add"), parameters, strict=False):
        y = low.run(source, native, y, low.reshape(name, (1, low.size(name), *(1,) * (rank - 2))))
    return y


def _group_norm(low: Lowering, source: str, op: AtenOp, inputs: list[str]) -> list[str]:
    """Moments of each group's row, then a pass that applies them."""
    shape = low.shape(inputs[0])
    groups = prod(op.outputs[1]) // shape[0]
    rows = low.reshape(inputs[0], (shape[0], groups, shape[1] // groups, *shape[2:]))
    mean, inverse = _statistics(low, source, rows, tuple(range(2, len(shape) + 1)), "row-moments")
    y = low.run(source, "mul", low.run(source, "sub", rows, mean), inverse)
    wide = (1, groups, shape[1] // groups, *(1,) * (len(shape) - 2))
    for native, name in zip(("mul", "add"), inputs[1:3], strict=False):
        y = low.run(source, native, y, low.reshape(name, wide))
    return [low.reshape(y, shape)]


def _layer_norm(low: Lowering, source: str, op: AtenOp, inputs: list[str]) -> list[str]:
    """One kernel over the last axes, those that the statistics of the trace have with extent 1."""
    shape, stats = low.shape(inputs[0]), op.outputs[1]
    first = next(i for i, extent in enumerate(stats) if extent == 1 and prod(stats[i:]) == 1 and prod(shape[i:]) > 1)
    rows = low.reshape(inputs[0], (prod(shape[:first]), prod(shape[first:])))
    parameters = [low.reshape(name, (low.size(name),)) for name in inputs[1:3]]
    return [low.reshape(low.run(source, "layernorm", rows, *parameters, axis=1, call=Call(kind="layernorm")), shape)]


def reduced_axes(shape: Shape, result: Shape) -> Shape:
    """The axes that a reduction of `shape` to `result` folds; of several choices the last ones.

    NoFormError where `result` is no reduction of `shape`.
    """
    if len(result) == len(shape):
        axes = tuple(i for i, (a, b) in enumerate(zip(shape, result, strict=True)) if a != b)
        return axes or tuple(i for i, extent in enumerate(shape) if extent == 1)[:1] or (len(shape) - 1,)
    if prod(result) == 1:
        return tuple(range(len(shape)))
    folded: list[int] = []
    place = 0
    for i, extent in enumerate(shape):
        if place < len(result) and extent == result[place]:
            place += 1
        else:
            folded.append(i)
    if place < len(result):
        raise NoFormError(f"a reduction of {list(shape)} does not give {list(result)}")
    return tuple(folded)


def _each(function: Lower, names: str) -> dict[str, Lower]:
    return dict.fromkeys(names.split(), function)


_UNARY = {
    "relu": "relu", "tanh": "tanh", "sigmoid": "sigmoid", "gelu": "gelu", "mish": "mish", "softplus": "softplus",
    "hardswish": "hardswish", "leaky_relu": "leaky_relu", "elu": "elu", "abs": "abs", "sqrt": "sqrt", "log": "log",
    "hardsigmoid": "hardsigmoid", "clone": "copy", "flip": "copy", "silu": "silu", "exp": "exp", "neg": "neg",
    "rsqrt": "rsqrt", "square": "square", "reciprocal": "reciprocal", "selu": "selu", "softsign": "softsign",
    "log1p": "log1p", "expm1": "expm1", "erf": "erf", "sin": "sin", "cos": "cos", "sign": "sign", "copy_": "copy",
    "relu_": "relu", "sigmoid_": "sigmoid", "hardswish_": "hardswish", "leaky_relu_": "leaky_relu", "celu": "celu",
}  # fmt: skip
_BINARY = {
    "mul": "mul", "add": "add", "add_": "add", "sub": "sub", "div": "div", "div_": "div", "minimum": "minimum",
    "maximum": "maximum", "clamp_min": "maximum", "clamp_min_": "maximum", "clamp_max": "minimum", "pow": "pow",
    "mul_": "mul", "sub_": "sub", "masked_fill": "mul", "fmod": "fmod",
}  # fmt: skip
_REDUCE = {
    "sum": "reduce_sum", "mean": "reduce_mean", "max": "reduce_max", "min": "reduce_min", "norm": "reduce_l2",
    "linalg_vector_norm": "reduce_l2", "amax": "reduce_max", "amin": "reduce_min", "prod": "reduce_prod",
}  # fmt: skip

# Name of an ATen call -> the function that builds it.
ATEN: Mapping[str, Lower] = MappingProxyType({
    **{name: partial(_unary, native) for name, native in _UNARY.items()},
    **{name: partial(_unary, "clip", min=-1.0, max=1.0) for name in ("hardtanh", "hardtanh_", "clamp", "clamp_")},
    **{name: partial(_unary, "trilu", upper=name == "triu") for name in ("tril", "triu")},
    **{name: partial(_binary, native) for name, native in _BINARY.items()},
    **{name: partial(_reduce, native) for name, native in _REDUCE.items()},
    **{name: partial(_extreme_at, name) for name in ("argmax", "argmin")},
    **{name: partial(_pool, name[:3] + "pool") for name in ("avg_pool2d", "avg_pool3d", "avg_pool1d")},
    **_each(partial(_pool, "maxpool"), "max_pool2d_with_indices max_pool3d_with_indices"),
    **_each(_matmul, "mm bmm addmm baddbmm"),
    **_each(_random, "bernoulli_ rand_like randn_like"),
    **_each(_filled, "zeros_like ones_like full_like scalar_tensor zeros ones full"),
    **_each(_cumsum, "cumsum cumprod logcumsumexp"),
    **_each(_variance, "var std"),
    "_softmax": partial(_softmax, "softmax"), "_log_softmax": partial(_softmax, "log_softmax"),
    "logsumexp": _logsumexp, "cat": _concat, "convolution": _convolution, "rsub": _reversed_sub,
    "xlogy": _xlogy, "nll_loss_forward": _class_loss, "smooth_l1_loss": _smooth_l1, "native_batch_norm": _batch_norm,
    "native_group_norm": _group_norm, "native_layer_norm": _layer_norm,
})  # fmt: skip
