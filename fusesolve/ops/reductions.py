"""Reductions: operators that fold axes with an associative operation.

Work counts per reduced element. f16, bf16 and 8-bit floats accumulate in f32 and are rounded once at the end; f32
and f64 accumulate in their own type; sums and products of bool and of integers narrower than 64 bits are i64 (u64
for unsigned), as in NumPy on a 64-bit machine; means of integers and bool are f64.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from fusesolve.access import Access, AccessMap, reduced, same
from fusesolve.errors import InputError
from fusesolve.graph import DType, Node, TensorType
from fusesolve.ops.definition import OpDef, OpKind, Work
from fusesolve.ops.lazy import NumpyReference
from fusesolve.ops.rules import attr_tuple, flag, is_signed, resolve_axes, resolve_axis

_AXES = {
    "axis": (False, "axes to fold, all where absent"),
    "keepdims": (False, "keep each folded axis with extent 1 (default false)"),
}


def _prepare(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> dict[str, Any]:
    axes = resolve_axes(attrs.get("axis"), len(types[0].shape))
    return {"axis": axes, "keepdims": flag(attrs.get("keepdims", False), "keepdims")}


def _prepare_arg(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> dict[str, Any]:
    rank = len(types[0].shape)
    axis = attrs.get("axis", 0)
    axis = axis[0] if isinstance(axis, tuple) and len(axis) == 1 else axis
    return {"axis": (resolve_axis(axis, rank),), "keepdims": flag(attrs.get("keepdims", False), "keepdims")}


def reduced_shape(shape: tuple[int, ...], axes: tuple[int, ...], keepdims: bool) -> tuple[int, ...]:
    """Shape after folding `axes`: extents 1 where they were with `keepdims`, else left out."""
    if keepdims:
        return tuple(1 if axis in axes else extent for axis, extent in enumerate(shape))
    return tuple(extent for axis, extent in enumerate(shape) if axis not in axes)


def _result(kind: TensorType, attrs: Mapping[str, Any], dtype: DType) -> tuple[TensorType, ...]:
    return (TensorType(dtype, reduced_shape(kind.shape, attr_tuple(attrs, "axis"), bool(attrs["keepdims"]))),)


def _sum_type(dtype: DType) -> DType:
    if dtype.is_float:
        return dtype
    return DType.I64 if is_signed(dtype) or dtype is DType.BOOL else DType.U64


def _infer_sum(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> tuple[TensorType, ...]:
    return _result(types[0], attrs, _sum_type(types[0].dtype))


def _infer_mean(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> tuple[TensorType, ...]:
    _check_not_empty(types[0], attrs)
    return _result(types[0], attrs, types[0].dtype if types[0].dtype.is_float else DType.F64)


def _infer_extreme(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> tuple[TensorType, ...]:
    _check_not_empty(types[0], attrs)
    return _result(types[0], attrs, types[0].dtype)


def _infer_arg(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> tuple[TensorType, ...]:
    _check_not_empty(types[0], attrs)
    return _result(types[0], attrs, DType.I64)


def _check_not_empty(kind: TensorType, attrs: Mapping[str, Any]) -> None:
    empty = [axis for axis in attr_tuple(attrs, "axis") if kind.shape[axis] == 0]
    if empty:
        raise InputError(f"axis {empty[0]} of {kind} is empty: it has no mean and no extreme")


def _access(node: Node, types: Sequence[TensorType], results: Sequence[TensorType]) -> AccessMap:
    axes, keepdims = node.attr("axis"), bool(node.attr("keepdims"))
    assert isinstance(axes, tuple)
    dims: list[Access] = []
    position = 0
    for axis in range(len(types[0].shape)):
        if axis in axes:
            dims.append(reduced(axes.index(axis)))
            position += keepdims
        else:
            dims.append(same(position))
            position += 1
    return AccessMap((tuple(dims),), tuple(types[0].shape[axis] for axis in axes))


_ONE = Work(fma=1, instructions=1)
_ARG = Work(fma=1, alu=2, instructions=3)  # one compare, two selects (value and index)

REDUCTIONS: tuple[OpDef, ...] = (
    OpDef(
        name="reduce_sum", kind=OpKind.REDUCE, doc="Sum over axes.", operands=(1, 1), infer=_infer_sum,
        access=_access, reference=NumpyReference("reduce_sum"), work=_ONE, attrs=_AXES, linear=True, prepare=_prepare,
    ),
    OpDef(
        name="reduce_mean", kind=OpKind.REDUCE, doc="Mean over axes.", operands=(1, 1), infer=_infer_mean,
        access=_access, reference=NumpyReference("reduce_mean"), work=_ONE, attrs=_AXES, linear=True, prepare=_prepare,
    ),
    OpDef(
        name="reduce_max", kind=OpKind.REDUCE, doc="Greatest over axes; NaN wins.",
        operands=(1, 1), infer=_infer_extreme,
        access=_access, reference=NumpyReference("reduce_max"), work=_ONE, attrs=_AXES, prepare=_prepare,
    ),
    OpDef(
        name="reduce_min", kind=OpKind.REDUCE, doc="Least over axes; NaN wins.", operands=(1, 1), infer=_infer_extreme,
        access=_access, reference=NumpyReference("reduce_min"), work=_ONE, attrs=_AXES, prepare=_prepare,
    ),
    OpDef(
        name="reduce_prod", kind=OpKind.REDUCE, doc="Product over axes.", operands=(1, 1), infer=_infer_sum,
        access=_access, reference=NumpyReference("reduce_prod"), work=_ONE, attrs=_AXES, prepare=_prepare,
    ),
    OpDef(
        name="argmax", kind=OpKind.REDUCE, doc="First index of the greatest along one axis, i64.", operands=(1, 1),
        infer=_infer_arg, access=_access, reference=NumpyReference("argmax"), work=_ARG, attrs=_AXES,
        prepare=_prepare_arg,
    ),
    OpDef(
        name="argmin", kind=OpKind.REDUCE, doc="First index of the least along one axis, i64.", operands=(1, 1),
        infer=_infer_arg, access=_access, reference=NumpyReference("argmin"), work=_ARG, attrs=_AXES,
        prepare=_prepare_arg,
    ),
)  # fmt: skip
