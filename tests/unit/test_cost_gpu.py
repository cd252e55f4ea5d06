"""One kernel per template on a device with round numbers, the arithmetic shown; times in microseconds."""

from dataclasses import replace
from math import exp

import numpy as np
import pytest

from fusesolve.cost.gpu import attention, contraction, opaque, pointwise, rows, terms
from fusesolve.cost.gpu.device import read_device
from fusesolve.cost.table import HELD_IN_REGISTERS, HELD_IN_SHARED, READ_AGAIN
from fusesolve.group import TENSOR_TYPES, Template
from fusesolve.study.calibration import with_constants
from tests.unit.cost_device import GPU, columns, tiling, value, workload

DEVICE = read_device(GPU, "stream")
NONE = frozenset()
F16 = TENSOR_TYPES.index("f16")


def us(columns, name):
    return value(columns, name) * 1e6


def p(power, *parts):
    """(a^p + b^p + ...)^(1/p)."""
    return sum(part**power for part in parts) ** (1 / power)


def test_the_device_has_the_rates_of_its_profile():
    assert DEVICE.fma == DEVICE.alu == 6.4e12  # 64 per clock x 100 units x 1 GHz
    assert DEVICE.fma64 == 3.2e12  # no f64 rate is listed: half of f32
    assert DEVICE.sfu == 1.6e12
    assert DEVICE.tensor[F16] == 1.024e14  # 2 FLOP x 512 x 100 x 1 GHz
    assert DEVICE.tensor[TENSOR_TYPES.index("f32")] == 0.0  # not TF32
    assert DEVICE.stream == 1e12
    assert DEVICE.l2 == 2e12  # half of the read bandwidth
    assert DEVICE.launch == pytest.approx(3e-6)
    assert read_device(GPU, "graph").launch == pytest.approx(1e-6)
    assert DEVICE.floor == pytest.approx(1.2e-6)  # the default: a graph dispatch and 1.2 us, without the dispatch
    assert DEVICE.code_fetch == pytest.approx(16 * 128 / 0.2e-6)  # 16 lines of 128 bytes per L2 latency


POINTS = 51_200_000
EXP = workload(
    Template.POINTWISE, inner=POINTS, fma=3.0 * POINTS, sfu=1.0 * POINTS, instructions=4.0, live=2, full_reads=1,
    full_writes=1, arrays=2, read_bytes=4 * POINTS, write_bytes=4 * POINTS, footprint_bytes=8 * POINTS,
)  # fmt: skip


def test_a_pointwise_kernel():
    """f32, 51.2 M points, 256 threads of 4 points."""
    res, found = pointwise.evaluate(DEVICE, columns(EXP), tiling(threads=256, per_thread=4))
    assert us(found, "dram") == pytest.approx(409.6)  # 2 x 204.8 MB at 1e12 B/s; 409.6 MB is far above the knee
    assert us(found, "fma") == pytest.approx(24.0)  # 153.6 M / 6.4e12
    assert us(found, "sfu") == pytest.approx(32.0)  # 51.2 M / 1.6e12
    assert us(found, "alu") == pytest.approx(20.0)  # 5 per array and point, four points at a time: 128 M / 6.4e12
    assert 14 <= value(res, "registers") <= 28  # fitted on compiled kernels
    assert value(res, "blocks") == 50_000
    assert value(res, "occupancy") == 1.0  # 8 blocks of 8 warps
    # 50,000 blocks over 800 slots: 62.5 waves; a block takes 0.5 us of memory latency and 0.02 us
    assert us(found, "latency") == pytest.approx((62.5 + 0.5 * exp(-62 / 6)) * 0.52)
    assert us(found, "spill") == us(found, "code") == us(found, "arguments") == 0.0
    memory = p(3, 409.6, us(found, "latency"))
    busy = p(6, memory, 32.0 + 0.15 * (24.0 + 20.0))  # the slower pipes overlap with all but 15 %
    assert float(terms.combine(found, NONE).item()) * 1e6 == pytest.approx(3.0 + 1.2 + busy)


def test_what_another_kernel_left_in_the_cache_is_read_from_it():
    """2 MB read and 2 MB written, a fifth of the knee: (1/5)^12 is nothing, so the reads come from L2."""
    small = workload(
        Template.POINTWISE, inner=500_000, full_reads=1, full_writes=1, read_bytes=2_000_000, write_bytes=2_000_000,
        warm_read_bytes=2_000_000, footprint_bytes=4_000_000,
    )  # fmt: skip
    found = terms.stream_terms(DEVICE, columns(small))
    assert us(found, "dram") == pytest.approx(2.0)  # the writes
    assert us(found, "l2") == pytest.approx(1.0)  # 2 MB at 2e12 B/s
    at_knee = workload(
        Template.POINTWISE, read_bytes=10_000_000, write_bytes=10_000_000, warm_read_bytes=10_000_000,
        footprint_bytes=20_000_000,
    )  # fmt: skip
    found = terms.stream_terms(DEVICE, columns(at_knee))
    assert us(found, "dram") == pytest.approx(15.0)  # at the knee half of the reads miss: 5 + 10 MB
    assert us(found, "l2") == pytest.approx(2.5)


def test_a_transpose_is_staged_through_shared_memory():
    moved = workload(
        Template.MOVEMENT, inner=1_000_000, full_reads=1, full_writes=1, read_bytes=4_000_000, write_bytes=4_000_000,
        footprint_bytes=8_000_000, staged=1, staged_bytes=4_000_000,
    )  # fmt: skip
    res, found = pointwise.evaluate(DEVICE, columns(moved), tiling(threads=256, per_thread=4))
    assert value(res, "shared_bytes") == 33 * 32 * 4  # a padded tile
    assert us(found, "shared") == pytest.approx(0.8)  # 4 MB in and out at 1e13 B/s
    assert us(found, "staging") == pytest.approx(0.6)  # 15 % of 4 MB at 1e12 B/s


SOFTMAX = workload(
    Template.ROW, outer=1000, inner=4096, passes=3, reductions=2, live=3, full_reads=1, full_writes=1, arrays=2,
    held_bytes=4.0, held_loads=1, fold_bytes=8, reread_bytes=16_384_000.0, read_bytes=16_384_000,
    write_bytes=16_384_000,
    footprint_bytes=32_768_000, fma=3 * 4_096_000.0, sfu=4_096_000.0,
)  # fmt: skip
ROW = {"threads": 256, "lanes": 256, "rows": 1, "split": 1}


def test_a_row_held_in_registers():
    """Softmax over 1000 rows of 4096 f32: 16 elements a thread."""
    res, found = rows.evaluate(DEVICE, columns(SOFTMAX), tiling(**ROW, mode=HELD_IN_REGISTERS))
    assert 24 <= value(res, "registers") <= 40  # fitted on compiled kernels; 32 is the compiler's plateau
    assert value(res, "shared_bytes") == 2 * 8 * 4  # one f32 per warp for each of the two reductions
    assert value(res, "dram_bytes") == 32_768_000
    assert us(found, "dram") == pytest.approx(32.768)
    assert us(found, "reread") == 0.0
    # 1000 blocks over 800 slots; a block: 0.9 + 2 x 0.1 us and 4 trips of 0.2 us, 1.3 times for 3 passes
    waves = 1.25 + 0.75 * exp(-1 / 6)
    assert us(found, "latency") == pytest.approx(waves * (1.1 + 4 * 0.2 * 1.3))


def test_a_row_held_in_shared_memory():
    res, found = rows.evaluate(DEVICE, columns(SOFTMAX), tiling(**ROW, mode=HELD_IN_SHARED))
    assert value(res, "shared_bytes") == 2 * 8 * 4 + 4 * 4096
    assert us(found, "shared") == pytest.approx(4 * 16.384e6 / 1e13 * 1e6)  # written once, read in three passes
    # 17 KB a block with the system's 1 KB: 9 blocks fit, threads allow 8
    assert value(res, "occupancy") == 1.0


def test_a_row_read_again_comes_from_the_cache_while_rows_in_flight_fit():
    """65,536 threads in flight are 256 rows of 16 KB: 4.2 MB, a fifth of the knee; two more passes of 16.4 MB."""
    res, found = rows.evaluate(DEVICE, columns(SOFTMAX), tiling(**ROW, mode=READ_AGAIN))
    assert us(found, "reread") == pytest.approx(2 * 8.192, rel=1e-6)
    assert value(res, "dram_bytes") == pytest.approx(32_768_000, rel=1e-6)


def test_wide_rows_read_again_come_from_dram():
    """256 rows of 1 MB in flight are 13 times the knee."""
    wide = workload(
        Template.ROW, outer=1000, inner=262_144, passes=3, reductions=2, full_reads=1, full_writes=1, held_bytes=4.0,
        reread_bytes=1_048_576_000.0, read_bytes=1_048_576_000, write_bytes=1_048_576_000,
        footprint_bytes=2_097_152_000,
    )  # fmt: skip
    res, found = rows.evaluate(DEVICE, columns(wide), tiling(**ROW, mode=READ_AGAIN))
    assert us(found, "reread") == pytest.approx(2 * 1048.576, rel=1e-6)
    assert value(res, "dram_bytes") == pytest.approx(4 * 1_048_576_000, rel=1e-6)


def test_a_column_reduction_is_split_over_blocks():
    """Sum over 65,536 rows of 128 columns: one strip of 128 columns, split 16 times, costs a second stage."""
    total = workload(
        Template.REDUCTION, outer=128, inner=65_536, contiguous=0, reductions=1, full_reads=1, full_writes=0,
        read_bytes=33_554_432, write_bytes=512, footprint_bytes=33_554_944,
    )  # fmt: skip
    alone, whole = rows.evaluate(DEVICE, columns(total), tiling(threads=128, lanes=1, rows=128, mode=2, split=1))
    parts, split = rows.evaluate(DEVICE, columns(total), tiling(threads=128, lanes=1, rows=128, mode=2, split=16))
    assert (value(alone, "blocks"), value(parts, "blocks")) == (1, 16)
    assert (us(whole, "split"), us(split, "split")) == (0.0, pytest.approx(2.0))
    # one element per thread and trip, as columns are not contiguous: 65,536 trips against 4,096
    assert us(whole, "latency") == pytest.approx(1.0 + 0.2 * 65_536)
    assert us(split, "latency") == pytest.approx(1.0 + 0.2 * 4_096)


MATMUL = workload(
    Template.CONTRACTION, m=4096, n=4096, k=4096, mma=4096.0**3, plain=1, operand_bytes=2, element_bytes=2,
    tensor_rate=F16, read_bytes=67_108_864, write_bytes=33_554_432, footprint_bytes=100_663_296, arrays=3,
    full_reads=2, full_writes=1, live=3,
)  # fmt: skip


def test_a_matmul_on_the_tensor_pipe():
    """4096^3, f16, tiles of 128 x 128 as a library call: 1024 tiles on 100 units, one on each at a time."""
    tile = tiling(tile_m=128, tile_n=128, split=1)
    res, found = contraction.evaluate(DEVICE, columns(MATMUL), tile, library=True)
    assert value(res, "blocks") == 1024
    assert value(res, "threads") == 256
    assert value(res, "shared_bytes") == 3 * 256 * 64 * 2  # three stages of 64-deep strips of both operands
    ideal = 2 * 4096**3 / 1.024e14 * 1e6  # 1342 us at the peak
    share = 0.93 / (1 + 0.2 * ideal / (ideal + 300))  # sustained power: 0.80 of the peak
    step = 2 * 128 * 128 * 64 / (1.024e12 * share / (1 + 1 / 128)) * 1e6  # one k-step of one tile: 2.58 us
    tiles = 10 + 0.6 * 1 + 0.4 * 0.24  # ten full waves and 24 tiles, 40 % smoothed
    assert us(found, "tensor") == pytest.approx(tiles * 64 * step)
    drain = 0.5 + 128 * 128 * 2 / 20e9 * 1e6  # 2.14 us per tile, 40 % of it behind the next tile
    assert us(found, "latency") == pytest.approx(0.6 * drain * tiles + 0.4 * drain)
    assert us(found, "dram") == pytest.approx(100.663296)
    compute = us(found, "tensor") + us(found, "latency")
    total = 3.0 + 1.2 + p(2.7, compute, 100.663296)
    assert float(contraction.combine(found, NONE).item()) * 1e6 == pytest.approx(total)


def test_a_small_matmul_is_bound_by_the_latency_of_its_steps():
    """16 x 32 x 4096: one tile, 64 steps of 0.8 us / 3, then its drain."""
    small = workload(
        Template.CONTRACTION, m=16, n=32, k=4096, mma=16.0 * 32 * 4096, operand_bytes=2, element_bytes=2,
        tensor_rate=F16, read_bytes=393_216, write_bytes=1024, footprint_bytes=394_240, full_reads=2, full_writes=1,
    )  # fmt: skip
    _, found = contraction.evaluate(DEVICE, columns(small), tiling(tile_m=16, tile_n=32, split=1), library=False)
    drain = 0.5 + 16 * 32 * 2 / 20e9 * 1e6
    assert us(found, "tensor") + us(found, "latency") == pytest.approx(64 * 0.8 / 3 + drain)
    _, split = contraction.evaluate(DEVICE, columns(small), tiling(tile_m=16, tile_n=32, split=4), library=False)
    drain = 0.5 + 16 * 32 * 4 / 20e9 * 1e6  # partial sums in f32
    assert us(split, "tensor") + us(split, "latency") == pytest.approx(16 * 0.8 / 3 + drain)
    assert us(split, "split") == pytest.approx(3.0 + 0.4 * 16 * 32 * 4 / 4e12 * 1e6)  # a barrier, and the partial sums


@pytest.mark.parametrize(
    ("changes", "eligible"),
    [
        ({}, True),
        ({"k": 4095}, False),  # 8190 bytes a row: not a multiple of 16
        ({"k": 4088}, True),  # 8176 = 511 x 16
        ({"tensor_rate": TENSOR_TYPES.index("f32"), "operand_bytes": 4}, False),
        ({"tensor_rate": TENSOR_TYPES.index("f8e4m3"), "operand_bytes": 1}, False),  # the pipe does not list it
        ({"tensor_rate": -1}, False),  # operands of two types
    ],
)
def test_tensor_pipe_eligibility_follows_type_and_alignment(changes, eligible):
    item = replace(MATMUL, **changes)
    assert bool(contraction.on_tensor_pipe(DEVICE, columns(item))[0, 0]) is eligible
    _, found = contraction.evaluate(DEVICE, columns(item), tiling(tile_m=128, tile_n=128, split=1), library=False)
    assert (value(found, "tensor") > 0) is eligible
    assert (value(found, "fma") > 0) is not eligible


def test_attention_streams_keys_past_tiles_of_queries():
    """12 heads of 1024 x 1024 x 64, f16; 64 queries by 64 keys: 192 blocks in two waves on 100 units."""
    points = 12 * 1024 * 1024
    item = workload(
        Template.ATTENTION, batch=12, m=1024, n=1024, k=64, head=64, mma=2.0 * points * 64, operand_bytes=2,
        element_bytes=2, tensor_rate=F16, plain=1, sfu=1.0 * points, fma=4.0 * points, read_bytes=4_718_592,
        write_bytes=1_572_864, footprint_bytes=6_291_456, full_reads=3, full_writes=1,
    )  # fmt: skip
    tile = tiling(tile_m=64, tile_n=64, split=1, mode=1)
    res, found = attention.evaluate(DEVICE, columns(item), tile, library=True)
    assert value(res, "blocks") == 192
    assert value(res, "shared_bytes") == 2 * 3 * 64 * 64  # queries, keys, values
    steps, rounds = 16, 1.92
    product = 2 * 64 * 64 * 128 / (1.024e14 * 0.9 / 100) * 1e6  # both products of 64 x 64 scores: 1.14 us
    exponential = 64 * 64 / 1.6e10 * 0.8 * 1e6  # 80 % is exposed: 0.20 us; loading 64 keys and values takes 0.18 us
    assert us(found, "tensor") == pytest.approx(rounds * steps * product)
    assert us(found, "sfu") == pytest.approx(rounds * steps * exponential)
    assert us(found, "fma") == 0.0  # a library hides it
    assert us(found, "dram") == pytest.approx(6.291456)
    moved = 64 * (64 + 64) * 2 / 3e10 * 1e6  # queries in and results out at 30 GB/s a unit: 0.55 us
    block = steps * (product + exponential) + 2.4 + moved + 0.9 * 64 / 128
    busy = 2 * block  # two whole rounds: all tiles are equal
    assert us(found, "tensor") + us(found, "sfu") + us(found, "latency") == pytest.approx(busy)
    total = 3.0 + 3 * 1.2 + p(2, busy, 6.291456)
    assert float(attention.combine(found, NONE).item()) * 1e6 == pytest.approx(total)


def attention_item(**numbers):
    """A library's attention: 4 query heads that share keys, 128 wide, f16."""
    common = {"batch": 2, "k": 128, "head": 128, "operand_bytes": 2, "tensor_rate": F16, "shared_heads": 4}
    return columns(workload(Template.ATTENTION, **(common | numbers)))


def test_a_causal_tile_walks_through_the_keys_before_it():
    """512 queries of 4 packed heads in tiles of 128 rows: 16 tiles, keys in 4 blocks of 128.

    Of 16 tiles four see one block, four two, four three and four all: 2.5 = (4 (1 + 1/16) + 1 - 4/16) / 2.
    """
    tile = tiling(tile_m=128, tile_n=128, split=1, mode=1)
    uneven = attention_item(m=2048, n=512, causal=1, mma=2.0 * 2 * 2048 * 512 * 128)
    equal = attention_item(m=2048, n=512, mma=2.0 * 2 * 2048 * 512 * 128)
    (_, some), (_, every) = (attention.evaluate(DEVICE, w, tile, library=True) for w in (uneven, equal))
    assert us(some, "tensor") == pytest.approx(us(every, "tensor") * 2.5 / 4)


def test_the_first_block_of_keys_may_hide_in_the_fixed_time_of_a_tile():
    """One query, 256 keys in two blocks: of two steps only the second shows, the first is shorter than the rest."""
    hides = with_constants(GPU, {"attention_first_hidden": 1.0, "attention_block": 5e-6, "attention_step": 6e-6})
    found = [
        attention.evaluate(
            read_device(profile, "stream"), attention_item(m=4, n=256), tiling(tile_m=64, tile_n=128, split=1, mode=1),
            library=True,
        )[1]
        for profile in (hides, with_constants(hides, {"attention_first_hidden": 0.0}))
    ]  # fmt: skip
    assert us(found[1], "latency") - us(found[0], "latency") == pytest.approx(6.0)
    moved = 4 * (128 + 128) * 2 / 3e10 * 1e6
    assert us(found[0], "latency") + us(found[0], "tensor") == pytest.approx(6.0 + 5.0 + 0.9 + moved)


@pytest.mark.parametrize(("sequences", "ahead"), [(0, 0.0), (992, 992 * 0.02), (993, 0.0)])
def test_a_scheduler_looks_at_each_sequence_of_up_to_992(sequences, ahead):
    device = read_device(with_constants(GPU, {"attention_sequence": 0.02e-6}), "stream")
    tile = tiling(tile_m=64, tile_n=128, split=1, mode=1)
    _, found = attention.evaluate(device, attention_item(m=4, n=64, sequences=sequences), tile, library=True)
    assert us(found, "floor") == pytest.approx(3 * 1.2 + ahead)
    _, own = attention.evaluate(device, attention_item(m=4, n=64, sequences=sequences), tile, library=False)
    assert us(own, "floor") == pytest.approx(3 * 1.2)  # a generated kernel has no sequences of different lengths


@pytest.mark.parametrize(
    ("head", "rows", "tile"),
    [(64, 2048, (192, 128)), (128, 2048, (128, 128)), (192, 2048, (128, 96)), (224, 2048, (128, 80)),
     (128, 64, (64, 128))],
)  # fmt: skip
def test_a_library_has_one_tile_for_a_head_width(head, rows, tile):
    every = attention.tilings(library=True)
    res, _ = attention.evaluate(DEVICE, attention_item(m=rows, n=128, head=head, k=32), every, library=True)
    offered = res["missing_blocks"][0] == 0
    assert {(every["tile_m"][0][i], every["tile_n"][0][i]) for i in np.flatnonzero(offered)} == {tile}


@pytest.mark.parametrize(("linear", "mode", "missing"), [(0, 1, 1.0), (0, 2, 0.0), (1, 1, 0.0), (1, 2, 1.0)])
def test_a_tail_that_is_not_linear_needs_whole_rows(linear, mode, missing):
    item = workload(Template.ATTENTION, batch=1, m=64, n=512, k=64, head=64, linear_tail=linear, tensor_rate=F16,
                    operand_bytes=2)  # fmt: skip
    res, _ = attention.evaluate(DEVICE, columns(item), tiling(tile_m=16, tile_n=64, split=1, mode=mode), library=False)
    assert value(res, "missing_blocks") == missing
    if mode == 2:
        assert value(res, "shared_bytes") == 16 * (64 + 512) * 4


def test_products_of_held_rows_take_a_word_of_shared_memory_each():
    item = workload(Template.ATTENTION, batch=1, m=8, n=512, k=64, head=64, linear_tail=0, tensor_rate=-1,
                    operand_bytes=4)  # fmt: skip
    _, found = attention.evaluate(DEVICE, columns(item), tiling(tile_m=8, tile_n=64, split=1, mode=2), library=False)
    alone = 8 * 512 * 128 * 4 * (9 / 8) / (DEVICE.shared_bytes_per_s / DEVICE.units)  # eight rows share a load
    assert us(found, "tensor") * DEVICE.units == pytest.approx(alone * 1e6)


def test_an_opaque_kernel_streams_its_bytes():
    item = workload(Template.OPAQUE, inner=1_000_000, read_bytes=30_000_000, write_bytes=20_000_000,
                    footprint_bytes=50_000_000)  # fmt: skip
    res, found = opaque.evaluate(DEVICE, columns(item), opaque.tilings())
    assert us(found, "dram") == pytest.approx(50.0)
    assert us(found, "latency") == pytest.approx(0.5 + 1.0)
    assert value(res, "blocks") == 977  # 1024 points each
    assert float(terms.combine(found, NONE).item()) * 1e6 == pytest.approx(3.0 + 1.2 + p(3, 50.0, 1.5))


def test_registers_above_what_lets_a_block_fit_are_spilled():
    """1024 threads share 65,536 registers: 64 each. A demand of 100 spills 36 words a thread, out and back."""
    res = terms.resources(
        DEVICE, columns(EXP), demand=columns(EXP)["live"] * 0 + 100.0, threads=tiling(t=1024)["t"],
        blocks=tiling(b=10)["b"], shared=tiling(s=0)["s"], code=tiling(c=0)["c"], dram_bytes=tiling(d=0)["d"],
    )  # fmt: skip
    assert value(res, "registers") == 64
    assert value(res, "spill_bytes") == 4 * 36
    assert value(res, "block_registers") == 65_536
    assert value(res, "missing_blocks") == 0
    overhead = terms.overhead_terms(DEVICE, res)
    assert us(overhead, "spill") == pytest.approx(2 * 144 * 10_240 / 2e12 * 1e6)


def test_code_beyond_the_instruction_cache_is_fetched_by_each_unit_for_each_wave():
    res = terms.resources(
        DEVICE, columns(EXP), demand=tiling(r=32)["r"], threads=tiling(t=256)["t"], blocks=tiling(b=800)["b"],
        shared=tiling(s=0)["s"], code=tiling(c=131_072 + 10_240)["c"], dram_bytes=tiling(d=0)["d"],
    )  # fmt: skip
    assert us(terms.overhead_terms(DEVICE, res), "code") == pytest.approx(1.0)  # 10,240 B at 10.24e9 B/s, one wave


def test_waves_are_sharp_while_few_and_blur_when_many():
    one = terms.waves(tiling(b=100)["b"], tiling(s=100)["s"])
    assert value({"w": one}, "w") == 1.0
    half = terms.waves(tiling(b=10)["b"], tiling(s=100)["s"])
    assert value({"w": half}, "w") == 1.0  # never less than one
    just_over = terms.waves(tiling(b=101)["b"], tiling(s=100)["s"])
    assert value({"w": just_over}, "w") == pytest.approx(1.01 + 0.99 * exp(-1 / 6))
    many = terms.waves(tiling(b=5050)["b"], tiling(s=100)["s"])
    assert value({"w": many}, "w") == pytest.approx(50.5, rel=1e-4)


def test_more_than_four_kilobytes_of_arguments_cost_a_second_copy():
    many = workload(Template.POINTWISE, inner=1000, full_reads=1, full_writes=1, arrays=100)
    res, found = pointwise.evaluate(DEVICE, columns(many), tiling(threads=128, per_thread=1))
    assert value(res, "argument_bytes") == 56 * 100 + 16
    assert us(found, "arguments") == pytest.approx((5616 - 4096) * 0.1e-3)
