"""Random graphs: the native text gives them back, damaged text is refused in one line, other types keep them whole."""

import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fusesolve.builder import GraphBuilder
from fusesolve.decompose import add_operator
from fusesolve.errors import InputError
from fusesolve.graph import AttrValue, DType, Graph, Literal, TensorType
from fusesolve.importers.native import format_native, native_document, parse_native
from fusesolve.importers.retype import retype_graph
from fusesolve.reference import random_feeds, run_reference
from fusesolve.verify import check_graph

SHAPE = (3, 4)
UNARY: list[tuple[str, dict[str, AttrValue]]] = [
    ("neg", {}), ("relu", {}), ("tanh", {}), ("square", {}), ("cast", {"to": "f16"}), ("cast", {"to": "f32"}),
    ("softmax", {"axis": 1}), ("gelu", {}), ("rmsnorm", {}), ("silu", {}), ("slice", {"axis": 0, "step": -1}),
    ("clip", {"min": -1.0}), ("cumsum", {"axis": 1}), ("copy", {}), ("reduce_sum", {"axis": 1, "keepdims": True}),
    ("reduce_mean", {"axis": 0}), ("broadcast", {"to": (2, 3, 4)}), ("stencil", {"axis": -1, "offsets": (-2, 0)}),
]  # fmt: skip
BINARY = ["add", "sub", "mul", "maximum", "div"]
names = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=6)
numbers = st.one_of(st.floats(allow_nan=False), st.integers(-9, 9), st.booleans())


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    builder = GraphBuilder(draw(names))
    kinds = st.sampled_from([DType.F32, DType.F16, DType.BF16])
    for name in draw(st.lists(names, min_size=1, max_size=3, unique=True)):
        builder.input(name, TensorType(draw(kinds), SHAPE), weight=draw(st.booleans()))
    for index in range(draw(st.integers(1, 8))):
        known = builder.value_names()
        source = f"{draw(names)}{index}"
        try:
            if draw(st.booleans()):
                op, attrs = draw(st.sampled_from(UNARY))
                results = add_operator(builder, op, [draw(st.sampled_from(known))], attrs, source=source)
            else:
                other = Literal(draw(numbers)) if draw(st.booleans()) else draw(st.sampled_from(known))
                operands = [draw(st.sampled_from(known)), other]
                results = builder.add(draw(st.sampled_from(BINARY)), operands, source=source)
        except InputError:
            continue  # shapes that do not broadcast, a name that is taken: the graph goes on without
        if draw(st.booleans()):
            builder.output(results[0])
    builder.output(builder.value_names()[-1])
    return builder.build()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graphs())
def test_the_text_gives_the_graph_back(graph: Graph) -> None:
    for text in (format_native(graph), json.dumps(native_document(graph))):
        again = parse_native(text, "again", {}, True)
        assert again == graph
        assert format_native(again) == format_native(graph)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graphs(), st.sampled_from([DType.F16, DType.BF16, DType.F32, DType.I8]))
def test_another_type_keeps_the_graph_whole(graph: Graph, dtype: DType) -> None:
    changed = retype_graph(graph, dtype)
    check_graph(changed, "retype")
    assert not {value.type.dtype for value in changed.values.values() if value.type.dtype.is_float} - {dtype}
    shapes = [[item.type_of(name).shape for name in item.outputs] for item in (changed, graph)]
    assert shapes[0] == shapes[1]
    assert retype_graph(changed, dtype) == changed


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graphs())
def test_every_graph_runs_and_gives_its_types(graph: Graph) -> None:
    results = run_reference(graph, random_feeds(graph, 0))
    for name in graph.outputs:
        assert results[name].shape == graph.type_of(name).shape
        assert results[name].dtype.itemsize == graph.type_of(name).dtype.itemsize


GOOD = """format: fusesolve-graph/1
name: t
inputs: ["x: f16[8,16; strides=16-1]", "w: f32[16,N]"]
weights: [w]
ops:
  - "a = matmul(x, w) : f16[8,N]"
  - "b, c = split(a; axis=1, sizes=1-1)"
  - "d = where(m, b, -inf)"
  - "m = less(c, 0.5)"
  - "y = softmax(d; axis=0-1) : f32[8,1; external=1]"
outputs: [y]
"""


def test_the_text_to_be_damaged_is_good() -> None:
    assert parse_native(GOOD, "g", {"N": 2}, True).outputs == ("y",)


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_damaged_text_is_refused_in_one_line(data: st.DataObject) -> None:
    text = GOOD
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        end = min(len(text), at + data.draw(st.integers(0, 4)))
        sign = st.sampled_from([*"[](){}:;,=-\"'\\#&*!|>%@` \n\t0x", "inf", "f32", "é", "\x00", "N", "a"])
        text = text[:at] + data.draw(st.one_of(st.just(""), sign)) + text[end:]
    try:
        graph = parse_native(text, "g", {"N": 2}, False)
    except InputError as error:
        message = str(error)
    else:
        check_graph(graph, "parse")
        return
    assert "\n" not in message
    assert message.startswith("g")


@pytest.mark.parametrize("size", range(0, len(GOOD), 7))
def test_truncated_text_is_refused(size: int) -> None:
    with pytest.raises(InputError):
        parse_native(GOOD[:size], "g", {"N": 2}, False)


def test_a_literal_survives_at_full_precision() -> None:
    value = float(np.nextafter(np.float64(0.1), 1))
    builder = GraphBuilder("t")
    builder.input("x", TensorType(DType.F64, ()))
    builder.output(builder.one("add", ["x", Literal(value)], output="y"))
    graph = builder.build()
    assert parse_native(format_native(graph), "g", {}, True).nodes[0].inputs == ("x", Literal(value))
