"""The scratchpad model on an engine with round numbers: 1 MB of scratchpad, DMA at 1e10 B/s; times in microseconds."""

from dataclasses import replace

import numpy as np
import pytest

from fusesolve.candidates.pricing import price_workloads
from fusesolve.cost.table import PriceOptions
from fusesolve.group import TENSOR_TYPES, Template
from fusesolve.study.calibration import with_constants
from tests.unit.cost_device import MB, NPU, workload

F16 = TENSOR_TYPES.index("f16")


def price(item, **options):
    return price_workloads([item], NPU, PriceOptions(**options))


def test_bytes_and_arithmetic_overlap_tile_by_tile():
    """2 MB in, 2 MB out, 12.8 M multiply-adds, 1000 x 1000 points.

    Whole it needs 4 MB; in T tiles two buffers of 4/T MB, which fit from T = 8. DMA moves 400 us, the vector unit works
    12.8 M / 6.4e10 = 200 us; half a microsecond of latency per tile on two channels, and one tile that nothing hides.
    """
    item = workload(
        Template.POINTWISE, inner=MB, read_bytes=2 * MB, write_bytes=2 * MB, footprint_bytes=4 * MB, fma=12.8 * MB,
        full_reads=1, full_writes=1, arrays=2,
    )  # fmt: skip
    found = price(item)
    tiles = found.tiling["tiles"][0]
    by_hand = {t: 5.0 + t * 0.5 + 400.0 + 400.0 / t for t in (8, 16, 32, 64)}
    assert tiles == min(by_hand, key=by_hand.get) == 32
    assert found.latency[0] * 1e6 == pytest.approx(by_hand[32])
    assert found.resources["shared_bytes"][0] == 2 * 4 * MB / 32
    assert found.resources["dram_bytes"][0] == 4 * MB


def test_small_kernels_hide_little():
    """100 kB in and out: 20 us of DMA, then 10 us of arithmetic in one tile; without it 2 us of scratchpad."""
    item = workload(
        Template.POINTWISE, inner=1000, read_bytes=100_000, write_bytes=100_000, footprint_bytes=200_000, fma=640_000.0,
        full_reads=1, full_writes=1, arrays=2,
    )  # fmt: skip
    one_tile = 5.0 + 0.5 + 20.0 + 10.0
    assert price(item).latency[0] * 1e6 <= one_tile
    assert price(item, without=frozenset({"fma"})).latency[0] * 1e6 == pytest.approx(5.0 + 0.5 + 20.0 + 2.0)


def product(weights: int, activations: int) -> object:
    return workload(
        Template.CONTRACTION, m=4096, n=4096, k=512, mma=1e9, tensor_rate=F16, operand_bytes=2, arrays=3,
        weight_bytes=weights, read_bytes=weights + activations // 2, write_bytes=activations // 2,
        footprint_bytes=weights + activations,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("weights", "activations", "fetched"),
    [
        (600_000, 8 * MB, 8 * MB + 600_000),  # weights stay
        (8 * MB, 600_000, 8 * MB + 600_000),  # activations stay
        (100_000, 100_000, 200_000),  # all of it fits
    ],
)
def test_what_fits_stays_and_is_fetched_once(weights, activations, fetched):
    assert price(product(weights, activations)).resources["dram_bytes"][0] == fetched


def test_weights_are_fetched_again_for_every_tile_where_nothing_stays():
    """2 MB of each: two buffers of 4/T MB fit from T = 8, and every tile brings all weights again: 2 + 8 x 2 MB."""
    found = price(product(2 * MB, 2 * MB))
    assert found.tiling["tiles"][0] == 8
    assert found.resources["dram_bytes"][0] == 18 * MB


def test_a_row_that_is_held_takes_its_place_in_the_scratchpad():
    """A row of 200,000 f32 in three passes is 0.8 MB beside the tiles; one of 300,000 fits no tiling."""

    def row(length: int) -> object:
        return workload(
            Template.ROW, outer=64, inner=length, passes=3, held_bytes=4.0, reductions=2, full_reads=1, full_writes=1,
            read_bytes=4 * 64 * length, write_bytes=4 * 64 * length, footprint_bytes=8 * 64 * length,
        )  # fmt: skip

    assert price(row(200_000)).resources["shared_bytes"][0] <= MB
    assert price(row(200_000)).resources["shared_bytes"][0] > 800_000
    assert np.isinf(price(row(300_000)).latency[0])


def test_the_matrix_engine_is_used_for_its_types_only():
    """1e9 multiply-adds: 1.95 ms at 512 per clock, 15.6 ms at the vector unit's 64 per clock."""
    on_engine = price(product(100_000, 100_000))
    assert on_engine.terms["tensor"][0] == pytest.approx(1e9 / 5.12e11)
    beside = workload(Template.CONTRACTION, m=4096, n=4096, k=512, mma=1e9, tensor_rate=-1, operand_bytes=4,
                      read_bytes=100_000, write_bytes=100_000, footprint_bytes=200_000)  # fmt: skip
    found = price(beside)
    assert found.terms["tensor"][0] == 0
    assert found.terms["fma"][0] == pytest.approx(1e9 / 6.4e10)


def thin(**constants: float) -> object:
    """1.28e6 multiply-adds of a depthwise 3 x 3 convolution, priced on the engine with these constants."""
    item = workload(
        Template.POINTWISE, inner=142_222, fma=1.28e6, thin_fma=1.28e6, thin_mma=1.28e6 * 12 / 9, read_bytes=1000,
        write_bytes=1000, footprint_bytes=2000,
    )  # fmt: skip
    return price_workloads([item], with_constants(NPU, constants), PriceOptions())


def test_a_convolution_without_channels_to_sum_runs_where_the_engine_says():
    """20 us at the vector unit's 64 per clock; on an eighth of the array (64 per clock too), nine points as twelve."""
    assert thin().terms["fma"][0] == pytest.approx(20e-6)
    assert thin().terms["tensor"][0] == 0
    assert thin(thin_share=0.125).terms["fma"][0] == 0
    assert thin(thin_share=0.125).terms["tensor"][0] == pytest.approx(20e-6 * 12 / 9)


def test_windows_take_whole_steps_of_the_array():
    """Nine points in steps of four take as long as twelve; a product has no window."""
    window = replace(product(100_000, 100_000), taps=9)
    stepped = with_constants(NPU, {"window_step": 4.0})
    found = price_workloads([window, product(100_000, 100_000)], stepped, PriceOptions()).terms["tensor"]
    assert found[0] == pytest.approx(found[1] * 12 / 9)


def test_stages_of_one_pipeline_overlap_and_a_scratchpad_has_a_sustained_share():
    """fma 20 us, alu 10 us: 30 us one after the other, 20 us side by side; half the scratchpad's rate doubles it."""
    item = workload(Template.POINTWISE, inner=1000, fma=1.28e6, alu=0.64e6, read_bytes=100, write_bytes=100,
                    footprint_bytes=200, staged_bytes=1000)  # fmt: skip
    one, other = (
        price_workloads([item], with_constants(NPU, constants), PriceOptions())
        for constants in ({}, {"vector_overlap": 1.0, "scratch_share": 0.5})
    )
    assert one.latency[0] - other.latency[0] == pytest.approx(10e-6)
    assert other.terms["shared"][0] == pytest.approx(2 * one.terms["shared"][0])


def test_every_kernel_pays_its_dispatch():
    item = workload(Template.POINTWISE, inner=1, read_bytes=4, write_bytes=4, footprint_bytes=8)
    assert price(item).terms["launch"][0] == pytest.approx(5e-6)
    assert price(item).latency[0] - price(item, without=frozenset({"launch"})).latency[0] == pytest.approx(5e-6)
