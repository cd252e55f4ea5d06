"""What cases ask of prices, of variants that must decide the other way, of other devices, and of results."""

from dataclasses import replace

import pytest

from fusesolve import plan
from fusesolve.errors import InputError
from fusesolve.hardware_yaml import load_profile
from fusesolve.importers.native import parse_native
from fusesolve.validate.ladder import validate_plan
from tests.cases.cases import MISSING, load_cases
from tests.unit.native_program import graph

CASES = {case.id: case for case in load_cases()}

pytestmark = pytest.mark.skipif(not CASES, reason=MISSING)


def with_shared(block_bytes):
    """An A100 whose blocks have so much shared memory, its units 1 KiB more."""
    device = load_profile("a100")
    shared = replace(device.memory.shared, per_unit=block_bytes + 1024, per_block_max=block_bytes)
    return replace(device, memory=replace(device.memory, shared=shared))


def together(found, *names):
    """Whether one kernel holds all of the operators."""
    return any(set(names) <= set(group.nodes) for group in found.groups)


@pytest.mark.parametrize("identity", ["FC-001", "FC-005", "FC-046"])
def test_a_plan_for_less_shared_memory_keeps_to_it(identity):
    """Each plan is made for its profile: on a device with 64 KiB no kernel asks for more."""
    found = plan(CASES[identity].parse(), with_shared(65_536))
    assert found.status == "OPTIMAL"
    assert max(group.shared_bytes for group in found.groups) <= 65_536


def test_an_operator_that_no_tile_fits_is_named_with_need_and_limit():
    """FC-005: 512 bytes of shared memory hold no tile of the product."""
    found = plan(CASES["FC-005"].parse(), with_shared(512))
    assert found.status == "INFEASIBLE"
    message = found.conflicts[0]["message"]
    assert "x/matmul" in message and "shared.per_block_max allows 512" in message


def test_dropout_residual_and_norm_gain_what_they_save_in_bytes():
    """FC-010: one kernel against two that compute the sum twice, and two that write it; times as bytes, within 15 %.

    The report's two kernels read the sum back in bf16; here the norm reads it in f32.
    """
    case = CASES["FC-010"].parse()
    one = plan(case, "a100")
    twice, written = plan(case, "a100", apart=(("ho", "mu"),)), plan(case, "a100", apart=(("h", "mu"),))
    assert [len(found.groups) for found in (one, twice, written)] == [1, 2, 2]
    for other in (twice, written):
        assert one.objective_ns / other.objective_ns == pytest.approx(one.dram_bytes / other.dram_bytes, rel=0.15)


def test_a_dense_one_hot_product_pays_for_its_arithmetic():
    """FC-016: 5,025 compares and products for each element that a gather reads: three orders of magnitude."""
    inputs = ["i: i32[512,1,1]", "a: i32[1,5025,1]", "t: f32[1,5025,768]"]
    ops = ["o = equal(a, i)", "f = cast(o; to=f32)", "s = mul(f, t)", "y = reduce_sum(s; axis=1)"]
    dense = plan(graph(inputs, ops, ["y"]), "a100")
    gathered = plan(graph(["i: i32[512]", "t: f32[5025,768]"], ["y = gather(t, i; axis=0)"], ["y"]), "a100")
    assert len(dense.groups) == 1
    assert dense.objective_ns > 500 * gathered.objective_ns


@pytest.mark.parametrize("rows", [1, 16])
def test_weights_of_a_thin_product_are_widened_where_they_are_read(rows):
    """FC-020's contrast: int8 weights of a matrix-vector product; the f16 copy would double the bytes."""
    inputs = [f"x: f16[{rows},4096]", "w: i8[4096,4096]", "s: f16[4096]"]
    ops = ["wf = cast(w; to=f16)", "ws = mul(wf, s)", "y = matmul(x, ws)"]
    found = plan(graph(inputs, ops, ["y"], ["w", "s"]), "a100")
    assert together(found, "wf", "ws", "y") and len(found.groups) == 1


def test_work_on_an_operand_is_paid_again_by_every_tile_that_reads_it():
    """FC-020: what scale, bias and ReLU of the left operand add to its product grows with the columns."""

    def added(columns):
        inputs = ["x: f16[4096,1024]", "s: f16[1024]", "b: f16[1024]", f"w: f16[1024,{columns}]"]
        ops = ["a = mul(x, s)", "c = add(a, b)", "r = relu(c)", "y = matmul(r, w)"]
        options = {"implementation": "generated"}
        fused = plan(graph(inputs, ops, ["y"], ["w"]), "a100", together=(("r", "y"),), **options)
        bare = plan(graph([inputs[0], inputs[3]], ["y = matmul(x, w)"], ["y"], ["w"]), "a100", **options)
        return fused.objective_ns - bare.objective_ns

    few, some, many = added(1024), added(4096), added(16384)
    assert few < some < many


@pytest.mark.parametrize("device", ["a100", "h100"])
@pytest.mark.parametrize(("heads", "size", "fused"), [(16, 64, True), (8, 128, True), (2, 512, False)])
def test_attention_is_one_kernel_while_its_tiles_fit(heads, size, fused, device):
    """FC-022 and its contrast."""
    shape = f"f16[{heads},4096,{size}]"
    inputs = [f"q: {shape}", f"k: f16[{heads},{size},4096]", f"v: {shape}"]
    found = plan(graph(inputs, ["s = matmul(q, k)", "p = softmax(s; axis=2)", "o = matmul(p, v)"], ["o"]), device)
    assert together(found, "s", "o") is fused


def test_packed_kernels_have_the_registers_of_the_larger_and_save_a_launch():
    """FC-038: never fewer registers than a member, never more time saved than the launch and its latency."""
    case = CASES["FC-038"].parse()
    packed, apart = plan(case, "a100"), plan(case, "a100", apart=(("qo", "ko"),))
    assert [len(found.groups) for found in (packed, apart)] == [1, 2]
    assert packed.groups[0].registers_per_thread >= max(group.registers_per_thread for group in apart.groups)
    assert 0 < apart.objective_ns - packed.objective_ns < 10_000
    assert packed.objective_ns >= packed.dram_bytes / load_profile("a100").memory.dram.bandwidth * 1e9


def test_a_transposing_epilogue_holds_its_tile_in_shared_memory():
    """FC-046: the tile of the result, in 2 bytes, beside or in place of those of the operands."""
    found = plan(CASES["FC-046"].parse(), "a100")
    (group,) = (group for group in found.groups if {"x", "xt"} <= set(group.nodes))
    assert group.shared_bytes >= 2 * group.tiling["tile_m"] * group.tiling["tile_n"]


@pytest.mark.parametrize(("sources", "trailing", "fused"), [(3, 1528, True), (8, 8, False), (24, 64, False)])
def test_concats_of_many_narrow_sources_are_written_first(sources, trailing, fused):
    """FC-065's contrast."""
    inputs = [f"x{i}: f64[62,8,{trailing}]" for i in range(sources)] + [f"k: f64[62,{8 * sources},{trailing}]"]
    joined = ", ".join(f"x{i}" for i in range(sources))
    ops = [f"h = concat({joined}; axis=1)", "a = mul(h, k)", "y = add(a, 1.0)"]
    assert together(plan(graph(inputs, ops, ["y"]), "a100"), "h", "a", "y") is fused


def test_a_memory_limit_below_what_must_live_names_both_numbers():
    """FC-068: inputs and outputs alone are the peak of the plan."""
    case = CASES["FC-068"].parse()
    found = plan(case, "a100")
    refused = plan(case, "a100", max_memory=found.peak_memory_bytes - 1)
    assert refused.status == "INFEASIBLE"
    assert refused.conflicts[0]["numbers"] == {"need": found.peak_memory_bytes, "limit": found.peak_memory_bytes - 1}


def test_an_extreme_of_nothing_is_refused():
    """FC-077: a sum over an empty axis is zero, a maximum has no value."""
    with pytest.raises(InputError, match="empty"):
        graph(["x: f32[5,0]"], ["y = reduce_max(x; axis=1)"], ["y"])


def test_statistics_that_keep_their_axis_make_one_kernel():
    """FC-080's contrast: with keepdims=1 the statistics of a row are used in that row."""
    text = CASES["FC-080"].text().replace("keepdims=0", "keepdims=1")
    for name in ("mu", "var", "ve", "sd"):
        line = next(line for line in text.splitlines() if line.startswith(f"- '{name} ="))
        text = text.replace(line, line.replace("f32[16]", "f32[16,1]"))
    assert len(plan(parse_native(text, "kept", {}, False), "a100").groups) == 1


@pytest.mark.parametrize("identity", ["FC-050", "FC-077", "FC-079", "FC-080", "FC-082", "FC-083", "FC-085", "FC-086"])
def test_the_plan_computes_what_the_graph_says(identity):
    """Cases whose plans gave wrong numbers; FC-085 on fewer rows."""
    text = CASES[identity].text().replace("4,512,", "2,32,")
    found = validate_plan(plan(parse_native(text, identity, {}, False), "a100").to_dict(), "reference")
    assert found.ok, found.failure()


def test_operators_of_a_vendor_are_opaque_or_refused_by_name():
    """FC-091: alone and opaque, its neighbour planned; strict: an error that names it."""
    case = CASES["FC-091"]
    found = plan(case.parse(), "a100")
    assert [group.template for group in found.groups][:1] == ["opaque"] and len(found.groups) == 2
    with pytest.raises(InputError, match=r"com\.microsoft\.FusedConv"):
        parse_native(case.text(), case.id, {}, True)


@pytest.mark.parametrize("identity", ["FC-097", "FC-098", "FC-101"])
def test_cases_of_npus_are_planned_on_one(identity):
    """Scratchpad within the profile; what the device cannot do runs alone."""
    found, device = plan(CASES[identity].parse(), "mobile-npu"), load_profile("mobile-npu")
    assert found.status == "OPTIMAL"
    assert max(group.shared_bytes for group in found.groups) <= device.memory.shared.per_block_max
