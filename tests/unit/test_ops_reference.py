"""The NumPy reference of the primitives against independent formulas, mostly plain Python loops."""

import itertools
import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from fusesolve.builder import GraphBuilder
from fusesolve.errors import InputError
from fusesolve.graph import AttrValue, DType, Literal, Operand, TensorType
from fusesolve.reference import random_feeds, run_reference

_KINDS = {
    "float64": DType.F64, "float32": DType.F32, "float16": DType.F16, "bfloat16": DType.BF16, "int64": DType.I64,
    "int32": DType.I32, "int8": DType.I8, "uint8": DType.U8, "bool": DType.BOOL, "float8_e4m3fn": DType.F8E4M3,
}  # fmt: skip


def run(op: str, *operands: Any, **attrs: AttrValue) -> Any:
    builder = GraphBuilder("one")
    inputs: list[Operand] = []
    feeds = {}
    for index, item in enumerate(operands):
        if isinstance(item, Literal):
            inputs.append(item)
            continue
        name = builder.input(f"x{index}", TensorType(_KINDS[item.dtype.name], item.shape))
        feeds[name] = item
        inputs.append(name)
    names = builder.add(op, inputs, attrs)
    for name in names:
        builder.output(name)
    results = run_reference(builder.build(), feeds)
    return results[names[0]] if len(names) == 1 else tuple(results[name] for name in names)


def rand(*shape: int, seed: int = 0) -> Any:
    return np.random.Generator(np.random.PCG64(seed)).standard_normal(shape).astype(np.float32)


def naive_conv(x: Any, w: Any, stride: int, pad: int, dilation: int, group: int) -> Any:
    n, _, h, width = x.shape
    o, cg, kh, kw = w.shape
    oh = (h + 2 * pad - dilation * (kh - 1) - 1) // stride + 1
    ow = (width + 2 * pad - dilation * (kw - 1) - 1) // stride + 1
    y = np.zeros((n, o, oh, ow), np.float64)
    spots = itertools.product(range(n), range(o), range(oh), range(ow), range(cg), range(kh), range(kw))
    for b, f, i, j, k, u, v in spots:
        row, column = i * stride - pad + u * dilation, j * stride - pad + v * dilation
        if 0 <= row < h and 0 <= column < width:
            y[b, f, i, j] += float(x[b, f // (o // group) * cg + k, row, column]) * float(w[f, k, u, v])
    return y


@pytest.mark.parametrize(
    ("stride", "pad", "dilation", "group"), [(1, 0, 1, 1), (2, 1, 1, 2), (1, 2, 2, 4), (3, 1, 2, 1)]
)
def test_convolution(stride: int, pad: int, dilation: int, group: int) -> None:
    x, w = rand(2, 4, 7, 6), rand(8, 4 // group, 3, 2, seed=1)
    found = run("conv2d", x, w, stride=stride, pad=pad, dilation=dilation, group=group)
    np.testing.assert_allclose(found, naive_conv(x, w, stride, pad, dilation, group), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("stride", "pad", "group"), [(1, 0, 1), (2, 1, 1), (3, 0, 2)])
def test_a_transposed_convolution_is_the_adjoint_of_the_convolution(stride: int, pad: int, group: int) -> None:
    # <conv(x, w), y> = <x, conv_transpose(y, w)> for every x and y.
    w = rand(4, 6 // group, 3, 3, seed=1)
    y = rand(1, 4, 3, 3, seed=2)
    back = run("conv2d_transpose", y, w, stride=stride, pad=pad, group=group)
    x = rand(*back.shape, seed=3)
    forward = run("conv2d", x, w, stride=stride, pad=pad, group=group)
    assert forward.shape == y.shape
    assert np.sum(forward * y) == pytest.approx(np.sum(x * back), rel=1e-4)


def test_integer_convolution_accumulates_in_wide_integers() -> None:
    x, w = np.full((1, 8, 3, 3), 127, np.int8), np.full((1, 8, 3, 3), 127, np.int8)
    assert run("conv2d", x, w, to="i32").item() == 127 * 127 * 72
    a = np.full((1, 300), -128, np.int8)
    assert run("matmul", a, a, transpose_b=True, to="i32").item() == 128 * 128 * 300


def naive_pool(x: Any, k: int, stride: int, pad: int, ceil: bool, mode: str) -> Any:
    extent = x.shape[-1]
    room = (extent + 2 * pad - k) / stride
    count = (math.ceil(room) if ceil else math.floor(room)) + 1
    if ceil and (count - 1) * stride >= extent + pad:
        count -= 1
    out = []
    for i in range(count):
        taps = [i * stride - pad + t for t in range(k)]
        inside = [x[0, 0, t] for t in taps if 0 <= t < extent]
        padded = [t for t in taps if -pad <= t < extent + pad]
        out.append(max(inside) if mode == "max" else sum(inside) / (len(padded) if mode == "count" else len(inside)))
    return np.array(out, np.float32)[None, None]


@pytest.mark.parametrize(
    ("k", "stride", "pad", "ceil"), [(3, 1, 1, False), (2, 2, 0, True), (3, 2, 1, True), (2, 3, 1, True)]
)
@pytest.mark.parametrize("extent", [4, 5, 8])
def test_pooling(k: int, stride: int, pad: int, ceil: bool, extent: int) -> None:
    x = rand(1, 1, extent) - 3  # all below zero: padding must never win
    attrs: dict[str, AttrValue] = {"k": k, "stride": stride, "pad": pad, "ceil": ceil}
    np.testing.assert_array_equal(run("maxpool", x, **attrs), naive_pool(x, k, stride, pad, ceil, "max"))
    np.testing.assert_allclose(run("avgpool", x, **attrs), naive_pool(x, k, stride, pad, ceil, "inside"), rtol=1e-6)
    counted = run("avgpool", x, count_pad=True, **attrs)
    np.testing.assert_allclose(counted, naive_pool(x, k, stride, pad, ceil, "count"), rtol=1e-6)


def test_stencil_counts_what_lies_outside_as_zero() -> None:
    x = np.array([1, 2, 4, 8], np.float32)
    np.testing.assert_array_equal(run("stencil", x, offsets=(-1, 0, 2)), [1 + 4, 1 + 2 + 8, 2 + 4, 4 + 8])


def test_resizing() -> None:
    x = np.array([0, 10, 20, 30], np.float32)
    # half-pixel: positions (o + 0.5) / 2 - 0.5 = -0.25, 0.25, 0.75, ... clamped to 0..3
    np.testing.assert_allclose(run("resize_linear", x, to=(8,)), [0, 2.5, 7.5, 12.5, 17.5, 22.5, 27.5, 30])
    found = run("resize_linear", x, to=(7,), coordinates="align_corners")
    np.testing.assert_allclose(found, [0, 5, 10, 15, 20, 25, 30])
    found = run("resize_nearest", x, to=(8,), coordinates="asymmetric", rounding="floor")
    np.testing.assert_array_equal(found, [0, 0, 10, 10, 20, 20, 30, 30])
    np.testing.assert_array_equal(run("resize_nearest", x, to=(2,)), [0, 20])  # 0.5 and 2.5, halves to the floor
    found = run("resize_nearest", x, to=(2,), rounding="round_prefer_ceil")
    np.testing.assert_array_equal(found, [10, 30])


def test_movement() -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.testing.assert_array_equal(run("slice", x, axis=1, start=3, end=-5, step=-2), x[:, [3, 1]])
    np.testing.assert_array_equal(run("slice", x, axis=1, step=-1), x[:, ::-1])
    np.testing.assert_array_equal(run("pad", x, axis=0, before=2, mode="reflect"), x[[2, 1, 0, 1, 2]])
    np.testing.assert_array_equal(run("pad", x, axis=1, after=2, mode="edge"), x[:, [0, 1, 2, 3, 3, 3]])
    filled = run("pad", x, axis=1, before=1, value=-7)
    assert (filled[:, 0] == -7).all()
    changed = run("select_scatter", x, np.full((3, 1), 9, np.float32), axis=1, index=2)
    np.testing.assert_array_equal(changed, [[0, 1, 9, 3], [4, 5, 9, 7], [8, 9, 9, 11]])
    changed = run("slice_update", x, np.zeros((3, 2), np.float32), axis=1, start=1, step=2)
    np.testing.assert_array_equal(changed, [[0, 0, 2, 0], [4, 0, 6, 0], [8, 0, 10, 0]])


def test_gathers_and_scatters() -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    index = np.array([[2, -1]])
    np.testing.assert_array_equal(run("gather", x, index), x[[[2, 2]]])
    found = run("gather_elements", x, np.array([[3, 0], [1, 1]]), axis=1)
    np.testing.assert_array_equal(found, [[3, 0], [5, 5]])
    np.testing.assert_array_equal(run("gather_nd", x, np.array([[0, 3], [2, 1]])), [3, 9])
    np.testing.assert_array_equal(run("gather_nd", x, np.array([[1], [0], [3]]), batch=1), [1, 4, 11])
    ones = np.ones((2, 4), np.float32)
    np.testing.assert_array_equal(run("scatter_add", x, np.array([1, 1]), ones)[1], x[1] + 2)
    np.testing.assert_array_equal(run("scatter_update", x, np.array([0, -1]), ones), [[1] * 4, x[1], [1] * 4])
    tiny = np.array([[50.0, -50.0]], np.float32)
    most = run("scatter_elements", x, np.array([[0, 1]]), tiny, axis=1, reduction="max")
    np.testing.assert_array_equal(most[0], [50, 1, 2, 3])
    found = run("scatter_nd", x, np.array([[1, 1], [1, 1]]), np.array([2.0, 3.0], np.float32), reduction="mul")
    assert found[1, 1] == 5 * 6


def test_an_index_outside_the_tensor_is_an_error() -> None:
    with pytest.raises(InputError, match="indices must lie inside the tensor"):
        run("gather", rand(3), np.array([3]))


def test_scans_and_sorts() -> None:
    x = np.array([3, 1, 2, 3], np.float32)
    np.testing.assert_array_equal(run("cumsum", x), [3, 4, 6, 9])
    np.testing.assert_array_equal(run("cumsum", x, exclusive=True), [0, 3, 4, 6])
    np.testing.assert_array_equal(run("cumsum", x, reverse=True), [9, 6, 5, 3])
    np.testing.assert_array_equal(run("cumsum", x, reverse=True, exclusive=True), [6, 5, 3, 0])
    np.testing.assert_array_equal(run("argsort", x), [1, 2, 0, 3])
    np.testing.assert_array_equal(run("argsort", x, descending=True), [0, 3, 2, 1])  # the first of equals first
    values, indices = run("topk", x, k=2)
    np.testing.assert_array_equal(values, [3, 3])
    np.testing.assert_array_equal(indices, [0, 3])
    values, indices = run("topk", x, k=3, largest=False)
    np.testing.assert_array_equal(indices, [1, 2, 0])


def test_narrow_floats_are_computed_in_f32_and_rounded_once() -> None:
    x = np.array([2048, 1, 1], np.float16)
    assert run("reduce_sum", x) == np.float16(2050)  # in f16 2048 + 1 stays 2048
    mean = run("reduce_mean", np.full(70_000, 3, np.float16))
    assert mean == np.float16(3)  # the sum alone is above f16's largest number
    bf = np.array([256, 1, 1], ml_dtypes.bfloat16)
    assert float(run("reduce_sum", bf)) == 258.0
    eight = np.array([1.1, -3.3], np.float32).astype(ml_dtypes.float8_e4m3fn)
    doubled = run("mul", eight, Literal(2.0))
    np.testing.assert_array_equal(doubled.astype(np.float32), eight.astype(np.float32) * 2)


def test_special_values_follow_ieee_without_warnings() -> None:
    x = np.array([-1.0, 0.0, np.inf, np.nan], np.float32)
    np.testing.assert_array_equal(run("relu", x), [0, 0, np.inf, np.nan])
    np.testing.assert_array_equal(run("maximum", x, Literal(0.0)), [0, 0, np.inf, np.nan])
    np.testing.assert_array_equal(run("log", x), [np.nan, -np.inf, np.inf, np.nan])
    np.testing.assert_array_equal(run("rsqrt", x), [np.nan, np.inf, 0, np.nan])
    np.testing.assert_array_equal(run("sigmoid", np.array([-1000, 1000], np.float32)), [0, 1])
    np.testing.assert_array_equal(run("isinf", x), [False, False, True, False])
    np.testing.assert_array_equal(run("sign", x), [-1, 0, 1, np.nan])
    assert run("reduce_max", x).item() != run("reduce_max", x).item()


def test_integer_arithmetic() -> None:
    a, b = np.array([7, -7, 7, -7, 5], np.int32), np.array([2, 2, -2, -2, 0], np.int32)
    np.testing.assert_array_equal(run("intdiv", a, b), [3, -3, -3, 3, 0])  # towards zero
    np.testing.assert_array_equal(run("mod", a, b), [1, 1, -1, -1, 0])  # sign of b
    np.testing.assert_array_equal(run("fmod", a, b), [1, -1, 1, -1, 0])  # sign of a
    np.testing.assert_array_equal(run("div", a[:2], b[:2]), [3.5, -3.5])
    np.testing.assert_array_equal(run("pow", np.array([2, 3]), np.array([-1, 2])), [0, 9])
    np.testing.assert_array_equal(run("round", np.array([0.5, 1.5, -2.5], np.float32)), [0, 2, -2])
    np.testing.assert_array_equal(run("cast", np.array([-1.7, 2.9], np.float32), to="i32"), [-1, 2])
    np.testing.assert_array_equal(run("not", np.array([True, False])), [False, True])
    np.testing.assert_array_equal(run("not", np.array([0, 5])), [-1, -6])


def test_generators() -> None:
    np.testing.assert_array_equal(run("arange", start=5, end=-2, step=-3), [5, 2, -1])
    np.testing.assert_allclose(run("arange", n=3, start=0.5, step=0.25), [0.5, 0.75, 1.0])
    assert run("fill", const=2.5, shape=(2, 2)).tolist() == [[2.5, 2.5], [2.5, 2.5]]
    noise = run("random_uniform", shape=(4096,), seed=3)
    assert noise.min() >= 0
    assert noise.max() < 1
    assert abs(noise.mean() - 0.5) < 4 / math.sqrt(12 * 4096)
    assert (run("random_uniform", shape=(4096,), seed=3) == noise).all()


def test_feeds_are_checked() -> None:
    builder = GraphBuilder("one")
    builder.input("x", TensorType(DType.F32, (2,)))
    builder.output(builder.one("neg", ["x"]))
    graph = builder.build()
    with pytest.raises(InputError, match="no array for the input 'x'"):
        run_reference(graph, {})
    with pytest.raises(InputError, match=r"the array for 'x' is float64\[2\], the graph needs f32\[2\]"):
        run_reference(graph, {"x": np.zeros(2)})
    with pytest.raises(InputError, match=r"float32\[3\]"):
        run_reference(graph, {"x": np.zeros(3, np.float32)})


def test_random_feeds_index_inside_the_tensor() -> None:
    builder = GraphBuilder("one")
    builder.input("x", TensorType(DType.F32, (2, 3)))
    builder.input("i", TensorType(DType.I64, (64,)))
    builder.output(builder.one("gather", ["x", "i"]))
    graph = builder.build()
    feeds = random_feeds(graph, 0)
    assert set(feeds["i"]) == {0, 1}
    assert run_reference(graph, feeds)[graph.outputs[0]].shape == (64, 3)
    assert all((random_feeds(graph, 0)[name] == feeds[name]).all() for name in feeds)
