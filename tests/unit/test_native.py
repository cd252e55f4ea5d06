"""The native graph format: what declared types supply, and every error with its line."""

from collections.abc import Mapping

import pytest
import yaml

from fusesolve.errors import InputError
from fusesolve.graph import DType, Graph, Literal, TensorType
from fusesolve.importers.native import parse_native


def graph_text(*ops: str, inputs: tuple[str, ...] = ("x: f32[8,16]",), outputs: tuple[str, ...] = ("y",)) -> str:
    lists = {"inputs": list(inputs), "ops": list(ops), "outputs": list(outputs)}
    return yaml.safe_dump({"format": "fusesolve-graph/1", "name": "t", **lists}, sort_keys=False, width=10_000)


def parse(*ops: str, inputs: tuple[str, ...] = ("x: f32[8,16]",), outputs: tuple[str, ...] = ("y",),
          bind: Mapping[str, int] | None = None, strict: bool = False) -> Graph:  # fmt: skip
    return parse_native(graph_text(*ops, inputs=inputs, outputs=outputs), "g.yaml", bind or {}, strict)


def ops_of(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes]


# what a person writes


def test_the_example_of_the_format() -> None:
    text = """
format: fusesolve-graph/1
name: layernorm
inputs:  ["x: f16[8192,4096]", "g: f16[4096]", "b: f16[4096]"]
ops:
  - "xf = cast(x; to=f32)"
  - "mu = reduce_mean(xf; axis=1, keepdims=true)"
  - "c = sub(xf, mu) : f32[8192,4096]"
  - "y = mul(c, g)"
outputs: [y]
"""
    graph = parse_native(text, "g.yaml", {}, True)
    assert graph.name == "layernorm"
    assert graph.inputs == ("x", "g", "b")
    assert [node.name for node in graph.nodes] == ["xf", "mu", "c", "y"]
    assert graph.type_of("mu") == TensorType(DType.F32, (8192, 1))
    assert graph.type_of("y") == TensorType(DType.F32, (8192, 4096))
    assert graph.nodes[1].attr("axis") == (1,)
    assert graph.warnings == ()


def test_numbers_are_operands() -> None:
    assert parse("y = mul(x, 0.125)").nodes[0].inputs == ("x", Literal(0.125))
    assert parse("y = add(x; const=1.0)") == parse("y = add(x, 1.0)")
    assert parse("y = sub(1, x)").nodes[0].inputs == (Literal(1), "x")
    assert parse("y = maximum(x, -1e-5)").nodes[0].inputs == ("x", Literal(-1e-5))
    assert parse("y = minimum(x, -inf)").nodes[0].inputs == ("x", Literal(float("-inf")))


def test_a_declared_dtype_is_a_cast_of_the_result() -> None:
    graph = parse("y = exp(x) : f16[8,16]")
    assert [(node.name, node.op, node.outputs) for node in graph.nodes] == [
        ("y/exp", "exp", ("y/exp",)),
        ("y/cast", "cast", ("y",)),
    ]
    assert {node.source for node in graph.nodes} == {"y"}
    assert ops_of(parse("y = cast(x) : f16[8,16]")) == ["cast"]
    assert ops_of(parse("y = matmul(x, x; transpose_b=true) : bf16[8,8]")) == ["matmul", "cast"]


@pytest.mark.parametrize(
    ("op", "attr", "value"),
    [
        ("y = reduce_sum(x; axis=1) : f32[8,1]", "keepdims", True),
        ("y = reduce_sum(x; axis=1) : f32[8]", "keepdims", False),
        ("y = reduce_sum(x; axis=1)", "keepdims", False),
        ("y = reduce_max(x) : f32[]", "axis", (0, 1)),
        ("y = reshape(x) : f32[4,32]", "to", (4, 32)),
        ("y = reshape(x; to=2-64)", "to", (2, 64)),
        ("y = reshape(x; to=128)", "to", (128,)),
        ("y = broadcast(x) : f32[3,8,16]", "to", (3, 8, 16)),
        ("y = unsqueeze(x) : f32[8,1,16]", "axis", (1,)),
        ("y = unsqueeze(x) : f32[1,8,16,1]", "axis", (0, 3)),
        ("y = fill(; const=0.0) : bf16[2,3]", "shape", (2, 3)),
        ("y = arange() : i32[7]", "n", 7),
        ("y = transpose(x; perm=1-0)", "perm", (1, 0)),
        ("y = stencil(x; axis=1, offsets=-1:1)", "offsets", (-1, 0, 1)),
        ("y = stencil(x; axis=1, offsets=0:1-4)", "offsets", (0, 1, 4)),
        ("y = reduce_sum(x; axis=0-1)", "axis", (0, 1)),
        ("y = reduce_sum(x; axis=-1)", "axis", (1,)),
        ("y = resize_nearest(x) : f32[16,32]", "to", (16, 32)),
    ],
)
def test_what_a_declared_shape_supplies(op: str, attr: str, value: object) -> None:
    graph = parse(op)
    assert len(graph.nodes) == 1
    assert graph.nodes[0].attr(attr) == value


def test_a_declared_shape_supplies_stride_and_padding() -> None:
    images = ("x: f32[1,8,16,16]", "w: f32[4,8,3,3]", "v: f32[4,8,2,2]")
    assert parse("y = maxpool(x; k=3) : f32[1,8,16,16]", inputs=images[:1]).nodes[0].attr("pad") == (1, 1, 1, 1)
    assert parse("y = conv2d(x, w) : f32[1,4,16,16]", inputs=images[:2]).nodes[0].attr("pad") == (1, 1, 1, 1)
    even = parse("y = conv2d(x, v) : f32[1,4,16,16]", inputs=(images[0], images[2]))
    assert even.nodes[0].attr("pad") == (0, 0, 1, 1)
    strided = parse("y = conv2d(x, w; stride=2) : f32[1,4,8,8]", inputs=images[:2])
    assert strided.nodes[0].attr("pad") == (0, 0, 1, 1)
    halved = parse("y = maxpool(x; k=2) : f32[1,8,8,8]", inputs=images[:1])  # (16 - 2) / 2 + 1 = 8
    assert dict(halved.nodes[0].attrs)["stride"] == (2, 2)
    assert dict(halved.nodes[0].attrs)["pad"] == (0, 0, 0, 0)
    rest = parse("y = avgpool(x; k=2) : f32[1,1,8]", inputs=("x: f32[1,1,17]",))  # (17 - 2) // 2 + 1 = 8
    assert (rest.nodes[0].attr("stride"), rest.nodes[0].attr("pad")) == ((2,), (0, 0))
    with pytest.raises(InputError, match=r"declared f32\[1,8,3,16\], but maxpool gives"):
        parse("y = maxpool(x; k=2, stride=2) : f32[1,8,3,16]", inputs=images[:1])
    with pytest.raises(InputError, match=r"declared f32\[1,4,14,16\], but conv2d gives f32\[1,4,16,16\]"):
        parse("y = conv2d(x, w; pad=1) : f32[1,4,14,16]", inputs=images[:2])


def test_a_reduction_to_one_element_may_be_declared_with_unit_axes() -> None:
    graph = parse("y = reduce_sum(x; axis=0-1) : f32[1]")
    assert ops_of(graph) == ["reduce_sum", "reshape"]
    assert graph.type_of("y") == TensorType(DType.F32, (1,))


def test_squeeze_takes_the_axes_that_its_shape_lacks() -> None:
    graph = parse("y = squeeze(x) : f32[1,4]", inputs=("x: f32[1,1,4]",))
    assert graph.type_of("y").shape == (1, 4)
    assert graph.nodes[0].attr("axis") == (1,)


def test_several_results() -> None:
    graph = parse("a, b, c = split(x; axis=1, sizes=4-4-8)", "y = add(a, b)", outputs=("y", "c"))
    assert [node.op for node in graph.nodes] == ["slice", "slice", "slice", "add"]
    assert [graph.type_of(name).shape for name in ("a", "b", "c")] == [(8, 4), (8, 4), (8, 8)]
    assert {node.source for node in graph.nodes[:3]} == {"a"}
    equal = parse("a, y = split(x; axis=0) : f32[4,16], f32[4,16]")
    assert equal.type_of("y").shape == (4, 16)
    values = parse("y, i = topk(x; k=3)", outputs=("y", "i"))
    assert values.type_of("i") == TensorType(DType.I64, (8, 3))
    with pytest.raises(InputError, match="topk gives 2 results, not 1"):
        parse("y = topk(x; k=3)")


def test_a_composite_keeps_its_name() -> None:
    graph = parse("p = softmax(x; axis=1)", "y = relu(p)")
    assert {node.source for node in graph.nodes} == {"p", "y"}
    assert graph.nodes[-2].outputs == ("p",)
    assert graph.nodes[-1].name == "y"


def test_operators_may_stand_in_any_order() -> None:
    graph = parse("y = relu(b)", "b = neg(a)", "a = exp(x)")
    assert [node.name for node in graph.nodes] == ["a", "b", "y"]
    kept = parse("b = neg(x)", "a = exp(x)", "y = add(a, b)")
    assert [node.name for node in kept.nodes] == ["b", "a", "y"]


def test_symbolic_dimensions() -> None:
    ops = ("r = reshape(x; to=M-K/16-16) : f32[M,K/16,16]", "y = reduce_max(r; axis=2) : f32[M,K/16]")
    graph = parse(*ops, inputs=("x: f32[M,K]",), bind={"M": 4, "K": 64})
    assert graph.type_of("y").shape == (4, 4)
    double = parse("y = concat(x, x) : f32[2*M]", inputs=("x: f32[M]",), bind={"M": 5})
    assert double.type_of("y").shape == (10,)
    with pytest.raises(InputError, match=r"g.yaml: the dimensions K, M have no size; give --bind K=SIZE --bind M=SIZE"):
        parse(*ops, inputs=("x: f32[M,K]",))
    with pytest.raises(InputError, match=r"K/16 is no whole number: 40 is not divisible by 16"):
        parse(*ops, inputs=("x: f32[M,K]",), bind={"M": 4, "K": 40})
    with pytest.raises(InputError, match="no dimension is named 'N'; the symbolic dimensions are: K, M"):
        parse(*ops, inputs=("x: f32[M,K]",), bind={"M": 4, "K": 64, "N": 1})
    with pytest.raises(InputError, match="the size of M is -4"):
        parse(*ops, inputs=("x: f32[M,K]",), bind={"M": -4, "K": 64})


def test_storage_attributes() -> None:
    graph = parse(
        "n = add(a, 1.0)", "z = relu(x) : f32[2,640; external=1, strides=1-2]", "y = exp(x)",
        inputs=("a: f32[64; alias_out=n]", "x: f32[2,640; strides=1-640]"),
    )  # fmt: skip
    assert graph.values["a"].alias_out == "n"
    assert graph.values["x"].strides == (1, 640)
    assert graph.values["z"].strides == (1, 2)
    assert graph.values["z"].external
    assert graph.outputs == ("y", "n", "z")  # what the caller's storage must hold is an output


def test_shapes_are_known_while_planning() -> None:
    graph = parse("s = shape(x)", "z = fill(s; const=1.0) : f32[8,16]", "y = add(x, z)")
    assert ops_of(graph) == ["fill", "add"]
    read = parse("s = shape(x) : i64[2]", "y = cast(s; to=f32)")
    assert read.weights == ("s",)


def test_weights_are_marked() -> None:
    text = graph_text("y = matmul(x, w)", inputs=("x: f32[4,8]", "w: f32[8,2]")) + "weights: [w]\n"
    graph = parse_native(text, "g.yaml", {}, True)
    assert graph.inputs == ("x",)
    assert graph.weights == ("w",)


def test_unknown_operators_become_opaque() -> None:
    graph = parse("a = my_op(x; size=3) : f16[4]", "y, b = opaque_pair(a, 1.0) : f32[2], i64[3]", outputs=("y", "b"))
    assert ops_of(graph) == ["opaque", "opaque"]
    assert dict(graph.nodes[0].attrs) == {"kind": "my_op", "size": 3}
    assert graph.type_of("b") == TensorType(DType.I64, (3,))
    assert graph.warnings == (
        "my_op is unknown and becomes an opaque kernel, priced by its bytes: a",
        "opaque_pair is unknown and becomes an opaque kernel, priced by its bytes: y",
    )
    with pytest.raises(InputError, match=r"g\.yaml:6: .* unknown operators are refused \(strict\)"):
        parse("y = my_op(x) : f16[4]", strict=True)


def test_operators_without_a_reader_are_left_out() -> None:
    graph = parse("y = relu(x)", "z = exp(x)", "w = neg(z)")
    assert [node.name for node in graph.nodes] == ["y"]
    assert set(graph.values) == {"x", "y"}
    assert graph.warnings == ("2 operators reach no output and are left out: z, w",)


# errors

BAD_OPS = [
    ("y = relu(z)", "nothing is named 'z'"),
    ("y = rleu(x)", "rleu is no operator that fusesolve knows: declare its result's type; did you mean relu"),
    ("y = opaque_thing(x)", "opaque_thing is no operator that fusesolve knows: declare its result's type in"),
    ("y = softmax(x; dim=1)", "softmax has no attribute 'dim'; it takes axis"),
    ("y = relu(x; axis=1)", "relu has no attribute 'axis'; it takes none"),
    ("y = relu(x) : f32[8,17]", r"declared f32\[8,17\], but relu gives f32\[8,16\]"),
    ("y = reshape(x) : f32[8,17]", r"reshape of f32\[8,16\] \(128 elements\) to \[8, 17\] \(136\)"),
    ("y = reduce_sum(x; axis=2)", "axis 2 is out of range for rank 2"),
    ("y = add(x)", "add takes 2 operands, got 1"),
    ("y = add(x; const=f32)", "const must be a number, not 'f32'"),
    ("y = add(x, x", "expected ',', found the end"),
    ("y = add(x x)", "expected ',', found 'x'"),
    ("y add(x)", "expected '=', found 'add'"),
    ("= add(x)", "expected a result's name, found '='"),
    ("y = (x)", r"expected an operator, found '\('"),
    ("y = relu(x) f32[8]", "unexpected 'f32' at the end"),
    ("y = relu(x) :", "expected an element type, found the end"),
    ("y = relu(x) : g32[8]", "unknown element type 'g32'"),
    ("y = relu(x) : f32[8,", r"expected '\]', found the end"),
    ("y = relu(x) : f32[8 16]", r"expected ',' or '\]' in the shape, found '16'"),
    ("y = relu(x) : f32[-8,16]", "'-8' is not a dimension"),
    ("y = relu(x) : f32[8,16; colour=1]", "unknown attribute 'colour' of a value"),
    ("y = relu(x) : f32[8,16; external=2]", "external must be 0 or 1, not 2"),
    ("y = relu(x) : f32[8,16; strides=a]", "strides must be whole numbers"),
    ("y = relu(x) : f32[8,16; strides=1]", r"1 strides for f32\[8,16\]"),
    ("y = relu(x) : f32[8,16], f32[8,16]", "1 results but 2 types"),
    ("y = reduce_sum(x; axis=)", "the attribute axis has no value"),
    ("y = reduce_sum(x; axis=1, axis=1)", "the attribute axis is given twice"),
    ("y = reduce_sum(x; axis=0.5)", r"axis must be one integer, not 0\.5"),
    ("y = stencil(x; offsets=3:1)", "the range 3:1 must rise"),
    ("y = stencil(x; offsets=0:99999999)", "by at most a million"),
    ('y = relu("x)', "cannot read"),
    ('y = relu("\\q")', "is not a quoted text"),
    ("y = relu(x) : f32[" + "9" * 5000 + "]", "'9999999999999999999999999999999999999999' is not a dimension"),
    ("y = add(x, " + "9" * 5000 + ")", "the number 9999999999999999999999999999999999999999 is out of range"),
    ("y = reshape(x; to=4-" + "9" * 5000 + ")", "to must be integers"),
    ("y = add(x, 1e999)", "the number 1e999 is out of range"),
    ('"" = relu(x)', "expected a result's name, found an empty text"),
    ('y = relu("\\ud800")', "has half of a surrogate pair"),
    ("x = relu(x)", "the name 'x' is given twice"),
    ("y = clip(x; min=2, max=1)", "clip has min 2 above max 1"),
    ("y = cast(x; to=int)", "unknown element type 'int'"),
    ("y = shape()", "shape takes one operand"),
    ("y = split(x; axis=0, parts=3, sizes=1-2)", "split of axis 0"),
]


@pytest.mark.parametrize(("op", "message"), BAD_OPS, ids=[op[:40] for op, _ in BAD_OPS])
def test_an_error_names_file_line_and_text(op: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as found:
        parse("first = neg(x)", op)
    text = str(found.value)
    assert text.startswith("g.yaml:7: ")
    assert text.endswith(repr(op))
    assert "\n" not in text


def test_a_cycle_is_named() -> None:
    with pytest.raises(InputError, match=r"g\.yaml:6: the operators form a cycle: a <- c <- b <- a"):
        parse("a = add(x, c)", "b = neg(a)", "c = exp(b)", "y = relu(c)")
    with pytest.raises(InputError, match="the operators form a cycle: y <- y"):
        parse("y = add(x, y)")


BAD_FILES = [
    ("", "g.yaml: a graph is a mapping"),
    ("- a\n- b\n", "g.yaml: a graph is a mapping"),
    ("format: fusesolve-graph/1\nops: []\n", "the key 'outputs' is missing"),
    ("format: fusesolve-graph/2\nops: []\noutputs: []\n", "format is 'fusesolve-graph/2', this version reads"),
    ("format: fusesolve-graph/1\noutput: [y]\n", "g.yaml:2: unknown key 'output'; did you mean 'outputs'"),
    ("format: a\nformat: b\n", "g.yaml:2: the key 'format' is given twice"),
    ("format: fusesolve-graph/1\nops: 3\noutputs: []\n", "g.yaml:2: ops must be a list of texts"),
    ("format: [a]\n", "g.yaml:1: format must be a text"),
    ("format: fusesolve-graph/1\ninputs:\n- x: f32[8]\n", "g.yaml:3: an entry of inputs must be one text: put it in"),
    ("format: fusesolve-graph/1\nops:\n- [a]\n", "g.yaml:3: an entry of ops must be one text"),
    ("format: fusesolve-graph/1\nops: []\noutputs: []\n", "g.yaml: the graph has no outputs"),
    ("format: fusesolve-graph/1\nops: []\noutputs: [q]\n", "g.yaml:3: the output 'q' is no value of the graph"),
    ("format: &a fusesolve-graph/1\n", "g.yaml:1: anchors and aliases"),
    ("format: *a\n", "g.yaml:1: .*alias"),
    ("format: !!python/object:os.system x\n", "g.yaml:1: the tag .*python/object"),
    ("ops: [" * 20, "nested too deeply"),
    ("a: [1\nb: 2\n", "not YAML"),
    ("a:\n\tb: 1\n", "g.yaml:2: not YAML"),
    ("a: \x07", "not YAML"),
    ('{"format": "fusesolve-graph/1", ', "g.yaml:1: not JSON"),
    ('{"format": 1, "ops": [], "outputs": []}', "g.yaml: format is 1, this version reads"),
    ('{"format": "a", "format": "b"}', "the key 'format' is given twice"),
    ('{"format": "fusesolve-graph/1", "ops": ["a", 3], "outputs": []}', r"ops\[1\] must be a text, not 3"),
    ('{"format": "fusesolve-graph/1", "ops": "a", "outputs": []}', "ops must be a list of texts"),
    ('{"format": "fusesolve-graph/1", "ops": ["\\ud800"], "outputs": []}', r"ops\[0\] must be a text"),
    ('{"format": ' + "9" * 5000 + "}", "a number is too long"),
    ('{"format": ' + "[" * 100_000, "nested too deeply|not JSON"),
]


@pytest.mark.parametrize(("text", "message"), BAD_FILES, ids=range(len(BAD_FILES)))
def test_a_file_of_the_wrong_form(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as found:
        parse_native(text, "g.yaml", {}, False)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (("x: f32[8", ), r"g.yaml:4: expected ',' or '\]' in the shape, found the end in 'x: f32\[8'"),
        (("x f32[8]", ), "expected ':', found 'f32'"),
        (("x: f32[8]", "x: f32[8]"), "g.yaml:5: the name 'x' is given twice"),
        (("x: f32[8; alias_out=q]", ), "x: alias_out=q is no result of this graph"),
        (("x: f32[8; alias_out=y]", ), r"x: alias_out=y is f32\[8,8\], the storage holds f32\[8\]"),
        (("x: f32[8; source=y]", ), "unknown attribute 'source'"),
    ],
)  # fmt: skip
def test_inputs_are_checked(inputs: tuple[str, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse("y = broadcast(x; to=8-8)", inputs=inputs)


def test_a_weight_must_be_an_input() -> None:
    with pytest.raises(InputError, match=r"g\.yaml:9: the weight .q. is not among the inputs"):
        parse_native(graph_text("y = relu(x)") + "weights: [q]\n", "g.yaml", {}, False)
