"""NumPy meaning of pooling, stencils and resizing."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fusesolve.graph import TensorType
from fusesolve.ops.numpy_contractions import pad_spatial, windows

Array = NDArray[Any]


def _pool_windows(x: Array, attrs: Mapping[str, Any], counts: Sequence[int], value: Any) -> Array:
    """Windows of x padded with `value`; positions that `ceil` adds see further `value` behind."""
    k, stride, pad, dilation = attrs["k"], attrs["stride"], attrs["pad"], attrs["dilation"]
    extra = [
        max(0, (counts[i] - 1) * stride[i] + dilation[i] * (k[i] - 1) + 1 - x.shape[2 + i] - pad[i] - pad[len(k) + i])
        for i in range(len(k))
    ]
    return windows(pad_spatial(x, pad, value, extra), k, stride, dilation, counts)


def _taps(attrs: Mapping[str, Any]) -> tuple[int, ...]:
    rank = len(attrs["k"])
    return tuple(range(2 + rank, 2 + 2 * rank))


def _maxpool(arrays: Sequence[Array], attrs: Mapping[str, Any], results: Sequence[TensorType]) -> Sequence[Array]:
    x = arrays[0]
    least = -np.inf if x.dtype.kind == "f" else False if x.dtype.kind == "b" else np.iinfo(x.dtype).min
    return (_pool_windows(x, attrs, results[0].shape[2:], least).max(axis=_taps(attrs)),)


def _avgpool(arrays: Sequence[Array], attrs: Mapping[str, Any], results: Sequence[TensorType]) -> Sequence[Array]:
    x, counts, taps = arrays[0], results[0].shape[2:], _taps(attrs)
    total = _pool_windows(x, attrs, counts, 0).sum(axis=taps)
    ones = np.ones((1, 1, *x.shape[2:]), np.float32)
    if attrs.get("count_pad", False):
        ones, attrs = pad_spatial(ones, attrs["pad"], 1), dict(attrs) | {"pad": (0,) * len(attrs["pad"])}
    return (total / _pool_windows(ones, attrs, counts, 0).sum(axis=taps),)


def _stencil(arrays: Sequence[Array], attrs: Mapping[str, Any], results: Sequence[TensorType]) -> Sequence[Array]:
    x, axis = np.moveaxis(arrays[0], attrs["axis"], 0), attrs["axis"]
    total = np.zeros_like(x)
    extent = len(x)
    for offset in attrs["offsets"]:
        low, high = max(0, -offset), min(extent, extent - offset)
        if low < high:
            total[low:high] += x[low + offset : high + offset]
    return (np.moveaxis(total, 0, axis),)


def _coordinates(mode: str, count: int, extent: int) -> Array:
    """Operand coordinate of each of `count` result positions. Source: the ONNX specification of Resize."""
    positions = np.arange(count, dtype=np.float64)
    if mode == "align_corners":
        return positions * (extent - 1) / (count - 1) if count > 1 else positions
    scale = count / extent
    if mode == "asymmetric":
        return positions / scale
    if mode == "pytorch_half_pixel" and count == 1:
        return positions
    return (positions + 0.5) / scale - 0.5


_ROUND: Mapping[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def _nearest(arrays: Sequence[Array], attrs: Mapping[str, Any], results: Sequence[TensorType]) -> Sequence[Array]:
    x = arrays[0]
    for axis, count in enumerate(attrs["to"]):
        if count != x.shape[axis]:
            index = _ROUND[attrs["rounding"]](_coordinates(attrs["coordinates"], count, x.shape[axis]))
            x = np.take(x, np.clip(index, 0, x.shape[axis] - 1).astype(np.int64), axis=axis)
    return (x,)


def _linear(arrays: Sequence[Array], attrs: Mapping[str, Any], results: Sequence[TensorType]) -> Sequence[Array]:
    x = arrays[0].astype(np.float64)
    for axis, count in enumerate(attrs["to"]):
        extent = x.shape[axis]
        if count == extent:
            continue
        position = np.clip(_coordinates(attrs["coordinates"], count, extent), 0, extent - 1)
        low = np.floor(position).astype(np.int64)
        high = np.minimum(low + 1, extent - 1)
        weight = (position - low).reshape([-1 if i == axis else 1 for i in range(x.ndim)])
        x = np.take(x, low, axis=axis) * (1 - weight) + np.take(x, high, axis=axis) * weight
    return (x,)


WINDOW_REFERENCES: Mapping[
    str, Callable[[Sequence[Array], Mapping[str, Any], Sequence[TensorType]], Sequence[Array]]
] = {
    "maxpool": _maxpool,
    "avgpool": _avgpool,
    "stencil": _stencil,
    "resize_nearest": _nearest,
    "resize_linear": _linear,
}
