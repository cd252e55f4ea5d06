"""NumPy meaning of the contractions. Floats come widened to f32 or f64; integers accumulate in i64."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from fusesolve.graph import TensorType

Array = NDArray[Any]


def _accumulator(array: Array) -> Array:
    return array if array.dtype.kind == "f" else array.astype(np.int64)


def _matmul(arrays: Sequence[Array], attrs: Mapping[str, Any], results: Sequence[TensorType]) -> Sequence[Array]:
    a, b = (_accumulator(item) for item in arrays)
    a = np.swapaxes(a, -1, -2) if attrs["transpose_a"] else a
    b = np.swapaxes(b, -1, -2) if attrs["transpose_b"] else b
    return (np.matmul(a, b),)


def windows(
    x: Array, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int], counts: Sequence[int]
) -> Array:
    """View of x[N, C, ...] as [N, C, positions..., taps...]: `counts` positions of each strided, dilated window."""
    rank = len(kernel)
    spans = [dilation[i] * (kernel[i] - 1) + 1 for i in range(rank)]
    view = sliding_window_view(x, spans, axis=tuple(range(2, 2 + rank)))
    positions = [slice(0, (counts[i] - 1) * stride[i] + 1, stride[i]) for i in range(rank)]
    taps = [slice(None, None, dilation[i]) for i in range(rank)]
    return view[(slice(None), slice(None), *positions, *taps)]


def pad_spatial(x: Array, pad: Sequence[int], value: Any, extra: Sequence[int] | None = None) -> Array:
    """x[N, C, ...] with `pad` (begins, then ends) elements of `value`, and `extra` more at the ends."""
    rank = len(pad) // 2
    more = extra or [0] * rank
    spans = [(0, 0), (0, 0), *((pad[i], pad[rank + i] + more[i]) for i in range(rank))]
    return np.pad(x, spans, constant_values=value)


def _conv(arrays: Sequence[Array], attrs: Mapping[str, Any], results: Sequence[TensorType]) -> Sequence[Array]:
    x, w = (_accumulator(item) for item in arrays)
    group, counts, kernel = attrs["group"], results[0].shape[2:], w.shape[2:]
    view = windows(pad_spatial(x, attrs["pad"], 0), kernel, attrs["stride"], attrs["dilation"], counts)
    rank, inner, outer = len(kernel), x.shape[1] // group, w.shape[0] // group
    taps = tuple(range(2 + rank, 2 + 2 * rank))
    parts = []
    for g in range(group):
        data = view[:, g * inner : (g + 1) * inner]
        weight = w[g * outer : (g + 1) * outer]
        part = np.tensordot(data, weight, axes=((1, *taps), (1, *range(2, 2 + rank))))
        parts.append(np.moveaxis(part, -1, 1))
    return (np.concatenate(parts, axis=1),)


def _conv_transpose(
    arrays: Sequence[Array], attrs: Mapping[str, Any], results: Sequence[TensorType]
) -> Sequence[Array]:
    x, w = (_accumulator(item) for item in arrays)
    group, stride, dilation, pad, kernel = attrs["group"], attrs["stride"], attrs["dilation"], attrs["pad"], w.shape[2:]
    rank, space, inner = len(kernel), x.shape[2:], x.shape[1] // group
    shape = results[0].shape
    full = [shape[2 + i] + pad[i] + pad[rank + i] for i in range(rank)]
    total = np.zeros((shape[0], shape[1], *full), np.result_type(x, w))
    outer = w.shape[1]
    for tap in np.ndindex(*kernel):
        begin = [tap[i] * dilation[i] for i in range(rank)]
        where = tuple(slice(begin[i], begin[i] + (space[i] - 1) * stride[i] + 1, stride[i]) for i in range(rank))
        for g in range(group):
            weight = w[(slice(g * inner, (g + 1) * inner), slice(None), *tap)]
            part = np.tensordot(x[:, g * inner : (g + 1) * inner], weight, axes=((1,), (0,)))
            total[(slice(None), slice(g * outer, (g + 1) * outer), *where)] += np.moveaxis(part, -1, 1)
    crop = tuple(slice(pad[i], pad[i] + shape[2 + i]) for i in range(rank))
    return (total[(slice(None), slice(None), *crop)],)


CONTRACTION_REFERENCES: Mapping[
    str, Callable[[Sequence[Array], Mapping[str, Any], Sequence[TensorType]], Sequence[Array]]
] = {
    "matmul": _matmul,
    "conv1d": _conv,
    "conv2d": _conv,
    "conv3d": _conv,
    "conv1d_transpose": _conv_transpose,
    "conv2d_transpose": _conv_transpose,
    "conv3d_transpose": _conv_transpose,
}
