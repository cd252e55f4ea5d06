"""Composites that rearrange, mask or quantise."""

from collections.abc import Sequence

from fusesolve.decompose.emit import Attrs, Composite, Emit, float_attr
from fusesolve.errors import InputError
from fusesolve.graph import DType, Literal, Operand
from fusesolve.ops.rules import flag, integers, parse_dtype, resolve_axis, word


def _split(emit: Emit, inputs: Sequence[Operand], attrs: Attrs) -> tuple[Operand, ...]:
    shape = emit.shape(inputs[0])
    axis = resolve_axis(attrs.get("axis", 0), len(shape))
    if "sizes" in attrs:
        sizes = integers(attrs["sizes"], "sizes", least=0)
    else:
        parts = integers(attrs.get("parts", 1), "parts", 1, least=1)[0]
        size = -(-shape[axis] // parts)
        sizes = tuple(max(0, min(size, shape[axis] - size * i)) for i in range(parts))
    if sum(sizes) != shape[axis]:
        raise InputError(f"split of axis {axis} of {emit.type(inputs[0])} into {'-'.join(map(str, sizes))}")
    starts = [sum(sizes[:index]) for index in range(len(sizes))]
    return tuple(
        emit("slice", inputs[0], axis=axis, start=start, end=start + size)
        for start, size in zip(starts, sizes, strict=True)
    )


def _tile(emit: Emit, inputs: Sequence[Operand], attrs: Attrs) -> tuple[Operand, ...]:
    shape = emit.shape(inputs[0])
    repeats = integers(attrs.get("repeats", ()), "repeats", len(shape), least=0)
    x = inputs[0]
    for axis, count in enumerate(repeats):
        if count != 1:
            now = emit.shape(x)
            apart = emit.reshape(x, (*now[:axis], 1, *now[axis:]))
            copies = emit("broadcast", apart, to=(*now[:axis], count, *now[axis:]))
            x = emit.reshape(copies, (*now[:axis], count * now[axis], *now[axis + 1 :]))
    return (x,)


def _blocks(emit: Emit, x: Operand, attrs: Attrs) -> tuple[tuple[int, int, int, int], int]:
    shape = emit.shape(x)
    block = integers(attrs.get("block", 2), "block", 1, least=1)[0]
    if len(shape) != 4:
        raise InputError(f"needs x[N, C, H, W], got {emit.type(x)}")
    n, c, h, w = shape
    return (n, c, h, w), block


def _depth_to_space(emit: Emit, inputs: Sequence[Operand], attrs: Attrs) -> tuple[Operand, ...]:
    (n, c, h, w), b = _blocks(emit, inputs[0], attrs)
    if c % (b * b):
        raise InputError(f"depth_to_space of {c} channels in blocks of {b} x {b}")
    deep = c // (b * b)
    if word(attrs.get("mode", "DCR"), "mode", ("DCR", "CRD")) == "DCR":
        split, perm = (n, b, b, deep, h, w), (0, 3, 4, 1, 5, 2)
    else:
        split, perm = (n, deep, b, b, h, w), (0, 1, 4, 2, 5, 3)
    moved = emit("transpose", emit.reshape(inputs[0], split), perm=perm)
    return (emit.reshape(moved, (n, deep, h * b, w * b)),)


def _space_to_depth(emit: Emit, inputs: Sequence[Operand], attrs: Attrs) -> tuple[Operand, ...]:
    (n, c, h, w), b = _blocks(emit, inputs[0], attrs)
    if h % b or w % b:
        raise InputError(f"space_to_depth of {h} x {w} in blocks of {b} x {b}")
    apart = emit.reshape(inputs[0], (n, c, h // b, b, w // b, b))
    moved = emit("transpose", apart, perm=(0, 3, 5, 1, 2, 4))
    return (emit.reshape(moved, (n, c * b * b, h // b, w // b)),)


def _trilu(emit: Emit, inputs: Sequence[Operand], attrs: Attrs) -> tuple[Operand, ...]:
    shape = emit.shape(inputs[0])
    if len(shape) < 2:
        raise InputError(f"trilu needs a matrix, got {emit.type(inputs[0])}")
    offset = integers(attrs.get("k", 0), "k", 1)[0]
    row = emit("reshape", emit("arange", n=shape[-2], start=offset), to=(shape[-2], 1))
    upper = flag(attrs.get("upper", True), "upper")
    keep = emit("greater_equal" if upper else "less_equal", emit("arange", n=shape[-1]), row)
    kind = emit.type(inputs[0]).dtype
    return (emit("where", keep, inputs[0], False if kind is DType.BOOL else 0),)


def _one_hot(emit: Emit, inputs: Sequence[Operand], attrs: Attrs) -> tuple[Operand, ...]:
    index = inputs[0]
    shape = emit.shape(index)
    depth = integers(attrs.get("depth", 0), "depth", 1, least=0)[0]
    axis = resolve_axis(attrs.get("axis", -1), len(shape) + 1)
    classes = emit("arange", n=depth, to=emit.type(index).dtype.value)
    lane = tuple(depth if dim == axis else 1 for dim in range(len(shape) + 1))
    if "wrap" in attrs and flag(attrs["wrap"], "wrap"):
        index = emit("mod", index, depth)
    hit = emit("equal", emit("unsqueeze", index, axis=axis), emit.reshape(classes, lane))
    if len(inputs) == 1:
        return (emit("cast", hit, to=parse_dtype(attrs.get("to", "f32")).value),)
    off, on = inputs[1:3]
    return (emit("where", hit, on, off),)


def _quantize(emit: Emit, inputs: Sequence[Operand], attrs: Attrs) -> tuple[Operand, ...]:
    """saturate(round(x / scale) + zero); scale and zero are scalars, or vectors along `axis`."""
    x, scale = emit.wide(inputs[0]), emit.wide(inputs[1])
    target = parse_dtype(attrs.get("to", "u8"))
    axes = (resolve_axis(attrs.get("axis", 1), max(1, len(emit.shape(x)))),) if emit.shape(scale) else ()
    rank = len(emit.shape(x))
    y = emit("div", x, _vector(emit, scale, rank, axes))
    if target.is_float:
        return (emit.cast(y, target),)
    y = emit("round", y)
    if len(inputs) > 2:
        zero = inputs[2] if isinstance(inputs[2], Literal) else emit("cast", inputs[2], to=emit.type(y).dtype.value)
        y = emit("add", y, _vector(emit, zero, rank, axes))
    low, high = (float(v) for v in (_RANGE[target] if target in _RANGE else _RANGE[DType.U8]))
    return (emit("cast", emit("clip", y, min=low, max=high), to=target.value),)


_RANGE = {
    DType.I8: (-128, 127), DType.U8: (0, 255), DType.I16: (-32768, 32767), DType.U16: (0, 65535),
}  # fmt: skip


def _vector(emit: Emit, parameter: Operand, rank: int, axes: tuple[int, ...]) -> Operand:
    if len(emit.shape(parameter)) != 1 or rank <= 1:
        return parameter
    return emit.along(parameter, rank, axes)


def _dequantize(emit: Emit, inputs: Sequence[Operand], attrs: Attrs) -> tuple[Operand, ...]:
    """(x - zero) * scale in the type of the scale."""
    x, scale = inputs[:2]
    kind, rank = emit.type(scale).dtype, len(emit.shape(x))
    axes = (resolve_axis(attrs.get("axis", 1), max(1, rank)),) if emit.shape(scale) else ()
    y: Operand = emit("cast", x, to=DType.F32.value)
    if len(inputs) > 2:
        zero = inputs[2] if isinstance(inputs[2], Literal) else emit("cast", inputs[2], to=DType.F32.value)
        y = emit("sub", y, _vector(emit, zero, rank, axes))
    return (emit.cast(emit("mul", y, _vector(emit, emit.wide(scale), rank, axes)), kind),)


def _identity(emit: Emit, inputs: Sequence[Operand], attrs: Attrs) -> tuple[Operand, ...]:
    float_attr(attrs, "p", 0.5)
    return (inputs[0],)


_AXIS = {"axis": (False, "the axis")}

LAYOUT: tuple[Composite, ...] = (
    Composite(name="split", doc="Parts of an axis, one slice each.", operands=(1, 1), expand=_split,
              attrs=_AXIS | {"sizes": (False, "extent of each part"), "parts": (False, "number of equal parts")}),
    Composite(name="tile", doc="x repeated along its axes.", operands=(1, 1), expand=_tile,
              attrs={"repeats": (True, "copies per axis")}),
    Composite(name="depth_to_space", doc="Channels moved into blocks of pixels.", operands=(1, 1),
              expand=_depth_to_space,
              attrs={"block": (False, "extent of a block (default 2)"), "mode": (False, "DCR or CRD (default DCR)")}),
    Composite(name="space_to_depth", doc="Blocks of pixels moved into channels.", operands=(1, 1),
              expand=_space_to_depth, attrs={"block": (False, "extent of a block (default 2)")}),
    Composite(name="trilu", doc="Upper or lower triangle of the last two axes, zero elsewhere.", operands=(1, 1),
              expand=_trilu, attrs={"upper": (False, "keep the upper part (default true)"), "k": (False, "diagonal")}),
    Composite(name="one_hot", doc="Indices as rows of off and on values (default 0 and 1).", operands=(1, 3),
              expand=_one_hot, attrs=_AXIS | {"depth": (True, "number of classes"), "to": (False, "element type"),
                                              "wrap": (False, "negative indices count from the end")}),
    Composite(name="quantize", doc="x, scale, zero: saturate(round(x / scale) + zero).", operands=(2, 3),
              expand=_quantize, attrs=_AXIS | {"to": (False, "element type (default u8)")}),
    Composite(name="dequantize", doc="x, scale, zero: (x - zero) * scale.", operands=(2, 3), expand=_dequantize,
              attrs=_AXIS),
    Composite(name="dropout", doc="x itself: inference.", operands=(1, 1), expand=_identity,
              attrs={"p": (False, "probability, unused")}),
)  # fmt: skip
