"""What a group reads, writes and computes, counted by hand on small graphs."""

import pytest

from fusesolve.group import TENSOR_TYPES, Template
from tests.unit.native_program import group, names, program, refusal

X = "x: f32[64,128]"
FULL = 64 * 128 * 4


def test_a_pointwise_chain_reads_and_writes_once():
    found = program([X, "b: f32[128]"], ["a = mul(x, b)", "c = exp(a)", "y = add(c, x)"], ["y"], ["b"])
    whole = group(found, "a", "c", "y")
    work = whole.workload
    assert whole.template is Template.POINTWISE
    assert names(found, whole.reads) == ["x", "b"]
    assert names(found, whole.writes) == ["y"]
    assert (work.read_bytes, work.write_bytes, work.weight_bytes) == (FULL + 512, FULL, 512)
    assert work.inner * work.outer == 64 * 128
    assert (work.full_reads, work.full_writes, work.arrays) == (2, 1, 3)
    assert work.warm_read_bytes == 0  # inputs of the graph come from DRAM
    assert work.sfu == 64 * 128  # one exp a point
    part = group(found, "y").workload
    assert part.warm_read_bytes == FULL  # c was written by another kernel; x was not


def test_a_value_that_others_need_is_written_too():
    found = program([X], ["a = exp(x)", "y = relu(a)", "s = reduce_sum(a; axis=0)"], ["y", "s"])
    assert names(found, group(found, "a", "y").writes) == ["a", "y"]
    assert names(found, group(found, "y").writes) == ["y"]


def test_a_slice_reads_what_it_takes():
    found = program([X], ["s = slice(x; axis=1, start=0, end=32)", "y = exp(s)"], ["y"])
    work = group(found, "s", "y").workload
    assert (work.read_bytes, work.write_bytes) == (FULL // 4, FULL // 4)
    two = program(
        [X], ["s = slice(x; axis=1, start=0, end=32)", "t = slice(x; axis=1, start=32, end=64)", "y = add(s, t)"], ["y"]
    )
    assert group(two, "s", "t", "y").workload.read_bytes == FULL // 2


def test_a_gather_reads_the_rows_it_takes_and_its_indices():
    found = program(["x: f32[10000,128]", "i: i64[64]"], ["g = gather(x, i; axis=0)", "y = exp(g)"], ["y"])
    work = group(found, "g", "y").workload
    assert work.read_bytes == 64 * 128 * 4 + 64 * 8
    assert work.write_bytes == 64 * 128 * 4


def test_a_softmax_visits_its_row_three_times_and_holds_one_value_a_point():
    found = program(
        [X],
        ["m = reduce_max(x; axis=1, keepdims=true)", "d = sub(x, m)", "e = exp(d)",
         "s = reduce_sum(e; axis=1, keepdims=true)", "y = div(e, s)"], ["y"],
    )  # fmt: skip
    whole = group(found, "m", "d", "e", "s", "y")
    work = whole.workload
    assert whole.template is Template.ROW
    assert (work.outer, work.inner, work.passes, work.reductions) == (64, 128, 3, 2)
    assert work.held_bytes == 4
    assert work.reread_bytes == FULL  # x again for each further pass where the row is not held
    assert (work.read_bytes, work.write_bytes) == (FULL, FULL)


def test_an_f16_row_is_held_in_f16():
    found = program(["x: f16[64,128]"], ["y = softmax(x; axis=1)"], ["y"])
    values = [s.value for s in found.storage if s.producer is not None]
    work = group(found, *values).workload
    assert work.held_bytes == 2
    assert work.reread_bytes == FULL // 2


def test_a_reduction_over_outer_axes_walks_columns():
    found = program([X], ["s = reduce_sum(x; axis=0)"], ["s"])
    work = group(found, "s").workload
    assert group(found, "s").template is Template.REDUCTION
    assert (work.outer, work.inner, work.contiguous, work.passes) == (128, 64, 0, 1)
    assert (work.read_bytes, work.write_bytes) == (FULL, 512)


def test_a_matmul_with_prologue_and_epilogue():
    found = program(
        ["x: f16[256,128]", "w: f16[128,512]", "b: f16[512]", "r: f16[256,512]"],
        ["p = relu(x)", "m = matmul(p, w)", "a = add(m, b)", "y = add(a, r)"], ["y"], ["w", "b"],
    )  # fmt: skip
    bare = group(found, "m").workload
    assert (bare.batch, bare.m, bare.n, bare.k) == (1, 256, 512, 128)
    assert bare.mma == 256 * 512 * 128
    assert bare.plain == 1
    assert bare.tensor_rate == TENSOR_TYPES.index("f16")
    assert bare.weight_bytes == 128 * 512 * 2
    whole = group(found, "p", "m", "a", "y").workload
    assert whole.plain == 0
    assert whole.side_work == 1  # one instruction per element of x
    assert (bare.left_made, whole.left_made, whole.right_made) == (0, 1, 0)
    assert whole.read_bytes == 2 * (256 * 128 + 128 * 512 + 512 + 256 * 512)
    assert whole.write_bytes == 2 * 256 * 512


def test_operands_that_are_computed_know_how_many_arrays_they_are_made_of():
    found = program(
        ["x: f16[64,32]", "s: f16[32]", "w: i8[128,32]", "t: f16[1,32]"],
        ["a = mul(x, s)", "b = add(a, s)", "wf = cast(w; to=f16)", "ws = mul(wf, t)", "wt = transpose(ws; perm=1-0)",
         "m = matmul(b, wt)", "xt = transpose(x; perm=1-0)", "n = matmul(xt, x)"],
        ["m", "n"], ["w"],
    )  # fmt: skip
    computed, moved = group(found, "a", "b", "wf", "ws", "wt", "m").workload, group(found, "xt", "n").workload
    assert (computed.left_made, computed.right_made) == (2, 2)
    assert (moved.left_made, moved.right_made) == (0, 0)  # an index map: chunks are copied from where they lie


def test_batches_and_transposed_operands():
    found = program(["a: f16[8,64,32]", "b: f16[8,128,32]"], ["y = matmul(a, b; transpose_b=true)"], ["y"])
    work = group(found, "y").workload
    assert (work.batch, work.m, work.n, work.k) == (8, 64, 128, 32)
    shared = program(["a: f16[8,64,32]", "b: f16[32,128]"], ["y = matmul(a, b)"], ["y"])
    work = group(shared, "y").workload
    assert (work.batch, work.m * work.batch, work.n, work.k) == (1, 512, 128, 32)  # one product of all rows


def test_a_convolution_is_a_product_of_pixels_and_channels():
    """8 images of 56 x 56, 64 channels to 128, 3 x 3: m = 8 x 56 x 56, n = 128, k = 64 x 9."""
    found = program(["x: f16[8,64,56,56]", "w: f16[128,64,3,3]"], ["y = conv2d(x, w; pad=1)"], ["y"], ["w"])
    work = group(found, "y").workload
    assert {work.m, work.n} == {8 * 56 * 56, 128}
    assert work.k == 576
    assert work.mma == 8 * 56 * 56 * 128 * 576
    assert work.read_bytes == 2 * (8 * 64 * 56 * 56 + 128 * 64 * 9)


def test_a_depthwise_convolution_is_no_product():
    found = program(["x: f16[8,64,56,56]", "w: f16[64,1,3,3]"], ["y = conv2d(x, w; pad=1, group=64)"], ["y"])
    assert group(found, "y").template is Template.POINTWISE
    assert group(found, "y").workload.mma == 0
    assert group(found, "y").workload.fma >= 8 * 64 * 56 * 56 * 9
    assert group(found, "y").workload.thin_fma == 8 * 64 * 56 * 56 * 9
    assert group(found, "y").workload.thin_mma == 8 * 64 * 56 * 56 * 12  # an array takes windows by four points


def test_a_pooling_is_no_thin_convolution():
    found = program(["x: f16[8,64,56,56]"], ["y = avgpool(x; k=3, pad=1)"], ["y"])
    assert group(found, "y").workload.fma > 0
    assert group(found, "y").workload.thin_fma == 0


def test_attention_counts_both_products_and_the_width_of_its_head():
    found = program(
        ["q: f16[8,256,64]", "k: f16[8,512,64]", "v: f16[8,512,32]"],
        ["s = matmul(q, k; transpose_b=true)", "p = softmax(s; axis=2)", "o = matmul(p, v)"], ["o"],
    )  # fmt: skip
    every = [s.value for s in found.storage if s.producer is not None]
    whole = group(found, *every)
    work = whole.workload
    assert whole.template is Template.ATTENTION
    assert (work.batch, work.m, work.n, work.k, work.head) == (8, 256, 512, 64, 32)
    assert work.mma == 8 * 256 * 512 * (64 + 32)
    assert work.linear_tail == 1
    assert work.read_bytes == 2 * 8 * (256 * 64 + 512 * 64 + 512 * 32)
    assert work.write_bytes == 2 * 8 * 256 * 32


@pytest.mark.parametrize(("factor", "linear"), [("f16[8,256,1]", 1), ("f16[256,512]", 0)])
def test_what_weighs_each_key_of_its_own_is_no_linear_tail(factor, linear):
    found = program(
        ["q: f16[8,256,64]", "k: f16[8,512,64]", "v: f16[8,512,32]", f"f: {factor}"],
        ["s = matmul(q, k; transpose_b=true)", "p = softmax(s; axis=2)", "w = mul(p, f)", "o = matmul(w, v)"], ["o"],
    )  # fmt: skip
    whole = group(found, *(s.value for s in found.storage if s.producer is not None))
    assert (whole.template, whole.workload.linear_tail) == (Template.ATTENTION, linear)


@pytest.mark.parametrize(("op", "staged"), [("transpose(x; perm=1-0)", 1), ("copy(x)", 0)])
def test_what_lies_the_wrong_way_is_staged(op, staged):
    found = program([X], [f"y = {op}"], ["y"])
    assert group(found, "y").workload.staged == staged
    assert group(found, "y").workload.staged_bytes == staged * FULL


def test_outer_axes_may_be_permuted_freely():
    """[8, 12, 64, 32] with axes 1 and 2 swapped keeps runs of 32 f32 = 128 bytes: nothing to stage."""
    found = program(["x: f32[8,12,64,32]"], ["y = transpose(x; perm=0-2-1-3)"], ["y"])
    assert group(found, "y").workload.staged == 0


def test_doubles_are_marked():
    found = program(["x: f64[64,128]"], ["y = exp(x)"], ["y"])
    assert group(found, "y").workload.double == 1
    assert group(program([X], ["y = exp(x)"], ["y"]), "y").workload.double == 0


HALF = "x: f16[64,128]"


def siblings(*widths, ops=(), outputs=None):
    """x times a weight of each width; the products are m0, m1, ..."""
    weights = [f"w{i}: f16[128,{width}]" for i, width in enumerate(widths)]
    made = [f"m{i} = matmul(x, w{i})" for i in range(len(widths))]
    return program([HALF, *weights], [*made, *ops], outputs or [f"m{i}" for i in range(len(widths))], ["w0", "w1"])


def test_contractions_of_one_operand_read_it_once_side_by_side():
    found = siblings(256, 64)
    whole = group(found, "m0", "m1")
    work = whole.workload
    assert whole.template is Template.CONTRACTION
    assert whole.facts.side_by_side == 2
    assert (work.m, work.n, work.k, work.parts, work.joined, work.plain) == (64, 320, 128, 2, 1, 1)
    assert work.read_bytes == 2 * 128 * (64 + 256 + 64)  # x once, each weight once
    assert work.write_bytes == 2 * 64 * 320
    assert work.mma == 64 * 320 * 128


def test_an_epilogue_that_joins_two_contractions_needs_columns_of_both():
    found = siblings(256, 256, ops=["s = sigmoid(m0)", "y = mul(s, m1)"], outputs=["y"])
    whole = group(found, "m0", "m1", "s", "y")
    work = whole.workload
    assert (work.n, work.parts, work.joined, work.plain) == (512, 2, 2, 0)
    assert work.write_bytes == 2 * 64 * 256  # only the product of both leaves the kernel
    assert names(found, whole.writes) == ["y"]


def test_contractions_of_one_right_operand_stack_their_rows():
    ops = ["p = matmul(a, x)", "q = matmul(b, x)"]
    found = program([HALF, "a: f16[32,64]", "b: f16[96,64]"], ops, ["p", "q"])
    work = group(found, "p", "q").workload
    assert (work.m, work.n, work.k, work.parts) == (128, 128, 64, 2)  # m stands for the columns that both share


def test_weights_that_two_inputs_meet_join_no_kernels():
    """The steps of a recurrence read one weight: no layer of several outputs."""
    found = program(["a: f16[32,64]", "b: f16[96,64]", "w: f16[64,64]"],
                    ["p = matmul(a, w)", "q = matmul(b, w)"], ["p", "q"], ["w"])  # fmt: skip
    assert refusal(found, "p", "q") == "connected"


def test_a_concat_compares_with_each_boundary():
    """Five sources have four boundaries, a comparison and a selection each; two have one."""
    inputs = [f"x{i}: f32[64,32]" for i in range(5)]
    two = program(inputs, ["y = concat(x0, x1; axis=1)"], ["y"])
    five = program(inputs, ["y = concat(x0, x1, x2, x3, x4; axis=1)"], ["y"])
    assert group(two, "y").workload.alu == 2 * 64 * 64
    assert group(five, "y").workload.alu == 8 * 64 * 160


def test_whole_rows_of_indices_are_not_staged():
    """Each point reads the pair of positions that it gathers from: they follow no loop that could be turned."""
    found = program(
        ["x: f32[64,64]", "i: i64[128,2]", "o: f32[256,1]"], ["g = gather_nd(x, i)", "y = add(o, g)"], ["y"]
    )
    assert group(found, "g", "y").workload.staged == 0
