"""The generated file as a whole: buffers, refusals, names; and pieces that need no simulator."""

import json
from dataclasses import replace

import pytest

from fusesolve import plan
from fusesolve.codegen.contraction import choose_tile
from fusesolve.codegen.folds import make_fold
from fusesolve.codegen.library import REASON
from fusesolve.codegen.module import GeneratedPlan, generate
from fusesolve.codegen.planned import read_plan
from fusesolve.codegen.preamble import PREAMBLE_BOUNDED
from fusesolve.codegen.scalars import UnsupportedError, compute_type, constant, converted
from fusesolve.codegen.source import Source
from fusesolve.graph import DType, TensorType
from fusesolve.importers.native import parse_native
from fusesolve.report.codegen import codegen_table
from fusesolve.validate.ladder import generate_plan
from tests.golden.test_kernels import golden_document


def planned_of(inputs, ops, outputs, **options):
    document = {"format": "fusesolve-graph/1", "name": "$evil; import os", "inputs": inputs, "ops": ops}
    graph = parse_native(json.dumps(document | {"outputs": outputs}), "g", {}, False)
    return plan(graph, "a100", time_limit=30.0, **options).to_dict()


CHAIN = (["x: f32[64,64]"], [f"v{n} = {op}({src})" for n, (op, src) in enumerate(
    [("relu", "x"), ("tanh", "v0"), ("exp", "v1"), ("neg", "v2"), ("abs", "v3")])], ["v4"])  # fmt: skip


def test_buffers_are_used_again():
    document = planned_of(*CHAIN, strategy="unfused")
    _, made = generate_plan(document)
    assert len(made.kernels) == 5
    line = next(item for item in made.text.splitlines() if item.startswith("BUFFERS"))
    assert line.count("(4096, f32)") == 2  # v1 goes where v-1 was once v0 is read


def test_an_output_keeps_its_buffer():
    inputs, ops, _ = CHAIN
    _, made = generate_plan(planned_of(inputs, ops, ["v0", "v4"], strategy="unfused"))
    line = next(item for item in made.text.splitlines() if item.startswith("BUFFERS"))
    assert line.count("(4096, f32)") == 3


def test_nothing_of_the_file_reaches_the_source():
    document = planned_of(['"; import os #": f32[8]'], ['y = relu("; import os #")'], ["y"])
    _, made = generate_plan(document)
    assert "import os" not in made.text and "evil" not in made.text


def test_library_and_opaque_groups_are_left_to_the_host():
    document = planned_of(
        ["a: f16[512,512]", "b: f16[512,512]"],
        ["m = matmul(a, b)", "o = mystery(m) : f16[512,512]", "s = cumsum(o; axis=1)"], ["s"],
        implementation="library",
    )  # fmt: skip
    _, made = generate_plan(document)
    assert len(made.refused) == 3 and not made.kernels
    assert made.text.count("\n    by_host(host, ") == 2 and made.text.count("\n    library_or_host(host, ") == 1
    assert "a library call: cuBLAS where CuPy is installed, else the host" in made.refused.values()


@pytest.mark.parametrize(
    ("inputs", "ops", "outputs", "reason"),
    [
        (["x: f8e4m3[8]"], ["y = neg(x)"], ["y"], "f8e4m3"),
        (["x: i32[8]"], ["y = fmod(x, x)"], ["y"], "fmod of integers"),
        (["x: f32[4]"], ["u = random_uniform(; shape=4)", "y = add(x, u)"], ["y"], "random_uniform"),
    ],
)
def test_what_has_no_source_says_why(inputs, ops, outputs, reason):
    _, made = generate_plan(planned_of(inputs, ops, outputs, implementation="generated"))
    assert any(reason in text for text in made.refused.values()), made.refused


@pytest.mark.parametrize(
    ("dtype", "width", "position"),
    [("f32", 2**15 - 1, "u32("), ("f32", 2**15, "u64("), ("f16", 2**17, "u64("), ("u32", 2**15, None)],
)
def test_positions_are_narrow_only_where_they_fit_31_bits(dtype, width, position):
    text = {"format": "fusesolve-graph/1", "name": "g", "inputs": [f"x: {dtype}[65536,{width}]"],
            "ops": ["y = maximum(x, 1)"], "outputs": ["y"]}  # fmt: skip
    graph = parse_native(json.dumps(text), "g", {}, False)
    group = {"id": 0, "nodes": ["y"], "inputs": ["x"], "outputs": ["y"], "template": "pointwise",
             "implementation": "generated", "tiling": {"threads": 128, "per_thread": 4}}  # fmt: skip
    made = generate(read_plan({"groups": [group]}, graph))
    if position is None:
        assert "u32 values beside positions of 64 bits" in made.refused[0]
    else:
        body = "\n".join(made.kernels[0][0].emitted.body)
        other = {"u32(": "u64(", "u64(": "u32("}[position]
        assert position in body and other not in body.replace("u32(cuda.threadIdx.x)", "")


def test_numbers_in_source():
    assert constant(0.1, "f32") == "f32(0.1)" and constant(float("-inf"), "f64") == "f64(-inf)"
    assert constant(float("nan"), "f32") == "f32(nan)" and constant(3, "u8") == "u8(3)" and constant(1, "b1") == "True"
    assert converted("v0", "i32", "b1") == "(v0 != i32(0))" and converted("v0", "f32", "f32") == "v0"


@pytest.mark.parametrize(
    ("dtype", "kind"), [("f16", "f32"), ("bf16", "f32"), ("f64", "f64"), ("bool", "b1"), ("i8", "i8")]
)
def test_register_types(dtype, kind):
    assert compute_type(DType(dtype)) == kind


def test_8_bit_floats_are_refused():
    with pytest.raises(UnsupportedError, match="f8e5m2"):
        compute_type(DType.F8E5M2)


def test_identities_of_folds():
    def start(op, dtype):
        kind = TensorType(DType(dtype), (4,))
        return make_fold(op, kind, kind, 4).start()

    assert start("reduce_max", "f32") == "f32(-inf)" and start("reduce_min", "f16") == "f32(inf)"
    assert start("reduce_max", "i8") == "i8(-128)" and start("reduce_min", "u8") == "u8(255)"
    assert start("reduce_prod", "f64") == "f64(1.0)" and start("reduce_max", "u16") == "u16(0)"


@pytest.mark.parametrize("m", [16, 32, 64, 128, 192, 256])
@pytest.mark.parametrize("n", [16, 32, 64, 128, 192, 256])
def test_tiles_divide_over_their_threads(m, n):
    tile = choose_tile(m, n)
    assert tile.threads == min(256, max(32, m * n // 64))
    assert tile.down * tile.high == m and tile.across * tile.wide == n
    assert max(tile.high, tile.wide) <= 4 * min(tile.high, tile.wide)


def test_scopes_forget():
    source = Source()
    source.keep("a", "v0")
    with source.block("if x:"):
        source.keep("b", "v1")
        assert source.recall("a") == "v0" and source.recall("b") == "v1"
    assert source.recall("b") is None
    assert source.lines == ["    if x:", "        pass"]


class FakeKernel:
    """A compiled kernel that spills where it has fewer than 40 registers."""

    def __init__(self, function, registers):
        self.function, self.registers = function, registers

    def specialize(self, *arrays):
        assert arrays == ("x", "y")
        return self

    def get_local_mem_per_thread(self):
        return 8 if self.registers < 40 else 0

    def __getitem__(self, launch):
        return lambda *arrays: (launch, self.registers, self.function(*arrays))


class FakeCuda:
    """The decorator `jit` with and without a limit."""

    @staticmethod
    def jit(function=None, max_registers=255):
        return FakeKernel(function, 255) if function else lambda later: FakeKernel(later, max_registers)


@pytest.mark.parametrize(("wanted", "got"), [(32, 255), (40, 40)])
def test_a_kernel_is_bound_to_its_registers_unless_that_spills(wanted, got):
    given = {"SIMULATED": False, "cuda": FakeCuda}
    exec(PREAMBLE_BOUNDED, given)
    kernel = given["bounded"](wanted)(lambda *arrays: len(arrays))
    assert kernel[7, 128]("x", "y") == kernel[7, 128]("x", "y") == ((7, 128), got, 2)


def test_the_command_writes_both_files(call, tmp_path):
    code, out, err = call("codegen", "softmax", "--hw", "a100", "-o", tmp_path / "new" / "folder")
    assert code == 0 and "1 of 1 groups have kernels" in out and "wrote" in err
    text = (tmp_path / "new" / "folder" / "kernels.py").read_text()
    assert "@bounded(" in text and "def run(" in text
    code, _, _ = call("validate", tmp_path / "new" / "folder" / "plan.json", "--on", "reference")
    assert code == 0


@pytest.mark.parametrize(
    ("refused", "words"),
    [
        ({}, "3 of 3 groups have kernels"),
        ({1: REASON}, "2 of 3 groups have kernels, 1 is one call of cuBLAS (of the host where CuPy is missing)"),
        ({0: REASON, 1: REASON, 2: "no CuPy"}, "0 of 3 groups have kernels, 2 are calls of cuBLAS (of the host where "
         "CuPy is missing), 1 is left to the host"),
    ],
)  # fmt: skip
def test_the_summary_tells_library_calls_from_what_the_host_computes(refused, words):
    graph, document = golden_document("pointwise_vectors")
    planned = read_plan(document, graph)
    kernel = planned.kernels[0]
    planned = replace(planned, kernels=tuple(replace(kernel, id=number) for number in range(3)))
    made = GeneratedPlan(
        text="", kernels={n: () for n in range(3) if n not in refused}, refused=refused, workspaces={}
    )  # fmt: skip
    assert codegen_table(planned, made, width=400, colour=False).splitlines()[-1] == words


def test_a_file_in_the_way_is_refused(call, tmp_path):
    path = tmp_path / "kernels"
    path.write_text("")
    code, _, err = call("codegen", "softmax", "--hw", "a100", "-o", path)
    assert code == 2 and "is a file" in err
