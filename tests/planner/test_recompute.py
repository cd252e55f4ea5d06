"""Computing a value twice: where it is cheaper than writing it, where it is not, and where it is forbidden."""

import pytest

from fusesolve import plan
from tests.unit.native_program import graph

BIG = "f32[8192,4096]"


def writers(found, value):
    return [group for group in found.groups if value in group.outputs]


def test_a_cast_that_two_far_readers_share_is_done_twice():
    """x in f16 is half of its f32 form: both reductions read 64 MiB instead of one writing 128 MiB more."""
    ops = ["xf = cast(x; to=f32)", "a = reduce_sum(xf; axis=0)", "b = reduce_sum(xf; axis=1)"]
    source = graph(["x: f16[8192,4096]"], ops, ["a", "b"])
    found = plan(source, "a100")
    assert writers(found, "xf") == []
    assert sum("xf" in group.nodes for group in found.groups) == 2
    assert [group.recomputed for group in found.groups].count(("xf",)) >= 1
    exact = plan(source, "a100", recompute=False)
    assert len(writers(exact, "xf")) == 1
    assert exact.objective_ns > found.objective_ns


FEW_ROWS = {
    "one scale for the whole tensor": (
        "bf16[4096,4096]",
        ["xf = cast(x; to=f32)", "a = abs(xf)", "m = reduce_max(a; axis=0-1,keepdims=1)", "q = div(xf, m)",
         "y = cast(q; to=f8e4m3)"],
        2, 1.1 * 5 * 4096 * 4096,
    ),
    "norm of eight long rows": (
        "f16[8,1048576]",
        ["xf = cast(x; to=f32)", "m = reduce_mean(xf; axis=1,keepdims=1)", "c = sub(xf, m)", "s = mul(c, c)",
         "v = reduce_mean(s; axis=1,keepdims=1)", "r = rsqrt(v)", "n = mul(c, r)", "y = cast(n; to=f16)"],
        3, 1.1 * 8 * 8 * 1048576,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FEW_ROWS)
def test_long_rows_are_read_again_in_their_own_type(name):
    """One kernel would keep a block a row busy; of several kernels none writes the f32 copy: each casts x itself."""
    kind, ops, kernels, traffic = FEW_ROWS[name]
    found = plan(graph([f"x: {kind}"], ops, ["y"]), "a100")
    assert len(found.groups) == kernels
    assert found.dram_bytes <= traffic
    assert all("xf" in group.nodes for group in found.groups)


def test_a_scalar_that_is_cast_never_has_a_kernel_of_its_own():
    """Two far readers: it is computed again, or written by the way; a launch for four bytes is never right."""
    ops = ["s = cast(a; to=f32)", "y = mul(x, s)", "t = reduce_sum(y; axis=1)", "z = mul(w, s)"]
    source = graph([f"x: {BIG}", "w: f32[512,512]", "a: f16[1]"], ops, ["t", "z"])
    found = plan(source, "a100")
    assert len(found.groups) == 2
    assert all(group.nodes != ("s",) for group in found.groups)


def test_a_long_chain_below_a_large_broadcast_is_written_once():
    """Six special functions on 4096 rows, read over 4096 x 12,288 points: 16 KB written beside 600 MB."""
    chain = ["t0 = exp(x)", "t1 = tanh(t0)", "t2 = sin(t1)", "t3 = erf(t2)", "t4 = log(t3)", "t5 = tanh(t4)"]
    ops = [*chain, "y = mul(b, t5)", "z = mul(c, t5)"]
    source = graph(["x: f32[4096,1]", "b: f32[4096,4096]", "c: f32[4096,8192]"], ops, ["y", "z"])
    for name in ("a100", "h100"):
        found = plan(source, name)
        assert len(writers(found, "t5")) == 1
        assert sum("t0" in group.nodes for group in found.groups) == 1


def test_an_expensive_producer_is_not_computed_twice():
    ops = ["p = matmul(x, w)", "a = relu(p)", "b = reduce_sum(p; axis=1)"]
    source = graph(["x: f16[4096,4096]", "w: f16[4096,4096]"], ops, ["a", "b"])
    found = plan(source, "a100")
    assert sum("p" in group.nodes for group in found.groups) == 1


@pytest.mark.parametrize("name", ["a100", "mobile-npu"])
@pytest.mark.parametrize("graph_name", ["gpt2_block", "rms_norm", "mobilenet_inverted_residual"])
def test_forbidding_recomputation_never_helps(name, graph_name):
    free, exact = plan(graph_name, name), plan(graph_name, name, recompute=False)
    assert free.status == exact.status == "OPTIMAL"
    assert free.objective_ns <= exact.objective_ns <= exact.unfused_ns
    assert all(group.recomputed == () for group in exact.groups)
    placed = [node for group in exact.groups for node in group.nodes]
    assert len(placed) == len(set(placed))
