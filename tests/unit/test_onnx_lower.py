"""Folding and lowering: what is evaluated ahead, what stays, how things are named, what becomes opaque."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from fusesolve.errors import InputError
from fusesolve.graph import DType, Literal
from fusesolve.importers.onnx_fold import FOLD_ELEMENTS
from tests.unit.onnx_models import FLOAT, INT64, imported, model, relu_of, value

INT8, BOOL = TensorProto.INT8, TensorProto.BOOL


def ops(graph: Any) -> list[str]:
    return [node.op for node in graph.nodes]


# --- constants ---


def test_a_shape_subgraph_is_folded() -> None:
    """reshape(x, concat(slice(shape(x), 0, 1), [-1])): four nodes that only compute a shape."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"], start=0, end=1),
        helper.make_node("Constant", [], ["rest"], value=onnx.numpy_helper.from_array(np.array([-1]))),
        helper.make_node("Concat", ["s", "rest"], ["target"], axis=0),
        helper.make_node("Reshape", ["x", "target"], ["r"], name="flat"),
        helper.make_node("Relu", ["r"], ["y"], name="act"),
    ]
    graph = imported(model(nodes, [("x", FLOAT, ["N", 3, 4])], [("y", FLOAT, ["N", None])]), N=5)
    assert ops(graph) == ["reshape", "relu"]
    assert graph.type_of("y").shape == (5, 12)
    assert graph.weights == ()


def test_a_split_shape_is_folded() -> None:
    """Nodes with several results are folded, too: x[2, 6] -> [6, 2] through Split of its shape."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Split", ["s"], ["rows", "columns"], axis=0),
        helper.make_node("Concat", ["columns", "rows"], ["target"], axis=0),
        helper.make_node("Reshape", ["x", "target"], ["y"], name="turn"),
    ]
    graph = imported(model(nodes, [("x", FLOAT, [2, 6])], [("y", FLOAT, [None, None])]))
    assert ops(graph) == ["reshape"]
    assert graph.type_of("y").shape == (6, 2)


def test_a_number_beside_a_tensor_is_a_literal() -> None:
    node = helper.make_node("Mul", ["x", "c"], ["y"], name="scale")
    graph = imported(model([node], [("x", FLOAT, [2, 3])], [("y", FLOAT, [2, 3])], constants={"c": np.float32([0.5])}))
    assert graph.nodes[0].inputs == ("x", Literal(0.5))
    assert graph.weights == ()


def test_a_number_that_raises_the_rank_stays_a_tensor() -> None:
    """c[1, 1, 1] + x[2] is [1, 1, 2]: a literal would lose two axes."""
    node = helper.make_node("Add", ["x", "c"], ["y"], name="sum")
    graph = imported(model([node], [("x", FLOAT, [2])], [("y", FLOAT, [1, 1, 2])],
                           constants={"c": np.ones((1, 1, 1), np.float32)}))  # fmt: skip
    assert graph.type_of("y").shape == (1, 1, 2)
    assert graph.weights == ("c",)


def test_two_numbers_in_a_choice_keep_their_type() -> None:
    node = helper.make_node("Where", ["m", "a", "b"], ["y"], name="pick")
    graph = imported(model([node], [("m", BOOL, [4])], [("y", FLOAT, [4])],
                           constants={"a": np.float32(0), "b": np.float32(-np.inf)}))  # fmt: skip
    assert ops(graph) == ["where"]
    assert graph.type_of("y").dtype is DType.F32


def transposed_weight(kind: int, array: Any) -> onnx.ModelProto:
    nodes = [
        helper.make_node("Transpose", ["w"], ["wt"], name="turn", perm=[1, 0]),
        helper.make_node("MatMul", ["x", "wt"], ["y"], name="product"),
    ]
    return model(nodes, [("x", kind, [1, 100])], [("y", kind, [1, 80])], constants={"w": array})


def test_a_transposed_weight_is_a_weight() -> None:
    graph = imported(transposed_weight(FLOAT, np.zeros((80, 100), np.float32)))
    assert ops(graph) == ["matmul"]
    assert graph.weights == ("wt",)
    assert graph.type_of("wt").shape == (100, 80)


def test_a_dequantised_weight_is_a_kernel_that_reads_bytes() -> None:
    """Evaluated ahead it would be read as 4 bytes per element instead of 1."""
    nodes = [
        helper.make_node("Cast", ["w"], ["wide"], name="widen", to=FLOAT),
        helper.make_node("Mul", ["wide", "s"], ["real"], name="scale"),
        helper.make_node("MatMul", ["x", "real"], ["y"], name="product"),
    ]
    graph = imported(model(nodes, [("x", FLOAT, [1, 100])], [("y", FLOAT, [1, 80])],
                           constants={"w": np.zeros((100, 80), np.int8), "s": np.float32(0.1)}))  # fmt: skip
    assert ops(graph) == ["cast", "mul", "matmul"]
    assert graph.weights == ("w",)
    assert graph.type_of("w").nbytes == 8000


def test_a_weight_made_by_constant_of_shape_is_a_weight() -> None:
    nodes = [
        helper.make_node("ConstantOfShape", ["shape"], ["w"], name="make"),
        helper.make_node("MatMul", ["x", "w"], ["y"], name="product"),
    ]
    graph = imported(model(nodes, [("x", FLOAT, [1, 9216])], [("y", FLOAT, [1, 4096])],
                           constants={"shape": np.array([9216, 4096])}))  # fmt: skip
    assert ops(graph) == ["matmul"]
    assert graph.weights == ("w",)
    assert graph.type_of("w").nbytes == 9216 * 4096 * 4


@pytest.mark.parametrize(
    "node",
    [
        helper.make_node("Expand", ["one", "shape"], ["big"], name="grow"),
        helper.make_node("ConstantOfShape", ["shape"], ["big"], name="grow"),
        helper.make_node("Tile", ["plane", "shape"], ["big"], name="grow"),
    ],
    ids=["Expand", "ConstantOfShape", "Tile"],
)
def test_a_huge_constant_is_never_materialised(node: onnx.NodeProto) -> None:
    """2^20 x 2^20 numbers would take 4 TiB; the sum over one axis leaves a result that can be planned."""
    side = FOLD_ELEMENTS
    nodes = [node, helper.make_node("Add", ["big", "x"], ["y"], name="sum")]
    graph = imported(
        model(nodes, [("x", FLOAT, [1, 1])], [("y", FLOAT, [side, side])],
              constants={"shape": np.array([side, side]), "one": np.float32([[1]]), "plane": np.float32([[1]])})
    )  # fmt: skip
    assert graph.type_of("y").shape == (side, side)


def test_a_constant_that_cannot_be_computed() -> None:
    """The five greatest of three numbers."""
    nodes = [
        helper.make_node("TopK", ["v", "k"], ["s", "i"], name="best"),
        helper.make_node("Reshape", ["x", "i"], ["y"], name="flat"),
    ]
    proto = model(nodes, [("x", FLOAT, [2, 3])], [("y", FLOAT, [None])],
                  constants={"v": np.float32([1, 2, 3]), "k": np.array([5])})  # fmt: skip
    with pytest.raises(InputError, match=r"^m\.onnx: "):
        imported(proto)


def test_a_shape_that_cannot_be_computed() -> None:
    """Index 7 of a vector of three."""
    nodes = [
        helper.make_node("Gather", ["v", "i"], ["s"], name="pick"),
        helper.make_node("Reshape", ["x", "s"], ["y"], name="flat"),
    ]
    proto = model(nodes, [("x", FLOAT, [2, 3])], [("y", FLOAT, [None])],
                  constants={"v": np.array([1, 2, 3]), "i": np.array([7])})  # fmt: skip
    with pytest.raises(InputError, match=r"node 'flat' \(Reshape\): the shape of its result 'y' stays \[None\]"):
        imported(proto)


def test_constants_in_both_branches_of_a_choice() -> None:
    def branch(name: str, number: float) -> onnx.GraphProto:
        constant = onnx.numpy_helper.from_array(np.full(5000, number, np.float32), "w")
        node = helper.make_node("Add", ["x", "w"], [name], name=f"add_{name}")
        return helper.make_graph([node], name, [], [value((name, FLOAT, [5000]))], [constant])

    node = helper.make_node("If", ["yes"], ["y"], name="choose", then_branch=branch("t", 1), else_branch=branch("e", 2))
    graph = imported(model([node], [("x", FLOAT, [5000])], [("y", FLOAT, [5000])], constants={"yes": np.bool_(True)}))
    assert ops(graph) == ["add"]
    assert graph.weights == ("w",)
    assert graph.nodes[0].source == "choose_add_t"


def test_a_local_function_is_inlined() -> None:
    body = helper.make_function(
        "mine", "Twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"], name="inner")],
        [helper.make_opsetid("", 17)],
    )  # fmt: skip
    proto = model([helper.make_node("Twice", ["x"], ["y"], name="call", domain="mine")], [("x", FLOAT, [3])],
                  [("y", FLOAT, [3])], domains={"mine": 1})  # fmt: skip
    proto.functions.append(body)
    graph = imported(proto, strict=True)
    assert ops(graph) == ["add"]
    assert graph.outputs == ("y",)


# --- names ---


def test_a_decomposed_operator_keeps_its_name() -> None:
    graph = imported(model([helper.make_node("Softmax", ["x"], ["y"], name="sm", axis=-1)], [("x", FLOAT, [2, 3])],
                           [("y", FLOAT, [2, 3])]))  # fmt: skip
    assert {node.source for node in graph.nodes} == {"sm"}
    assert [node.name for node in graph.nodes] == [
        "sm/reduce_max", "sm/sub", "sm/exp", "sm/reduce_sum", "sm/div",
    ]  # fmt: skip


def test_empty_and_repeated_names() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Exp", ["a"], ["b"], name="same"),
        helper.make_node("Neg", ["b"], ["y"], name="same"),
    ]
    graph = imported(model(nodes, [("x", FLOAT, [2])], [("y", FLOAT, [2])]))
    assert [node.name for node in graph.nodes] == ["Relu:a", "same", "same_1"]


def test_values_keep_their_names() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["mid"], name="a"), helper.make_node("Gelu", ["mid"], ["out"], name="b")]
    graph = imported(model(nodes, [("x", FLOAT, [2])], [("out", FLOAT, [2])], opset=20))
    assert graph.nodes[0].outputs == ("mid",)
    assert graph.outputs == ("out",)


def test_a_name_that_the_builder_also_makes() -> None:
    """The third value has the name that the inner step of the softmax would get."""
    nodes = [
        helper.make_node("Softmax", ["x"], ["p"], name="sm", axis=-1),
        helper.make_node("Relu", ["p"], ["sm/sub"], name="act"),
        helper.make_node("Add", ["sm/sub", "sm/exp"], ["y"], name="sum"),
    ]
    graph = imported(model(nodes, [("x", FLOAT, [2, 3])], [("y", FLOAT, [2, 3])],
                           constants={"sm/exp": np.zeros(3, np.float32)}))  # fmt: skip
    assert graph.type_of("sm/sub").shape == (2, 3)
    assert next(node for node in graph.nodes if node.name == "act").outputs == ("sm/sub",)
    assert "sm/sub~" in graph.values


def test_a_bias_is_a_weight_in_the_shape_in_which_it_is_added() -> None:
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"], name="conv", kernel_shape=[1, 1])
    graph = imported(model([node], [("x", FLOAT, [1, 3, 8, 8])], [("y", FLOAT, [1, 5, 8, 8])],
                           constants={"w": np.zeros((5, 3, 1, 1), "f4"), "b": np.zeros(5, "f4")}))  # fmt: skip
    assert ops(graph) == ["conv2d", "add"]
    assert graph.type_of("b").shape == (1, 5, 1, 1)


def test_constant_statistics_leave_one_multiply_and_one_add() -> None:
    constants = {name: np.ones(5, np.float32) for name in ("s", "b", "m", "v")}
    node = helper.make_node("BatchNormalization", ["x", "s", "b", "m", "v"], ["y"], name="bn")
    graph = imported(model([node], [("x", FLOAT, [2, 5, 4])], [("y", FLOAT, [2, 5, 4])], constants=constants))
    assert ops(graph) == ["mul", "add"]
    assert graph.weights == ("bn/factor", "bn/offset")
    assert graph.type_of("bn/factor").shape == (1, 5, 1)


# --- outputs ---


def test_an_input_that_is_an_output_is_copied() -> None:
    graph = imported(model([helper.make_node("Identity", ["x"], ["y"], name="same")], [("x", FLOAT, [2])],
                           [("y", FLOAT, [2])]))  # fmt: skip
    assert ops(graph) == ["copy"]
    assert (graph.inputs, graph.outputs) == (("x",), ("y",))


def test_a_constant_that_is_an_output_is_copied() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Shape", ["x"], ["s"], name="shape")]
    graph = imported(model(nodes, [("x", FLOAT, [2, 3])], [("y", FLOAT, [2, 3]), ("s", INT64, [2])]))
    assert graph.outputs == ("y", "s")
    assert ops(graph) == ["relu", "copy"]


def test_two_outputs_of_one_value() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="act"),
        helper.make_node("Identity", ["a"], ["b"], name="one"),
        helper.make_node("Identity", ["a"], ["c"], name="two"),
    ]
    graph = imported(model(nodes, [("x", FLOAT, [2])], [("b", FLOAT, [2]), ("c", FLOAT, [2])]))
    assert graph.outputs == ("b", "c")
    assert sorted(ops(graph)) == ["copy", "relu"]


def test_work_for_nobody_is_left_out() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"], name="act"), helper.make_node("Exp", ["x"], ["z"], name="lost")]
    graph = imported(model(nodes, [("x", FLOAT, [2]), ("u", FLOAT, [2])], [("y", FLOAT, [2])]))
    assert ops(graph) == ["relu"]
    assert graph.inputs == ("x", "u")


def test_a_declared_output_shape_must_hold() -> None:
    proto = relu_of(["N", 3], output=[7, 3])
    with pytest.raises(InputError, match="inconsistent shapes"):
        imported(proto, N=2)
    assert imported(proto, N=7).type_of("y").shape == (7, 3)


# --- opaque kernels ---


def vendor(shape: list[int | str | None]) -> onnx.ModelProto:
    nodes = [
        helper.make_node("Fancy", ["x", "w"], ["f"], name="special", domain="com.vendor"),
        helper.make_node("Relu", ["f"], ["y"], name="act"),
    ]
    return model(nodes, [("x", FLOAT, ["N", 3])], [("y", FLOAT, [None, None])], domains={"com.vendor": 1},
                 constants={"w": np.ones(4, np.float32)}, value_info=[value(("f", FLOAT, shape))])  # fmt: skip


def test_an_operator_of_a_vendor_is_opaque_with_its_declared_type() -> None:
    graph = imported(vendor(["N", 4]), N=2)
    assert ops(graph) == ["opaque", "relu"]
    opaque = graph.nodes[0]
    assert opaque.inputs == ("x", "w")
    assert opaque.attr("kind") == "com.vendor::Fancy"
    assert graph.type_of("f").shape == (2, 4)
    assert graph.warnings == ("node 'special' (com.vendor::Fancy) is planned as an opaque kernel",)


def test_strict_refuses_it() -> None:
    with pytest.raises(InputError) as caught:
        imported(vendor(["N", 4]), strict=True, N=2)
    assert str(caught.value) == (
        "m.onnx: node 'special' (Fancy): no primitives stand for com.vendor::Fancy; "
        "plan without --strict to price it as an opaque kernel"
    )


def test_an_opaque_result_without_a_shape() -> None:
    with pytest.raises(InputError, match=r"node 'special' \(Fancy\): the shape of its result 'f' stays \[2, M\]"):
        imported(vendor(["N", "M"]), N=2)


def test_an_unknown_operator_of_the_standard_domain() -> None:
    nodes = [helper.make_node("Invented", ["x"], ["y"], name="new")]
    graph = imported(model(nodes, [("x", FLOAT, [2])], [("y", FLOAT, [2])]))
    assert graph.nodes[0].attr("kind") == "Invented"


def test_a_loop_reads_what_its_body_takes_from_outside() -> None:
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Mul", ["state", "outer"], ["next"])], "body",
        [value(("i", INT64, [])), value(("go", BOOL, [])), value(("state", FLOAT, [3]))],
        [value(("on", BOOL, [])), value(("next", FLOAT, [3]))],
    )  # fmt: skip
    node = helper.make_node("Loop", ["times", "", "x"], ["y"], name="loop", body=body)
    graph = imported(model([node], [("x", FLOAT, [3]), ("times", INT64, []), ("outer", FLOAT, [3])],
                           [("y", FLOAT, [3])]))  # fmt: skip
    assert set(graph.nodes[0].reads) == {"x", "times", "outer"}


def test_a_shape_that_depends_on_data() -> None:
    node = helper.make_node("NonZero", ["x"], ["y"], name="find")
    with pytest.raises(InputError, match=r"node 'find' \(NonZero\): the shape of its result 'y' stays \[2, None\]"):
        imported(model([node], [("x", FLOAT, [2, 3])], [("y", INT64, [2, None])]))


def test_a_sequence_cannot_be_planned() -> None:
    nodes = [helper.make_node("SplitToSequence", ["x"], ["s"], name="cut"),
             helper.make_node("ConcatFromSequence", ["s"], ["y"], name="join", axis=0)]  # fmt: skip
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(FLOAT, [1, 3]))
    proto = model([nodes[0]], [("x", FLOAT, [2, 3])], [("y", FLOAT, [2, 3])])
    del proto.graph.output[:]
    proto.graph.output.append(helper.make_value_info("s", kind))
    with pytest.raises(InputError, match="only tensors can be planned"):
        imported(proto)


@pytest.mark.parametrize("kind", [TensorProto.INT4, TensorProto.COMPLEX64, TensorProto.FLOAT8E4M3FNUZ])
def test_types_without_a_counterpart(kind: int) -> None:
    node = helper.make_node("Identity", ["x"], ["y"], name="same")
    with pytest.raises(InputError, match=r"m\.onnx: 'x': element type .* has no counterpart here"):
        imported(model([node], [("x", kind, [2])], [("y", kind, [2])], opset=21))
