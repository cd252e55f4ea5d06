"""The builder and the graph specification: names, aliases, dead code, and every broken rule found."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fusesolve.builder import GraphBuilder
from fusesolve.errors import InputError, InternalError
from fusesolve.graph import DType, Graph, Literal, TensorType
from fusesolve.verify import check_graph

F32 = TensorType(DType.F32, (4, 8))


def builder() -> GraphBuilder:
    made = GraphBuilder("t")
    made.input("x", F32)
    return made


def test_one_node_has_the_name_of_its_source_and_several_are_numbered() -> None:
    made = builder()
    a = made.one("mul", ["x", Literal(2.0)], source="norm")
    b = made.one("mul", [a, a], source="norm")
    c = made.one("add", [b, "x"], source="norm")
    made.output(made.one("exp", [c], source="act", output="y"))
    graph = made.build()
    assert [node.name for node in graph.nodes] == ["norm/mul", "norm/mul_1", "norm/add", "act"]
    assert [node.outputs for node in graph.nodes] == [("norm/mul",), ("norm/mul_1",), ("norm/add",), ("y",)]


def test_numbered_names_avoid_sources_of_that_name() -> None:
    made = builder()
    taken = made.one("exp", ["x"], source="norm/mul", output="e")
    a = made.one("mul", [taken, "x"], source="norm")
    made.output(made.one("mul", [a, "x"], source="norm"))
    names = [node.name for node in made.build().nodes]
    assert names[0] == "norm/mul"
    assert len(set(names)) == 3


def test_a_source_is_the_first_result_where_none_is_given() -> None:
    made = builder()
    made.output(made.one("exp", ["x"], output="y"))
    assert made.build().nodes[0].source == "y"


def test_attributes_are_canonical_and_sorted() -> None:
    made = builder()
    made.output(made.one("reduce_sum", ["x"], {"keepdims": 1, "axis": -1}))
    assert made.build().nodes[0].attrs == (("axis", (1,)), ("keepdims", True))


def test_a_result_is_renamed_with_its_readers() -> None:
    made = builder()
    a = made.one("exp", ["x"], source="s")
    b = made.one("add", [a, a], source="s")
    made.rename(a, "first")
    made.output(b)
    assert made.build().nodes[1].inputs == ("first", "first")
    with pytest.raises(InternalError, match="cannot be renamed"):
        made.rename(b, "late")
    with pytest.raises(InternalError, match="cannot be renamed"):
        made.rename("x", "input")
    with pytest.raises(InputError, match="the name 'x' is given twice"):
        made.rename("first", "x")


def test_storage_written_back_is_an_output() -> None:
    made = GraphBuilder("t")
    made.input("state", F32, alias_out="next")
    made.one("add", ["state", Literal(1.0)], output="next")
    made.output(made.one("exp", ["state"], output="y"))
    assert made.build().outputs == ("y", "next")


def test_dead_nodes_are_dropped_and_named() -> None:
    made = builder()
    a = made.one("exp", ["x"], output="used")
    made.one("neg", [a], output="gone")
    made.output(a)
    graph = made.build()
    assert [node.name for node in graph.nodes] == ["used"]
    assert graph.warnings == ("1 operators reach no output and are left out: gone",)


def test_a_part_of_a_source_that_is_dropped_is_no_warning() -> None:
    made = builder()
    a = made.one("exp", ["x"], source="s")
    made.one("neg", [a], source="s")
    made.output(a)
    assert made.build().warnings == ()


def test_a_stored_type_is_kept_only_where_it_differs() -> None:
    made = builder()
    a = made.one("exp", ["x"], {"as": "i8"})
    b = made.one("exp", ["x"], {"as": "f32"}, source="plain")
    made.output(a)
    made.output(b)
    graph = made.build()
    assert graph.type_of(a).dtype is DType.I8
    assert [node.attrs for node in graph.nodes] == [(("as", "i8"),), ()]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda made: made.one("exp", ["q"], source="s"), "s: there is no value named 'q'"),
        (lambda made: made.one("exp", ["x"], output="x"), "x: the name 'x' is given twice"),
        (lambda made: made.add("exp", ["x"], outputs=["a", "b"]), "exp has 1 results, 2 names were given"),
        (lambda made: made.add("exp", ["x"], types=[TensorType(DType.F16, (4, 8))]), "declared f16.*but exp gives f32"),
        (lambda made: made.add("opaque", ["x"], {"kind": "k"}), "opaque needs declared result types"),
        (lambda made: made.output("q"), "there is no value named 'q'"),
        (lambda made: made.input("z", F32, strides=(1,)), "z: 1 strides for"),
        (lambda made: made.mark("x", strides=(1,)), "x: 1 strides for"),
    ],
)
def test_refusals(call: Callable[[GraphBuilder], Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        call(builder())


def test_an_unknown_primitive_is_a_bug() -> None:
    with pytest.raises(InternalError, match="there is no primitive named 'gelu'"):
        builder().add("gelu", ["x"])


def test_a_bad_alias() -> None:
    made = GraphBuilder("t")
    made.input("x", F32, alias_out="y")
    made.output(made.one("reduce_sum", ["x"], output="y"))
    with pytest.raises(InputError, match=r"x: alias_out=y is f32\[\], the storage holds"):
        made.build()


# the specification


def good() -> Graph:
    made = builder()
    made.input("w", TensorType(DType.F32, (8, 2)), weight=True)
    made.output(made.one("relu", [made.one("matmul", ["x", "w"], output="h")], output="y"))
    return made.build()


def test_a_good_graph_passes() -> None:
    check_graph(good(), "test")


def with_node(graph: Graph, index: int, /, **changes: Any) -> Graph:
    nodes = list(graph.nodes)
    nodes[index] = replace(nodes[index], **changes)
    return replace(graph, nodes=tuple(nodes))


def with_value(graph: Graph, name: str, /, **changes: Any) -> Graph:
    return replace(graph, values=dict(graph.values) | {name: replace(graph.values[name], **changes)})


BROKEN: list[tuple[Callable[[Graph], Graph], str]] = [
    (lambda g: replace(g, nodes=g.nodes[::-1]), "reads 'h' before it is defined"),
    (lambda g: replace(g, nodes=(*g.nodes, replace(g.nodes[1], name="again"))), "'y' has two producers"),
    (lambda g: with_node(g, 1, name="h"), "names must be unique"),
    (lambda g: with_node(g, 1, source=""), "source not empty"),
    (lambda g: with_node(g, 1, op="gelu"), "no such operator"),
    (lambda g: with_node(g, 1, inputs=("h", "h")), "2 operands"),
    (lambda g: with_node(g, 1, outputs=()), "has no results"),
    (lambda g: with_node(g, 1, attrs=(("axis", 1),)), r"attributes \['axis'\] are unknown"),
    (lambda g: with_node(g, 0, attrs=()), "are not canonical"),
    (lambda g: with_node(g, 0, attrs=g.nodes[0].attrs[::-1]), "not sorted"),
    (lambda g: with_node(g, 0, inputs=("w", "x")), "inner extents 2 and 4 differ"),
    (lambda g: with_value(g, "h", type=TensorType(DType.F16, (4, 2))), r"results are f16\[4,2\], inferred f32\[4,2\]"),
    (lambda g: with_value(g, "x", name="z"), "value 'z' is stored as 'x'"),
    (lambda g: with_value(g, "x", strides=(1,)), "has 1 strides"),
    (lambda g: with_value(g, "x", type=TensorType(DType.F32, (-1, 8))), "negative extent"),
    (lambda g: with_value(g, "x", alias_out="y"), "is written back from 'y', which does not fit"),
    (lambda g: replace(g, outputs=("y", "y")), "undefined or repeated"),
    (lambda g: replace(g, outputs=("q",)), r"\['q'\] are undefined"),
    (lambda g: replace(g, weights=("x",)), "is listed twice"),
    (lambda g: replace(g, inputs=("x", "q")), "'q' has no value"),
    (lambda g: replace(g, nodes=(), outputs=("x",)), "nothing produces the value"),
]


@pytest.mark.parametrize(("breaking", "message"), BROKEN, ids=[message for _, message in BROKEN])
def test_a_broken_graph_is_found(breaking: Callable[[Graph], Graph], message: str) -> None:
    with pytest.raises(InternalError, match=message) as found:
        check_graph(breaking(good()), "test")
    assert str(found.value).startswith("after test: ")
