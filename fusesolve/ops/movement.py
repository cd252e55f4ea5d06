"""Movement, views and generators: operators without arithmetic, whose results are copies, new shapes or constants.

Work is the address and boundary arithmetic per result element, counted on the index expressions that a generated
kernel evaluates (integer pipe): one instruction for an added offset, two for a permuted address, compare and select
for each boundary.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from fusesolve.access import BROADCAST, WHOLE, Access, AccessKind, AccessMap, OperandMap, same
from fusesolve.errors import InputError
from fusesolve.graph import Node, TensorType
from fusesolve.ops.definition import OpDef, OpKind, Work
from fusesolve.ops.lazy import NumpyReference
from fusesolve.ops.rules import (
    attr_tuple,
    broadcast_operand,
    broadcast_shapes,
    identity_map,
    integers,
    number,
    promote_all,
    resolve_axes,
    resolve_axis,
    word,
)

PAD_MODES = ("constant", "edge", "reflect")


def _alu(count: float) -> Work:
    return Work(alu=count, instructions=count)


def shifted(out: int) -> Access:
    """Injective affine in result dimension `out`, with another extent."""
    return Access(AccessKind.SHIFTED, out=out)


def _at_axis(rank: int, axis: int, access: Access) -> OperandMap:
    dims = identity_map(rank)
    dims[axis] = access
    return tuple(dims)


def _infer_first(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> tuple[TensorType, ...]:
    return (types[0],)


def _access_same(node: Node, types: Sequence[TensorType], results: Sequence[TensorType]) -> AccessMap:
    return AccessMap((tuple(identity_map(len(types[0].shape))),))


# transpose


def _prepare_perm(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> dict[str, Any]:
    rank = len(types[0].shape)
    given = attrs.get("perm", tuple(reversed(range(rank))))
    perm = tuple(resolve_axis(axis, rank) for axis in (given if isinstance(given, tuple) else (given,)))
    if sorted(perm) != list(range(rank)):
        raise InputError(f"perm {'-'.join(map(str, perm))} is not a permutation of the {rank} axes of {types[0]}")
    return {"perm": perm}


def _infer_transpose(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> tuple[TensorType, ...]:
    return (TensorType(types[0].dtype, tuple(types[0].shape[axis] for axis in attr_tuple(attrs, "perm"))),)


def _access_transpose(node: Node, types: Sequence[TensorType], results: Sequence[TensorType]) -> AccessMap:
    perm = node.attr("perm")
    assert isinstance(perm, tuple)
    return AccessMap((tuple(same(perm.index(axis)) for axis in range(len(perm))),))


# broadcast


def _prepare_broadcast(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> dict[str, Any]:
    return {"to": integers(attrs.get("to", ()), "to", least=0)}


def _infer_broadcast(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> tuple[TensorType, ...]:
    shape = attr_tuple(attrs, "to")
    if broadcast_shapes([types[0].shape, shape]) != shape:
        raise InputError(f"{types[0]} does not broadcast to {list(shape)}")
    return (TensorType(types[0].dtype, shape),)


def _access_broadcast(node: Node, types: Sequence[TensorType], results: Sequence[TensorType]) -> AccessMap:
    return AccessMap((broadcast_operand(types[0].shape, results[0].shape),))


# slice


def _prepare_slice(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> dict[str, Any]:
    axis = resolve_axis(attrs.get("axis", 0), len(types[0].shape))
    step = integers(attrs.get("step", 1), "step", 1)[0]
    if step == 0:
        raise InputError("slice has step 0")
    extent = types[0].shape[axis]
    first, last = (integers(attrs[key], key, 1)[0] if key in attrs else None for key in ("start", "end"))
    start, stop, _ = slice(first, last, step).indices(extent)
    if not range(start, stop, step):
        start, stop = 0, 0
    end = -(extent + 1) if stop < 0 else stop  # before element 0, written so that it reads the same again
    return {"axis": axis, "start": start, "end": end, "step": step}


def slice_extent(start: int, end: int, step: int, extent: int) -> int:
    """Elements that a canonical slice takes from an axis of `extent`."""
    return len(range(*slice(start, end, step).indices(extent)))


def _infer_slice(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> tuple[TensorType, ...]:
    shape = list(types[0].shape)
    axis = attrs["axis"]
    shape[axis] = slice_extent(attrs["start"], attrs["end"], attrs["step"], shape[axis])
    return (TensorType(types[0].dtype, tuple(shape)),)


def _access_axis(node: Node, types: Sequence[TensorType], results: Sequence[TensorType]) -> AccessMap:
    axis = node.attr("axis")
    assert isinstance(axis, int)
    return AccessMap(tuple(_at_axis(len(item.shape), axis, shifted(axis)) if item.shape else () for item in types))


# concat


def _prepare_axis(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> dict[str, Any]:
    return dict(attrs) | {"axis": resolve_axis(attrs.get("axis", 0), len(types[0].shape))}


def _infer_concat(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> tuple[TensorType, ...]:
    axis, first = attrs["axis"], types[0].shape
    for item in types[1:]:
        if item.shape[:axis] != first[:axis] or item.shape[axis + 1 :] != first[axis + 1 :]:
            raise InputError(f"concat on axis {axis} of {types[0]} and {item}: the other extents differ")
    extent = sum(item.shape[axis] for item in types)
    dtype = promote_all([item.dtype for item in types])
    return (TensorType(dtype, (*first[:axis], extent, *first[axis + 1 :])),)


# pad


def _prepare_pad(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "axis": resolve_axis(attrs.get("axis", 0), len(types[0].shape)),
        "before": integers(attrs.get("before", 0), "before", 1, least=0)[0],
        "after": integers(attrs.get("after", 0), "after", 1, least=0)[0],
        "value": number(attrs.get("value", 0), "value"),
        "mode": word(attrs.get("mode", "constant"), "mode", PAD_MODES),
    }


def _infer_pad(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> tuple[TensorType, ...]:
    shape, axis = list(types[0].shape), attrs["axis"]
    extent = shape[axis]
    if attrs["mode"] == "edge" and not extent:
        raise InputError(f"pad by the edge of the empty axis {axis} of {types[0]}")
    if attrs["mode"] == "reflect" and max(attrs["before"], attrs["after"]) >= max(extent, 1):
        raise InputError(f"reflecting pad of {attrs['before']} and {attrs['after']} needs an axis longer than {extent}")
    shape[axis] = extent + attrs["before"] + attrs["after"]
    return (TensorType(types[0].dtype, tuple(shape)),)


# updates of a part


def _prepare_select(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> dict[str, Any]:
    axis = resolve_axis(attrs.get("axis", 0), len(types[0].shape))
    index = integers(attrs.get("index", 0), "index", 1)[0]
    extent = types[0].shape[axis]
    if not -extent <= index < extent:
        raise InputError(f"index {index} is out of range for axis {axis} of {types[0]}")
    return {"axis": axis, "index": index % extent}


def _infer_select(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> tuple[TensorType, ...]:
    base, source, axis = types[0], types[1], attrs["axis"]
    one = (*base.shape[:axis], 1, *base.shape[axis + 1 :])
    if source.shape not in (one, (*base.shape[:axis], *base.shape[axis + 1 :])):
        raise InputError(f"select_scatter on axis {axis} of {base} takes {list(one)}, got {source}")
    return (base,)


def _access_select(node: Node, types: Sequence[TensorType], results: Sequence[TensorType]) -> AccessMap:
    rank, axis = len(types[0].shape), node.attr("axis")
    source = [BROADCAST if dim == axis else same(dim) for dim in range(rank)]
    if len(types[1].shape) < rank:
        source = [item for item in source if item is not BROADCAST]
    return AccessMap((tuple(identity_map(rank)), tuple(source)))


def _prepare_update(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "axis": resolve_axis(attrs.get("axis", 0), len(types[0].shape)),
        "start": integers(attrs.get("start", 0), "start", 1, least=0)[0],
        "step": integers(attrs.get("step", 1), "step", 1, least=1)[0],
    }


def _infer_update(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> tuple[TensorType, ...]:
    base, source, axis = types[0], types[1], attrs["axis"]
    if len(source.shape) != len(base.shape):
        raise InputError(f"slice_update of {base} with {source}: the ranks differ")
    last = attrs["start"] + attrs["step"] * (source.shape[axis] - 1)
    if source.shape[axis] and last >= base.shape[axis]:
        raise InputError(f"slice_update reaches index {last} on axis {axis} of {base}")
    if any(base.shape[i] != source.shape[i] for i in range(len(base.shape)) if i != axis):
        raise InputError(f"slice_update on axis {axis} of {base} with {source}: the other extents differ")
    return (base,)


def _access_update(node: Node, types: Sequence[TensorType], results: Sequence[TensorType]) -> AccessMap:
    rank, axis = len(types[0].shape), node.attr("axis")
    assert isinstance(axis, int)
    return AccessMap((tuple(identity_map(rank)), _at_axis(rank, axis, shifted(axis))))


MOVEMENT: tuple[OpDef, ...] = (
    OpDef(
        name="copy", kind=OpKind.MOVEMENT, doc="The same values in another buffer, dense row-major.", operands=(1, 1),
        infer=_infer_first, access=_access_same, reference=NumpyReference("copy"), work=_alu(1), linear=True,
    ),
    OpDef(
        name="transpose", kind=OpKind.MOVEMENT, doc="Permuted axes: result axis i is operand axis perm[i].",
        operands=(1, 1), infer=_infer_transpose, access=_access_transpose, reference=NumpyReference("transpose"),
        work=_alu(2), attrs={"perm": (False, "operand axis of each result axis (default reversed)")}, linear=True,
        prepare=_prepare_perm,
    ),
    OpDef(
        name="broadcast", kind=OpKind.MOVEMENT, doc="Repeated to the shape `to`, right-aligned.", operands=(1, 1),
        infer=_infer_broadcast, access=_access_broadcast, reference=NumpyReference("broadcast"), work=_alu(1),
        attrs={"to": (True, "shape of the result")}, linear=True, prepare=_prepare_broadcast,
    ),
    OpDef(
        name="slice", kind=OpKind.MOVEMENT, doc="x[start:end:step] on one axis, Python's rules.", operands=(1, 1),
        infer=_infer_slice, access=_access_axis, reference=NumpyReference("slice"), work=_alu(1), linear=True,
        attrs={
            "axis": (False, "the axis (default 0)"), "start": (False, "first index (default: the first)"),
            "end": (False, "index after the last (default: the end)"), "step": (False, "step, not 0 (default 1)"),
        },
        prepare=_prepare_slice,
    ),
    OpDef(
        name="concat", kind=OpKind.MOVEMENT, doc="Operands side by side on one axis.", operands=(1, None),
        infer=_infer_concat, access=_access_axis, reference=NumpyReference("concat"), work=_alu(2), linear=True,
        attrs={"axis": (False, "the axis (default 0)")}, prepare=_prepare_axis,
    ),
    OpDef(
        name="pad", kind=OpKind.MOVEMENT, doc="Elements added at both ends of one axis.", operands=(1, 1),
        infer=_infer_pad, access=_access_axis, reference=NumpyReference("pad"), work=_alu(4),
        attrs={
            "axis": (False, "the axis (default 0)"), "before": (False, "elements added in front (default 0)"),
            "after": (False, "elements added behind (default 0)"), "value": (False, "their value (default 0)"),
            "mode": (False, "constant, edge or reflect (default constant)"),
        },
        prepare=_prepare_pad,
    ),
    OpDef(
        name="select_scatter", kind=OpKind.MOVEMENT, doc="Base with one index of an axis replaced.",
        operands=(2, 2), infer=_infer_select, access=_access_select, reference=NumpyReference("select_scatter"),
        work=_alu(2), attrs={"axis": (False, "the axis (default 0)"), "index": (False, "the index (default 0)")},
        prepare=_prepare_select,
    ),
    OpDef(
        name="slice_update", kind=OpKind.MOVEMENT, doc="Base with a slice of an axis replaced by the second operand.",
        operands=(2, 2), infer=_infer_update, access=_access_update, reference=NumpyReference("slice_update"),
        work=_alu(3),
        attrs={
            "axis": (False, "the axis (default 0)"), "start": (False, "first index replaced (default 0)"),
            "step": (False, "distance of the replaced indices (default 1)"),
        },
        prepare=_prepare_update,
    ),
)  # fmt: skip

# views


def _prepare_reshape(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> dict[str, Any]:
    if "to" not in attrs:
        raise InputError("reshape needs the shape `to`, or a declared result shape")
    shape = integers(attrs["to"], "to", least=-1)
    if shape.count(-1) > 1:
        raise InputError(f"reshape to {list(shape)} leaves two extents open")
    known = 1
    for extent in shape:
        known *= extent if extent != -1 else 1
    if -1 in shape and known:
        shape = tuple(types[0].size // known if extent == -1 else extent for extent in shape)
    return {"to": shape}


def _infer_reshape(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> tuple[TensorType, ...]:
    result = TensorType(types[0].dtype, attr_tuple(attrs, "to"))
    if result.size != types[0].size or -1 in result.shape:
        raise InputError(f"reshape of {types[0]} ({types[0].size} elements) to {list(result.shape)} ({result.size})")
    return (result,)


def _prepare_squeeze(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> dict[str, Any]:
    shape = types[0].shape
    units = tuple(axis for axis, extent in enumerate(shape) if extent == 1)
    axes = resolve_axes(attrs["axis"], len(shape)) if attrs.get("axis", ()) != () else units
    for axis in axes:
        if shape[axis] != 1:
            raise InputError(f"squeeze of axis {axis} of {types[0]}: its extent is {shape[axis]}, not 1")
    return {"axis": axes}


def _infer_squeeze(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> tuple[TensorType, ...]:
    axes = attr_tuple(attrs, "axis")
    return (TensorType(types[0].dtype, tuple(e for axis, e in enumerate(types[0].shape) if axis not in axes)),)


def _prepare_unsqueeze(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> dict[str, Any]:
    if "axis" not in attrs:
        raise InputError("unsqueeze needs axis: the result's axes of extent 1")
    given = integers(attrs["axis"], "axis")
    return {"axis": resolve_axes(given, len(types[0].shape) + len(given)) if given else ()}


def _infer_unsqueeze(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> tuple[TensorType, ...]:
    shape = list(types[0].shape)
    for axis in attr_tuple(attrs, "axis"):
        shape.insert(axis, 1)
    return (TensorType(types[0].dtype, tuple(shape)),)


def _access_view(node: Node, types: Sequence[TensorType], results: Sequence[TensorType]) -> AccessMap:
    return AccessMap(((WHOLE,) * len(types[0].shape),))


_FREE = Work(instructions=0.0)

VIEWS: tuple[OpDef, ...] = (
    OpDef(
        name="reshape", kind=OpKind.VIEW, doc="The same elements in row-major order under another shape.",
        operands=(1, 1), infer=_infer_reshape, access=_access_view, reference=NumpyReference("reshape"), work=_FREE,
        attrs={"to": (True, "shape of the result; one extent may be -1")}, linear=True, prepare=_prepare_reshape,
    ),
    OpDef(
        name="squeeze", kind=OpKind.VIEW, doc="Axes of extent 1 left out.", operands=(1, 1), infer=_infer_squeeze,
        access=_access_view, reference=NumpyReference("squeeze"), work=_FREE, linear=True,
        attrs={"axis": (False, "axes to leave out (default: all of extent 1)")}, prepare=_prepare_squeeze,
    ),
    OpDef(
        name="unsqueeze", kind=OpKind.VIEW, doc="Axes of extent 1 put in.", operands=(1, 1), infer=_infer_unsqueeze,
        access=_access_view, reference=NumpyReference("unsqueeze"), work=_FREE, linear=True,
        attrs={"axis": (True, "the result's new axes")}, prepare=_prepare_unsqueeze,
    ),
)  # fmt: skip
