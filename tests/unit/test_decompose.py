"""Composites against formulas written without fusesolve, in double precision."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fusesolve.builder import GraphBuilder
from fusesolve.decompose import COMPOSITES, add_operator
from fusesolve.errors import InputError
from fusesolve.graph import AttrValue, DType, Graph, Literal, TensorType
from fusesolve.reference import run_reference

KINDS = {"float32": DType.F32, "float64": DType.F64, "float16": DType.F16, "int64": DType.I64, "bool": DType.BOOL,
         "uint8": DType.U8, "int8": DType.I8}  # fmt: skip


def expand(op: str, *operands: Any, outputs: int = 1, **attrs: AttrValue) -> tuple[Graph, dict[str, Any]]:
    builder = GraphBuilder("one")
    feeds = {f"x{index}": item for index, item in enumerate(operands)}
    for name, item in feeds.items():
        builder.input(name, TensorType(KINDS[item.dtype.name], item.shape))
    names = [f"y{index}" for index in range(outputs)]
    for name in add_operator(builder, op, list(feeds), attrs, outputs=names, source="node"):
        builder.output(name)
    graph = builder.build()
    return graph, run_reference(graph, feeds)


def check(found: dict[str, Any], *expected: Any, rtol: float = 2e-5, atol: float = 1e-6) -> None:
    for index, item in enumerate(expected):
        np.testing.assert_allclose(np.asarray(found[f"y{index}"], np.float64), item, rtol=rtol, atol=atol)


def rand(*shape: int, seed: int = 0, scale: float = 1.0) -> Any:
    return (np.random.Generator(np.random.PCG64(seed)).standard_normal(shape) * scale).astype(np.float32)


X = np.array([-30.0, -3.0, -1.0, -0.25, 0.0, 0.25, 1.0, 2.0, 3.0, 30.0], np.float32)
erf = np.vectorize(math.erf)


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def softplus(x: Any) -> Any:
    return np.logaddexp(0, x)


ACTIVATIONS: list[tuple[str, dict[str, AttrValue], Callable[[Any], Any]]] = [
    ("gelu", {}, lambda x: x * (1 + erf(x / math.sqrt(2))) / 2),
    ("gelu", {"approximate": "tanh"},
     lambda x: x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))),
    ("quick_gelu", {}, lambda x: x * sigmoid(1.702 * x)),
    ("silu", {}, lambda x: x * sigmoid(x)),
    ("silu", {"alpha": 0.5}, lambda x: x * sigmoid(x / 2)),
    ("softplus", {}, softplus),
    ("mish", {}, lambda x: x * np.tanh(softplus(x))),
    ("softsign", {}, lambda x: x / (1 + abs(x))),
    ("hardsigmoid", {}, lambda x: np.clip(0.2 * x + 0.5, 0, 1)),
    ("hardswish", {}, lambda x: x * np.clip(x + 3, 0, 6) / 6),
    ("elu", {"alpha": 2}, lambda x: np.where(x > 0, x, 2 * np.expm1(np.minimum(x, 0)))),
    ("celu", {"alpha": 0.5}, lambda x: np.where(x > 0, x, 0.5 * np.expm1(np.minimum(x, 0) / 0.5))),
    ("selu", {}, lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(np.minimum(x, 0)))),
    ("leaky_relu", {"alpha": 0.1}, lambda x: np.where(x > 0, x, 0.1 * x)),
    ("thresholded_relu", {}, lambda x: np.where(x > 1, x, 0)),
    ("shrink", {"lambd": 1.5, "bias": 1}, lambda x: np.where(x > 1.5, x - 1, np.where(x < -1.5, x + 1, 0))),
]  # fmt: skip


@pytest.mark.parametrize(("op", "attrs", "formula"), ACTIVATIONS)
def test_activations(op: str, attrs: dict[str, AttrValue], formula: Callable[[Any], Any]) -> None:
    graph, found = expand(op, X, **attrs)
    check(found, formula(X.astype(np.float64)))
    assert {node.source for node in graph.nodes} == {"node"}
    half, rounded = expand(op, X.astype(np.float16), **attrs)
    assert half.type_of("y0").dtype is DType.F16
    assert half.nodes[0].op == "cast"
    assert half.nodes[-1].op == "cast"
    check(rounded, formula(X.astype(np.float64)), rtol=2e-3, atol=1e-3)


def test_softmax_is_five_primitives() -> None:
    x = rand(3, 5, scale=40)
    graph, found = expand("softmax", x, axis=1)
    assert [node.op for node in graph.nodes] == ["reduce_max", "sub", "exp", "reduce_sum", "div"]
    assert [node.name for node in graph.nodes] == [f"node/{node.op}" for node in graph.nodes]
    wide = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    check(found, wide / wide.sum(1, keepdims=True))


def test_softmax_of_large_numbers_does_not_overflow() -> None:
    _, found = expand("softmax", np.array([[1e30, 1e30, -1e30]], np.float32))
    check(found, [[0.5, 0.5, 0]])
    _, found = expand("log_softmax", np.array([[1000.0, 1000.0]], np.float32))
    check(found, [[-math.log(2)] * 2])


def test_layer_norm_and_its_statistics() -> None:
    x, g, b = rand(4, 6) + 100, rand(6, seed=1), rand(6, seed=2)
    _, found = expand("layernorm", x, g, b, outputs=3, axis=-1, eps=1e-3)
    wide = x.astype(np.float64)
    mean, var = wide.mean(1, keepdims=True), wide.var(1, keepdims=True)
    check(found, (wide - mean) / np.sqrt(var + 1e-3) * g + b, mean, 1 / np.sqrt(var + 1e-3), rtol=1e-4, atol=1e-4)


def test_a_norm_over_inner_axes_reshapes_its_parameters() -> None:
    x, g = rand(2, 3, 4), rand(3, seed=1)
    _, found = expand("rmsnorm", x, g, axis=1, eps=0.0)
    wide = x.astype(np.float64)
    check(found, wide / np.sqrt((wide**2).mean(1, keepdims=True)) * g[:, None])
    with pytest.raises(InputError, match=r"shape \[3, 1\] does not fit the 1 axes"):
        expand("rmsnorm", x, rand(3, 1), axis=1)


def test_norms_over_channels() -> None:
    x, g, b = rand(2, 4, 3, 2), rand(4, seed=1), rand(4, seed=2)
    wide, gc, bc = x.astype(np.float64), g[:, None, None], b[:, None, None]
    rows = wide.reshape(2, 2, 12)
    normal = (rows - rows.mean(2, keepdims=True)) / np.sqrt(rows.var(2, keepdims=True) + 1e-5)
    check(expand("groupnorm", x, g, b, groups=2)[1], normal.reshape(x.shape) * gc + bc)
    planes = (wide - wide.mean((2, 3), keepdims=True)) / np.sqrt(wide.var((2, 3), keepdims=True) + 1e-5)
    check(expand("instancenorm", x, g, b)[1], planes * gc + bc)
    m, v = rand(4, seed=3), abs(rand(4, seed=4)) + 0.1
    shift = (wide - m[:, None, None]) / np.sqrt(v[:, None, None] + 1e-5) * gc + bc
    graph, found = expand("batchnorm", x, g, b, m, v)
    check(found, shift)
    per_element = [node.op for node in graph.nodes if graph.type_of(node.outputs[0]).size == x.size]
    assert per_element == ["mul", "add"]


def test_constant_statistics_of_a_batch_norm_are_combined_ahead() -> None:
    builder = GraphBuilder("one")
    builder.input("x", TensorType(DType.F16, (2, 4, 3)))
    parameters = [builder.input(f"p{i}", TensorType(DType.F32, (4,)), weight=True) for i in range(4)]
    builder.output(add_operator(builder, "batchnorm", ["x", *parameters], outputs=["y"], source="bn")[0])
    graph = builder.build()
    assert [node.op for node in graph.nodes] == ["cast", "mul", "add", "cast"]
    assert graph.weights == ("bn/factor", "bn/offset")
    assert graph.type_of("bn/factor") == TensorType(DType.F32, (1, 4, 1))


def test_local_response_norm_sums_over_near_channels() -> None:
    x = rand(1, 5, 2)
    wide = x.astype(np.float64)
    for size, before, after in ((3, 1, 1), (4, 1, 2)):
        total = np.stack([(wide[:, max(0, c - before) : c + after + 1] ** 2).sum(1) for c in range(5)], 1)
        check(expand("lrn", x, size=size, alpha=0.3, beta=0.5, bias=2)[1], wide / (2 + 0.3 / size * total) ** 0.5)


@pytest.mark.parametrize(
    ("op", "formula"),
    [
        ("reduce_l1", lambda x, k: abs(x).sum(1, keepdims=k)),
        ("reduce_l2", lambda x, k: np.sqrt((x**2).sum(1, keepdims=k))),
        ("reduce_sum_square", lambda x, k: (x**2).sum(1, keepdims=k)),
        ("reduce_log_sum", lambda x, k: np.log(x.sum(1, keepdims=k))),
        ("logsumexp", lambda x, k: np.log(np.exp(x).sum(1, keepdims=k))),
        ("reduce_var", lambda x, k: x.var(1, keepdims=k)),
    ],
)
@pytest.mark.parametrize("keepdims", [True, False])
def test_composite_reductions(op: str, formula: Callable[[Any, bool], Any], keepdims: bool) -> None:
    x = abs(rand(3, 4))
    check(expand(op, x, axis=1, keepdims=keepdims)[1], formula(x.astype(np.float64), keepdims))


def test_any_and_all() -> None:
    x = np.array([[True, False], [False, False], [True, True]])
    assert expand("reduce_any", x, axis=1)[1]["y0"].tolist() == [True, False, True]
    assert expand("reduce_all", x, axis=1)[1]["y0"].tolist() == [False, False, True]


def attention(q: Any, k: Any, v: Any, mask: Any, scale: float) -> Any:
    scores = q @ np.swapaxes(k, -1, -2) * scale + mask
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


def test_attention() -> None:
    q, k, v = rand(2, 3, 4, 8), rand(2, 3, 6, 8, seed=1), rand(2, 3, 6, 5, seed=2)
    wide = [item.astype(np.float64) for item in (q, k, v)]
    check(expand("attention", q, k, v)[1], attention(*wide, 0, 8**-0.5))
    bias = rand(4, 6, seed=3)
    check(expand("attention", q, k, v, bias, scale=0.5)[1], attention(*wide, bias, 0.5))
    keep = np.tril(np.ones((4, 6), bool), 2)
    expected = attention(*wide, np.where(keep, 0, -np.inf), 8**-0.5)
    check(expand("attention", q, k, v, keep)[1], expected)
    check(expand("attention", q, k, v, causal=True, offset=2)[1], expected)


def test_grouped_query_heads_share_their_keys() -> None:
    q, k, v = rand(1, 6, 4, 8), rand(1, 2, 5, 8, seed=1), rand(1, 2, 5, 8, seed=2)
    mask = rand(1, 6, 4, 5, seed=3)
    wide = q.astype(np.float64), np.repeat(k, 3, 1).astype(np.float64), np.repeat(v, 3, 1).astype(np.float64)
    check(expand("attention", q, k, v, mask)[1], attention(*wide, mask, 8**-0.5))
    with pytest.raises(InputError, match="6 query heads are no multiple of 4 key heads"):
        expand("attention", q, rand(1, 4, 5, 8), rand(1, 4, 5, 8))


def test_rotary() -> None:
    x, angle = rand(2, 3, 8), rand(3, 4, seed=1)
    pairs = x[..., :4] + 1j * x[..., 4:]
    turned = pairs * np.exp(1j * angle)
    found = expand("rotary", x, np.cos(angle), np.sin(angle))[1]
    check(found, np.concatenate([turned.real, turned.imag], -1))
    pairs = x[..., ::2] + 1j * x[..., 1::2]
    turned = pairs * np.exp(1j * angle)
    found = expand("rotary", x, np.cos(angle), np.sin(angle), interleaved=True)[1]
    check(found, np.stack([turned.real, turned.imag], -1).reshape(x.shape))


def test_layout() -> None:
    x = rand(1, 8, 2, 3)
    # pixel (2i+a, 2j+b) of channel c comes from channel (2a+b)*2+c (DCR) or c*4+2a+b (CRD)
    for mode, channel in (("DCR", lambda c, a, b: (2 * a + b) * 2 + c), ("CRD", lambda c, a, b: 4 * c + 2 * a + b)):
        found = expand("depth_to_space", x, block=2, mode=mode)[1]["y0"]
        for c, i, j in np.ndindex(2, 4, 6):
            assert found[0, c, i, j] == x[0, channel(c, i % 2, j % 2), i // 2, j // 2]
    back = expand("space_to_depth", expand("depth_to_space", x, block=2)[1]["y0"], block=2)[1]["y0"]
    np.testing.assert_array_equal(back, x)
    y = rand(2, 3)
    np.testing.assert_array_equal(expand("tile", y, repeats=(2, 3))[1]["y0"], np.tile(y, (2, 3)))
    z = rand(4, 3)
    np.testing.assert_array_equal(expand("trilu", z, k=-1)[1]["y0"], np.triu(z, -1))
    np.testing.assert_array_equal(expand("trilu", z, upper=False, k=1)[1]["y0"], np.tril(z, 1))
    graph, parts = expand("split", rand(7, 2), outputs=3, sizes=(1, 4, 2))
    assert [part.shape for part in parts.values()] == [(1, 2), (4, 2), (2, 2)]
    assert [node.op for node in graph.nodes] == ["slice"] * 3
    with pytest.raises(InputError, match="into 1-2"):
        expand("split", rand(7), outputs=2, sizes=(1, 2))
    hot = expand("one_hot", np.array([2, -1, 0]), depth=3, wrap=True)[1]["y0"]
    np.testing.assert_array_equal(hot, [[0, 0, 1], [0, 0, 1], [1, 0, 0]])


def test_quantisation() -> None:
    x, scale, zero = np.array([-1.0, 0.26, 99.0], np.float32), np.float32(0.5), np.array(10, np.uint8)
    assert expand("quantize", x, np.asarray(scale), zero)[1]["y0"].tolist() == [8, 11, 208]
    wide = np.array([-300.0, 300.0], np.float32)
    found = expand("quantize", wide, np.asarray(1.0, np.float32), np.asarray(0, np.int8), to="i8")[1]["y0"]
    assert found.tolist() == [-128, 127]
    per = expand("quantize", np.ones((2, 2), np.float32), np.array([1.0, 0.5], np.float32), axis=0, to="u8")[1]["y0"]
    assert per.tolist() == [[1, 1], [2, 2]]
    back = expand("dequantize", np.array([8, 11], np.uint8), np.asarray(scale), zero)[1]
    check(back, [-1.0, 0.5])


@pytest.mark.parametrize(
    ("exponent", "ops"),
    [(2.0, ["square"]), (2, ["square"]), (3.0, ["square", "mul"]), (0.5, ["sqrt"]), (-0.5, ["rsqrt"]),
     (-1.0, ["reciprocal"]), (1.0, ["copy"]), (2.5, ["pow"]), (0.0, ["pow"])],
)  # fmt: skip
def test_powers(exponent: float, ops: list[str]) -> None:
    builder = GraphBuilder("one")
    builder.input("x", TensorType(DType.F32, (3,)))
    add_operator(builder, "pow", ["x", Literal(exponent)], outputs=["y"])
    builder.output("y")
    graph = builder.build()
    assert [node.op for node in graph.nodes] == ops
    x = np.array([0.5, 2.0, 3.0], np.float32)
    np.testing.assert_allclose(run_reference(graph, {"x": x})["y"], x.astype(np.float64) ** exponent, rtol=1e-6)


def test_an_integer_keeps_its_type_under_a_whole_power() -> None:
    builder = GraphBuilder("one")
    builder.input("x", TensorType(DType.I32, (3,)))
    (name,) = add_operator(builder, "pow", ["x", Literal(2)])
    assert builder.type(name).dtype is DType.I32
    (name,) = add_operator(builder, "pow", ["x", Literal(0.5)], source="root")
    assert builder.type(name).dtype is DType.F64


def test_integers_compute_in_f32() -> None:
    graph, found = expand("softmax", np.array([[1, 1, 1, 1]], np.int8))
    assert graph.type_of("y0").dtype is DType.F32
    check(found, [[0.25] * 4])


@pytest.mark.parametrize(
    ("op", "shapes", "attrs", "message"),
    [
        ("gelu", [(3,)], {"approximate": "cubic"}, "node: approximate must be none or tanh, not 'cubic'"),
        ("gelu", [(3,)], {"alpha": 1}, "node: gelu has no attribute 'alpha'; it takes approximate"),
        ("softmax", [(3,), (3,)], {}, "node: softmax takes 1 operands, got 2"),
        ("softmax", [(3,)], {"axis": 1}, "axis 1 is out of range for rank 1"),
        ("groupnorm", [(1, 3, 2)], {}, "groupnorm needs the attribute groups"),
        ("groupnorm", [(1, 3, 2)], {"groups": 2}, "axis 1 is not divisible"),
        ("instancenorm", [(1, 3)], {}, "with spatial axes"),
        ("celu", [(3,)], {"alpha": 0}, "divides by alpha"),
        ("celu", [(3,)], {"alpha": "x"}, "alpha must be a number"),
        ("attention", [(4, 8), (4, 8), (3, 4, 8)], {}, "of equal rank"),
        ("rotary", [(4, 3), (4, 1), (4, 1)], {}, "needs an even last extent"),
        ("depth_to_space", [(1, 3, 2, 2)], {}, "3 channels in blocks"),
        ("space_to_depth", [(1, 3, 3, 2)], {}, "3 x 2 in blocks"),
        ("space_to_depth", [(3, 3, 2)], {}, r"needs x\[N, C, H, W\]"),
        ("trilu", [(3,)], {}, "needs a matrix"),
    ],
)
def test_refusals(op: str, shapes: list[tuple[int, ...]], attrs: dict[str, AttrValue], message: str) -> None:
    with pytest.raises(InputError, match=message):
        expand(op, *(rand(*shape) for shape in shapes), **attrs)


def test_more_results_than_there_are() -> None:
    with pytest.raises(InputError, match="softmax has 1 results, 2 names"):
        expand("softmax", rand(3), outputs=2)


def test_a_reversed_difference_is_one_sub() -> None:
    builder = GraphBuilder("g")
    builder.input("x", TensorType(DType.F32, (4,)))
    (name,) = add_operator(builder, "rsub", ["x", Literal(1.0)], outputs=["y"])
    builder.output(name)
    (node,) = builder.build().nodes
    assert (node.op, node.inputs) == ("sub", (Literal(1.0), "x"))


@pytest.mark.parametrize("name", COMPOSITES)
def test_rows_are_documented(name: str) -> None:
    row = COMPOSITES[name]
    assert row.name == name
    assert row.doc.endswith(".")
    assert all(text for _, text in row.attrs.values())
