"""Binding symbolic dims: by symbol, by place, scalar inputs by value, and what is said where one is missing."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from fusesolve.errors import InputError
from fusesolve.importers.onnx import load_onnx
from tests.unit.onnx_models import FLOAT, INT64, imported, model, relu_of


def refusal(proto: onnx.ModelProto, bind: dict[str, int]) -> str:
    with pytest.raises(InputError) as caught:
        load_onnx(proto.SerializeToString(), bind=bind, strict=False, origin="m.onnx")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_symbol_binds_every_dim_that_uses_it() -> None:
    node = helper.make_node("Add", ["a", "b"], ["y"])
    proto = model([node], [("a", FLOAT, ["N", 3]), ("b", FLOAT, ["N", "K"])], [("y", FLOAT, ["N", 3])])
    graph = load_onnx(proto.SerializeToString(), bind={"N": 5, "K": 1}, strict=True)
    assert graph.type_of("a").shape == (5, 3)
    assert graph.type_of("b").shape == (5, 1)
    assert graph.type_of("y").shape == (5, 3)


def test_a_place_wins_over_a_symbol() -> None:
    """Some exporters call every free dim '?'."""
    graph = load_onnx(relu_of(["?", "?"]).SerializeToString(), bind={"?": 4, "x:1": 7}, strict=True)
    assert graph.type_of("y").shape == (4, 7)


def test_an_input_name_may_hold_a_colon() -> None:
    proto = model([helper.make_node("Relu", ["in:0"], ["y"])], [("in:0", FLOAT, ["N"])], [("y", FLOAT, ["N"])])
    assert load_onnx(proto.SerializeToString(), bind={"in:0:0": 6}, strict=True).type_of("y").shape == (6,)


@pytest.mark.parametrize("dim", [None, 0, -1])
def test_a_dim_without_a_size_is_asked_for_by_place(dim: int | None) -> None:
    proto = relu_of([2, None])
    if dim is not None:
        proto.graph.input[0].type.tensor_type.shape.dim[1].dim_value = dim
    assert refusal(proto, {}) == (
        "m.onnx: dim 1 of input 'x' is not bound: give its size with --bind x:1=SIZE"
    )
    assert load_onnx(proto.SerializeToString(), bind={"x:1": 3}, strict=True).type_of("y").shape == (2, 3)


def test_a_symbol_is_asked_for_by_name() -> None:
    assert refusal(relu_of(["batch_size", 3]), {}) == (
        "m.onnx: dim 0 ('batch_size') of input 'x' is not bound: give its size with --bind batch_size=SIZE"
    )


def test_a_symbol_that_no_shell_takes_is_asked_for_by_place() -> None:
    assert refusal(relu_of(["?", 3]), {}).endswith("--bind x:0=SIZE")


@pytest.mark.parametrize("size", [0, -1, 2**31])
@pytest.mark.parametrize("name", ["N", "x:0"])
def test_sizes_out_of_range(name: str, size: int) -> None:
    text = refusal(relu_of(["N"]), {name: size})
    assert text == f"m.onnx: --bind {name}={size}: a dim is a number from 1 to 2147483647"


def test_a_name_that_fits_nothing_is_an_error_with_the_names_that_do() -> None:
    text = refusal(relu_of(["N", 3]), {"N": 2, "batch": 1})
    assert text == "m.onnx: --bind batch=1: no input has such a dim (there are N, x:0..1)"


def test_a_symbol_that_a_place_replaced_is_no_error() -> None:
    graph = load_onnx(relu_of(["N"]).SerializeToString(), bind={"N": 2, "x:0": 3}, strict=True)
    assert graph.type_of("y").shape == (3,)


def test_an_input_without_rank() -> None:
    proto = relu_of([2])
    proto.graph.input[0].type.tensor_type.ClearField("shape")
    assert "input 'x' has no rank" in refusal(proto, {})


def test_an_input_that_is_no_tensor() -> None:
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(FLOAT, [2]))
    proto = relu_of([2])
    proto.graph.input.append(helper.make_value_info("s", kind))
    assert "input 's' is a sequence, only tensors are planned" in refusal(proto, {})


def test_an_input_of_text() -> None:
    proto = model([helper.make_node("Identity", ["x"], ["y"])], [("x", TensorProto.STRING, [2])],
                  [("y", TensorProto.STRING, [2])])  # fmt: skip
    assert "'x': element type STRING has no counterpart here" in refusal(proto, {})


def test_sizes_that_contradict_the_model() -> None:
    """Three columns meet a constant of four."""
    proto = model([helper.make_node("Add", ["x", "w"], ["y"], name="sum")], [("x", FLOAT, [2, "N"])],
                  [("y", FLOAT, [2, "N"])], constants={"w": np.ones(4, np.float32)})  # fmt: skip
    assert "inconsistent shapes" in refusal(proto, {"N": 3})
    assert imported(proto, N=4).type_of("y").shape == (2, 4)


def choice(condition: str) -> onnx.ModelProto:
    """y = x * 2 if rate == 16000, else x + 1, with the comparison under the name `condition`."""
    then = helper.make_graph([helper.make_node("Mul", ["x", "two"], ["t"], name="double")], "then", [],
                             [helper.make_tensor_value_info("t", FLOAT, [3])])  # fmt: skip
    other = helper.make_graph([helper.make_node("Add", ["x", "two"], ["e"], name="shift")], "else", [],
                              [helper.make_tensor_value_info("e", FLOAT, [3])])  # fmt: skip
    nodes = [
        helper.make_node("Equal", ["rate", "wanted"], [condition], name="equal"),
        helper.make_node("If", [condition], ["y"], name="choose", then_branch=then, else_branch=other),
    ]
    return model(nodes, [("x", FLOAT, [3]), ("rate", INT64, [])], [("y", FLOAT, [3])],
                 constants={"two": np.float32(2), "wanted": np.int64(16000)})  # fmt: skip


@pytest.mark.parametrize(("rate", "op"), [(16000, "mul"), (8000, "add")])
def test_a_scalar_input_bound_to_a_value_chooses_a_branch(rate: int, op: str) -> None:
    graph = imported(choice("c"), strict=True, rate=rate)
    assert graph.inputs == ("x",)
    assert [node.op for node in graph.nodes] == [op]
    assert graph.outputs == ("y",)


def test_an_unbound_choice_is_opaque_with_a_warning() -> None:
    graph = imported(choice("c"))
    (opaque,) = [node for node in graph.nodes if node.op == "opaque"]
    assert opaque.name == "choose"
    assert opaque.attr("kind") == "If"
    assert "x" in opaque.reads  # read by the branches, not by the node itself
    assert graph.warnings == ("node 'choose' (If) is planned as an opaque kernel",)


def test_a_float_scalar_is_no_dim() -> None:
    proto = model([helper.make_node("Mul", ["x", "s"], ["y"])], [("x", FLOAT, [3]), ("s", FLOAT, [])],
                  [("y", FLOAT, [3])])  # fmt: skip
    assert "no input has such a dim" in refusal(proto, {"s": 2})
