"""Operators in the forms of older operator sets, computed and compared with hand-derived numbers or the standard.

The forms of the newest operator sets are tested by the ONNX project's own tests, see tests/models.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from fusesolve.reference import run_reference
from tests.unit.onnx_models import FLOAT, INT64, imported, model

KINDS = {"f": FLOAT, "i": INT64, "b": TensorProto.BOOL}


@dataclass(frozen=True, kw_only=True)
class Case:
    """One node: `inputs` are arrays, `constants` follow them as operands; `wanted` is hand-derived, or None."""

    op: str
    opset: int
    inputs: Sequence[Any]
    constants: Sequence[Any] = ()
    attrs: Mapping[str, Any] = field(default_factory=dict)
    wanted: Sequence[Any] | None = None
    results: int = 1
    ops: Sequence[str] | None = None


def ramp(*shape: int) -> Any:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def wave(*shape: int) -> Any:
    return np.sin(ramp(*shape) * 1.7).astype(np.float32)


def values_of(case: Case) -> tuple[Sequence[Any], Sequence[Any], Sequence[str]]:
    """What fusesolve and the standard compute, and the primitives used."""
    feeds = {f"x{i}": np.asarray(array) for i, array in enumerate(case.inputs)}
    constants = {f"c{i}": np.asarray(array) for i, array in enumerate(case.constants)}
    outputs = [f"y{i}" for i in range(case.results)]
    node = helper.make_node(case.op, [*feeds, *constants], outputs, name="node", **case.attrs)
    inputs = [(name, KINDS[array.dtype.kind], list(array.shape)) for name, array in feeds.items()]
    kinds = [KINDS[np.asarray(a).dtype.kind] for a in case.wanted] if case.wanted else [FLOAT] * case.results
    proto = model([node], inputs, [(name, kind, None) for name, kind in zip(outputs, kinds, strict=True)],
                  constants=constants, opset=case.opset)  # fmt: skip
    graph = imported(proto, strict=True)
    weights = {name: constants[name].reshape(graph.type_of(name).shape) for name in graph.weights}
    found = run_reference(graph, feeds | weights)
    wanted = case.wanted or ReferenceEvaluator(proto).run(None, feeds)
    return [found[name] for name in outputs], wanted, [node.op for node in graph.nodes]


X23 = np.float32([[1, 2, 3], [4, 6, 8]])

CASES = {
    # axes as attribute (to opset 12 or 17) and as operand
    "squeeze 7": Case(op="Squeeze", opset=7, inputs=[ramp(1, 3, 1)], attrs={"axes": [0]}, wanted=[ramp(3, 1)]),
    "squeeze 13": Case(op="Squeeze", opset=13, inputs=[ramp(1, 3, 1)], constants=[np.array([2])], wanted=[ramp(1, 3)]),
    "squeeze all": Case(op="Squeeze", opset=7, inputs=[ramp(1, 3, 1)], wanted=[ramp(3)]),
    "unsqueeze 7": Case(op="Unsqueeze", opset=7, inputs=[ramp(3)], attrs={"axes": [0, 2]}, wanted=[ramp(1, 3, 1)]),
    "reduce sum 7": Case(op="ReduceSum", opset=7, inputs=[X23], attrs={"axes": [1], "keepdims": 0},
                         wanted=[np.float32([6, 18])]),
    "reduce sum 13": Case(op="ReduceSum", opset=13, inputs=[X23], constants=[np.array([-1])],
                          wanted=[np.float32([[6], [18]])]),
    "reduce mean 7": Case(op="ReduceMean", opset=7, inputs=[X23], attrs={"axes": [0]},
                          wanted=[np.float32([[2.5, 4, 5.5]])]),
    "reduce mean 18": Case(op="ReduceMean", opset=18, inputs=[X23], constants=[np.array([0])],
                           wanted=[np.float32([[2.5, 4, 5.5]])]),
    "reduce max all": Case(op="ReduceMax", opset=11, inputs=[X23], attrs={"keepdims": 0}, wanted=[np.float32(8)]),
    "reduce l2": Case(op="ReduceL2", opset=13, inputs=[np.float32([[3, 4], [6, 8]])],
                      attrs={"axes": [1], "keepdims": 0}, wanted=[np.float32([5, 10])]),
    # bounds as attribute and as operand
    "clip 7": Case(op="Clip", opset=7, inputs=[np.float32([-9, 2, 9])], attrs={"min": -1.0, "max": 6.0},
                   wanted=[np.float32([-1, 2, 6])], ops=["clip"]),
    "clip 11": Case(op="Clip", opset=11, inputs=[np.float32([-9, 2, 9])], constants=[np.float32(0), np.float32(6)],
                    wanted=[np.float32([0, 2, 6])], ops=["clip"]),
    "clip by data": Case(op="Clip", opset=11, inputs=[np.float32([-9, 2, 9]), np.float32(1)],
                         wanted=[np.float32([1, 2, 9])], ops=["maximum"]),
    "slice 7": Case(op="Slice", opset=7, inputs=[ramp(4, 5)],
                    attrs={"starts": [1, -4], "ends": [3, 2**31 - 1], "axes": [0, 1]},
                    wanted=[ramp(4, 5)[1:3, 1:]], ops=["slice", "slice"]),
    "slice 10": Case(op="Slice", opset=10, inputs=[ramp(6)],
                     constants=[np.array([-1]), np.array([-(2**31)]), np.array([0]), np.array([-2])],
                     wanted=[np.float32([5, 3, 1])], ops=["slice"]),
    "slice of nothing": Case(op="Slice", opset=10, inputs=[ramp(4)], constants=[np.array([0]), np.array([99])],
                             wanted=[ramp(4)], ops=["copy"]),
    "pad 7": Case(op="Pad", opset=7, inputs=[X23], attrs={"pads": [0, 1, 0, 0], "value": 9.0},
                  wanted=[np.float32([[9, 1, 2, 3], [9, 4, 6, 8]])], ops=["pad"]),
    "pad 11 negative": Case(op="Pad", opset=11, inputs=[X23], constants=[np.array([0, -1, 1, 0])],
                            wanted=[np.float32([[2, 3], [6, 8], [0, 0]])], ops=["pad", "slice"]),
    "pad edge": Case(op="Pad", opset=13, inputs=[ramp(3)], constants=[np.array([2, 1])], attrs={"mode": "edge"},
                     wanted=[np.float32([0, 0, 0, 1, 2, 2])]),
    "pad wrap": Case(op="Pad", opset=19, inputs=[ramp(3)], constants=[np.array([2, 1])], attrs={"mode": "wrap"},
                     wanted=[np.float32([1, 2, 0, 1, 2, 0])], ops=["concat", "slice", "slice"]),
    "top k 7": Case(op="TopK", opset=7, inputs=[np.float32([3, 1, 4, 1, 5])], attrs={"k": 2}, results=2,
                    wanted=[np.float32([5, 4]), np.array([4, 2])]),
    "split 7": Case(op="Split", opset=7, inputs=[ramp(5)], attrs={"split": [2, 3]}, results=2,
                    wanted=[np.float32([0, 1]), np.float32([2, 3, 4])], ops=["slice", "slice"]),
    "split 18 uneven": Case(op="Split", opset=18, inputs=[ramp(7)], attrs={"num_outputs": 3}, results=3,
                            wanted=[np.float32([0, 1, 2]), np.float32([3, 4, 5]), np.float32([6])]),
    "dropout 7": Case(op="Dropout", opset=7, inputs=[X23], attrs={"ratio": 0.5}, wanted=[X23], ops=["copy"]),
    # softmax over everything behind the axis (to opset 12) and over one axis
    "softmax 7": Case(op="Softmax", opset=7, inputs=[np.zeros((2, 2, 4), np.float32)], attrs={"axis": 1},
                      wanted=[np.full((2, 2, 4), 1 / 8, np.float32)]),
    "softmax 7 default": Case(op="Softmax", opset=7, inputs=[np.zeros((2, 5), np.float32)],
                              wanted=[np.full((2, 5), 1 / 5, np.float32)]),
    "softmax 13": Case(op="Softmax", opset=13, inputs=[np.zeros((2, 2, 4), np.float32)], attrs={"axis": 1},
                       wanted=[np.full((2, 2, 4), 1 / 2, np.float32)]),
    "log softmax 7": Case(op="LogSoftmax", opset=7, inputs=[np.zeros((3, 2, 2), np.float32)],
                          wanted=[np.full((3, 2, 2), -np.log(4), np.float32)]),
    # interpolation
    "upsample 7": Case(op="Upsample", opset=7, inputs=[ramp(1, 1, 1, 2)], attrs={"scales": [1.0, 1.0, 2.0, 2.0]},
                       wanted=[np.float32([[[[0, 0, 1, 1], [0, 0, 1, 1]]]])], ops=["resize_nearest"]),
    "upsample 9": Case(op="Upsample", opset=9, inputs=[ramp(1, 1, 1, 2)], constants=[np.float32([1, 1, 1, 3])],
                       wanted=[np.float32([[[[0, 0, 0, 1, 1, 1]]]])]),
    "resize 10": Case(op="Resize", opset=10, inputs=[ramp(1, 1, 1, 4)], constants=[np.float32([1, 1, 1, 0.5])],
                      wanted=[np.float32([[[[0, 2]]]])]),
    "resize linear 10": Case(op="Resize", opset=10, inputs=[ramp(1, 1, 1, 2)], constants=[np.float32([1, 1, 1, 2])],
                             attrs={"mode": "linear"}, wanted=[np.float32([[[[0, 0.5, 1, 1]]]])]),
    # products
    "gemm 7": Case(op="Gemm", opset=7, inputs=[ramp(3, 2), ramp(4, 3), ramp(4)],
                   attrs={"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0},
                   wanted=[0.5 * ramp(3, 2).T @ ramp(4, 3).T + 2 * ramp(4)], ops=["matmul", "mul", "mul", "add"]),
    "gemm without bias": Case(op="Gemm", opset=11, inputs=[ramp(2, 3), ramp(3, 2)], wanted=[ramp(2, 3) @ ramp(3, 2)]),
    "vector times matrix": Case(op="MatMul", opset=9, inputs=[ramp(3), ramp(3, 2)], wanted=[ramp(3) @ ramp(3, 2)]),
    "matrix times vector": Case(op="MatMul", opset=9, inputs=[ramp(2, 2, 3), ramp(3)],
                                wanted=[ramp(2, 2, 3) @ ramp(3)]),
    "vector times vector": Case(op="MatMul", opset=9, inputs=[ramp(3), ramp(3)], wanted=[np.float32(5)]),
    "einsum product": Case(op="Einsum", opset=12, inputs=[wave(2, 3, 4), wave(5, 4, 2)],
                           attrs={"equation": "bij,kjb->bki"}),
    "einsum outer": Case(op="Einsum", opset=12, inputs=[wave(3), wave(4)], attrs={"equation": "i,j"}),
    "einsum trace of a batch": Case(op="Einsum", opset=12, inputs=[wave(2, 3, 4)], attrs={"equation": "abc->ca"}),
    "einsum with sums": Case(op="Einsum", opset=12, inputs=[wave(2, 3), wave(3, 4, 5)],
                             attrs={"equation": "ij,jkl->ik"}),
    "conv same upper": Case(op="Conv", opset=7, inputs=[wave(1, 2, 5, 6), wave(3, 2, 2, 3)],
                            attrs={"auto_pad": "SAME_UPPER", "strides": [2, 1]}),
    "conv same lower": Case(op="Conv", opset=7, inputs=[wave(1, 2, 5), wave(3, 2, 2)],
                            attrs={"auto_pad": "SAME_LOWER"}),
    "conv grouped 3d": Case(op="Conv", opset=11, inputs=[wave(1, 4, 3, 3, 3), wave(4, 2, 2, 2, 2), wave(4)],
                            attrs={"group": 2, "pads": [1, 0, 0, 0, 0, 1]}),
    "transposed conv": Case(op="ConvTranspose", opset=7, inputs=[wave(1, 2, 3, 3), wave(2, 3, 2, 2), wave(3)],
                            attrs={"strides": [2, 2], "output_padding": [1, 0]}),
    # normalisation by hand: mean 2, variance 2/3
    "instance norm": Case(op="InstanceNormalization", opset=7, inputs=[np.float32([[[1, 2, 3]]])],
                          constants=[np.float32([2]), np.float32([1])], attrs={"epsilon": 0.0},
                          wanted=[np.float32([[[1 - 2 * 1.5**0.5, 1, 1 + 2 * 1.5**0.5]]])]),
    "group norm 18": Case(op="GroupNormalization", opset=18, inputs=[np.float32([[[1], [3], [10], [30]]])],
                          constants=[np.float32([1, 2]), np.float32([0, 5])], attrs={"num_groups": 2, "epsilon": 0.0},
                          wanted=[np.float32([[[-1], [1], [3], [7]]])]),
    "batch norm 9": Case(op="BatchNormalization", opset=9,
                         inputs=[np.float32([[[6], [8]]]), *np.float32([[2, 1], [1, 0], [4, 0], [4, 16]])],
                         attrs={"epsilon": 0.0}, wanted=[np.float32([[[3], [2]]])]),
    "local response": Case(op="LRN", opset=7, inputs=[np.float32([[[1], [2], [3]]])],
                           attrs={"size": 3, "alpha": 3.0, "beta": 1.0, "bias": 1.0},
                           wanted=[np.float32([[[1 / 6], [2 / 15], [3 / 14]]])]),
    # pooling
    "average pool 7": Case(op="AveragePool", opset=7, inputs=[ramp(1, 1, 3)],
                           attrs={"kernel_shape": [2], "pads": [1, 0]},
                           wanted=[np.float32([[[0, 0.5, 1.5]]])]),
    "average pool counting": Case(op="AveragePool", opset=7, inputs=[ramp(1, 1, 3) + 2],
                                  attrs={"kernel_shape": [2], "pads": [1, 0], "count_include_pad": 1},
                                  wanted=[np.float32([[[1, 2.5, 3.5]]])]),
    "max pool ceil": Case(op="MaxPool", opset=10, inputs=[ramp(1, 1, 4)],
                          attrs={"kernel_shape": [3], "strides": [2], "ceil_mode": 1}, wanted=[np.float32([[[2, 3]]])]),
    "global average": Case(op="GlobalAveragePool", opset=7, inputs=[ramp(1, 2, 2, 2)],
                           wanted=[np.float32([[[[1.5]], [[5.5]]]])], ops=["reduce_mean"]),
    "global l2": Case(op="GlobalLpPool", opset=7, inputs=[np.float32([[[3, 4]]])], wanted=[np.float32([[[5]]])]),
    # indices
    "gather one": Case(op="Gather", opset=7, inputs=[X23], constants=[np.array(-1)], attrs={"axis": 1},
                       wanted=[np.float32([3, 8])], ops=["slice", "reshape"]),
    "gather a range": Case(op="Gather", opset=7, inputs=[X23], constants=[np.array([0, 2])], attrs={"axis": 1},
                           wanted=[X23[:, [0, 2]]], ops=["slice"]),
    "gather any": Case(op="Gather", opset=7, inputs=[X23], constants=[np.array([2, 0, 2])], attrs={"axis": 1},
                       wanted=[X23[:, [2, 0, 2]]], ops=["gather"]),
    "scatter 9": Case(op="Scatter", opset=9, inputs=[np.zeros(4, np.float32)],
                      constants=[np.array([1, 3]), np.float32([5, 7])], wanted=[np.float32([0, 5, 0, 7])]),
    "one hot 9": Case(op="OneHot", opset=9, inputs=[np.array([0, -1])], constants=[np.array(3), np.float32([2, 5])],
                      wanted=[np.float32([[5, 2, 2], [2, 2, 5]])]),
    "cumulative sum": Case(op="CumSum", opset=11, inputs=[ramp(4)], constants=[np.array(0)], attrs={"exclusive": 1},
                           wanted=[np.float32([0, 0, 1, 3])]),
    "last of equal extremes": Case(op="ArgMax", opset=12, inputs=[np.float32([3, 7, 7, 1])],
                                   attrs={"select_last_index": 1, "keepdims": 0}, wanted=[np.int64(2)]),
    # layout
    "tile": Case(op="Tile", opset=7, inputs=[X23], constants=[np.array([2, 1])], wanted=[np.tile(X23, (2, 1))]),
    "tile a unit axis": Case(op="Tile", opset=7, inputs=[ramp(1, 3)], constants=[np.array([4, 1])],
                             wanted=[np.tile(ramp(1, 3), (4, 1))], ops=["broadcast"]),
    "depth to space": Case(op="DepthToSpace", opset=11, inputs=[ramp(1, 4, 1, 1)], attrs={"blocksize": 2},
                           wanted=[np.float32([[[[0, 1], [2, 3]]]])]),
    "triangle": Case(op="Trilu", opset=14, inputs=[ramp(2, 3) + 1], attrs={"upper": 0},
                     wanted=[np.float32([[1, 0, 0], [4, 5, 0]])]),
    # powers
    "square": Case(op="Pow", opset=7, inputs=[X23], constants=[np.float32(2)], wanted=[X23**2], ops=["square"]),
    "root": Case(op="Pow", opset=13, inputs=[X23], constants=[np.float32(0.5)], wanted=[X23**0.5], ops=["sqrt"]),
    "cube by an integer": Case(op="Pow", opset=13, inputs=[X23], constants=[np.int64(3)], wanted=[X23**3]),
    "integer quotient": Case(op="Div", opset=7, inputs=[np.array([-7, 7])], constants=[np.array(2)],
                             wanted=[np.array([-3, 3])], ops=["intdiv"]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    found, wanted, ops = values_of(CASES[name])
    for array, expected in zip(found, wanted, strict=True):
        expected = np.asarray(expected)
        assert array.shape == expected.shape
        assert array.dtype == expected.dtype
        np.testing.assert_allclose(array, expected, rtol=2e-6, atol=2e-6)
    if CASES[name].ops is not None:
        assert sorted(ops) == sorted(CASES[name].ops or ())


@pytest.mark.parametrize("op", ["Gelu", "HardSwish", "Mish"])
def test_an_operator_before_its_time(op: str) -> None:
    """Some exporters use an operator with an operator set that does not have it yet."""
    proto = model([helper.make_node(op, ["x"], ["y"], name="act")], [("x", FLOAT, [5])], [("y", FLOAT, [5])], opset=12)
    later = model([helper.make_node(op, ["x"], ["y"], name="act")], [("x", FLOAT, [5])], [("y", FLOAT, [5])], opset=22)
    x = wave(5)
    found = run_reference(imported(proto, strict=True), {"x": x})["y"]
    np.testing.assert_allclose(found, ReferenceEvaluator(later).run(None, {"x": x})[0], rtol=1e-6, atol=1e-6)


def test_sums_of_narrow_integers_keep_their_type() -> None:
    """NumPy widens them, the standard does not."""
    node = helper.make_node("ReduceSum", ["x"], ["y"], name="sum", keepdims=0)
    graph = imported(model([node], [("x", TensorProto.INT32, [3])], [("y", TensorProto.INT32, [])]))
    assert [n.op for n in graph.nodes] == ["reduce_sum", "cast"]
    assert run_reference(graph, {"x": np.int32([1, 2, 3])})["y"].dtype == np.int32


def test_a_dynamic_quantisation_by_hand() -> None:
    """Range -1 to 4: scale 5 / 255 = 1/51, zero point 51; 4 becomes 255, 0.5 becomes round(25.5) + 51 = 26 + 51."""
    node = helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"], name="quantise")
    results = [("q", TensorProto.UINT8, [4]), ("s", FLOAT, []), ("z", TensorProto.UINT8, [])]
    graph = imported(model([node], [("x", FLOAT, [4])], results))
    found = run_reference(graph, {"x": np.float32([-1, 0, 0.5, 4])})
    assert found["z"] == 51
    assert found["s"] == pytest.approx(1 / 51)
    assert found["q"].tolist()[:2] == [0, 51]
    assert found["q"].tolist()[2] in (76, 77)  # 25.5 is a tie that the rounding of the scale decides
    assert found["q"].tolist()[3] == 255


def test_an_integer_product_accumulates_in_32_bits() -> None:
    """Four products of 127 x 127 are 64516, beyond 16 bits; a zero point of 1 is taken off the left side."""
    node = helper.make_node("MatMulInteger", ["a", "b", "za"], ["y"], name="product")
    graph = imported(model([node], [("a", TensorProto.INT8, [1, 4]), ("b", TensorProto.INT8, [4, 1])],
                           [("y", TensorProto.INT32, [1, 1])], constants={"za": np.int8(1)}))  # fmt: skip
    feeds = {"a": np.full((1, 4), 127, np.int8), "b": np.full((4, 1), 127, np.int8)}
    assert run_reference(graph, feeds)["y"].tolist() == [[4 * 126 * 127]]


def test_integer_operands_stay_narrow_without_a_zero_point() -> None:
    node = helper.make_node("MatMulInteger", ["a", "b"], ["y"], name="product")
    graph = imported(model([node], [("a", TensorProto.INT8, [1, 4]), ("b", TensorProto.UINT8, [4, 1])],
                           [("y", TensorProto.INT32, [1, 1])]))  # fmt: skip
    assert [n.op for n in graph.nodes] == ["matmul"]
    assert graph.type_of("y").dtype == "i32"


def test_statistics_of_16_bit_floats_are_computed_in_f32() -> None:
    node = helper.make_node("LayerNormalization", ["x", "s"], ["y"], name="ln")
    graph = imported(model([node], [("x", TensorProto.FLOAT16, [2, 8])], [("y", TensorProto.FLOAT16, [2, 8])],
                           constants={"s": np.ones(8, np.float16)}))  # fmt: skip
    assert graph.nodes[0].op == "cast"
    assert all(graph.type_of(n.outputs[0]).dtype == "f32" for n in graph.nodes[:-1])
    assert graph.type_of("y").dtype == "f16"


def test_scales_that_give_no_whole_extents_are_reported() -> None:
    """0.6 x 4 = 2.4 rows become 2: the interpolation uses 2/4."""
    node = helper.make_node("Resize", ["x", "", "s"], ["y"], name="shrink", mode="linear")
    graph = imported(model([node], [("x", FLOAT, [1, 1, 4, 4])], [("y", FLOAT, [1, 1, 2, 2])],
                           constants={"s": np.float32([1, 1, 0.6, 0.6])}))  # fmt: skip
    assert graph.warnings == (
        "node 'shrink' (Resize): its scales do not give whole extents: [1, 1, 2, 2] and their ratios are used instead",
    )
