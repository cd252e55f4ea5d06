"""What libraries add to a contraction: f32 tiles fed from shared memory, long rows, scales, tiles by rows; by hand."""

from dataclasses import replace

import numpy as np
import pytest

from fusesolve.cost.gpu import contraction
from fusesolve.cost.gpu.device import read_device
from fusesolve.group import TENSOR_TYPES, Template
from fusesolve.hardware import Tensor
from fusesolve.study.calibration import with_constants
from tests.unit.cost_device import GPU, columns, tiling, value, workload

F8 = TENSOR_TYPES.index("f8e4m3")
NARROW = replace(GPU, compute=replace(GPU.compute, tensor=Tensor(per_clock={"f8e4m3": 1024.0})))


def single(m, n, k, **numbers):
    """One bare f32 product."""
    common = {"operand_bytes": 4, "element_bytes": 4, "plain": 1, "full_reads": 2, "full_writes": 1}
    return workload(Template.CONTRACTION, m=m, n=n, k=k, mma=float(m) * n * k, **(common | numbers))


def narrow(m, n, k, **numbers):
    """One bare product of f8 operands, bf16 results."""
    return single(m, n, k, **({"operand_bytes": 1, "element_bytes": 2, "tensor_rate": F8} | numbers))


@pytest.mark.parametrize(("side", "feed_bound"), [(128, False), (32, True)])
def test_a_lone_f32_tile_computes_and_loads_operands_partly_at_a_time(side, feed_bound):
    """100 steps of 8: arithmetic and shared memory as a p4 norm, and 10 % more where nothing else fills the unit."""
    device = read_device(with_constants(GPU, {"fma_feed": 10e9, "fma_edge": 0.0, "fma_latency": 0.0}), "stream")
    tile = tiling(tile_m=side, tile_n=side, split=1)
    _, found = contraction.evaluate(device, columns(single(side, side, 800)), tile, library=True)
    arithmetic = 2 * side * side * 8 / (1.28e13 * 0.95 / 100) * 1e6  # 2.16 us; 0.13 us
    operands = 2 * side * 8 * 4 / 1e10 * 1e6  # 0.82 us; 0.20 us
    assert (operands > arithmetic) is feed_bound
    each = (arithmetic**4 + operands**4) ** 0.25
    drain = 1.0 + side * side * 4 / 30e9 * 1e6
    busy = value(found, "fma") + value(found, "latency")
    assert busy * 1e6 == pytest.approx(100 * each * 1.1 + drain)
    assert value(found, "fma") * 1e6 == pytest.approx(100 * arithmetic)


@pytest.mark.parametrize(
    ("k", "numbers", "library", "slow"),
    [(32_768, {}, True, True), (32_760, {}, True, False), (32_768, {"batch": 2}, True, False),
     (32_768, {}, False, False)],
)  # fmt: skip
def test_an_f32_library_loses_a_share_of_its_rate_on_rows_of_128_kib(k, numbers, library, slow):
    item, tile = columns(single(4096, 4096, k, **numbers)), tiling(tile_m=128, tile_n=128, split=1)
    plain, long = (
        contraction.evaluate(read_device(profile, "stream"), item, tile, library=library)[1]
        for profile in (GPU, with_constants(GPU, {"fma_long_rows": 0.8}))
    )
    assert value(plain, "fma") / value(long, "fma") == pytest.approx(0.8 if slow else 1.0)


def test_scales_of_8_bit_operands_and_another_library_start_at_their_own_cost():
    profile = with_constants(NARROW, {"gemm_t0": 1e-6, "gemm_scaled": 1.1e-6, "gemm_by_rows_t0": 0.7e-6})
    device, tile = read_device(profile, "stream"), tiling(tile_m=64, tile_n=64, split=1)
    floors = [
        value(contraction.evaluate(device, columns(item), tile, library=True)[1], "floor") * 1e6
        for item in (single(64, 64, 64), narrow(64, 64, 64), narrow(64, 64, 64, tile_by_rows=1))
    ]
    assert floors == pytest.approx([1.0, 2.1, 0.7])


@pytest.mark.parametrize(
    ("m", "tile"), [(1, (16, 64)), (16, (16, 64)), (17, (64, 64)), (65, (64, 128)), (129, (128, 128))]
)
def test_a_library_of_templates_takes_its_tile_from_the_rows_and_does_not_split(m, tile):
    device = read_device(NARROW, "stream")
    every = contraction.tilings(device)
    res, _ = contraction.evaluate(device, columns(narrow(m, 4096, 4096, tile_by_rows=1)), every, library=True)
    offered = np.flatnonzero(res["missing_blocks"][0] == 0)
    assert [(every["tile_m"][0][i], every["tile_n"][0][i], every["split"][0][i]) for i in offered] == [(*tile, 1)]


def test_a_library_of_templates_keeps_as_many_steps_in_flight_as_shared_memory_holds():
    """16 x 64 f8: 10 KiB a step, 16 of them in 160 KiB, not 3: no interval of 0.8 us / 3, arithmetic takes longer."""
    device, tile = read_device(NARROW, "stream"), tiling(tile_m=16, tile_n=64, split=1)
    busy = {}
    for by_rows in (0, 1):
        item = columns(narrow(16, 64, 12_800, tile_by_rows=by_rows))
        _, found = contraction.evaluate(device, item, tile, library=True)
        busy[by_rows] = (value(found, "tensor") + value(found, "latency")) * 1e6
    drain = 0.5 + 16 * 64 * 2 / 20e9 * 1e6
    product = 2 * 16 * 64 * 128 / (2.048e14 * 0.93 / 100) * (1 + 0.5 / 16 + 0.5 / 64) * 1e6  # 0.14 us
    assert busy[0] == pytest.approx(100 * 0.8 / 3 + drain)
    assert busy[1] == pytest.approx(100 * product + drain, rel=1e-3)  # 0.14 us are more than 0.8 us / 16


@pytest.mark.parametrize(("m", "rows"), [(65, 2), (129, 2), (257, 4), (512, 4), (513, 6)])
def test_a_library_of_templates_runs_tiles_down_the_rows_in_pairs(m, rows):
    """Tiles of 128 columns: 32 across 4,096; above 64 rows an odd tile of 128 has a twin, one of 64 (65 rows) too."""
    device, tile = read_device(NARROW, "stream"), tiling(tile_m=64 if m == 65 else 128, tile_n=128, split=1)
    res, _ = contraction.evaluate(device, columns(narrow(m, 4096, 4096, tile_by_rows=1)), tile, library=True)
    assert value(res, "blocks") == 32 * rows


def test_few_rows_of_a_library_of_templates_start_anew_in_every_wave():
    """100 units; tiles of 64 columns: 10,240 columns are two waves, 204,800 are 32."""
    device, tile = read_device(NARROW, "stream"), tiling(tile_m=16, tile_n=64, split=1)
    items = [narrow(16, n, 128, tile_by_rows=1) for n in (6_400, 10_240, 204_800)]
    one, two, many = (
        value(contraction.evaluate(device, columns(item), tile, library=True)[1], "floor") * 1e6 for item in items
    )
    assert (two - one, many - one) == pytest.approx((1.4, 31 * 1.4))


def test_rows_that_end_inside_a_tile_slow_a_library_of_templates():
    device, tile = read_device(NARROW, "stream"), tiling(tile_m=128, tile_n=128, split=1)
    whole, ragged, plain = (
        value(contraction.evaluate(device, columns(item), tile, library=True)[1], "tensor")
        for item in (
            narrow(512, 4096, 4096, tile_by_rows=1), narrow(511, 4096, 4096, tile_by_rows=1), narrow(511, 4096, 4096)
        )
    )  # fmt: skip
    assert ragged == pytest.approx(1.2 * whole, rel=1e-3)  # the power limit sees a row less
    assert plain < whole


@pytest.mark.parametrize(("numbers", "floor"), [({}, 1.0), ({"batched": 1}, 3.0), ({"batch": 2}, 3.0)])
def test_a_batched_call_pays_its_start_for_a_batch_of_one_too(numbers, floor):
    profile = with_constants(GPU, {"gemm_t0": 1e-6, "gemm_batched": 2e-6})
    tile = tiling(tile_m=64, tile_n=64, split=1)
    _, found = contraction.evaluate(
        read_device(profile, "stream"), columns(single(64, 64, 64, **numbers)), tile, library=True
    )
    assert value(found, "floor") * 1e6 == pytest.approx(floor)


@pytest.mark.parametrize(
    ("batch", "m", "n", "rows"),
    [(10, 30, 120, 32), (12, 240, 230, 64), (22, 100, 500, 128), (50, 100, 500, 64), (58, 100, 500, 64),
     (62, 100, 500, 128)],
)  # fmt: skip
def test_an_older_library_takes_its_batched_tile_from_whole_waves(batch, m, n, rows):
    """Tiles of 128 x 32 a unit, in waves of 4: 0.1; 1.9: half a wave; 3.5: most of one; 8: no fewer than one wave of 8
    tiles of 64 x 64; 9.3 and 9.9: the third wave must be 0.4 full.
    """
    device = read_device(with_constants(GPU, {"fma_wide_tiles": 1.0, "fma_batched_waves": 100.0}), "stream")
    item = columns(single(m, n, 64, batch=batch))
    tiles = [(32, 128), (64, 64), (128, 32)]
    offered = [contraction.worth(device, item, tiling(tile_m=a, tile_n=b, split=1), library=True) for a, b in tiles]
    assert [bool(found.item()) for found in offered] == [a == rows for a, _ in tiles]


@pytest.mark.parametrize(("side", "slower"), [(64, 2.0), (128, 1.0)])
def test_two_warps_of_a_lone_tile_fill_half_of_a_unit_of_four_partitions(side, slower):
    numbers = {"fma_latency": 0.0, "fma_prologue": 0.0}
    item, tile = columns(single(side, side, 8000)), tiling(tile_m=side, tile_n=side, split=1)
    usual, older = (
        contraction.evaluate(read_device(with_constants(GPU, numbers | more), "stream"), item, tile, library=True)[1]
        for more in ({}, {"fma_wide_tiles": 1.0})
    )
    busy = [value(found, "fma") + value(found, "latency") for found in (usual, older)]
    assert busy[1] / busy[0] == pytest.approx(slower, rel=0.01)
