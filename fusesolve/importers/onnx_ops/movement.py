"""ONNX operators that move data or change its shape. Source of the rules: the ONNX operator specification."""

import math
from collections.abc import Mapping, Sequence

from fusesolve.errors import InputError
from fusesolve.graph import Literal, Operand
from fusesolve.importers.onnx_lower import Handler
from fusesolve.importers.onnx_node import NodeView


def _view(node: NodeView) -> Operand:
    """Reshape, Flatten, Squeeze, Unsqueeze: the same elements under the shape that inference found."""
    return node.reshape(node.tensor(0), node.result().shape)


def _transpose(node: NodeView) -> Operand:
    rank = len(node.type(0).shape)
    perm = tuple(node.attr("perm") or reversed(range(rank)))
    return node.tensor(0) if perm == tuple(range(rank)) else node.emit("transpose", node.tensor(0), perm=perm)


def _expand(node: NodeView) -> Operand:
    shape = node.result().shape
    return node.tensor(0) if node.type(0).shape == shape else node.emit("broadcast", node.tensor(0), to=shape)


def _tile(node: NodeView) -> Operand:
    """Repeats of an axis of extent 1 are one broadcast, of any other a broadcast of a new axis in front of it."""
    shape, result = node.type(0).shape, node.result().shape
    repeats = [1 if extent == 0 else wide // extent for extent, wide in zip(shape, result, strict=True)]
    apart: list[int] = []
    wide: list[int] = []
    for extent, repeat in zip(shape, repeats, strict=True):
        apart += [extent] if repeat == 1 or extent == 1 else [1, extent]
        wide += [extent * repeat] if repeat == 1 or extent == 1 else [repeat, extent]
    if wide == apart:
        return node.tensor(0)
    return node.reshape(node.emit("broadcast", node.reshape(node.tensor(0), apart), to=tuple(wide)), result)


def _concat(node: NodeView) -> Operand:
    axis = int(node.attr("axis", 1)) % len(node.result().shape)
    parts = [node.tensor(index) for index in range(node.count) if node.type(index).shape[axis] > 0]
    if not parts:
        return node.tensor(0)
    return parts[0] if len(parts) == 1 else node.emit("concat", *parts, axis=axis)


def cut(node: NodeView, name: str, axis: int, start: int, end: int, step: int = 1) -> str:
    """name[start:end:step] on one axis, by Python's rules; nothing is emitted where all is taken."""
    extent = node.known(name).shape[axis]
    first, stop, _ = slice(start, end, step).indices(extent)
    if step == 1 and first == 0 and stop == extent:
        return name
    if step < 0 and stop < 0:  # to the first element: an end that reads the same again
        stop = -(extent + 1)
    return node.emit("slice", name, axis=axis, start=first, end=stop, step=step)


def _split(node: NodeView) -> Sequence[Operand | None]:
    axis = int(node.attr("axis", 0)) % len(node.type(0).shape)
    parts: list[Operand | None] = []
    start = 0
    for index in range(len(node.node.outputs)):
        extent = node.result(index).shape[axis] if node.wants(index) else _split_extent(node, index, axis)
        parts.append(cut(node, node.tensor(0), axis, start, start + extent) if node.wants(index) else None)
        start += extent
    return parts


def _split_extent(node: NodeView, index: int, axis: int) -> int:
    """Extent of a part that nobody reads."""
    sizes = node.ints(1, "split")
    return sizes[index] if sizes else -(-node.type(0).shape[axis] // len(node.node.outputs))


def _slice(node: NodeView) -> Operand | None:
    """Bounds are attributes up to opset 9, operands after; those that depend on data leave an opaque kernel."""
    if any(node.has(index) and node.array(index) is None for index in range(1, 5)):
        return None
    starts, ends = node.ints(1, "starts"), node.ints(2, "ends")
    if starts is None or ends is None:
        raise InputError("starts or ends are missing")
    rank = len(node.type(0).shape)
    axes = node.ints(3, "axes") or tuple(range(len(starts)))
    steps = node.ints(4, "steps") or (1,) * len(starts)
    made = node.tensor(0)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        made = cut(node, made, axis % rank, start, end, step)
    return made


def _pad(node: NodeView) -> Operand | None:
    """One primitive per axis; negative padding is a slice; a fill that depends on data leaves an opaque kernel."""
    pads = node.ints(1, "pads") if "pads" in node.node.attributes or node.array(1) is not None else None
    mode = str(node.attr("mode", "constant"))
    fill = node.attr("value", 0.0) if node.opset < 11 else (node.scalar(2) if node.has(2) else 0)
    if pads is None or mode not in ("constant", "edge", "reflect", "wrap") or fill is None:
        return None
    rank = len(node.type(0).shape)
    axes = [axis % rank for axis in (node.ints(3, "axes") or range(len(pads) // 2))]
    made = node.tensor(0)
    for position, axis in enumerate(axes):
        before, after = pads[position], pads[position + len(axes)]
        extent = node.known(made).shape[axis]
        made = cut(node, made, axis, max(0, -before), extent + min(0, after))
        if mode == "wrap":
            made = _wrapped(node, made, axis, max(before, 0), max(after, 0))
        elif before > 0 or after > 0:
            made = node.emit("pad", made, axis=axis, before=max(before, 0), after=max(after, 0), mode=mode, value=fill)
    return made


def _wrapped(node: NodeView, x: str, axis: int, before: int, after: int) -> str:
    """`x` repeated around itself: its end in front, its begin behind."""
    extent = node.known(x).shape[axis]
    if max(before, after) > extent:
        raise InputError(f"wrapping pad of {before} and {after} needs an axis of at least that, not {extent}")
    front = [cut(node, x, axis, extent - before, extent)] if before else []
    behind = [cut(node, x, axis, 0, after)] if after else []
    return node.emit("concat", *front, x, *behind, axis=axis) if front or behind else x


def _depth_to_space(node: NodeView) -> Operand:
    """[N, C, H, W] -> [N, C/b^2, H*b, W*b]; DCR takes the block from the front of the channels, CRD from the back."""
    n, c, h, w = node.type(0).shape
    b = int(node.attr("blocksize"))
    if node.attr("mode", "DCR") == "DCR":
        apart = node.reshape(node.tensor(0), (n, b, b, c // (b * b), h, w))
        moved = node.emit("transpose", apart, perm=(0, 3, 4, 1, 5, 2))
    else:
        apart = node.reshape(node.tensor(0), (n, c // (b * b), b, b, h, w))
        moved = node.emit("transpose", apart, perm=(0, 1, 4, 2, 5, 3))
    return node.reshape(moved, node.result().shape)


def _space_to_depth(node: NodeView) -> Operand:
    n, c, h, w = node.type(0).shape
    b = int(node.attr("blocksize"))
    apart = node.reshape(node.tensor(0), (n, c, h // b, b, w // b, b))
    perm = (0, 3, 5, 1, 2, 4) if node.attr("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    return node.reshape(node.emit("transpose", apart, perm=perm), node.result().shape)


# --- generators ---


def _range(node: NodeView) -> Operand | None:
    start, step = node.scalar(0), node.scalar(2)
    if start is None or step is None:
        return None
    kind = node.result()
    return node.emit("arange", n=kind.shape[0], start=start, step=step, to=kind.dtype.value)


def _constant_of_shape(node: NodeView) -> Operand:
    """A fill whose shape is known although the operand that gives it is not a constant."""
    value = node.attr("value")
    kind = node.result()
    number = 0 if value is None else value.numpy().reshape(()).item()
    return node.emit("fill", const=number, shape=kind.shape, to=kind.dtype.value)


def _shape(node: NodeView) -> Operand | None:
    """Shape and Size of static tensors were folded; here only sizes that nothing could fold are left."""
    if node.node.op_type == "Size":
        return node.emit("fill", const=math.prod(node.type(0).shape), shape=(), to="i64")
    return None


def _grid(node: NodeView, shape: Sequence[int], axis: int) -> str:
    """Index along `axis` as a tensor that broadcasts to `shape`."""
    line = node.emit("arange", n=shape[axis], to="i64")
    return node.reshape(line, tuple(shape[axis] if i == axis else 1 for i in range(len(shape))))


def _trilu(node: NodeView) -> Operand | None:
    """Upper: column - row >= k; lower: column - row <= k; the rest is 0."""
    offset = 0 if not node.has(1) else node.scalar(1)
    if offset is None:
        return None
    shape = node.type(0).shape[-2:]
    distance = node.emit("sub", _grid(node, shape, 1), _grid(node, shape, 0))
    keep = node.emit("greater_equal" if node.attr("upper", 1) else "less_equal", distance, Literal(int(offset)))
    zero: float | int = 0.0 if node.type(0).dtype.is_float else 0
    return node.emit("where", keep, node.tensor(0), Literal(zero))


def _eye_like(node: NodeView) -> Operand:
    shape = node.result().shape
    distance = node.emit("sub", _grid(node, shape, 1), _grid(node, shape, 0))
    return node.cast(node.emit("equal", distance, Literal(int(node.attr("k", 0)))), node.result().dtype)


def _one_hot(node: NodeView) -> Operand | None:
    """values[1] where the index equals the position on the new axis, else values[0]; a negative index wraps."""
    values = node.array(2)
    if values is None:
        return None
    shape = node.result().shape
    axis = int(node.attr("axis", -1)) % len(shape)
    index = node.cast(node.tensor(0), node.type(0).dtype)
    if node.type(0).dtype.is_float:
        index = node.emit("cast", index, to="i64")
    from_end = node.emit("add", index, Literal(shape[axis]))
    wrapped = node.emit("where", node.emit("less", index, Literal(0)), from_end, index)
    column = node.reshape(wrapped, tuple(1 if i == axis else extent for i, extent in enumerate(shape)))
    hit = node.emit("equal", column, _grid(node, shape, axis))
    off, on = (item.item() for item in values.reshape(-1))
    if (off, on) == (0, 1):
        return node.cast(hit, node.result().dtype)
    scaled = node.emit("mul", node.cast(hit, node.result().dtype), Literal(on - off))
    return node.emit("add", scaled, Literal(off)) if off else scaled


MOVEMENT: Mapping[str, Handler] = {
    "Reshape": _view, "Flatten": _view, "Squeeze": _view, "Unsqueeze": _view, "Transpose": _transpose,
    "Expand": _expand, "Tile": _tile, "Concat": _concat, "Split": _split, "Slice": _slice, "Pad": _pad,
    "DepthToSpace": _depth_to_space, "SpaceToDepth": _space_to_depth, "Range": _range,
    "ConstantOfShape": _constant_of_shape, "Size": _shape, "Trilu": _trilu, "EyeLike": _eye_like, "OneHot": _one_hot,
}  # fmt: skip
