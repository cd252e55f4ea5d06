"""Windows: operators that read a small neighbourhood per result element. Work counts per window element.

The access of `resize_nearest` is given as shifted: one operand element per result element at an affine index.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from fusesolve.access import Access, AccessKind, AccessMap, same
from fusesolve.errors import InputError
from fusesolve.graph import Node, TensorType
from fusesolve.ops.contractions import pads, window_extent
from fusesolve.ops.definition import OpDef, OpKind, Work
from fusesolve.ops.lazy import NumpyReference
from fusesolve.ops.movement import shifted
from fusesolve.ops.rules import attr_tuple, flag, identity_map, integers, resolve_axis, word

COORDINATES = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


def _prepare_pool(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> dict[str, Any]:
    rank = len(types[0].shape) - 2
    if rank < 1:
        raise InputError(f"pooling needs [N, C, ...] with one to three spatial axes, got {types[0]}")
    if "k" not in attrs:
        raise InputError("pooling needs k, the extent of the window")
    found: dict[str, Any] = {
        "k": integers(attrs["k"], "k", rank, least=1),
        "stride": integers(attrs.get("stride", 1), "stride", rank, least=1),
        "pad": pads(attrs.get("pad", 0), rank),
        "dilation": integers(attrs.get("dilation", 1), "dilation", rank, least=1),
        "ceil": flag(attrs.get("ceil", False), "ceil"),
    }
    if "count_pad" in attrs:
        found["count_pad"] = flag(attrs["count_pad"], "count_pad")
    return found


def _infer_pool(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> tuple[TensorType, ...]:
    k, stride, pad, dilation = (attr_tuple(attrs, name) for name in ("k", "stride", "pad", "dilation"))
    shape = list(types[0].shape)
    for axis, kernel in enumerate(k):
        extent, before, after = shape[2 + axis], pad[axis], pad[len(k) + axis]
        count = window_extent(extent, kernel, stride[axis], dilation[axis], before + after, attrs["ceil"])
        # With ceil a last window that would start in the padding behind the data is left out (ONNX, PyTorch).
        starts_outside = attrs["ceil"] and (count - 1) * stride[axis] >= extent + before
        shape[2 + axis] = count - starts_outside
    return (TensorType(types[0].dtype, tuple(shape)),)


def _window(out: int, red: int) -> Access:
    return Access(AccessKind.WINDOW, out=out, red=red)


def _access_pool(node: Node, types: Sequence[TensorType], results: Sequence[TensorType]) -> AccessMap:
    k = node.attr("k")
    assert isinstance(k, tuple)
    return AccessMap(((same(0), same(1), *(_window(2 + axis, axis) for axis in range(len(k)))),), k)


def _prepare_stencil(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> dict[str, Any]:
    axis = resolve_axis(attrs.get("axis", 0), len(types[0].shape))
    offsets = integers(attrs.get("offsets", (-1, 0, 1)), "offsets")
    if not offsets or len(set(offsets)) != len(offsets):
        raise InputError("stencil needs one or more different offsets")
    return {"axis": axis, "offsets": tuple(sorted(offsets))}


def _infer_stencil(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> tuple[TensorType, ...]:
    return (types[0],)


def _access_stencil(node: Node, types: Sequence[TensorType], results: Sequence[TensorType]) -> AccessMap:
    axis, offsets = node.attr("axis"), node.attr("offsets")
    assert isinstance(axis, int)
    assert isinstance(offsets, tuple)
    dims = identity_map(len(types[0].shape))
    dims[axis] = _window(axis, 0)
    return AccessMap((tuple(dims),), (len(offsets),))


def _prepare_resize(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> dict[str, Any]:
    rank = len(types[0].shape)
    if "to" not in attrs:
        raise InputError("resize needs the shape `to`, or a declared result shape")
    return {
        "to": integers(attrs["to"], "to", rank, least=1),
        "coordinates": word(attrs.get("coordinates", "half_pixel"), "coordinates", COORDINATES),
    }


def _prepare_nearest(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> dict[str, Any]:
    rounding = word(attrs.get("rounding", "round_prefer_floor"), "rounding", ROUNDINGS)
    return _prepare_resize(types, attrs) | {"rounding": rounding}


def _infer_resize(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> tuple[TensorType, ...]:
    if 0 in types[0].shape:
        raise InputError(f"resize of the empty tensor {types[0]}")
    return (TensorType(types[0].dtype, attr_tuple(attrs, "to")),)


def _access_nearest(node: Node, types: Sequence[TensorType], results: Sequence[TensorType]) -> AccessMap:
    shape = results[0].shape
    return AccessMap((tuple(same(i) if e == shape[i] else shifted(i) for i, e in enumerate(types[0].shape)),))


def _access_linear(node: Node, types: Sequence[TensorType], results: Sequence[TensorType]) -> AccessMap:
    changed = [axis for axis, extent in enumerate(types[0].shape) if extent != results[0].shape[axis]]
    dims = identity_map(len(types[0].shape))
    for red, axis in enumerate(changed):
        dims[axis] = _window(axis, red)
    return AccessMap((tuple(dims),), (2,) * len(changed))


_POOL = {
    "k": (True, "extent of the window per spatial axis"),
    "stride": (False, "step of the window per spatial axis (default 1)"),
    "pad": (False, "padding at the begins and ends of the spatial axes (default 0)"),
    "dilation": (False, "distance of the window's taps (default 1)"),
    "ceil": (False, "count a last partial window (default false)"),
}
_RESIZE = {"to": (True, "shape of the result"), "coordinates": (False, f"one of {', '.join(COORDINATES)}")}

WINDOWS: tuple[OpDef, ...] = (
    OpDef(
        name="maxpool", kind=OpKind.WINDOW, doc="Greatest in a window over the spatial axes of x[N, C, ...].",
        operands=(1, 1), infer=_infer_pool, access=_access_pool, reference=NumpyReference("maxpool"),
        work=Work(fma=1, alu=1, instructions=2), attrs=_POOL, prepare=_prepare_pool,
    ),
    OpDef(
        name="avgpool", kind=OpKind.WINDOW, doc="Mean of a window over the spatial axes of x[N, C, ...].",
        operands=(1, 1), infer=_infer_pool, access=_access_pool, reference=NumpyReference("avgpool"),
        work=Work(fma=1, alu=1, instructions=2), prepare=_prepare_pool, linear=True,
        attrs=_POOL | {"count_pad": (False, "padding counts as elements (default false)")},
    ),
    OpDef(
        name="stencil", kind=OpKind.WINDOW, doc="Sum over neighbours at fixed offsets on one axis; outside is 0.",
        operands=(1, 1), infer=_infer_stencil, access=_access_stencil, reference=NumpyReference("stencil"),
        work=Work(fma=1, alu=2, instructions=3), prepare=_prepare_stencil, linear=True,
        attrs={"axis": (False, "the axis (default 0)"), "offsets": (False, "the offsets (default -1, 0, 1)")},
    ),
    OpDef(
        name="resize_nearest", kind=OpKind.WINDOW, doc="Nearest element under a scaled coordinate per axis.",
        operands=(1, 1), infer=_infer_resize, access=_access_nearest, reference=NumpyReference("resize_nearest"),
        work=Work(fma=1, alu=2, instructions=3), prepare=_prepare_nearest, linear=True,
        attrs=_RESIZE | {"rounding": (False, f"one of {', '.join(ROUNDINGS)}")},
    ),
    OpDef(
        name="resize_linear", kind=OpKind.WINDOW, doc="Linear interpolation under a scaled coordinate per axis.",
        operands=(1, 1), infer=_infer_resize, access=_access_linear, reference=NumpyReference("resize_linear"),
        work=Work(fma=3, alu=3, instructions=6, scratch=2), prepare=_prepare_resize, linear=True, attrs=_RESIZE,
    ),
)  # fmt: skip
