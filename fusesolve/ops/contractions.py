"""Contractions: multiply and add over reduction axes (matmul, convolution as an implicit GEMM).

Work is zero here on purpose: a contraction is 2 x prod(result extents) x prod(reduced extents) FLOP, which follows
from its access map. Products accumulate in f32 (f64 for f64, i64 for integers) and are rounded once; `to` names the
element type of the result where it is not the promoted type of the operands (i8 operands with `to=i32`).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from fusesolve.access import Access, AccessKind, AccessMap, reduced, same
from fusesolve.errors import InputError
from fusesolve.graph import DType, Node, TensorType
from fusesolve.ops.definition import OpDef, OpKind, Work
from fusesolve.ops.lazy import NumpyReference
from fusesolve.ops.rules import (
    attr_tuple,
    broadcast_operand,
    broadcast_shapes,
    flag,
    integers,
    parse_dtype,
    promote,
)

_NO_WORK = Work(instructions=0.0)


def _dtype(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> DType:
    return parse_dtype(attrs["to"]) if "to" in attrs else promote(types[0].dtype, types[1].dtype)


def _prepare_matmul(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {name: flag(attrs.get(name, False), name) for name in ("transpose_a", "transpose_b")}
    if "to" in attrs:
        found["to"] = parse_dtype(attrs["to"]).value
    return found


def _matrix(kind: TensorType, transposed: bool, what: str) -> tuple[int, int]:
    if len(kind.shape) < 2:
        raise InputError(f"operand {what} of matmul is {kind}: it needs at least two dimensions; reshape it first")
    rows, columns = kind.shape[-2:]
    return (columns, rows) if transposed else (rows, columns)


def _infer_matmul(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> tuple[TensorType, ...]:
    left, right = types
    m, k = _matrix(left, attrs["transpose_a"], "a")
    k2, n = _matrix(right, attrs["transpose_b"], "b")
    if k != k2:
        raise InputError(f"matmul of {left} and {right}: inner extents {k} and {k2} differ")
    batch = broadcast_shapes([left.shape[:-2], right.shape[:-2]])
    return (TensorType(_dtype(types, attrs), (*batch, m, n)),)


def _access_matmul(node: Node, types: Sequence[TensorType], results: Sequence[TensorType]) -> AccessMap:
    shape = results[0].shape
    rank = len(shape)
    rows, columns, inner = same(rank - 2), same(rank - 1), reduced(0)
    left, right = (broadcast_operand(item.shape[:-2], shape[:-2]) for item in types)
    a = (inner, rows) if node.attr("transpose_a") else (rows, inner)
    b = (columns, inner) if node.attr("transpose_b") else (inner, columns)
    depth = types[0].shape[-2 if node.attr("transpose_a") else -1]
    return AccessMap(((*left, *a), (*right, *b)), (depth,))


def pads(value: object, rank: int) -> tuple[int, ...]:
    """Padding of `rank` spatial axes as `rank` begins and `rank` ends, from one number, `rank` or 2 x `rank`."""
    if isinstance(value, tuple) and len(value) == 2 * rank:
        return integers(value, "pad", 2 * rank, least=0)
    return integers(value, "pad", rank, least=0) * 2


def window_extent(extent: int, kernel: int, stride: int, dilation: int, pad: int, ceil: bool = False) -> int:
    """Positions of a window: (extent + pad - dilation*(kernel-1) - 1) / stride + 1, rounded down (up with `ceil`).

    `pad` is the sum of both sides. Source: the ONNX operator specification (Conv, MaxPool). Raises InputError where
    the window does not fit once.
    """
    room = extent + pad - dilation * (kernel - 1) - 1
    if room < 0:
        raise InputError(f"a window of {kernel} (dilation {dilation}) does not fit extent {extent} with padding {pad}")
    return (-(-room // stride) if ceil else room // stride) + 1


def _prepare_conv(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> dict[str, Any]:
    rank = len(types[1].shape) - 2
    found: dict[str, Any] = {
        "stride": integers(attrs.get("stride", 1), "stride", rank, least=1),
        "pad": pads(attrs.get("pad", 0), rank),
        "dilation": integers(attrs.get("dilation", 1), "dilation", rank, least=1),
        "group": integers(attrs.get("group", 1), "group", 1, least=1)[0],
    }
    if "to" in attrs:
        found["to"] = parse_dtype(attrs["to"]).value
    return found


def _prepare_transpose(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> dict[str, Any]:
    rank = len(types[1].shape) - 2
    extra = integers(attrs.get("output_pad", 0), "output_pad", rank, least=0)
    return _prepare_conv(types, attrs) | {"output_pad": extra}


def _check_ranks(types: Sequence[TensorType], rank: int) -> None:
    if len(types[0].shape) != rank + 2 or len(types[1].shape) != rank + 2:
        raise InputError(f"convolution over {rank} axes needs rank {rank + 2}: got {types[0]} and {types[1]}")


def _channels(types: Sequence[TensorType], group: int, *, transposed: bool) -> int:
    """Output channels, after checking that input channels and weights agree for `group` groups."""
    channels, weight = types[0].shape[1], types[1].shape
    if transposed:
        if channels != weight[0] or channels % group:
            raise InputError(
                f"{types[0]} has {channels} channels, the weights {types[1]} take {weight[0]} in {group} groups"
            )
        return weight[1] * group
    if channels != weight[1] * group or weight[0] % group:
        raise InputError(
            f"{types[0]} has {channels} channels, the weights {types[1]} take {weight[1]} x group {group}"
            f" and give {weight[0]}"
        )
    return weight[0]


class _Convolution:
    """Shape and access rules of a convolution over `rank` spatial axes: x[N, C, ...] with w[O, C/group, ...]."""

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def infer(self, types: Sequence[TensorType], attrs: Mapping[str, Any]) -> tuple[TensorType, ...]:
        _check_ranks(types, self.rank)
        outputs = _channels(types, attrs["group"], transposed=False)
        pad, stride, dilation = (attr_tuple(attrs, name) for name in ("pad", "stride", "dilation"))
        extents, kernel = types[0].shape[2:], types[1].shape[2:]
        space = (
            window_extent(extents[i], kernel[i], stride[i], dilation[i], pad[i] + pad[self.rank + i])
            for i in range(self.rank)
        )
        return (TensorType(_dtype(types, attrs), (types[0].shape[0], outputs, *space)),)

    def access(self, node: Node, types: Sequence[TensorType], results: Sequence[TensorType]) -> AccessMap:
        weight, group = types[1].shape, node.attr("group", 1)
        channel = reduced(0) if group == 1 else Access(AccessKind.WINDOW, out=1, red=0)
        x = (same(0), channel, *(Access(AccessKind.WINDOW, out=2 + i, red=1 + i) for i in range(self.rank)))
        w = (same(1), reduced(0), *(reduced(1 + i) for i in range(self.rank)))
        return AccessMap((x, w), weight[1:])


class _Transposed:
    """Rules of a transposed convolution: x[N, C, ...] with w[C, O/group, ...].

    Each result element sums C/group x ceil(kernel / stride) products per axis, so the reduced extents give the FLOP
    of the equivalent dense convolution of the unstretched input.
    """

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def infer(self, types: Sequence[TensorType], attrs: Mapping[str, Any]) -> tuple[TensorType, ...]:
        _check_ranks(types, self.rank)
        outputs = _channels(types, attrs["group"], transposed=True)
        pad, stride, dilation, extra = (attr_tuple(attrs, n) for n in ("pad", "stride", "dilation", "output_pad"))
        space = tuple(
            stride[i] * (types[0].shape[2 + i] - 1) + extra[i] + dilation[i] * (types[1].shape[2 + i] - 1) + 1
            - pad[i] - pad[self.rank + i]
            for i in range(self.rank)
        )  # fmt: skip
        if any(extent <= 0 for extent in space):
            raise InputError(f"transposed convolution of {types[0]} gives the extents {list(space)}; lower pad")
        return (TensorType(_dtype(types, attrs), (types[0].shape[0], outputs, *space)),)

    def access(self, node: Node, types: Sequence[TensorType], results: Sequence[TensorType]) -> AccessMap:
        group, stride, weight = node.attr("group", 1), node.attr("stride"), types[1].shape
        assert isinstance(group, int)
        assert isinstance(stride, tuple)
        window = tuple(Access(AccessKind.WINDOW, out=2 + i, red=1 + i) for i in range(self.rank))
        channel = reduced(0) if group == 1 else Access(AccessKind.WINDOW, out=1, red=0)
        output = same(1) if group == 1 else Access(AccessKind.WINDOW, out=1)
        extents = (-(-weight[2 + i] // stride[i]) for i in range(self.rank))
        return AccessMap(((same(0), channel, *window), (channel, output, *window)), (weight[0] // group, *extents))


_CONV_ATTRS = {
    "stride": (False, "step of the window per spatial axis (default 1)"),
    "pad": (False, "zeros at the begins and ends of the spatial axes (default 0)"),
    "dilation": (False, "distance of the kernel's taps per spatial axis (default 1)"),
    "group": (False, "independent groups of channels (default 1)"),
    "to": (False, "element type of the result"),
}


def _conv(rank: int, *, transposed: bool) -> OpDef:
    rules = _Transposed(rank) if transposed else _Convolution(rank)
    name = f"conv{rank}d_transpose" if transposed else f"conv{rank}d"
    extra = {"output_pad": (False, "elements added at the ends (default 0)")} if transposed else {}
    weights = "w[C, O/group, kernel]" if transposed else "w[O, C/group, kernel]"
    what = "Transposed convolution" if transposed else "Convolution"
    return OpDef(
        name=name, kind=OpKind.CONTRACTION, operands=(2, 2),
        doc=f"{what} over {rank} axes of x[N, C, ...] with {weights}.",
        infer=rules.infer, access=rules.access, reference=NumpyReference(name), work=_NO_WORK, linear=True,
        attrs=_CONV_ATTRS | extra, prepare=_prepare_transpose if transposed else _prepare_conv,
    )  # fmt: skip


CONTRACTIONS: tuple[OpDef, ...] = (
    OpDef(
        name="matmul", kind=OpKind.CONTRACTION, doc="a[..., M, K] x b[..., K, N], batches broadcast.", operands=(2, 2),
        infer=_infer_matmul, access=_access_matmul, reference=NumpyReference("matmul"), work=_NO_WORK, linear=True,
        attrs={
            "transpose_a": (False, "a is stored as [..., K, M]"),
            "transpose_b": (False, "b is stored as [..., N, K]"),
            "to": (False, "element type of the result"),
        },
        prepare=_prepare_matmul,
    ),
    *(_conv(rank, transposed=transposed) for transposed in (False, True) for rank in (1, 2, 3)),
)  # fmt: skip
