"""The first stages of the ONNX importer: what a file must be, and one clear line for everything that it is not."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from fusesolve.errors import InputError
from fusesolve.importers import load_graph
from fusesolve.importers.onnx import load_onnx
from fusesolve.importers.onnx_read import read_onnx
from fusesolve.importers.onnx_weights import KEEP_FLOATS
from tests.unit.onnx_models import FLOAT, INT64, imported, model, relu_of


def refusal(source: Any, **bind: int) -> str:
    """The message of the refusal: one line that starts with the file's name."""
    content = source if isinstance(source, bytes | Path) else source.SerializeToString()
    with pytest.raises(InputError) as caught:
        load_onnx(content, bind=bind, strict=False, origin="m.onnx")
    text = str(caught.value)
    assert text.startswith("m.onnx: ")
    assert "\n" not in text
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None or caught.value.__suppress_context__
    return text


# --- files ---


def test_a_missing_file(tmp_path: Path) -> None:
    assert refusal(tmp_path / "none.onnx") == "m.onnx: no such file"


def test_a_folder(tmp_path: Path) -> None:
    assert "cannot be read" in refusal(tmp_path)


def test_an_empty_file() -> None:
    assert refusal(b"") == "m.onnx: the file is empty, an ONNX model was expected"


def test_a_file_that_is_too_large(tmp_path: Path) -> None:
    """2 GiB is one byte more than a protobuf message can have; the file is sparse and takes no room."""
    path = tmp_path / "large.onnx"
    with path.open("wb") as file:
        file.truncate(2**31)
    assert "2147483648 bytes, at most 2147483647" in refusal(path)


@pytest.mark.parametrize("content", [b"hello, world", bytes(range(256)), b"\x89PNG\r\n" + bytes(100), b"\xff" * 50])
def test_something_else(content: bytes) -> None:
    assert "not an ONNX model" in refusal(content)


def test_a_pointer_of_git_lfs() -> None:
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n"
    assert "git lfs pull" in refusal(pointer)


def test_every_truncation_is_refused() -> None:
    """Cut after any byte: never a traceback, never a graph."""
    content = relu_of([2, 3]).SerializeToString()
    for length in range(1, len(content)):
        refusal(content[:length])


def test_a_model_without_a_graph() -> None:
    empty = onnx.ModelProto(ir_version=8, opset_import=[helper.make_opsetid("", 17)])
    assert "no graph with outputs" in refusal(empty)


def test_a_graph_without_outputs() -> None:
    assert "no graph with outputs" in refusal(model([helper.make_node("Relu", ["x"], ["y"])], [("x", FLOAT, [2])], []))


# --- structure ---


def test_a_model_that_breaks_the_standard() -> None:
    node = helper.make_node("Relu", ["x", "x"], ["y"])
    text = refusal(model([node], [("x", FLOAT, [2])], [("y", FLOAT, [2])]))
    assert "not a valid ONNX model" in text
    assert "2 not in range [min=1, max=1]" in text


def test_a_cycle_is_named() -> None:
    nodes = [
        helper.make_node("Add", ["x", "b"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["b"], name="second"),
    ]
    text = refusal(model(nodes, [("x", FLOAT, [2])], [("b", FLOAT, [2])]))
    assert text == "m.onnx: the graph has a cycle through or before node 'first'"


def test_nodes_out_of_order_are_sorted() -> None:
    nodes = [helper.make_node("Exp", ["a"], ["y"], name="last"), helper.make_node("Relu", ["x"], ["a"], name="first")]
    graph = imported(model(nodes, [("x", FLOAT, [2])], [("y", FLOAT, [2])]))
    assert [node.name for node in graph.nodes] == ["first", "last"]


def test_a_value_that_nothing_produces() -> None:
    node = helper.make_node("Add", ["x", "ghost"], ["y"], name="sum")
    text = refusal(model([node], [("x", FLOAT, [2])], [("y", FLOAT, [2])]))
    assert text == "m.onnx: node 'sum' reads 'ghost', which nothing produces"


def test_a_value_with_two_producers() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Exp", ["x"], ["y"])]
    assert "two nodes produce the value 'y'" in refusal(model(nodes, [("x", FLOAT, [2])], [("y", FLOAT, [2])]))


@pytest.mark.parametrize(
    "proto",
    [
        model([helper.make_node("Add", ["a", "b"], ["y"], name="sum")],
              [("a", FLOAT, [2, 3]), ("b", FLOAT, [4])], [("y", FLOAT, [2, 3])]),
        model([helper.make_node("MatMul", ["a", "b"], ["y"], name="sum")],
              [("a", FLOAT, [2, 3]), ("b", FLOAT, [4, 5])], [("y", FLOAT, [2, 5])]),
        model([helper.make_node("Add", ["a", "b"], ["y"], name="sum")],
              [("a", FLOAT, [2]), ("b", INT64, [2])], [("y", FLOAT, [2])]),
        relu_of([2, 3], output=[2, 4]),
    ],
    ids=["broadcast", "inner extents", "types", "declared output"],
)  # fmt: skip
def test_contradicting_shapes(proto: onnx.ModelProto) -> None:
    assert "inconsistent shapes" in refusal(proto)


def test_a_contradiction_that_only_the_primitives_see() -> None:
    proto = model([helper.make_node("Reshape", ["a", "s"], ["y"], name="flat")], [("a", FLOAT, [2, 3])],
                  [("y", FLOAT, [7])], constants={"s": np.array([7])})  # fmt: skip
    assert refusal(proto) == "m.onnx: node 'flat' (Reshape): reshape of f32[2,3] (6 elements) to [7] (7)"


# --- operator sets ---


def test_no_operator_set() -> None:
    proto = relu_of([2])
    del proto.opset_import[:]
    assert "names no operator set" in refusal(proto)


def test_an_operator_set_from_the_future() -> None:
    assert "operator set 99 is newer than" in refusal(model([helper.make_node("Relu", ["x"], ["y"])],
                                                            [("x", FLOAT, [2])], [("y", FLOAT, [2])], opset=99))


def test_an_old_operator_set_is_converted() -> None:
    """Up to opset 6 broadcasting was an attribute, which the checker of opset 7 refuses."""
    node = helper.make_node("Add", ["a", "b"], ["y"], name="sum", broadcast=1, axis=2)
    proto = model([node], [("a", FLOAT, [2, 3, 4]), ("b", FLOAT, [4])], [("y", FLOAT, [2, 3, 4])], opset=6)
    assert imported(proto).type_of("y").shape == (2, 3, 4)


# --- constants and external data ---


def test_large_constants_are_weights_without_data() -> None:
    proto = model([helper.make_node("MatMul", ["x", "w"], ["y"])], [("x", FLOAT, [1, 100])], [("y", FLOAT, [1, 100])],
                  constants={"w": np.zeros((100, 100), np.float32)})  # fmt: skip
    read = read_onnx(proto.SerializeToString(), "m.onnx")
    assert read.weights == {"w"}
    assert not read.model.graph.initializer
    assert read.model.ByteSize() < KEEP_FLOATS
    graph = imported(proto)
    assert graph.inputs == ("x",)
    assert graph.weights == ("w",)


def test_initializers_that_are_inputs_are_weights() -> None:
    """Up to IR version 3 every initializer is also an input."""
    proto = model([helper.make_node("Add", ["x", "w"], ["y"])], [("x", FLOAT, [5]), ("w", FLOAT, [5])],
                  [("y", FLOAT, [5])], constants={"w": np.ones(5, np.float32)}, opset=7)  # fmt: skip
    proto.ir_version = 3
    graph = imported(proto)
    assert (graph.inputs, graph.weights) == (("x",), ("w",))


def test_a_weight_with_too_little_data() -> None:
    proto = model([helper.make_node("MatMul", ["x", "w"], ["y"])], [("x", FLOAT, [1, 100])], [("y", FLOAT, [1, 100])],
                  constants={"w": np.zeros((100, 100), np.float32)})  # fmt: skip
    proto.graph.initializer[0].raw_data = bytes(39_996)
    assert "tensor 'w' [100, 100] has 39996 bytes, needs 40000" in refusal(proto)


def test_a_sparse_weight_is_planned_as_a_dense_one() -> None:
    proto = model([helper.make_node("MatMul", ["x", "w"], ["y"])], [("x", FLOAT, [1, 3])], [("y", FLOAT, [1, 4])])
    values = numpy_helper.from_array(np.array([1.0], np.float32), "w")
    indices = numpy_helper.from_array(np.array([2]), "w_indices")
    proto.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [3, 4]))
    graph = imported(proto)
    assert graph.type_of("w").shape == (3, 4)
    assert graph.warnings == ("sparse weight 'w' is planned as a dense one",)


def external(location: str, count: int, offset: int | None = None, name: str = "w") -> TensorProto:
    tensor = TensorProto(name=name, data_type=FLOAT, dims=[count], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=location)
    if offset is not None:
        tensor.external_data.add(key="offset", value=str(offset))
    return tensor


def saved(folder: Path, tensor: TensorProto) -> Path:
    count = tensor.dims[0]
    proto = model([helper.make_node("Add", ["x", "w"], ["y"])], [("x", FLOAT, [count])], [("y", FLOAT, [count])])
    proto.graph.initializer.append(tensor)
    path = folder / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def test_external_data_may_be_missing(tmp_path: Path) -> None:
    graph = load_onnx(saved(tmp_path, external("w.bin", 6)), bind={}, strict=True)
    assert graph.weights == ("w",)
    assert graph.warnings == ("data file 'w.bin' is missing; 1 tensors are taken as weights",)


def test_external_shapes_are_read(tmp_path: Path) -> None:
    (tmp_path / "s.bin").write_bytes(bytes(8) + np.array([3, 2]).tobytes())
    tensor = external("s.bin", 2, 8, name="s")
    tensor.data_type = INT64
    proto = model([helper.make_node("Reshape", ["x", "s"], ["y"])], [("x", FLOAT, [2, 3])], [("y", FLOAT, [3, 2])])
    proto.graph.initializer.append(tensor)
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    graph = load_onnx(tmp_path / "m.onnx", bind={}, strict=True)
    assert graph.type_of("y").shape == (3, 2)
    assert graph.weights == ()


@pytest.mark.parametrize("location", ["/etc/passwd", "../w.bin", "a/../../w.bin", "", "C:\\w.bin", "..\\w.bin"])
def test_external_data_stays_in_its_folder(tmp_path: Path, location: str) -> None:
    assert "outside the model's folder" in refusal(saved(tmp_path, external(location, 6)))


def test_external_data_behind_a_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside.bin"
    outside.write_bytes(bytes(24))
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "w.bin").symlink_to(outside)
    assert "is a link out of the folder" in refusal(saved(folder, external("w.bin", 6)))


def test_external_data_that_is_too_short(tmp_path: Path) -> None:
    """Six floats from byte 8 end at byte 32."""
    (tmp_path / "w.bin").write_bytes(bytes(31))
    assert "ends at byte 32, 'w.bin' has 31" in refusal(saved(tmp_path, external("w.bin", 6, 8)))


@pytest.mark.parametrize("offset", [-1, 10**20])
def test_external_offsets_are_numbers(tmp_path: Path, offset: int) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(64))
    assert "not a number" in refusal(saved(tmp_path, external("w.bin", 6, offset)))


def test_the_loader_by_suffix_and_by_content(tmp_path: Path) -> None:
    for name in ("m.onnx", "m.bin"):
        (tmp_path / name).write_bytes(relu_of([2, 3]).SerializeToString())
        assert load_graph(tmp_path / name, bind={}).type_of("y").shape == (2, 3)
