"""Loading graphs by suffix, content and bundled name, and changing their floating type."""

import json
from pathlib import Path

import pytest

from fusesolve.errors import FusesolveError, InputError, MissingError
from fusesolve.graph import DType
from fusesolve.importers import IMPORTERS, bundled_graphs, load_graph
from fusesolve.importers.native import format_native, native_document, parse_native
from fusesolve.importers.retype import retype_graph
from fusesolve.verify import check_graph

TEXT = """format: fusesolve-graph/1
inputs: ["x: f32[4,8]", "i: i32[2]"]
ops:
  - "h = cast(x; to=f16)"
  - "p = softmax(h; axis=1)"
  - "g = gather(p, i)"
  - "s = mul(g, 1000)"
  - "y = exp(s)"
outputs: [y]
"""


@pytest.mark.parametrize("name", ["g.yaml", "g.YML", "g.txt", "g"])
def test_a_native_file_is_found_by_suffix_or_content(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(TEXT, encoding="utf-8")
    assert load_graph(path, bind={}).outputs == ("y",)
    assert load_graph(str(path), bind={}, strict=True).outputs == ("y",)


def test_json_and_yaml_are_the_same_graph(tmp_path: Path) -> None:
    graph = parse_native(TEXT, "g", {}, True)
    for name, text in (("a.json", json.dumps(native_document(graph))), ("b.yaml", format_native(graph))):
        (tmp_path / name).write_text(text, encoding="utf-8")
        assert load_graph(tmp_path / name, bind={}) == graph


@pytest.mark.parametrize("name", bundled_graphs())
def test_bundled_graphs_load_by_name_and_round_trip(name: str) -> None:
    graph = load_graph(name, bind={}, strict=True)
    assert load_graph(f"{name}.yaml", bind={}) == graph
    assert parse_native(format_native(graph), name, {}, True) == graph
    assert graph.warnings == ()


@pytest.mark.parametrize(
    ("name", "content", "kind", "message"),
    [
        ("none.yaml", None, InputError, "none.yaml: no such file and no bundled graph"),
        ("softmaxx", None, InputError, "did you mean softmax"),
        ("g.bin", b"\x93NUMPY", InputError, "neither its suffix nor its content is a graph's; fusesolve reads .yaml"),
        ("empty", b"", InputError, "neither its suffix nor its content"),
        ("g.yaml", b"\xff\xfe", InputError, "g.yaml: not UTF-8 text"),
        ("g.pt2", b"PK\x03\x04", MissingError, "export the model to ONNX"),
        ("archive", b"PK\x03\x04", MissingError, "export the model to ONNX"),
        ("g.mlir", b"module {}", MissingError, "export the model to ONNX"),
    ],
)
def test_files_that_are_no_graph(
    tmp_path: Path, name: str, content: bytes | None, kind: type[FusesolveError], message: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(kind, match=message) as found:
        load_graph(path if content is not None else name, bind={})
    assert "\n" not in str(found.value)


def test_a_file_beyond_the_limit_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "huge.yaml"
    with path.open("wb") as file:
        file.truncate(256 * 2**20 + 1)  # sparse: takes no space
    with pytest.raises(InputError, match="268435457 bytes, the limit of a native graph is 268435456"):
        load_graph(path, bind={})


def test_a_folder_is_no_graph(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder"):
        load_graph(tmp_path, bind={})


def test_every_suffix_has_a_description() -> None:
    assert all(suffix[0] == "." and row.doc for suffix, row in IMPORTERS.items())


def test_floats_take_another_type(tmp_path: Path) -> None:
    path = tmp_path / "g.yaml"
    path.write_text(TEXT, encoding="utf-8")
    half = load_graph(path, bind={}, as_dtype="f16")
    assert {value.type.dtype for value in half.values.values()} == {DType.F16, DType.I32}
    assert [node.op for node in half.nodes] == ["reduce_max", "sub", "exp", "reduce_sum", "div", "gather", "mul", "exp"]
    check_graph(half, "retype")
    assert parse_native(format_native(half), "again", {}, True) == half
    with pytest.raises(InputError, match="unknown element type 'f12'"):
        load_graph(path, bind={}, as_dtype="f12")


def test_an_integer_type_is_stored_after_every_operator(tmp_path: Path) -> None:
    small = retype_graph(parse_native(TEXT, "g", {}, True), DType.I8)
    assert {value.type.dtype for value in small.values.values()} == {DType.I8, DType.I32}
    stored = {node.op: node.attr("as") for node in small.nodes}
    assert stored["exp"] == "i8"  # NumPy's exp of i8 is f16
    assert stored["reduce_sum"] == "i8"  # its sum is i64
    assert stored["reduce_max"] is None  # already i8
    assert parse_native(format_native(small), "again", {}, True) == small


def test_a_cast_that_is_an_output_stays() -> None:
    text = TEXT.replace("outputs: [y]", "outputs: [y, h]")
    half = retype_graph(parse_native(text, "g", {}, True), DType.F16)
    assert half.outputs == ("y", "h")
    assert half.nodes[0].op == "cast"
