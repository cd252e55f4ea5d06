"""Normalisations, softmax and composite reductions as primitives.

The layer norm is the two-pass form mean, centre, mean of squares (Ba et al. 2016): it needs the row twice and does
not cancel. RMS norm: Zhang and Sennrich 2019. Softmax subtracts the row's maximum.
"""

from collections.abc import Callable, Sequence

from fusesolve.decompose.emit import Attrs, Composite, Emit, axes_attr, common_float, float_attr, tensor_operand, unary
from fusesolve.errors import InputError
from fusesolve.graph import Operand, TensorType
from fusesolve.ops.rules import flag, integers, resolve_axes


def softmax(emit: Emit, x: Operand, axes: tuple[int, ...]) -> Operand:
    """exp(x - max) / sum over `axes`, in the type of `x`: five primitives."""
    top = emit("reduce_max", x, axis=axes, keepdims=True)
    weight = emit("exp", emit("sub", x, top))
    return emit("div", weight, emit("reduce_sum", weight, axis=axes, keepdims=True))


def _softmax(emit: Emit, x: Operand, attrs: Attrs) -> Operand:
    return softmax(emit, x, axes_attr(attrs, len(emit.shape(x))))


def _log_softmax(emit: Emit, x: Operand, attrs: Attrs) -> Operand:
    axes = axes_attr(attrs, len(emit.shape(x)))
    centred = emit("sub", x, emit("reduce_max", x, axis=axes, keepdims=True))
    total = emit("reduce_sum", emit("exp", centred), axis=axes, keepdims=True)
    return emit("sub", centred, emit("log", total))


def normalise(emit: Emit, x: Operand, axes: tuple[int, ...], eps: float) -> tuple[Operand, Operand, Operand]:
    """(x - mean) / sqrt(variance + eps) over `axes`, with the mean and the reciprocal deviation (axes kept)."""
    mean = emit("reduce_mean", x, axis=axes, keepdims=True)
    centred = emit("sub", x, mean)
    variance = emit("reduce_mean", emit("square", centred), axis=axes, keepdims=True)
    inverse = emit("rsqrt", emit("add", variance, eps))
    return emit("mul", centred, inverse), mean, inverse


def _affine(
    emit: Emit, x: Operand, inputs: Sequence[Operand], axes: tuple[int, ...], first: int = 1
) -> Operand:
    rank = len(emit.shape(x))
    for op, position in (("mul", first), ("add", first + 1)):
        parameter = tensor_operand(inputs, position)
        if parameter is not None:
            x = emit(op, x, emit.along(emit.wide(parameter), rank, axes))
    return x


def _layernorm(emit: Emit, inputs: Sequence[Operand], attrs: Attrs) -> tuple[Operand, ...]:
    dtype = common_float(emit, inputs[:1])
    x = emit.wide(inputs[0])
    axes = axes_attr(attrs, len(emit.shape(x)))
    y, mean, inverse = normalise(emit, x, axes, float_attr(attrs, "eps", 1e-5))
    return emit.cast(_affine(emit, y, inputs, axes), dtype), mean, inverse


def _rmsnorm(emit: Emit, inputs: Sequence[Operand], attrs: Attrs) -> tuple[Operand, ...]:
    dtype = common_float(emit, inputs[:1])
    x = emit.wide(inputs[0])
    axes = axes_attr(attrs, len(emit.shape(x)))
    mean = emit("reduce_mean", emit("square", x), axis=axes, keepdims=True)
    y = emit("mul", x, emit("rsqrt", emit("add", mean, float_attr(attrs, "eps", 1e-6))))
    return (emit.cast(_affine(emit, y, inputs, axes), dtype),)


def _groupnorm(emit: Emit, inputs: Sequence[Operand], attrs: Attrs) -> tuple[Operand, ...]:
    dtype, shape = common_float(emit, inputs[:1]), emit.shape(inputs[0])
    groups = integers(attrs.get("groups", 1), "groups", 1, least=1)[0]
    if len(shape) < 2 or shape[1] % groups:
        raise InputError(f"groupnorm of {list(shape)} in {groups} groups: axis 1 is not divisible")
    size = 1
    for extent in shape[1:]:
        size *= extent
    rows = emit.reshape(emit.wide(inputs[0]), (shape[0], groups, size // groups))
    y, _, _ = normalise(emit, rows, (2,), float_attr(attrs, "eps", 1e-5))
    return (emit.cast(_affine(emit, emit.reshape(y, shape), inputs, (1,)), dtype),)


def _instancenorm(emit: Emit, inputs: Sequence[Operand], attrs: Attrs) -> tuple[Operand, ...]:
    dtype, rank = common_float(emit, inputs[:1]), len(emit.shape(inputs[0]))
    if rank < 3:
        raise InputError(f"instancenorm needs [N, C, ...] with spatial axes, got {emit.type(inputs[0])}")
    y, _, _ = normalise(emit, emit.wide(inputs[0]), tuple(range(2, rank)), float_attr(attrs, "eps", 1e-5))
    return (emit.cast(_affine(emit, y, inputs, (1,)), dtype),)


def _batchnorm(emit: Emit, inputs: Sequence[Operand], attrs: Attrs) -> tuple[Operand, ...]:
    x, scale, bias, mean, variance = inputs
    dtype, rank = common_float(emit, inputs[:1]), len(emit.shape(x))
    axes = axes_attr(attrs, rank, 1 if rank > 1 else 0)
    if all(emit.builder.is_weight(item) for item in inputs[1:]):
        return (emit.cast(_precombined(emit, emit.wide(x), axes), dtype),)
    deviation = emit("add", emit.wide(variance), float_attr(attrs, "eps", 1e-5))
    factor = emit("mul", emit("rsqrt", deviation), emit.wide(scale))
    shift = emit("sub", emit.wide(bias), emit("mul", emit.wide(mean), factor))
    scaled = emit("mul", emit.wide(x), emit.along(factor, rank, axes))
    return (emit.cast(emit("add", scaled, emit.along(shift, rank, axes)), dtype),)


def _precombined(emit: Emit, x: Operand, axes: tuple[int, ...]) -> Operand:
    """The formula x * factor + offset: the statistics are constants, so both are computed ahead and become weights."""
    shape = emit.shape(x)
    kind = TensorType(emit.type(x).dtype, tuple(extent if axis in axes else 1 for axis, extent in enumerate(shape)))
    factor, offset = (
        emit.builder.input(f"{emit.source}/{part}", kind, weight=True) for part in ("factor", "offset")
    )
    return emit("add", emit("mul", x, factor), offset)


def _lrn(emit: Emit, x: Operand, attrs: Attrs) -> Operand:
    size = integers(attrs.get("size", 5), "size", 1, least=1)[0]
    offsets = tuple(range(-((size - 1) // 2), size - (size - 1) // 2))
    total = emit("stencil", emit("square", x), axis=1, offsets=offsets)
    base = emit("add", emit("mul", total, float_attr(attrs, "alpha", 1e-4) / size), float_attr(attrs, "bias", 1.0))
    return emit("div", x, emit("pow", base, float_attr(attrs, "beta", 0.75)))


def _lpnorm(emit: Emit, x: Operand, attrs: Attrs) -> Operand:
    axes = axes_attr(attrs, len(emit.shape(x)))
    if integers(attrs.get("p", 2), "p", 1)[0] == 1:
        return emit("div", x, emit("reduce_sum", emit("abs", x), axis=axes, keepdims=True))
    return emit("div", x, emit("sqrt", emit("reduce_sum", emit("square", x), axis=axes, keepdims=True)))


# Reductions with arithmetic around them: the elementwise step before and the one after the sum.
def _sum_between(before: str | None, after: str | None) -> Callable[[Emit, Operand, Attrs], Operand]:
    def body(emit: Emit, x: Operand, attrs: Attrs) -> Operand:
        axes = resolve_axes(attrs.get("axis"), len(emit.shape(x)))
        item = x if before is None else emit(before, x)
        total = emit("reduce_sum", item, axis=axes, keepdims=flag(attrs.get("keepdims", False), "keepdims"))
        return total if after is None else emit(after, total)

    return body


def _logsumexp(emit: Emit, x: Operand, attrs: Attrs) -> Operand:
    axes, keep = resolve_axes(attrs.get("axis"), len(emit.shape(x))), flag(attrs.get("keepdims", False), "keepdims")
    top = emit("reduce_max", x, axis=axes, keepdims=True)
    total = emit("reduce_sum", emit("exp", emit("sub", x, top)), axis=axes, keepdims=keep)
    return emit("add", emit("log", total), emit.reshape(top, emit.shape(total)))


def _variance(emit: Emit, x: Operand, attrs: Attrs) -> Operand:
    axes, keep = resolve_axes(attrs.get("axis"), len(emit.shape(x))), flag(attrs.get("keepdims", False), "keepdims")
    centred = emit("sub", x, emit("reduce_mean", x, axis=axes, keepdims=True))
    return emit("reduce_mean", emit("square", centred), axis=axes, keepdims=keep)


def _bool_reduce(op: str) -> Callable[[Emit, Sequence[Operand], Attrs], tuple[Operand, ...]]:
    """The maximum (any) or minimum (all) of the bool seen as u8, compared with 0 again."""

    def expand(emit: Emit, inputs: Sequence[Operand], attrs: Attrs) -> tuple[Operand, ...]:
        found = emit(op, emit("cast", inputs[0], to="u8"), **attrs)
        return (emit("not_equal", found, 0),)

    return expand


_AXIS = {"axis": (False, "axes to normalise over (default the last)")}
_EPS = {"eps": (False, "added to the variance (default 1e-5; rmsnorm 1e-6)")}
_FOLD = {"axis": (False, "axes to fold, all where absent"), "keepdims": (False, "keep folded axes with extent 1")}

NORMS: tuple[Composite, ...] = (
    Composite(name="softmax", doc="exp(x) / sum(exp(x)).", operands=(1, 1), expand=unary(_softmax), attrs=_AXIS),
    Composite(name="log_softmax", doc="log(softmax(x)).", operands=(1, 1), expand=unary(_log_softmax), attrs=_AXIS),
    Composite(name="layernorm", doc="Layer norm of x with optional scale and bias; also gives mean and 1/deviation.",
              operands=(1, 3), expand=_layernorm, attrs=_AXIS | _EPS),
    Composite(name="rmsnorm", doc="x / sqrt(mean(x^2) + eps) with optional scale and bias.", operands=(1, 3),
              expand=_rmsnorm, attrs=_AXIS | _EPS),
    Composite(name="groupnorm", doc="Norm over groups of channels of x[N, C, ...] with optional scale[C], bias[C].",
              operands=(1, 3), expand=_groupnorm, attrs=_EPS | {"groups": (True, "number of groups")}),
    Composite(name="instancenorm", doc="Norm over the spatial axes of x[N, C, ...] with optional scale[C], bias[C].",
              operands=(1, 3), expand=_instancenorm, attrs=_EPS),
    Composite(name="batchnorm", doc="x, scale, bias, mean, variance, at inference; constants are combined ahead.",
              operands=(5, 5), expand=_batchnorm, attrs=_EPS | {"axis": (False, "channel axis (default 1)")}),
    Composite(name="lrn", doc="x / (bias + alpha/size * sum of squares over near channels) ** beta.", operands=(1, 1),
              expand=unary(_lrn), attrs={"size": (True, "channels summed"), "alpha": (False, "default 1e-4"),
                                         "beta": (False, "default 0.75"), "bias": (False, "default 1")}),
    Composite(name="lpnorm", doc="x over its 1- or 2-norm along an axis.", operands=(1, 1), expand=unary(_lpnorm),
              attrs=_AXIS | {"p": (False, "1 or 2 (default 2)")}),
    Composite(name="reduce_l1", doc="Sum of |x|.", operands=(1, 1),
              expand=unary(_sum_between("abs", None)), attrs=_FOLD),
    Composite(name="reduce_l2", doc="Square root of the sum of squares.", operands=(1, 1),
              expand=unary(_sum_between("square", "sqrt")), attrs=_FOLD),
    Composite(name="reduce_sum_square", doc="Sum of squares.", operands=(1, 1),
              expand=unary(_sum_between("square", None)), attrs=_FOLD),
    Composite(name="reduce_log_sum", doc="Logarithm of the sum.", operands=(1, 1),
              expand=unary(_sum_between(None, "log")), attrs=_FOLD),
    Composite(name="logsumexp", doc="Logarithm of the sum of exponentials.", operands=(1, 1),
              expand=unary(_logsumexp), attrs=_FOLD),
    Composite(name="reduce_var", doc="Variance (divided by the count).", operands=(1, 1), expand=unary(_variance),
              attrs=_FOLD),
    Composite(name="reduce_any", doc="True where any is true.", operands=(1, 1), expand=_bool_reduce("reduce_max"),
              attrs=_FOLD),
    Composite(name="reduce_all", doc="True where all are true.", operands=(1, 1), expand=_bool_reduce("reduce_min"),
              attrs=_FOLD),
)  # fmt: skip
