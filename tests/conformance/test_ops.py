"""Every row of the operator table: documented, shape rule, access map, work and reference agree with each other."""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from fusesolve.access import AccessKind, AccessMap
from fusesolve.builder import GraphBuilder
from fusesolve.errors import InputError
from fusesolve.graph import AttrValue, DType, Graph, Node, TensorType
from fusesolve.ops import OPS, OpKind, access_map, infer_results, operand_types, result_types
from fusesolve.reference import random_feeds, run_node, run_reference


@dataclass(frozen=True)
class Example:
    """Operand types as text and attributes of one call."""

    operands: Sequence[str]
    attrs: dict[str, AttrValue] = field(default_factory=dict)


def example(*operands: str, **attrs: AttrValue) -> Example:
    return Example(operands, attrs)


def parse(text: str) -> TensorType:
    dtype, _, shape = text.partition("[")
    return TensorType(DType(dtype), tuple(int(item) for item in shape.rstrip("]").split(",") if item))


INTEGER_ONLY = {"intdiv", "shift_left", "shift_right"}
LOGIC = {"and", "or", "xor", "not"}
EXAMPLES: dict[str, list[Example]] = {
    "where": [example("bool[4,1]", "f32[4,3]", "f16[3]")],
    "clip": [example("f16[4]", min=-1.0, max=2.0), example("i32[4]", max=3)],
    "cast": [example("f32[3,2]", to="bf16"), example("f32[4]", to="i8"), example("bool[2]", to="f8e4m3")],
    "reduce_sum": [example("f16[4,5,6]", axis=(0, 2)), example("i8[3,4]", axis=1, keepdims=True), example("bool[3]")],
    "reduce_mean": [example("bf16[4,5]", axis=-1), example("i32[4,5]")],
    "reduce_max": [example("f32[4,5]", axis=0), example("i8[3,4,2]", axis=(1,), keepdims=True)],
    "reduce_min": [example("f8e5m2[4,5]", axis=1), example("u16[3]")],
    "reduce_prod": [example("f32[2,3]", axis=(0, 1), keepdims=True), example("u8[2,3]", axis=0)],
    "argmax": [example("f16[4,5]", axis=1), example("i32[4,5,2]", axis=-2, keepdims=True)],
    "argmin": [example("f32[4]", axis=0)],
    "matmul": [
        example("f16[4,5]", "f16[5,6]"),
        example("f32[2,1,4,5]", "f32[3,6,5]", transpose_b=True),
        example("i8[5,4]", "i8[5,6]", transpose_a=True, to="i32"),
    ],
    "conv1d": [example("f32[2,3,9]", "f32[4,3,3]", stride=2, pad=1)],
    "conv2d": [
        example("f16[1,4,7,6]", "f16[6,2,3,2]", group=2, pad=(1, 0), dilation=(2, 1)),
        example("f32[2,4,5,5]", "f32[4,1,3,3]", group=4),
        example("i8[1,2,5,5]", "i8[3,2,3,3]", pad=(0, 1, 1, 0), to="i32"),
    ],
    "conv3d": [example("f32[1,2,4,5,6]", "f32[3,2,2,3,2]", stride=(1, 2, 1))],
    "conv1d_transpose": [example("f32[1,3,4]", "f32[3,2,3]", stride=2)],
    "conv2d_transpose": [example("f32[2,4,3,3]", "f32[4,2,3,3]", stride=2, pad=1, output_pad=1, group=2)],
    "conv3d_transpose": [example("f32[1,2,2,3,2]", "f32[2,1,2,2,2]")],
    "maxpool": [example("f16[1,2,7,7]", k=3, stride=2, pad=1, ceil=True), example("i8[1,2,6]", k=2, dilation=2)],
    "avgpool": [example("f32[1,2,6,6]", k=(2, 3), pad=1, count_pad=True), example("f32[1,2,7]", k=3, stride=2, ceil=1)],
    "stencil": [example("f32[5,4]", axis=0, offsets=(-2, 0, 1))],
    "resize_nearest": [example("f32[1,2,3,4]", to=(1, 2, 6, 6), coordinates="asymmetric", rounding="floor")],
    "resize_linear": [example("f16[1,2,3,4]", to=(1, 2, 5, 8), coordinates="align_corners")],
    "transpose": [example("f16[2,3,4]", perm=(2, 0, 1)), example("f32[2,3]")],
    "broadcast": [example("f32[3,1]", to=(2, 3, 4))],
    "slice": [example("f32[9,2]", axis=0, start=1, end=8, step=3), example("i64[2,5]", axis=1, step=-2)],
    "concat": [example("f16[2,3]", "f32[2,4]", axis=1)],
    "pad": [example("f32[2,4]", axis=1, before=1, after=2, value=-1.0), example("f16[4]", before=2, mode="reflect"),
            example("f32[3]", after=2, mode="edge")],
    "select_scatter": [example("f32[4,3]", "f32[4,1]", axis=1, index=-1), example("f32[4,3]", "f32[3]", index=2)],
    "slice_update": [example("f64[5,2]", "f64[2,2]", start=1, step=2)],
    "reshape": [example("f32[4,6]", to=(3, -1))],
    "squeeze": [example("f32[1,4,1]"), example("f32[1,4,1]", axis=2)],
    "unsqueeze": [example("f32[4]", axis=(0, -1))],
    "gather": [example("f16[5,3]", "i32[2,4]"), example("f32[3,5,2]", "i64[]", axis=1)],
    "gather_elements": [example("f32[4,5]", "i64[2,5]"), example("f32[4,5]", "i32[3,7]", axis=1)],
    "gather_nd": [example("f32[3,4,5]", "i64[2,2]"), example("f32[3,4,5]", "i64[3,2,1]", batch=1)],
    "scatter_update": [example("f32[5,2]", "i64[2]", "f32[2,2]")],
    "scatter_add": [example("f16[2,5]", "i64[3]", "f16[2,3]", axis=1)],
    "scatter_elements": [example("f32[3,4]", "i64[2,4]", "f32[2,4]", reduction="max"),
                         example("f32[4]", "i64[2]", "f32[2]")],
    "scatter_nd": [example("f32[4,4]", "i64[2,1]", "f32[2,4]", reduction="add")],
    "cumsum": [example("f16[3,4]", axis=1, reverse=True), example("i32[4]", exclusive=True)],
    "argsort": [example("f32[3,4]", descending=True)],
    "topk": [example("f16[3,6]", k=4), example("i32[6,2]", k=2, axis=0, largest=False)],
    "arange": [example(n=5, to="i32"), example(start=1.0, end=3.0, step=0.5)],
    "fill": [example(const=2.5, shape=(2, 3)), example(const=True, shape=3)],
    "random_uniform": [example(shape=(4, 2), seed=7), example(shape=(8,), to="f16")],
}  # fmt: skip


def examples_of(op: str) -> list[Example]:
    if op in EXAMPLES:
        return EXAMPLES[op]
    kinds = ["i32", "u8"] if op in INTEGER_ONLY else ["bool", "i16"] if op in LOGIC else ["f32", "bf16", "i8"]
    shapes = ["[2,3]", "[3]", "[2,1]"]
    count = OPS[op].operands[0]
    return [Example([kind + shapes[index] for index in range(count)]) for kind in kinds]


def single(op: str, call: Example) -> tuple[Graph, Node]:
    builder = GraphBuilder("one")
    names = [builder.input(f"x{i}", parse(text)) for i, text in enumerate(call.operands)]
    for name in builder.add(op, names, call.attrs, source="op"):
        builder.output(name)
    graph = builder.build()
    return graph, graph.nodes[0]


CASES = [(op, call) for op in OPS if op != "opaque" for call in examples_of(op)]
IDS = [f"{op}-{','.join(call.operands)}" for op, call in CASES]


@pytest.mark.parametrize("op", OPS)
def test_a_row_is_documented_and_its_work_adds_up(op: str) -> None:
    row = OPS[op]
    assert row.name == op
    assert row.doc.endswith(".")
    assert row.operands[1] is None or 0 <= row.operands[0] <= row.operands[1]
    assert all(text and not text.endswith(".") for _, text in row.attrs.values())
    work = row.work
    assert work.fma + work.alu + work.sfu == work.instructions
    assert work.scratch >= 0
    assert work.first_use >= 0
    free = row.kind in (OpKind.CONTRACTION, OpKind.VIEW) or op == "opaque"
    assert (work.instructions == 0) is free


@pytest.mark.parametrize(("op", "call"), CASES, ids=IDS)
def test_the_reference_gives_exactly_the_inferred_types(op: str, call: Example) -> None:
    graph, node = single(op, call)
    results = run_node(graph, node, random_feeds(graph, 3))
    for name, kind in zip(node.outputs, result_types(graph, node), strict=True):
        assert results[name].shape == kind.shape
        assert results[name].dtype.itemsize == kind.dtype.itemsize
        assert run_reference(graph, random_feeds(graph, 3))[name].tobytes() == results[name].tobytes()


@pytest.mark.parametrize(("op", "call"), CASES, ids=IDS)
def test_attributes_are_canonical_after_one_pass(op: str, call: Example) -> None:
    graph, node = single(op, call)
    again = infer_results(OPS[op], operand_types(graph, node), dict(node.attrs))
    assert again == (result_types(graph, node), dict(node.attrs))
    assert set(dict(node.attrs)) <= set(OPS[op].attrs)
    assert all(isinstance(hash(value), int) for _, value in node.attrs)


def extent_fits(access: AccessMap, operand: int, dim: int, extent: int, result: tuple[int, ...]) -> bool:
    item = access.operands[operand][dim]
    match item.kind:
        case AccessKind.SAME:
            return item.out is not None and result[item.out] == extent
        case AccessKind.BROADCAST:
            return extent == 1
        case AccessKind.REDUCED:
            return item.red is not None and access.reduced[item.red] == extent
        case AccessKind.SHIFTED | AccessKind.WINDOW:
            return item.out is not None and item.out < len(result) and (item.red or 0) < max(1, len(access.reduced))
        case AccessKind.INDIRECT | AccessKind.WHOLE:
            return item.out is None


@pytest.mark.parametrize(("op", "call"), CASES, ids=IDS)
def test_the_access_map_fits_operands_and_result(op: str, call: Example) -> None:
    graph, node = single(op, call)
    access = access_map(graph, node)
    operands, result = operand_types(graph, node), result_types(graph, node)[0].shape
    if OPS[op].kind is OpKind.GENERATE:
        assert access.operands == ()
        return
    assert [len(item) for item in access.operands] == [len(item.shape) for item in operands]
    for operand, kind in enumerate(operands):
        for dim, extent in enumerate(kind.shape):
            if op.endswith("_transpose") and access.operands[operand][dim].kind is AccessKind.REDUCED and dim >= 2:
                continue
            assert extent_fits(access, operand, dim, extent, result), (operand, dim)
    reductions = (OpKind.REDUCE, OpKind.CONTRACTION)
    assert OPS[op].kind not in reductions or access.reduced


@pytest.mark.parametrize(("op", "call"), CASES, ids=IDS)
def test_too_many_operands_and_unknown_attributes_are_refused(op: str, call: Example) -> None:
    graph, node = single(op, call)
    builder = GraphBuilder("one")
    for name in node.reads:
        builder.input(name, graph.type_of(name))
    with pytest.raises(InputError, match="has no attribute 'colour'"):
        builder.add(op, node.inputs, {"colour": 1})
    if OPS[op].operands[1] is not None:
        with pytest.raises(InputError, match="operands, got"):
            builder.add(op, [*node.inputs, *node.inputs, "x0", "x0", "x0"], call.attrs)


@pytest.mark.parametrize("op", [op for op, row in OPS.items() if row.linear])
def test_linear_operators_scale(op: str) -> None:
    call = examples_of(op)[0]
    if op == "cast":
        call = example("f32[3]", to="f32")
    kinds = [parse(item).dtype for item in call.operands]
    texts = zip(kinds, call.operands, strict=True)
    wide = [f"f32{text[text.index('[') :]}" if kind.is_float else text for kind, text in texts]
    graph, node = single(op, Example(wide, call.attrs))
    feeds = random_feeds(graph, 5)
    scaled = dict(feeds)
    names = node.reads if op == "concat" else node.reads[:1]
    for name in names:
        scaled[name] = feeds[name] * np.asarray(2, feeds[name].dtype)
    plain, twice = (run_node(graph, node, item)[node.outputs[0]] for item in (feeds, scaled))
    np.testing.assert_allclose(twice, plain * 2, rtol=1e-5)


def test_every_example_names_an_operator() -> None:
    assert set(EXAMPLES) <= set(OPS)


def test_the_reference_of_an_opaque_operator_says_so() -> None:
    builder = GraphBuilder("one")
    builder.input("x", parse("f32[2]"))
    builder.add("opaque", ["x"], {"kind": "LSTM"}, outputs=["y"], types=[parse("f32[3]")])
    builder.output("y")
    with pytest.raises(InputError, match="LSTM has no reference"):
        run_reference(builder.build(), {"x": np.zeros(2, np.float32)})


def test_the_table_loads_without_numpy() -> None:
    code = "import sys, fusesolve.ops, fusesolve.decompose, fusesolve.reference, fusesolve.importers; "
    code += "sys.exit(','.join({'numpy', 'onnx', 'ml_dtypes'} & set(sys.modules)) or 0)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr) == (0, "")
