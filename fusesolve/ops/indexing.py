"""Gathers (indices from data, read side), scatters, sorts and scans.

Indices are integers; a negative one counts from the end; one out of range is undefined on a device and an error in
the reference. Work per result element: the address arithmetic of one indirect access (wrap, multiply, add). Scatters,
sorts and scans are kernels of their own; a sort of n elements costs about log2(n)*(log2(n)+1)/2 compare-exchanges
per element (bitonic network, Batcher 1968), which the cost model derives from the extent: the row gives one exchange.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from fusesolve.access import INDIRECT, WHOLE, Access, AccessMap, OperandMap, same
from fusesolve.errors import InputError
from fusesolve.graph import DType, Node, TensorType
from fusesolve.ops.definition import OpDef, OpKind, PrepareRule, Work
from fusesolve.ops.lazy import NumpyReference
from fusesolve.ops.movement import shifted
from fusesolve.ops.reductions import reduced_shape
from fusesolve.ops.rules import flag, identity_map, integers, is_integer, resolve_axis, word

SCATTER_REDUCTIONS = ("none", "add", "mul", "max", "min")


def _check_index(kind: TensorType) -> None:
    if not is_integer(kind.dtype):
        raise InputError(f"indices must be integers, not {kind.dtype.value}")


def _axis(types: Sequence[TensorType], attrs: Mapping[str, Any], default: int = 0) -> int:
    return resolve_axis(attrs.get("axis", default), len(types[0].shape))


def _prepare_axis(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> dict[str, Any]:
    return dict(attrs) | {"axis": _axis(types, attrs)}


def _prepare_reduction(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> dict[str, Any]:
    reduction = word(attrs.get("reduction", "none"), "reduction", SCATTER_REDUCTIONS)
    return dict(attrs) | {"reduction": reduction}


def _prepare_elements(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> dict[str, Any]:
    return _prepare_axis(types, _prepare_reduction(types, attrs))


# gather


def _infer_gather(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> tuple[TensorType, ...]:
    _check_index(types[1])
    axis, shape = attrs["axis"], types[0].shape
    return (TensorType(types[0].dtype, (*shape[:axis], *types[1].shape, *shape[axis + 1 :])),)


def _access_gather(node: Node, types: Sequence[TensorType], results: Sequence[TensorType]) -> AccessMap:
    axis, width = node.attr("axis"), len(types[1].shape)
    assert isinstance(axis, int)
    rank = len(types[0].shape)
    after = (same(dim - 1 + width) for dim in range(axis + 1, rank))
    data = (*identity_map(axis), INDIRECT, *after)
    return AccessMap((data, tuple(same(axis + dim) for dim in range(width))))


def _infer_gather_elements(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> tuple[TensorType, ...]:
    _check_index(types[1])
    data, index, axis = types[0], types[1], attrs["axis"]
    fits = len(data.shape) == len(index.shape) and all(
        index.shape[dim] <= extent for dim, extent in enumerate(data.shape) if dim != axis
    )
    if not fits:
        raise InputError(f"gather_elements of {data} by {index}: ranks differ or an index extent is larger")
    return (TensorType(data.dtype, index.shape),)


def _access_gather_elements(node: Node, types: Sequence[TensorType], results: Sequence[TensorType]) -> AccessMap:
    axis, index = node.attr("axis"), types[1].shape
    data: list[Access] = [
        INDIRECT if dim == axis else same(dim) if extent == index[dim] else shifted(dim)
        for dim, extent in enumerate(types[0].shape)
    ]
    return AccessMap((tuple(data), tuple(identity_map(len(index)))))


def _prepare_gather_nd(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> dict[str, Any]:
    return {"batch": integers(attrs.get("batch", 0), "batch", 1, least=0)[0]}


def _infer_gather_nd(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> tuple[TensorType, ...]:
    data, index, batch = types[0].shape, types[1].shape, attrs["batch"]
    _check_index(types[1])
    fits = index and batch < len(index) and batch + index[-1] <= len(data) and data[:batch] == index[:batch]
    if not fits:
        raise InputError(f"gather_nd of {types[0]} by {types[1]} with {batch} batch axes does not fit")
    return (TensorType(types[0].dtype, (*index[:-1], *data[batch + index[-1] :])),)


def _access_gather_nd(node: Node, types: Sequence[TensorType], results: Sequence[TensorType]) -> AccessMap:
    batch, index = node.attr("batch"), types[1].shape
    assert isinstance(batch, int)
    depth, lead = index[-1], len(index) - 1
    tail = (same(lead + dim) for dim in range(len(types[0].shape) - batch - depth))
    data = (*identity_map(batch), *(INDIRECT,) * depth, *tail)
    return AccessMap((data, (*identity_map(lead), WHOLE)))


# scatter


def _infer_scatter(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> tuple[TensorType, ...]:
    _check_index(types[1])
    base, axis = types[0], attrs["axis"]
    expected = (*base.shape[:axis], *types[1].shape, *base.shape[axis + 1 :])
    if types[2].shape != expected:
        raise InputError(f"updates of {base} on axis {axis} at {types[1]} must be {list(expected)}, got {types[2]}")
    return (base,)


def _infer_scatter_elements(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> tuple[TensorType, ...]:
    _check_index(types[1])
    base, index = types[0].shape, types[1].shape
    if index != types[2].shape or len(index) != len(base):
        raise InputError(f"scatter_elements of {types[0]}: indices {types[1]} and updates {types[2]} do not fit")
    return (types[0],)


def _infer_scatter_nd(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> tuple[TensorType, ...]:
    _check_index(types[1])
    base, index = types[0].shape, types[1].shape
    if not index or index[-1] > len(base) or types[2].shape != (*index[:-1], *base[index[-1] :]):
        raise InputError(f"scatter_nd of {types[0]}: indices {types[1]} and updates {types[2]} do not fit")
    return (types[0],)


def _access_scatter(node: Node, types: Sequence[TensorType], results: Sequence[TensorType]) -> AccessMap:
    whole = tuple((WHOLE,) * len(item.shape) for item in types[1:])
    return AccessMap((tuple(identity_map(len(types[0].shape))), *whole))


# scan and sort


def _prepare_cumsum(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "axis": _axis(types, attrs),
        "exclusive": flag(attrs.get("exclusive", False), "exclusive"),
        "reverse": flag(attrs.get("reverse", False), "reverse"),
    }


def _infer_same(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> tuple[TensorType, ...]:
    return (types[0],)


def _along(types: Sequence[TensorType], axis: object) -> OperandMap:
    return tuple(WHOLE if dim == axis else same(dim) for dim in range(len(types[0].shape)))


def _access_along(node: Node, types: Sequence[TensorType], results: Sequence[TensorType]) -> AccessMap:
    return AccessMap((_along(types, node.attr("axis")),))


def _prepare_argsort(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> dict[str, Any]:
    return {"axis": _axis(types, attrs, -1), "descending": flag(attrs.get("descending", False), "descending")}


def _infer_argsort(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> tuple[TensorType, ...]:
    return (TensorType(DType.I64, types[0].shape),)


def _prepare_topk(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> dict[str, Any]:
    if "k" not in attrs:
        raise InputError("topk needs k, how many elements to keep")
    axis = _axis(types, attrs, -1)
    k = integers(attrs["k"], "k", 1, least=0)[0]
    if k > types[0].shape[axis]:
        raise InputError(f"topk of {k} from axis {axis} of {types[0]}: it has only {types[0].shape[axis]}")
    return {"axis": axis, "k": k, "largest": flag(attrs.get("largest", True), "largest")}


def _infer_topk(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> tuple[TensorType, ...]:
    shape = list(reduced_shape(types[0].shape, (attrs["axis"],), True))
    shape[attrs["axis"]] = attrs["k"]
    return (TensorType(types[0].dtype, tuple(shape)), TensorType(DType.I64, tuple(shape)))


_INDIRECT = Work(alu=4, instructions=4)
_EXCHANGE = Work(fma=1, alu=4, instructions=5, scratch=4)
_AXIS = {"axis": (False, "the axis (default 0)")}
_LAST = {"axis": (False, "the axis (default the last)")}
_REDUCTION = {"reduction": (False, "none, add, mul, max or min (default none)")}


def _scatter(name: str, doc: str, attrs: Mapping[str, tuple[bool, str]], prepare: PrepareRule, infer: Any) -> OpDef:
    return OpDef(
        name=name, kind=OpKind.OPAQUE, doc=doc, operands=(3, 3), infer=infer, access=_access_scatter,
        reference=NumpyReference(name), work=_INDIRECT, attrs=attrs, prepare=prepare,
    )  # fmt: skip


INDEXING: tuple[OpDef, ...] = (
    OpDef(
        name="gather", kind=OpKind.GATHER, doc="x[..., index, ...]: the index's shape replaces one axis.",
        operands=(2, 2),
        infer=_infer_gather, access=_access_gather, reference=NumpyReference("gather"), work=_INDIRECT, attrs=_AXIS,
        prepare=_prepare_axis,
    ),
    OpDef(
        name="gather_elements", kind=OpKind.GATHER, doc="One element of x along an axis for each element of the index.",
        operands=(2, 2), infer=_infer_gather_elements, access=_access_gather_elements,
        reference=NumpyReference("gather_elements"), work=_INDIRECT, attrs=_AXIS, prepare=_prepare_axis,
    ),
    OpDef(
        name="gather_nd", kind=OpKind.GATHER, doc="x at index tuples, which are the index's last axis.",
        operands=(2, 2),
        infer=_infer_gather_nd, access=_access_gather_nd, reference=NumpyReference("gather_nd"), work=_INDIRECT,
        attrs={"batch": (False, "leading axes shared by x and index (default 0)")}, prepare=_prepare_gather_nd,
    ),
    _scatter("scatter_update", "Base with slices replaced at indices of an axis; the last wins.", _AXIS,
             _prepare_axis, _infer_scatter),
    _scatter("scatter_add", "Base with slices added at indices of an axis; equal indices add up.", _AXIS,
             _prepare_axis, _infer_scatter),
    _scatter("scatter_elements", "Base with one element along an axis changed for each element of the index.",
             _AXIS | _REDUCTION, _prepare_elements, _infer_scatter_elements),
    _scatter("scatter_nd", "Base changed at index tuples, which are the index's last axis.", _REDUCTION,
             _prepare_reduction, _infer_scatter_nd),
    OpDef(
        name="cumsum", kind=OpKind.OPAQUE, doc="Running sum along one axis.", operands=(1, 1), infer=_infer_same,
        access=_access_along, reference=NumpyReference("cumsum"), work=Work(fma=2, instructions=2), linear=True,
        attrs=_AXIS | {"exclusive": (False, "without the element itself"), "reverse": (False, "from the end")},
        prepare=_prepare_cumsum,
    ),
    OpDef(
        name="argsort", kind=OpKind.OPAQUE, doc="Indices that sort along one axis, stable, i64.", operands=(1, 1),
        infer=_infer_argsort, access=_access_along, reference=NumpyReference("argsort"), work=_EXCHANGE,
        attrs=_LAST | {"descending": (False, "greatest first (default false)")}, prepare=_prepare_argsort,
    ),
    OpDef(
        name="topk", kind=OpKind.OPAQUE, doc="The k greatest (or least) along one axis, sorted, and their indices.",
        operands=(1, 1), infer=_infer_topk, access=_access_along, reference=NumpyReference("topk"), work=_EXCHANGE,
        attrs=_LAST | {"k": (True, "how many"), "largest": (False, "greatest first (default true)")},
        prepare=_prepare_topk,
    ),
)  # fmt: skip
