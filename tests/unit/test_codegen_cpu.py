"""CPU kernels: every loop form against the reference, the polynomial functions against f64, times and splits."""

import math
import os

import ml_dtypes
import numba
import numpy as np
import pytest
from scipy import special

from fusesolve import plan
from fusesolve.candidates.program import build_program
from fusesolve.codegen.cpu.module import CpuModule, generate_cpu
from fusesolve.codegen.cpu.runtime import CpuKernelError, CpuRunner, aligned, timed
from fusesolve.codegen.cpu.threads import pinned
from fusesolve.importers.native import parse_native
from fusesolve.reference import random_feeds
from fusesolve.validate.cpu import Arrays, CpuKernels
from fusesolve.validate.ladder import compare, passed, validate_plan
from fusesolve.validate.parts import one_kernel, split_group

CASES = {
    "points": (["x: f32[3,5,1111]"], ["e = exp(x)", "t = tanh(e)", "y = mul(t, x)"], ["y", "t"]),
    "transpose": (["x: f32[33,7,65]"], ["t = transpose(x; perm=2-0-1)", "y = relu(t)"], ["y"]),
    "pad_concat": (
        ["x: f16[9,13]", "z: f16[9,4]"], ["c = concat(x, z; axis=1)", "y = pad(c; axis=1, before=2, after=1)"], ["y"]
    ),
    "softmax": (["x: bf16[37,515]"], ["y = softmax(x; axis=1)"], ["y"]),
    "norm": (["x: f32[19,257]", "g: f32[257]"], ["n = layernorm(x; axis=1)", "y = mul(n, g)"], ["y"]),
    "argmax": (["x: f32[21,65]"], ["y = argmax(x; axis=1)"], ["y"]),
    "columns": (["x: f32[65,3,531]"], ["s = reduce_sum(x; axis=0)", "m = exp(s)"], ["m"]),
    "split": (["x: f32[2,140000]"], ["y = reduce_max(x; axis=1)"], ["y"]),
    "matmul": (
        ["a: f32[3,17,33]", "b: f32[33,41]", "c: f32[41]"], ["p = matmul(a, b)", "s = add(p, c)", "y = relu(s)"], ["y"]
    ),
    "conv": (["x: f32[2,3,9,11]", "w: f32[5,3,3,3]"], ["y = conv2d(x, w; stride=1, pad=1)"], ["y"]),
}  # fmt: skip


def native(inputs, ops, outputs):
    lines = ["format: fusesolve-graph/1", "name: case", "inputs:", *(f'  - "{item}"' for item in inputs), "ops:"]
    lines += [f'  - "{item}"' for item in ops]
    return parse_native("\n".join([*lines, f"outputs: [{', '.join(outputs)}]"]), "case", {}, False)


def whole(inputs, ops, outputs):
    """All operators of a graph as one kernel."""
    return one_kernel(native(inputs, ops, outputs))[0]


@pytest.fixture(scope="module")
def kernels():
    """Compiled on first use, once for all tests of the module."""
    made = {}

    def get(name):
        if name not in made:
            planned = whole(*CASES[name])
            made[name] = (planned, CpuKernels(planned))
        return made[name]

    return get


@pytest.fixture(scope="module")
def functions():
    """The functions of a generated file."""
    return CpuRunner(generate_cpu(build_program(native(["x: f32[4]"], ["y = relu(x)"], ["y"])), []))._module


def judged(planned, execute, refused):
    rows, fault = compare(planned, execute, random_feeds(planned.graph, 3), refused)
    return rows[0], passed(rows, fault)


@pytest.mark.parametrize("name", CASES)
def test_every_loop_form_agrees_with_the_reference(kernels, name):
    planned, execute = kernels(name)
    assert execute.made.refused == {}
    row, good = judged(planned, execute, {})
    assert good and row.ok is True, row.note


@pytest.mark.parametrize(
    ("name", "calls"),
    [
        ("points", {"put"}),  # one run: each strip begins where a block of 32 bytes does
        ("softmax", {"stream", "ahead"}),  # rows of 515 bf16: strips begin and end inside a block
        ("rows of blocks", {"put", "ahead"}),
        ("split", set()),  # a number a row is no strip
    ],
)
def test_stores_around_the_caches_write_the_same(monkeypatch, name, calls):
    monkeypatch.setattr("fusesolve.codegen.cpu.source.STREAMED", 0)
    blocks = (["x: f32[9,520]"], ["e = softmax(x; axis=1)", "y = mul(e, 2.0)"], ["y"])
    planned = whole(*(CASES | {"rows of blocks": blocks})[name])
    execute = CpuKernels(planned)
    written = execute.made.text.split("nogil=True")[1]
    assert {call for call in ("put", "stream", "ahead") if f"{call}(a" in written} == calls
    row, good = judged(planned, execute, {})
    assert good, row.note


def test_an_array_for_stores_around_the_caches_starts_at_a_block(monkeypatch):
    """A vector store to another address would end the process."""
    monkeypatch.setattr("fusesolve.codegen.cpu.source.STREAMED", 0)
    planned = whole(["x: f32[64]"], ["y = relu(x)"], ["y"])
    runner = CpuRunner(generate_cpu(planned.program, planned.kernels))
    with pytest.raises(ValueError, match="multiple of 32 bytes"):
        runner.run(0, [np.zeros(64, np.float32)], [aligned(72, np.dtype(np.float32))[1:65]])


def test_loops_that_memory_walks_as_one_are_one(kernels):
    """Three axes of dense tensors are one vector loop without a division; a transpose keeps them apart."""
    body = "\n".join(kernels("points")[1].made.kernels[0][0].body)
    assert "min(low + 16384, 16665)" in body
    assert body.count("for ") == 1
    assert "\n".join(kernels("transpose")[1].made.kernels[0][0].body).count("for ") == 2


def test_few_long_rows_are_split_and_joined(kernels):
    first, second = kernels("split")[1].made.kernels[0]
    assert first.tasks == 2 * math.ceil(140_000 / 32_768)
    assert first.workspace == second.workspace == (first.tasks, "f32")


def test_a_costly_value_of_several_passes_is_held_for_the_row(kernels):
    """The exponentials of a softmax are computed once and read again."""
    text = "\n".join(kernels("softmax")[1].made.kernels[0][0].body)
    assert text.count("exp(") == 1
    assert "h0 = np.empty(515, f32)" in text


@pytest.mark.parametrize(
    "change",
    [
        ("r0 = sum_any(r0, v0)", "r0 = sum_any(r0, -v0)"),  # the sum's sign
        ("for c in range(0, 257):", "for c in range(0, 256):"),  # the tail of the row
        ("r0 = f32(0.0)", "r0 = f32(9.0)"),  # the identity of the fold
    ],
)
def test_a_wrong_kernel_is_caught(kernels, change):
    planned, execute = kernels("norm")
    text = execute.made.text
    assert change[0] in text
    broken = CpuKernels(planned)
    broken.runner = CpuRunner(CpuModule(text=text.replace(*change), kernels=execute.made.kernels, refused={}))
    assert not judged(planned, broken, {})[1]


def test_vector_functions_are_accurate_to_four_in_ten_million(functions):
    """exp, tanh, erf, expm1 of f32 against f64, over their whole ranges and at special values."""
    x = np.concatenate([np.linspace(-110, 95, 4001), np.geomspace(1e-30, 5, 801), -np.geomspace(1e-30, 5, 801)])
    x = x.astype(np.float32)
    wanted = {"exp_f32": np.exp, "tanh_f32": np.tanh, "erf_f32": special.erf, "expm1_f32": np.expm1}
    for name, exact in wanted.items():
        function = getattr(functions, name)
        with np.errstate(over="ignore"):
            truth = exact(x.astype(np.float64))
            rounded = truth.astype(np.float32)
        got = np.array([function(item) for item in x])
        normal = np.isfinite(rounded) & (np.abs(rounded) > 2.0**-125)
        assert np.max(np.abs(got[normal] / truth[normal] - 1)) < 4e-7, name
        assert np.array_equal(got[np.isinf(rounded)], rounded[np.isinf(rounded)]), name
        assert math.isnan(function(np.float32(math.nan))), name
    assert functions.exp_f32(np.float32(-math.inf)) == 0
    assert functions.exp_f32(np.float32(math.inf)) == math.inf
    assert functions.tanh_f32(np.float32(math.inf)) == 1
    assert functions.erf_f32(np.float32(-math.inf)) == -1


@pytest.mark.parametrize(("name", "dtype"), [("f16", np.float16), ("bf16", ml_dtypes.bfloat16)])
def test_narrow_floats_round_to_nearest_even(name, dtype):
    planned = whole(["x: f32[9]"], [f"n = cast(x; to={name})", "y = neg(n)"], ["n", "y"])
    kernel = planned.kernels[0]
    x = np.array([1.0, 1 + 2**-8, 1 + 3 * 2**-9, -0.0, 65504.0, 1e-8, 3.4e38, math.inf, math.nan], np.float32)
    got = CpuKernels(planned)(kernel, {kernel.reads[0]: x})
    with np.errstate(over="ignore"):
        wanted = x.astype(dtype)
    assert got[kernel.writes[0]].dtype == dtype
    assert np.array_equal(got[kernel.writes[0]].astype(float), wanted.astype(float), equal_nan=True)


@pytest.mark.parametrize(("name", "dtype"), [("f16", np.float16), ("bf16", ml_dtypes.bfloat16)])
def test_a_comparison_sees_computed_values_as_another_kernel_stores_them(name, dtype):
    """The greatest of x / 11.3 comes from elsewhere, rounded; x / 11.3 is computed here and has to meet it."""
    planned = whole(
        [f"x: {name}[64,96]", f"m: {name}[64,1]"],
        ["s = div(x, 11.3137)", "e = equal(s, m)", "i = argmax(s; axis=1)"], ["e", "i"],
    )  # fmt: skip
    kernel = planned.kernels[0]
    x = np.random.default_rng(5).standard_normal((64, 96), np.float32).astype(dtype)
    scaled = (x / dtype(11.3137)).astype(dtype)
    top = scaled.astype(np.float32).max(1, keepdims=True).astype(dtype)
    got = CpuKernels(planned)(kernel, dict(zip(kernel.reads, (x, top), strict=True)))
    names = [planned.program.storage[s].value for s in kernel.writes]
    found = dict(zip(names, (got[s] for s in kernel.writes), strict=True))
    np.testing.assert_array_equal(found["e"].reshape(64, 96), scaled == top)
    np.testing.assert_array_equal(found["i"].reshape(64), scaled.astype(np.float32).argmax(1))


def test_a_group_falls_apart_into_its_source_operators():
    planned = whole(["x: f32[8,64]"], ["a = relu(x)", "s = softmax(a; axis=1)", "y = mul(s, x)"], ["y"])
    parts = split_group(planned, planned.kernels[0], 1)
    assert [part.id for part in parts] == [1, 2, 3]
    storage = planned.program.storage
    assert [[storage[s].value for s in part.writes] for part in parts] == [["a"], ["s"], ["y"]]
    assert [storage[s].value for s in parts[2].reads] == ["s", "x"]


def test_a_kernel_that_numba_refuses_is_named():
    made = CpuKernels(whole(["x: f32[4]"], ["y = relu(x)"], ["y"])).made
    broken = CpuRunner(CpuModule(text=made.text.replace("f32(0.0) if", "'no' if"), kernels=made.kernels, refused={}))
    with pytest.raises(CpuKernelError, match="TypingError"):
        broken.run(0, [np.zeros(4, np.float32)], [np.zeros(4, np.float32)])


def test_each_thread_has_a_core_while_kernels_are_timed():
    """And none is left tied to one afterwards."""
    allowed = os.sched_getaffinity(0)
    with pinned():
        inside = os.sched_getaffinity(0)
    assert len(inside) == 1 or numba.get_num_threads() != len(allowed)
    assert os.sched_getaffinity(0) == allowed


def test_calls_are_timed_in_turn():
    """Each has a sample in every round, and its times are ordered."""
    turns = []
    found = timed([lambda: turns.append("a"), lambda: turns.append("b")], rounds=3)
    changes = [name for n, name in enumerate(turns) if n == 0 or turns[n - 1] != name]
    assert changes == ["a", "b"] * 4  # once to see how long they take, then three rounds
    for times in found:
        assert len(times.samples) == 3
        assert 0 < times.best <= times.p20 <= times.median <= times.p80


def test_groups_that_are_timed_in_turn_share_arrays():
    """What a group reads from outside is not what another writes; within a group no two are one."""
    arrays = Arrays()
    planned = whole(["x: f32[64]", "z: f32[64]"], ["a = add(x, z)", "y = relu(a)"], ["y"])
    first = arrays.of(planned, planned.kernels)
    assert len({id(a) for a in first.values()}) == 3
    other = whole(["x: f32[64]"], ["y = exp(x)"], ["y"])
    found = arrays.of(other, other.kernels)
    assert {id(a) for a in found.values()} < {id(a) for a in first.values()}
    assert id(found[other.kernels[0].writes[0]]) == id(first[planned.kernels[0].writes[0]])


def test_the_step_gives_verdicts_and_times_through_the_ladder():
    text = native(["x: f32[64,32]"], ["a = relu(x)", "y = softmax(a; axis=1)"], ["y"])
    found = validate_plan(plan(text, "a100", implementation="generated").to_dict(), "cpu")
    assert found.ok
    measured = found.groups[0].measured
    assert measured["latency_ns"] > 0 and measured["unfused_latency_ns"] > 0
    assert found.spearman is None  # an A100's prediction says nothing about this machine
    assert found.winner is None


def test_special_values_pass_through():
    """NaN, infinities and -0 through maxima, exponentials and comparisons; one kernel of each loop form."""
    planned = whole(["x: f32[3,300]"], ["m = reduce_max(x; axis=1, keepdims=true)", "y = sub(x, m)"], ["y"])
    execute = CpuKernels(planned)
    x = np.zeros((3, 300), np.float32)
    x[0, 7], x[1, 8], x[2] = np.nan, np.inf, -0.0
    got = execute(planned.kernels[0], {planned.kernels[0].reads[0]: x})[planned.kernels[0].writes[0]]
    assert np.isnan(got[0]).all()
    assert np.isnan(got[1, 8]) and got[1, 0] == -np.inf
    assert (got[2] == 0).all()


def test_what_has_no_source_says_why():
    planned = whole(["x: u32[8]"], ["y = add(x, x)"], ["y"])
    assert "u32" in CpuKernels(planned).made.refused[0]


def test_what_only_a_device_has_is_refused_with_its_reason():
    """An update in place, and products side by side."""
    planned = whole(
        ["c: f32[8,4; alias_out=n]", "u: f32[2,4]"], ["n = slice_update(c, u; axis=0, start=3)"], ["n"]
    )  # fmt: skip
    assert CpuKernels(planned).made.refused == {0: "an update in place has no CPU source"}
    planned = whole(
        ["x: f32[8,4]", "a: f32[4,6]", "b: f32[4,6]"], ["m = matmul(x, a)", "n = matmul(x, b)"], ["m", "n"]
    )  # fmt: skip
    assert CpuKernels(planned).made.refused == {0: "contractions side by side have no CPU source"}


@pytest.mark.parametrize("inputs", [["x: f32[4,0]"], ["x: f32[4,5]"]])
def test_a_group_with_an_empty_tensor_runs_by_the_reference(inputs):
    planned = whole(inputs, ["s = slice(x; axis=1, start=2, end=2)", "e = exp(s)", "y = reduce_sum(e; axis=1)"], ["y"])
    assert CpuKernels(planned).made.refused == {0: "a tensor of it is empty"}
