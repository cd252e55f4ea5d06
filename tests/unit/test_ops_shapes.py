"""Shape rules of the primitives: extents worked out by hand, and every refusal."""

import pytest

from fusesolve.errors import InputError
from fusesolve.graph import AttrValue, DType, TensorType
from fusesolve.ops import OPS, infer_results


def parse(text: str) -> TensorType:
    dtype, _, shape = text.partition("[")
    return TensorType(DType(dtype), tuple(int(item) for item in shape.rstrip("]").split(",") if item))


def infer(op: str, *operands: str, **attrs: AttrValue) -> str:
    results, _ = infer_results(OPS[op], [parse(item) for item in operands], attrs)
    return " ".join(map(str, results))


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        # (7 + 1+1 - 3) / 2 + 1 = 4 ; 112 = (224 + 6 - 7) / 2 + 1
        (infer("conv2d", "f32[1,3,7,7]", "f32[8,3,3,3]", stride=2, pad=1), "f32[1,8,4,4]"),
        (infer("conv2d", "f16[1,3,224,224]", "f16[64,3,7,7]", stride=2, pad=3), "f16[1,64,112,112]"),
        # dilation 2: taps span 5, (9 - 5) / 1 + 1 = 5 ; uneven padding 0 and 1 behind: (5 + 1 - 2) / 2 + 1 = 3
        (infer("conv1d", "f32[2,4,9]", "f32[6,2,3]", dilation=2, group=2), "f32[2,6,5]"),
        (infer("conv1d", "f32[1,1,5]", "f32[1,1,2]", stride=2, pad=(0, 1)), "f32[1,1,3]"),
        (infer("conv2d", "i8[1,2,3,3]", "i8[1,2,3,3]", to="i32"), "i32[1,1,1,1]"),
        # 2 * (4-1) + (3-1) + 1 - 2*1 + 1 = 8
        (infer("conv2d_transpose", "f32[1,4,4,4]", "f32[4,3,3,3]", stride=2, pad=1, output_pad=1), "f32[1,3,8,8]"),
        # ceil((7 - 2) / 2) + 1 = 4; the padded one: ceil((6 + 2 - 3) / 2) + 1 = 4, whose last start 6 < 6 + 1
        (infer("maxpool", "f32[1,1,7]", k=2, stride=2, ceil=True), "f32[1,1,4]"),
        (infer("maxpool", "f32[1,1,6]", k=3, stride=2, pad=1, ceil=True), "f32[1,1,4]"),
        # ceil((4 + 2 - 2) / 3) + 1 = 3, but the last window would start at 6 >= 4 + 1: 2
        (infer("avgpool", "f32[1,1,4]", k=2, stride=3, pad=1, ceil=True), "f32[1,1,2]"),
        (infer("matmul", "f16[8,1,4,5]", "f16[3,5,6]"), "f16[8,3,4,6]"),
        (infer("matmul", "bf16[5,4]", "f32[6,5]", transpose_a=True, transpose_b=True), "f32[4,6]"),
        (infer("reduce_sum", "i8[3,4]", axis=1), "i64[3]"),
        (infer("reduce_sum", "u16[3,4]"), "u64[]"),
        (infer("reduce_mean", "i32[3,4]", axis=0, keepdims=True), "f64[1,4]"),
        (infer("reduce_mean", "f16[3,4]", axis=0), "f16[4]"),
        (infer("argmax", "bf16[3,4]", axis=-1), "i64[3]"),
        (infer("slice", "f32[10]", start=8, end=1, step=-3), "f32[3]"),  # 8, 5, 2
        (infer("slice", "f32[10]", start=-3), "f32[3]"),
        (infer("slice", "f32[10]", start=7, end=3), "f32[0]"),
        (infer("slice", "f32[10]", step=-1), "f32[10]"),
        (infer("concat", "f16[2,3]", "f32[2,1]", "i8[2,4]", axis=1), "f32[2,8]"),
        (infer("pad", "f32[2,3]", axis=1, before=2, after=1), "f32[2,6]"),
        (infer("gather", "f16[5,6,7]", "i64[2,3]", axis=1), "f16[5,2,3,7]"),
        (infer("gather_nd", "f32[2,3,4]", "i64[2,5,1]", batch=1), "f32[2,5,4]"),
        (infer("topk", "f32[3,9]", k=4), "f32[3,4] i64[3,4]"),
        (infer("reshape", "f32[4,6]", to=(-1, 3)), "f32[8,3]"),
        (infer("squeeze", "f32[1,3,1]"), "f32[3]"),
        (infer("unsqueeze", "f32[3]", axis=(0, 2)), "f32[1,3,1]"),
        (infer("transpose", "f32[2,3,4]", perm=(1, 2, 0)), "f32[3,4,2]"),
        (infer("div", "i32[2]", "i32[2]"), "f64[2]"),
        (infer("where", "bool[4,1]", "f16[3]", "f32[]"), "f32[4,3]"),
        (infer("equal", "bf16[2]", "f32[2,1]"), "bool[2,2]"),
        (infer("arange", start=2, end=9, step=3), "i64[3]"),
        (infer("arange", start=0.0, end=1.0, step=0.25), "f32[4]"),
        (infer("arange", start=5, end=1), "i64[0]"),
        (infer("fill", const=1, shape=(2, 2), to="bf16"), "bf16[2,2]"),
        (infer("exp", "f32[2]", **{"as": "i8"}), "i8[2]"),
        (infer("select_scatter", "f32[4,5,6]", "f32[4,6]", axis=1, index=4), "f32[4,5,6]"),
    ],
)  # fmt: skip
def test_shapes(result: str, expected: str) -> None:
    assert result == expected


REFUSALS: list[tuple[str, tuple[str, ...], dict[str, AttrValue], str]] = [
    ("matmul", ("f32[4,5]", "f32[4,5]"), {}, "inner extents 5 and 4 differ"),
    ("matmul", ("f32[5]", "f32[5,4]"), {}, r"operand a of matmul is f32\[5\]: it needs at least two dimensions"),
    ("conv2d", ("f32[1,3,5,5]", "f32[4,2,3,3]"), {}, "has 3 channels, the weights .* take 2 x group 1"),
    ("conv2d", ("f32[1,4,5,5]", "f32[3,2,3,3]"), {"group": 2}, "take 2 x group 2 and give 3"),
    ("conv2d", ("f32[1,3,5]", "f32[4,3,3]"), {}, "over 2 axes needs rank 4"),
    ("conv2d", ("f32[1,3,2,5]", "f32[4,3,3,3]"), {}, "a window of 3 .* does not fit extent 2"),
    ("conv2d_transpose", ("f32[1,3,4,4]", "f32[4,3,3,3]"), {}, "has 3 channels, the weights .* take 4"),
    ("conv1d_transpose", ("f32[1,3,1]", "f32[3,2,1]"), {"pad": 1}, r"gives the extents \[-1\]; lower pad"),
    ("maxpool", ("f32[4,5]",), {"k": 2}, "pooling needs"),
    ("maxpool", ("f32[1,1,5]",), {}, "pooling needs k"),
    ("reduce_max", ("f32[0,4]",), {"axis": 0}, "axis 0 of .* is empty"),
    ("reduce_sum", ("f32[3,4]",), {"axis": (1, 1)}, "names an axis twice"),
    ("slice", ("f32[4]",), {"step": 0}, "slice has step 0"),
    ("concat", ("f32[2,3]", "f32[3,3]"), {"axis": 1}, "the other extents differ"),
    ("pad", ("f32[3]",), {"before": 3, "mode": "reflect"}, "needs an axis longer than 3"),
    ("pad", ("f32[0]",), {"before": 1, "mode": "edge"}, "edge of the empty axis"),
    ("pad", ("f32[3]",), {"mode": "wrap"}, "mode must be one of constant, edge, reflect"),
    ("transpose", ("f32[3,4]",), {"perm": (0, 0)}, "perm 0-0 is not a permutation"),
    ("reshape", ("f32[3,4]",), {"to": (5, -1)}, r"reshape of f32\[3,4\] \(12 elements\) to \[5, 2\]"),
    ("reshape", ("f32[3,4]",), {"to": (-1, -1)}, "leaves two extents open"),
    ("reshape", ("f32[3,4]",), {}, "reshape needs the shape"),
    ("squeeze", ("f32[3,1]",), {"axis": 0}, "its extent is 3, not 1"),
    ("unsqueeze", ("f32[3]",), {}, "unsqueeze needs axis"),
    ("broadcast", ("f32[3]",), {"to": (4,)}, "do not broadcast"),
    ("gather", ("f32[3]", "f32[2]"), {}, "indices must be integers, not f32"),
    ("gather_elements", ("f32[3,4]", "i64[4,4]"), {"axis": 1}, "an index extent is larger"),
    ("gather_nd", ("f32[3,4]", "i64[2,3]"), {}, "does not fit"),
    ("scatter_add", ("f32[3,4]", "i64[2]", "f32[3,4]"), {}, r"must be \[2, 4\]"),
    ("scatter_elements", ("f32[3]", "i64[2]", "f32[3]"), {}, "do not fit"),
    ("scatter_nd", ("f32[3]", "i64[2,2]", "f32[2]"), {}, "do not fit"),
    ("topk", ("f32[3]",), {"k": 4}, "it has only 3"),
    ("topk", ("f32[3]",), {}, "topk needs k"),
    ("where", ("f32[3]", "f32[3]", "f32[3]"), {}, "condition of where must be bool"),
    ("cast", ("f32[3]",), {}, "cast needs the element type"),
    ("clip", ("f32[3]",), {}, "clip needs min, max or both"),
    ("clip", ("f32[3]",), {"min": 2, "max": 1}, "min 2 above max 1"),
    ("neg", ("bool[3]",), {}, "no arithmetic on bool"),
    ("and", ("f32[3]", "f32[3]"), {}, "needs integers or bool, not f32"),
    ("intdiv", ("bool[3]", "bool[3]"), {}, "needs integers, not bool"),
    ("arange", (), {"start": 1}, "arange needs the count n"),
    ("fill", (), {"shape": 3}, "fill needs const"),
    ("random_uniform", (), {"to": "i8"}, "gives floats, not i8"),
    ("stencil", ("f32[3]",), {"offsets": (1, 1)}, "different offsets"),
    ("resize_linear", ("f32[3]",), {}, "resize needs the shape"),
    ("resize_nearest", ("f32[0]",), {"to": 3}, "resize of the empty tensor"),
    ("select_scatter", ("f32[3,4]", "f32[3,1]"), {"axis": 1, "index": 4}, "index 4 is out of range"),
    ("select_scatter", ("f32[3,4]", "f32[3,2]"), {"axis": 1}, r"takes \[3, 1\]"),
    ("slice_update", ("f32[3]", "f32[2]"), {"start": 2}, "reaches index 3"),
    ("slice_update", ("f32[3,2]", "f32[1,3]"), {}, "the other extents differ"),
    ("opaque", ("f32[3]",), {}, "must be declared"),
]


@pytest.mark.parametrize(("op", "operands", "attrs", "message"), REFUSALS)
def test_refusals(op: str, operands: tuple[str, ...], attrs: dict[str, AttrValue], message: str) -> None:
    with pytest.raises(InputError, match=message):
        infer(op, *operands, **attrs)
