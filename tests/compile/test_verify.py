"""`--verify compile`: compiled resources take the place of predicted ones until the plan is confirmed."""

import json

import numpy as np
import pytest

from fusesolve import plan
from fusesolve.candidates.pricing import price_workloads
from fusesolve.codegen.runtime import Compiled, Compiler
from fusesolve.cost.table import CompiledTiling, PriceOptions
from fusesolve.errors import InputError, MissingError
from fusesolve.hardware_yaml import load_profile
from fusesolve.schema import load_schema
from fusesolve.validate.compile_groups import CompileStore
from fusesolve.validate.ladder import validate_plan
from tests.cudasim.conftest import needs_numba_cuda
from tests.cudasim.graphs import native_graph
from tests.golden.test_kernels import golden_kernel
from tests.unit.test_cost_layout import workload_of

ROWS = ("x: f32[512,1000]; g: f32[1000]", "s = softmax(x; axis=1)", "m = mul(s, g)")


@needs_numba_cuda
@pytest.mark.slow
def test_a_confirmed_plan_has_the_compiled_numbers(tmp_path):
    found = plan(native_graph(*ROWS), "a100", verify="compile", store=tmp_path / "store", time_limit=None)
    record = found.verification
    assert record is not None and record["confirmed"] and 1 <= record["rounds"] <= 3
    assert (record["on"], record["target"]) == ("compile", "sm_80")
    assert record["compiled"] == [group.id for group in found.groups] and record["without_source"] == []
    assert found.options["verify"] == "compile"
    again = plan(native_graph(*ROWS), "a100", verify="compile", store=str(tmp_path / "store"), time_limit=None)
    assert again.groups == found.groups and record["kernels"] > 0
    assert again.verification == {**record, "kernels": 0}  # all of it was in the store
    checked = validate_plan(json.loads(json.dumps(found.to_dict())), "compile")
    assert checked.agreement == {
        "kernels": len(found.groups), "registers": 1.0, "shared": 1.0, "occupancy": 1.0, "code": 1.0
    }  # fmt: skip
    assert "verification" in load_schema("plan")["properties"]


def test_compiled_numbers_take_the_place_of_predicted_ones():
    """One tiling compiled with 255 registers: its occupancy falls, and another tiling is chosen."""
    profile, work = load_profile("a100"), workload_of("x: f32[4096,4096]", "r = tanh(x)")
    before = price_workloads([work], profile, PriceOptions())
    tiling = {name: int(before.tiling[name][0]) for name in ("threads", "per_thread")}
    heavy = CompiledTiling(tiling=tiling, registers=255, shared_bytes=0, code_bytes=640, spill_bytes=512)
    after = price_workloads([work], profile, PriceOptions(compiled={work: (heavy,)}))
    chosen = {name: int(after.tiling[name][0]) for name in ("threads", "per_thread")}
    assert chosen != tiling and after.latency[0] >= before.latency[0]
    light = CompiledTiling(tiling=tiling, registers=17, shared_bytes=0, code_bytes=640, spill_bytes=0)
    same = price_workloads([work], profile, PriceOptions(compiled={work: (light,)}))
    assert same.resources["registers"][0] == 17 and same.resources["code_bytes"][0] == 640
    other = workload_of("x: f32[64,64]", "r = tanh(x)")
    untouched = price_workloads([other], profile, PriceOptions(compiled={work: (heavy,)}))
    np.testing.assert_array_equal(untouched.latency, price_workloads([other], profile, PriceOptions()).latency)


def test_a_store_without_a_compiler_is_refused_and_a_spoilt_one_is_not_read(tmp_path):
    with pytest.raises(InputError, match="--store keeps what is compiled: it needs --verify compile"):
        plan("softmax", "a100", store=tmp_path)
    (tmp_path / "key.json").write_text("{")
    assert CompileStore(tmp_path).get("key") is None
    item = Compiled(registers=9, shared=8, stack=7, spill_stores=6, spill_loads=5, code=4)
    CompileStore(tmp_path).put("key", item)
    assert CompileStore(tmp_path).get("key") == item
    assert [path.name for path in tmp_path.iterdir()] == ["key.json"]


@pytest.mark.parametrize(
    ("hardware", "options", "reason"),
    [
        ("mi300x", {}, "no compute capability"), ("v100", {}, "7.5 and later"), ("a100", {"streams": 2}, "one stream"),
        ("a100", {"strategy": "nvfuser"}, "needs a strategy that solves"),
        ("a100", {"strategy": "unfused"}, "needs a strategy that solves"),
    ],
)  # fmt: skip
@needs_numba_cuda
def test_what_cannot_be_verified_is_refused(hardware, options, reason):
    with pytest.raises(InputError, match=reason):
        plan("softmax", hardware, verify="compile", **options)


def test_without_the_extra_the_plan_says_what_to_install(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingError, match=r"--verify compile.*fusesolve\[cuda\]"):
        plan("softmax", "a100", verify="compile")


@needs_numba_cuda
def test_registers_that_do_not_suffice_without_spills_are_no_limit():
    text, item, kinds = golden_kernel("tensor_batch_bf16")
    with Compiler(text) as compiler:
        free, near, tight = (compiler.compile(item.name, kinds, (8, 0), limit) for limit in (0, 128, 40))
    assert free == tight and free.registers > 40 and free.spill_stores == free.stack == 0
    assert near.registers <= 128 and near.spill_stores == near.stack == 0
