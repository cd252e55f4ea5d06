"""The native graph format: written text gives the graph back, and real cases parse or say why."""

import json
from pathlib import Path

import pytest
import yaml

from fusesolve.builder import GraphBuilder
from fusesolve.errors import InputError
from fusesolve.graph import DType, Graph, Literal, TensorType
from fusesolve.importers.native import format_native, native_document, parse_native


def graph_text(*ops: str, inputs: tuple[str, ...] = ("x: f32[8,16]",), outputs: tuple[str, ...] = ("y",)) -> str:
    lists = {"inputs": list(inputs), "ops": list(ops), "outputs": list(outputs)}
    return yaml.safe_dump({"format": "fusesolve-graph/1", "name": "t", **lists}, sort_keys=False, width=1000)


def parse(*ops: str, inputs: tuple[str, ...] = ("x: f32[8,16]",), outputs: tuple[str, ...] = ("y",)) -> Graph:
    return parse_native(graph_text(*ops, inputs=inputs, outputs=outputs), "g.yaml", {}, False)


def test_round_trip_of_everything_at_once() -> None:
    graph = parse(
        "p = softmax(x; axis=1) : f16[8,16]",
        "a, b = split(p; axis=1)",
        "q = pow(a, 2.5)",
        "m = where(k, q, -inf)",
        "c = concat(m, b; axis=1)",
        "z = unknown.Domain(c, 3, true; mode=fast, ratio=0.5) : f32[8; external=1, strides=2]",
        "s = pad(x; axis=1, before=1, value=-1e30)",
        "t = stencil(s; axis=1, offsets=-3:-1-2)",
        "i = arange(; n=8) : i32[8]",
        "g = gather(t, i)",
        "y = reduce_sum(g) : f32[]",
        inputs=("x: f32[8,16; strides=1-8]", "k: bool[8,8]"),
        outputs=("y", "z"),
    )
    text = format_native(graph)
    assert parse_native(text, "again", {}, False) == graph
    assert format_native(parse_native(text, "again", {}, False)) == text
    assert parse_native(json.dumps(native_document(graph)), "again", {}, False) == graph
    assert json.loads(json.dumps(native_document(graph))) == native_document(graph)


def test_names_of_any_kind_survive() -> None:
    names = ["/model/layers.0/Add:0", "a b", 'quote"d', "=(x);", "true", "inf", "1e5", "日本\u2028\U0001f600", "-3"]
    names += ["a\\b", "\t"]
    builder = GraphBuilder("nämé: #1")
    for index, name in enumerate(names):
        builder.input(name, TensorType(DType.F32, (2,)), weight=index % 2 == 1)
    last = names[0]
    for index, name in enumerate(names[1:]):
        last = builder.one("add", [last, name], output=f"out {index} {name}", source=f"op {index} {name}")
    builder.output(last)
    graph = builder.build()
    assert parse_native(format_native(graph), "again", {}, True) == graph
    assert parse_native(json.dumps(native_document(graph)), "again", {}, True) == graph


def test_a_written_primitive_is_not_simplified_again() -> None:
    builder = GraphBuilder("raw")
    builder.input("x", TensorType(DType.F32, (2,)))
    builder.output(builder.one("pow", ["x", Literal(2.0)], output="y"))
    graph = builder.build()
    assert parse_native(format_native(graph), "again", {}, True) == graph


def test_large_graphs_parse_in_order_of_their_size() -> None:
    count = 3000
    ops = [f"v{i} = {'mul' if i % 2 else 'add'}(v{i - 1}, x)" for i in range(1, count)]
    graph = parse("v0 = neg(x)", *reversed(ops), outputs=(f"v{count - 1}",))
    assert len(graph.nodes) == count
    assert graph.nodes[-1].name == f"v{count - 1}"


CASES = Path(__file__).parents[2] / ".." / "shared" / "cases" / "cases.yaml"


def case_graphs(item: object) -> list[dict[str, list[str]]]:
    if isinstance(item, dict):
        found = [item] if {"inputs", "ops", "outputs"} <= set(item) else []
        return found + [graph for value in item.values() for graph in case_graphs(value)]
    return [graph for value in item for graph in case_graphs(value)] if isinstance(item, list) else []


@pytest.mark.skipif(not CASES.is_file(), reason="the folder shared/ is not beside the checkout")
def test_every_real_case_parses_or_says_why() -> None:
    refused = {}
    cases = yaml.load(CASES.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    for case in cases:
        for graph in case_graphs(case):
            text = graph_text(*graph["ops"], inputs=tuple(graph["inputs"]), outputs=tuple(graph["outputs"]))
            try:
                parsed = parse_native(text, case["id"], {}, False)
            except InputError as error:
                refused[case["id"]] = str(error)
                continue
            assert parse_native(format_native(parsed), case["id"], {}, False) == parsed
            assert set(graph["outputs"]) <= set(parsed.outputs)
    assert set(refused) == {"FC-025", "FC-064", "FC-094"}  # complex numbers; unbound dimensions
    assert "unknown element type 'c64'" in refused["FC-025"]
    assert "the dimensions K, M have no size" in refused["FC-064"]
