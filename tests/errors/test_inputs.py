"""Bad files and names, through the command line: one clear line, exit 2 (or 3 and 4), and what to change."""

import json

import onnx
import pytest
from onnx import TensorProto, helper

F = TensorProto.FLOAT


def value(name, *shape):
    return helper.make_tensor_value_info(name, F, list(shape))


def save(path, nodes, inputs, outputs, **extra):
    graph = helper.make_graph(nodes, "model", inputs, outputs, **extra)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path


@pytest.fixture
def relu_chain(tmp_path):
    """A good model of two operators with a symbolic dimension."""
    nodes = [helper.make_node("Relu", ["x"], ["h"], name="first"), helper.make_node("Exp", ["h"], ["y"], name="second")]
    return save(tmp_path / "good.onnx", nodes, [value("x", "batch", 64)], [value("y", "batch", 64)])


def refused(done, *words, code=2):
    assert (done.code, done.out) == (code, "")
    missing = [word for word in words if word not in done.error]
    assert not missing, done.error
    return done.error


# graphs


def test_a_missing_graph(cli):
    refused(cli("plan", "no_such.onnx", "--hw", "h100"), "no_such.onnx", "no such file")


def test_a_misspelt_bundled_graph(cli):
    refused(cli("plan", "gpt2_blok", "--hw", "h100"), "did you mean gpt2_block?")


def test_a_folder_is_no_graph(cli, tmp_path):
    refused(cli("graph", "show", tmp_path), str(tmp_path), "folder")


def test_a_truncated_onnx_file(cli, relu_chain):
    content = relu_chain.read_bytes()
    relu_chain.write_bytes(content[: len(content) // 2])
    refused(cli("plan", relu_chain, "--hw", "h100"), "good.onnx")


def test_a_file_that_is_no_model(cli, tmp_path):
    path = tmp_path / "cat.onnx"
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(200))
    refused(cli("plan", path, "--hw", "h100"), "cat.onnx")


def test_an_empty_file(cli, tmp_path):
    path = tmp_path / "empty.onnx"
    path.touch()
    refused(cli("plan", path, "--hw", "h100"), "empty.onnx")


def test_a_file_of_unknown_kind(cli, tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("dear diary")
    refused(cli("graph", "show", path), "notes.txt", "neither its suffix nor its content")


@pytest.mark.parametrize("suffix", [".pt2", ".mlir"])
def test_a_format_that_is_not_read_yet_is_exit_4(cli, tmp_path, suffix):
    path = tmp_path / f"model{suffix}"
    path.write_bytes(b"anything")
    refused(cli("plan", path, "--hw", "h100"), suffix, "ONNX", code=4)


def test_a_cyclic_model(cli, tmp_path):
    nodes = [
        helper.make_node("Add", ["x", "b"], ["a"], name="one"),
        helper.make_node("Relu", ["a"], ["b"], name="two"),
    ]
    path = save(tmp_path / "loop.onnx", nodes, [value("x", 4)], [value("b", 4)])
    refused(cli("plan", path, "--hw", "h100"), "loop.onnx", "cycl")


def test_shapes_that_do_not_fit(cli, tmp_path):
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], name="fc")]
    path = save(tmp_path / "bad.onnx", nodes, [value("x", 4, 5), value("w", 6, 7)], [value("y", 4, 7)])
    refused(cli("plan", path, "--hw", "h100"), "bad.onnx", "fc")


def test_an_unbound_dimension_names_itself_and_the_flag(cli, relu_chain):
    refused(cli("plan", relu_chain, "--hw", "h100"), "batch", "--bind batch=")


def test_a_binding_of_no_dimension(cli, relu_chain):
    refused(cli("plan", relu_chain, "--hw", "h100", "--bind", "batch=2", "--bind", "bach=2"), "bach")


def test_an_unknown_operator_warns_and_strict_refuses_it(cli, tmp_path):
    nodes = [helper.make_node("Mystery", ["x"], ["y"], name="what", domain="vendor")]
    graph = helper.make_graph(nodes, "model", [value("x", 4)], [value("y", 4)])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("vendor", 1)]
    path = tmp_path / "odd.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())
    done = cli("plan", path, "--hw", "h100")
    assert done.code == 0
    assert "Mystery" in done.out
    assert "opaque" in done.out
    refused(cli("plan", path, "--hw", "h100", "--strict"), "Mystery", "what")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("format: fusesolve-graph/2\ninputs: []\nops: []\noutputs: []\n", ["fusesolve-graph/2"]),
        ('format: fusesolve-graph/1\ninputs: ["x: f32[n]"]\nops: ["y = relu(x)"]\noutputs: [y]\n', ["--bind n="]),
        ('format: fusesolve-graph/1\ninputs: ["x: f32[4]"]\nops: ["y = rellu(x)"]\noutputs: [y]\n', ["rellu", "relu"]),
        ('format: fusesolve-graph/1\ninputs: ["x: f32[4]"]\nops: ["y = relu(z)"]\noutputs: [y]\n', ["z"]),
        ('format: fusesolve-graph/1\ninputs: ["x: f32[4]"]\nops: ["y = relu(x"]\noutputs: [y]\n', ["y = relu(x"]),
        ('format: fusesolve-graph/1\ninputs: ["x: f99[4]"]\nops: ["y = relu(x)"]\noutputs: [y]\n', ["f99"]),
        ('format: fusesolve-graph/1\ninputs: ["x: f32[4]"]\nops: ["y = relu(x)"]\noutputs: [q]\n', ["q"]),
        (
            'format: fusesolve-graph/1\ninputs: ["x: f32[4]"]\nops: ["a = add(x, b)", "b = relu(a)"]\noutputs: [b]\n',
            ["cycl"],
        ),
        (
            'format: fusesolve-graph/1\ninputs: ["x: f32[4]"]\nops: ["y = relu(x) : f32[5]"]\noutputs: [y]\n',
            ["f32[5]"],
        ),
        ("format: fusesolve-graph/1\nformat: fusesolve-graph/1\n", ["format"]),
        ("{", ["graph.yaml"]),
    ],
    ids=["version", "unbound", "operator", "undefined", "syntax", "dtype", "output", "cycle", "shape", "twice", "yaml"],
)
def test_bad_native_graphs(cli, tmp_path, text, words):
    path = tmp_path / "graph.yaml"
    path.write_text(text)
    refused(cli("plan", path, "--hw", "h100"), *words)


def test_a_binding_that_is_no_number(cli, relu_chain):
    refused(cli("plan", relu_chain, "--hw", "h100", "--bind", "batch=many"), "integer of at least 1", "'many'")


def test_an_unknown_element_type(cli):
    refused(cli("plan", "softmax", "--hw", "h100", "--as-dtype", "f13"), "f13")


# profiles


def test_an_unknown_profile_suggests_near_ones(cli):
    refused(cli("plan", "softmax", "--hw", "h10"), "no hardware profile 'h10'", "did you mean h100")


PROFILE_ERRORS = [
    ("memory: {dram: {bandwith: 4 TB/s}}", ["$.memory.dram.bandwith", "unknown key"]),
    ("memory: {dram: {bandwidth: 4}}", ["$.memory.dram.bandwidth", "no unit"]),
    ("memory: {dram: {bandwidth: 4 TB}}", ["$.memory.dram.bandwidth", "bytes per second"]),
    ("compute: {clock: 0 GHz}", ["$.compute.clock", "above 0"]),
    ("compute: {clock: -1 GHz}", ["$.compute.clock"]),
    ("memory: {shared: {per_block_max: 999 KiB}}", ["$.memory.shared.per_block_max"]),
    ("compute: {units: many}", ["$.compute.units"]),
]


@pytest.mark.parametrize(("line", "words"), PROFILE_ERRORS, ids=[line for line, _ in PROFILE_ERRORS])
def test_bad_profiles_name_the_path(cli, tmp_path, line, words):
    path = tmp_path / "my.yaml"
    path.write_text(f"format: fusesolve-hardware/1\nextends: h100\nname: mine\n{line}\n")
    done = cli("plan", "softmax", "--hw", path)
    assert (done.code, done.out) == (2, "")
    assert not [word for word in ("my.yaml", *words) if word not in done.err], done.err
    checked = cli("profiles", "check", path)
    assert checked.code == 2
    assert words[0] in checked.err


def test_all_errors_of_a_profile_are_told_at_once(cli, tmp_path):
    path = tmp_path / "my.yaml"
    lines = "\n".join(line for line, _ in PROFILE_ERRORS[:1] + PROFILE_ERRORS[3:4])
    path.write_text(f"format: fusesolve-hardware/1\nextends: h100\nname: mine\n{lines}\n")
    done = cli("profiles", "check", path)
    assert "$.memory.dram.bandwith" in done.err
    assert "$.compute.clock" in done.err
    assert done.error == "1 of 1 profiles have errors (listed above)"


def test_a_duplicate_key_is_refused(cli, tmp_path):
    path = tmp_path / "my.yaml"
    path.write_text("format: fusesolve-hardware/1\nextends: h100\nname: a\nname: b\n")
    assert "name" in cli("profiles", "check", path).err


def test_profiles_that_inherit_in_a_circle(cli, tmp_path):
    (tmp_path / "a.yaml").write_text("format: fusesolve-hardware/1\nextends: b.yaml\nname: a\n")
    (tmp_path / "b.yaml").write_text("format: fusesolve-hardware/1\nextends: a.yaml\nname: b\n")
    refused(cli("plan", "softmax", "--hw", tmp_path / "a.yaml"), "circle")


def test_a_missing_profile_is_a_problem_of_check(cli):
    done = cli("profiles", "check", "h100", "nowhere.yaml")
    assert done.code == 2
    assert done.out == "h100: ok\n"
    assert "nowhere.yaml" in done.err


# options of a plan


def test_an_unknown_strategy_lists_the_known_ones(cli):
    refused(cli("plan", "softmax", "--hw", "h100", "--strategy", "magic"), "magic", "cpsat", "greedy", "unfused")


@pytest.mark.parametrize("option", ["--together", "--apart"])
def test_a_pin_on_no_operator(cli, option):
    refused(cli("plan", "softmax", "--hw", "h100", option, "y,nobody"), "nobody")


@pytest.mark.parametrize(
    ("objective", "strategy", "hint"),
    [("dram", "cpsat", "name latency first"), ("latency,dram", "greedy", "levels need the strategy cpsat")],
)
def test_an_objective_that_makes_no_sense(cli, objective, strategy, hint):
    refused(cli("plan", "softmax", "--hw", "h100", "--objective", objective, "--strategy", strategy), hint)


@pytest.mark.parametrize(
    "options",
    [
        ["--together", "row_max,y", "--apart", "row_max,y"],
        ["--max-kernels", "1", "--apart", "row_max,y"],
        ["--max-memory", "1 KiB"],
    ],
    ids=lambda options: options[0] + options[2] if len(options) > 2 else options[0],
)
def test_what_cannot_be_is_exit_3_with_the_document(cli, options):
    done = cli("plan", "softmax", "--hw", "h100", "--format", "json", *options)
    assert done.code == 3
    document = json.loads(done.out)
    assert document["status"] in ("INFEASIBLE", "NO_SOLUTION")
    assert document["groups"] == []
    assert document["objective_ns"] is None
    assert document["gap"] is None
    assert done.error.startswith("no plan ")


def test_floats_on_an_integer_device_need_a_type(cli):
    refused(cli("plan", "softmax", "--hw", "ethos-u55-128"), "integer", "--as-dtype i8")
    assert cli("plan", "softmax", "--hw", "ethos-u55-128", "--as-dtype", "i8").code == 0


def test_explain_wants_operators_and_kernels_that_exist(cli):
    refused(cli("explain", "softmax", "--hw", "h100", "--between", "row_max", "nobody"), "nobody")
    refused(cli("explain", "softmax", "--hw", "h100", "--group", "99"), "99")


def test_convert_to_a_place_that_cannot_be_written(cli, tmp_path):
    refused(cli("graph", "convert", "softmax", "-o", tmp_path / "none" / "g.yaml"), "there is no folder")


def test_onnx_is_what_the_checker_would_say_too(relu_chain):
    """The hand-made good model of this file is good: the bad ones differ from it in one thing."""
    onnx.checker.check_model(onnx.load(relu_chain))
