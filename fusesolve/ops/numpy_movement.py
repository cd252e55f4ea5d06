"""NumPy meaning of movement, views, gathers, scatters, sorts, scans and generators."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fusesolve.graph import DType, TensorType

Array = NDArray[Any]
Rule = Callable[[Sequence[Array], Mapping[str, Any], Sequence[TensorType]], Sequence[Array]]

_UFUNC: Mapping[str, Any] = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def _same(arrays: Sequence[Array], attrs: Mapping[str, Any], results: Sequence[TensorType]) -> Sequence[Array]:
    return (arrays[0].reshape(results[0].shape),)


def _transpose(arrays: Sequence[Array], attrs: Mapping[str, Any], results: Sequence[TensorType]) -> Sequence[Array]:
    return (np.transpose(arrays[0], attrs["perm"]),)


def _broadcast(arrays: Sequence[Array], attrs: Mapping[str, Any], results: Sequence[TensorType]) -> Sequence[Array]:
    return (np.broadcast_to(arrays[0], attrs["to"]),)


def _slice(arrays: Sequence[Array], attrs: Mapping[str, Any], results: Sequence[TensorType]) -> Sequence[Array]:
    part = slice(attrs["start"], attrs["end"], attrs["step"])
    return (arrays[0][(slice(None),) * attrs["axis"] + (part,)],)


def _concat(arrays: Sequence[Array], attrs: Mapping[str, Any], results: Sequence[TensorType]) -> Sequence[Array]:
    return (np.concatenate(arrays, axis=attrs["axis"]),)


def _pad(arrays: Sequence[Array], attrs: Mapping[str, Any], results: Sequence[TensorType]) -> Sequence[Array]:
    spans = [(0, 0)] * arrays[0].ndim
    spans[attrs["axis"]] = (attrs["before"], attrs["after"])
    if attrs["mode"] == "constant":
        return (np.pad(arrays[0], spans, constant_values=attrs["value"]),)
    return (np.pad(arrays[0], spans, mode=attrs["mode"]),)


def _select_scatter(
    arrays: Sequence[Array], attrs: Mapping[str, Any], results: Sequence[TensorType]
) -> Sequence[Array]:
    out, axis = arrays[0].copy(), attrs["axis"]
    where = (slice(None),) * axis + (attrs["index"],)
    out[where] = arrays[1].reshape(out[where].shape)
    return (out,)


def _slice_update(arrays: Sequence[Array], attrs: Mapping[str, Any], results: Sequence[TensorType]) -> Sequence[Array]:
    out, axis = arrays[0].copy(), attrs["axis"]
    end = attrs["start"] + attrs["step"] * arrays[1].shape[axis]
    out[(slice(None),) * axis + (slice(attrs["start"], end, attrs["step"]),)] = arrays[1]
    return (out,)


def _gather(arrays: Sequence[Array], attrs: Mapping[str, Any], results: Sequence[TensorType]) -> Sequence[Array]:
    return (np.take(arrays[0], arrays[1].astype(np.int64), axis=attrs["axis"]),)


def _gather_elements(
    arrays: Sequence[Array], attrs: Mapping[str, Any], results: Sequence[TensorType]
) -> Sequence[Array]:
    data, index = arrays
    crop = tuple(slice(None) if axis == attrs["axis"] else slice(extent) for axis, extent in enumerate(index.shape))
    return (np.take_along_axis(data[crop], index.astype(np.int64), axis=attrs["axis"]),)


def _gather_nd(arrays: Sequence[Array], attrs: Mapping[str, Any], results: Sequence[TensorType]) -> Sequence[Array]:
    data, index, batch = arrays[0], arrays[1].astype(np.int64), attrs["batch"]
    lead = data.shape[:batch]
    parts = [data[where][tuple(np.moveaxis(index[where], -1, 0))] for where in np.ndindex(*lead)]
    return (np.stack(parts).reshape(results[0].shape),)


def _write(out: Array, where: Any, updates: Array, reduction: str) -> Sequence[Array]:
    if reduction == "none":
        out[where] = updates
    else:
        _UFUNC[reduction].at(out, where, updates)
    return (out,)


def _scatter(reduction: str) -> Rule:
    def rule(arrays: Sequence[Array], attrs: Mapping[str, Any], results: Sequence[TensorType]) -> Sequence[Array]:
        where = (slice(None),) * attrs["axis"] + (arrays[1].astype(np.int64),)
        return _write(arrays[0].copy(), where, arrays[2].astype(arrays[0].dtype), reduction)

    return rule


def _scatter_elements(
    arrays: Sequence[Array], attrs: Mapping[str, Any], results: Sequence[TensorType]
) -> Sequence[Array]:
    where = list(np.indices(arrays[1].shape))
    where[attrs["axis"]] = arrays[1].astype(np.int64)
    return _write(arrays[0].copy(), tuple(where), arrays[2].astype(arrays[0].dtype), attrs["reduction"])


def _scatter_nd(arrays: Sequence[Array], attrs: Mapping[str, Any], results: Sequence[TensorType]) -> Sequence[Array]:
    where = tuple(np.moveaxis(arrays[1].astype(np.int64), -1, 0))
    return _write(arrays[0].copy(), where, arrays[2].astype(arrays[0].dtype), attrs["reduction"])


def _cumsum(arrays: Sequence[Array], attrs: Mapping[str, Any], results: Sequence[TensorType]) -> Sequence[Array]:
    x, axis = arrays[0], attrs["axis"]
    x = np.flip(x, axis) if attrs["reverse"] else x
    total = np.cumsum(x, axis=axis, dtype=x.dtype if x.dtype.kind != "b" else np.int64)
    if attrs["exclusive"]:
        total = total - x
    return (np.flip(total, axis) if attrs["reverse"] else total,)


def _order(x: Array, axis: int, descending: bool) -> Array:
    if not descending:
        return np.asarray(np.argsort(x, axis=axis, kind="stable"))
    last = x.shape[axis] - 1
    return np.flip(last - np.argsort(np.flip(x, axis), axis=axis, kind="stable"), axis)


def _argsort(arrays: Sequence[Array], attrs: Mapping[str, Any], results: Sequence[TensorType]) -> Sequence[Array]:
    return (_order(arrays[0], attrs["axis"], attrs["descending"]),)


def _topk(arrays: Sequence[Array], attrs: Mapping[str, Any], results: Sequence[TensorType]) -> Sequence[Array]:
    axis = attrs["axis"]
    order = _order(arrays[0], axis, attrs["largest"])[(slice(None),) * axis + (slice(attrs["k"]),)]
    return (np.take_along_axis(arrays[0], order, axis=axis), order)


def _arange(arrays: Sequence[Array], attrs: Mapping[str, Any], results: Sequence[TensorType]) -> Sequence[Array]:
    return (attrs["start"] + attrs["step"] * np.arange(attrs["n"]),)


def _fill(arrays: Sequence[Array], attrs: Mapping[str, Any], results: Sequence[TensorType]) -> Sequence[Array]:
    return (np.full(attrs["shape"], attrs["const"]),)


def _random(arrays: Sequence[Array], attrs: Mapping[str, Any], results: Sequence[TensorType]) -> Sequence[Array]:
    generator = np.random.Generator(np.random.Philox(attrs["seed"]))
    kind = np.float64 if results[0].dtype is DType.F64 else np.float32
    return (np.asarray(generator.random(attrs["shape"])).astype(kind),)


MOVEMENT_REFERENCES: Mapping[str, Rule] = {
    "copy": _same,
    "reshape": _same,
    "squeeze": _same,
    "unsqueeze": _same,
    "transpose": _transpose,
    "broadcast": _broadcast,
    "slice": _slice,
    "concat": _concat,
    "pad": _pad,
    "select_scatter": _select_scatter,
    "slice_update": _slice_update,
    "gather": _gather,
    "gather_elements": _gather_elements,
    "gather_nd": _gather_nd,
    "scatter_update": _scatter("none"),
    "scatter_add": _scatter("add"),
    "scatter_elements": _scatter_elements,
    "scatter_nd": _scatter_nd,
    "cumsum": _cumsum,
    "argsort": _argsort,
    "topk": _topk,
    "arange": _arange,
    "fill": _fill,
    "random_uniform": _random,
}
