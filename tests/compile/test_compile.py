"""The generated source through the real CUDA compiler, with no device."""

import json

import pytest

from fusesolve import plan
from fusesolve.codegen.module import generate
from fusesolve.codegen.planned import read_plan
from fusesolve.codegen.preamble import PREAMBLE
from fusesolve.codegen.runtime import Compiler, KernelError, text_bytes
from fusesolve.errors import InputError, MissingError
from fusesolve.hardware_yaml import load_profile
from fusesolve.validate.compiled import agreement, capability_of
from fusesolve.validate.ladder import generate_plan, validate_plan
from fusesolve.validate.result import KernelResult
from tests.cudasim.conftest import needs_numba_cuda, planned_document
from tests.cudasim.graphs import CASES
from tests.golden.test_kernels import GOLDEN, golden_document, golden_kernel


@needs_numba_cuda
@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_every_group_compiles_without_spills(name):
    found = validate_plan(json.loads(planned_document(name)), "compile")
    assert found.failure() is None and found.target == "sm_80"
    assert all(item.generated for item in found.groups)
    for item in found.groups:
        assert item.ok and item.compiled is not None
        assert 8 <= item.compiled["registers_per_thread"] <= 255
        assert item.compiled["code_bytes"] >= 128 and item.compiled["code_bytes"] % 128 == 0
        assert 0 < item.compiled["occupancy"] <= 1


@needs_numba_cuda
@pytest.mark.slow
@pytest.mark.parametrize("capability", [(8, 0), (9, 0), (10, 0)])
def test_every_template_compiles_for_three_generations(capability):
    with Compiler(PREAMBLE) as compiler:
        for name in GOLDEN:
            graph, document = golden_document(name)
            planned = read_plan(document, graph)
            made = generate(planned)
            compiler.load(made.text)
            for item in made.kernels[0]:
                kinds = [
                    planned.program.storage[s].type.dtype.value if s >= 0 else made.workspaces[0].kind
                    for s in item.emitted.arguments
                ]
                found = compiler.compile(item.name, kinds, capability, item.emitted.registers)
                assert found.registers <= (item.emitted.registers or 255)
                assert found.spill_stores == found.spill_loads == found.stack == 0, name


@needs_numba_cuda
@pytest.mark.parametrize("name", ["pointwise_vectors", "row_softmax_in_registers", "tensor_epilogue"])
def test_positions_of_64_bits_compile(name, monkeypatch):
    narrow = golden_kernel(name)[0]
    monkeypatch.setattr("fusesolve.codegen.kernel.NARROW_LIMIT", 1)
    text, item, kinds = golden_kernel(name)
    assert text != narrow and "u64(" in "".join(item.emitted.body)
    with Compiler(text) as compiler:
        found = compiler.compile(item.name, kinds, (8, 0), item.emitted.registers)
    assert found.stack == found.spill_stores == 0


@needs_numba_cuda
def test_shared_memory_is_what_the_source_declares():
    graph, document = golden_document("row_softmax_in_registers")
    with Compiler(generate(read_plan(document, graph)).text) as compiler:
        found = compiler.compile("k0", ["f32", "f32"], (8, 0))
    assert found.shared == 2 * 4 * 4  # two folds, four warps, four bytes: the simulator's branch is not compiled


@needs_numba_cuda
def test_parts_of_a_launch_use_the_same_shared_memory():
    text, item, kinds = golden_kernel("packed")
    with Compiler(text) as compiler:
        assert compiler.compile("k0", kinds, (8, 0)).shared == 0  # all of it is asked for at launch
    assert item.emitted.shared == max(part.shared for part in item.emitted.parts) == 3 * (32 + 64) * 64 * 2


@needs_numba_cuda
def test_source_that_does_not_compile_is_refused_with_its_message():
    graph, document = golden_document("window_pool")
    text = generate(read_plan(document, graph)).text.replace("cuda.blockIdx.x", "cuda.nothing.x")
    with Compiler(text) as compiler, pytest.raises(KernelError, match="Error"):
        compiler.compile("k0", ["f32", "f32"], (8, 0))


@needs_numba_cuda
def test_an_h100_plan_compiles_for_its_capability(tmp_path):
    found = plan("layer_norm", "h100", time_limit=30.0)
    assert validate_plan(json.loads(json.dumps(found.to_dict())), "compile").target == "sm_90"


def test_without_the_extra_the_step_says_what_to_install(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingError, match=r"fusesolve\[cuda\]"):
        validate_plan(json.loads(planned_document("binary")), "compile")
    with pytest.raises(MissingError, match=r"fusesolve\[cuda\]"):
        validate_plan(json.loads(planned_document("binary")), "cudasim")


@pytest.mark.parametrize(("name", "reason"), [("mi300x", "no compute capability"), ("v100", "7.5 and later")])
def test_devices_that_the_compiler_does_not_know_are_refused(name, reason):
    with pytest.raises(InputError, match=reason):
        capability_of(load_profile(name))


def test_capabilities_are_read_from_profiles():
    assert capability_of(load_profile("h100")) == (9, 0) and capability_of(load_profile("a100")) == (8, 0)


def test_code_bytes_are_the_text_sections_of_an_elf_file():
    import struct

    names = b"\0.text.k0\0.shstrtab\0.data\0"
    sections = [(0, 0, 0), (1, 64, 256), (10, 64, len(names)), (20, 64, 64)]  # name, offset, size
    header = bytearray(64)
    struct.pack_into("<Q", header, 0x28, 64 + len(names))
    struct.pack_into("<HHH", header, 0x3A, 64, len(sections), 2)
    table = b"".join(struct.pack("<IIQQQQ", name, 1, 0, 0, at, size).ljust(64, b"\0") for name, at, size in sections)
    assert text_bytes(bytes(header) + names + table) == 256


def test_agreement_counts_shares():
    def row(number, predicted, compiled):
        names = ("registers_per_thread", "shared_bytes", "occupancy", "code_bytes")
        return KernelResult(
            id=number, nodes=("a",), ok=True, generated=True, predicted=dict(zip(names, predicted, strict=True)),
            compiled=dict(zip(names, compiled, strict=True)),
        )  # fmt: skip

    rows = [row(0, (32, 64, 1.0, 1000), (36, 64, 1.0, 1400)), row(1, (32, 64, 0.5, 1000), (48, 68, 0.75, 2000))]
    assert agreement(rows) == {"kernels": 2, "registers": 0.5, "shared": 0.5, "occupancy": 0.5, "code": 0.5}
    assert agreement([]) is None


@needs_numba_cuda
def test_the_source_of_a_plan_is_the_same_twice():
    document = json.loads(planned_document("movement"))
    assert generate_plan(document)[1].text == generate_plan(document)[1].text
