"""What generated kernels pay that a library's do not: operands that they compute, products of one warp, spills."""

from dataclasses import replace

import numpy as np
import pytest

from fusesolve.cost.gpu import attention, contraction
from fusesolve.cost.gpu import terms as t
from fusesolve.cost.gpu.device import read_device
from fusesolve.cost.gpu.prologue import filling
from fusesolve.group import TENSOR_TYPES, Template
from fusesolve.hardware import L1Cache
from fusesolve.study.calibration import with_constants
from tests.unit.cost_device import GPU, columns, tiling, value, workload

DEVICE = read_device(GPU, "stream")
TILE = tiling(tile_m=128, tile_n=128, split=1)


def product(**numbers):
    """One f16 product of a single tile and ten steps."""
    return columns(workload(
        Template.CONTRACTION, m=128, n=128, k=640, mma=128.0 * 128 * 640, operand_bytes=2, element_bytes=2,
        tensor_rate=TENSOR_TYPES.index("f16"), full_reads=2, full_writes=1, **numbers,
    ))  # fmt: skip


def one(number):
    return np.array([[float(number)]])


@pytest.mark.parametrize(
    ("made", "work", "threads", "busy", "alone"),
    [
        # 8,192 elements of 14 + 4 + 2 instructions at 128 a ns; eight rounds of loads at 0.2 us
        (1, 2.0, 256, 1.28, 1.6),
        # three arrays, 30 instructions; a single warp has a quarter of the schedulers, 64 rounds of loads
        (3, 4.0, 32, 1.92, 12.8),
        # 64 multiplications each at 64 a ns: more than their issue with the rest
        (1, 64.0, 256, 8.192, 8.192),
        (0, 0.0, 256, 0.0, 0.0),
    ],
)  # fmt: skip
def test_computed_elements_take_instructions_and_wait_for_loads(made, work, threads, busy, alone):
    w = columns(workload(Template.CONTRACTION, left_made=made, side_work=work))
    found = filling(DEVICE, w, one(128 * 64), one(128 * 64), one(threads))
    assert found.busy.item() * 1e6 == pytest.approx(busy)
    assert found.alone.item() * 1e6 == pytest.approx(alone)


def test_on_the_fma_pipe_only_arithmetic_and_further_loads_are_added():
    """8,192 elements: two multiplications at 64 a ns, and four instructions at 128 a ns for the second array."""
    w = columns(workload(Template.CONTRACTION, right_made=2, side_work=2.0))
    found = filling(DEVICE, w, one(999), one(128 * 64), one(256))
    assert found.added.item() * 1e6 == pytest.approx(8.192 * (2 / 64 + 4 / 128))


def test_a_tile_fills_its_strips_and_then_multiplies():
    """A lone tile: ten times eight rounds of loads, each 0.2 us, beside products that take longer than their feed."""
    _, bare = contraction.evaluate(DEVICE, product(), TILE, library=False)
    _, found = contraction.evaluate(DEVICE, product(left_made=1, side_work=2.0), TILE, library=False)
    assert value(bare, "prologue") == 0
    assert value(found, "prologue") * 1e6 == pytest.approx(10 * 8 * 0.2)
    assert value(found, "tensor") == value(bare, "tensor")
    whole, off = (contraction.combine(found, frozenset(names)).item() for names in ((), ("prologue",)))
    assert off == pytest.approx(contraction.combine(bare, frozenset()).item())
    assert whole > off


def test_keys_and_values_are_computed_again_by_every_tile_of_queries():
    """Two tiles of 64 queries, four steps of 64 keys each, on units of their own; queries are computed once: nothing.

    A step's 64 x 128 elements of 20 instructions take 128 threads 1.28 us, and 16 rounds of loads 3.2 us.
    """
    shape = {
        "m": 128, "n": 256, "k": 64, "head": 64, "mma": 2.0 * 128 * 256 * 64, "operand_bytes": 2, "full_writes": 1,
        "tensor_rate": TENSOR_TYPES.index("f16"), "side_work": 2.0,
    }  # fmt: skip
    tile = tiling(tile_m=64, tile_n=64, split=1, mode=1)
    bare, queries, keys = (
        attention.evaluate(DEVICE, columns(workload(Template.ATTENTION, **shape, **made)), tile, library=False)[1]
        for made in ({}, {"left_made": 1}, {"right_made": 1})
    )
    assert attention.combine(queries, frozenset()).item() == attention.combine(bare, frozenset()).item()
    busy = [value(found, "tensor") + value(found, "latency") + value(found, "prologue") for found in (bare, keys)]
    assert value(keys, "prologue") * 1e6 == pytest.approx(2 / 100 * 4 * 1.28)
    assert (busy[1] - busy[0]) * 1e6 == pytest.approx(4 * 3.2)


def test_products_of_one_warp_reach_their_share_of_the_peak():
    device = read_device(with_constants(GPU, {"warp_share": 0.5, "gemm_power": 0.0}), "stream")
    library, generated = (
        value(contraction.evaluate(device, product(), TILE, library=kind)[1], "tensor") for kind in (True, False)
    )
    assert generated / library == pytest.approx(0.93 / (0.5 * 0.95))


def test_sums_that_spill_go_out_and_back_in_every_round():
    """100 bytes of 128 threads in 200 blocks, ten rounds: 51.2 MB through L2, half of it where L1 holds 6,400 bytes."""
    res = {name: one(number) for name, number in
           {"spill_bytes": 100, "threads": 128, "blocks": 200, "shared_bytes": 13_600}.items()}  # fmt: skip
    assert t.spill_terms(DEVICE, res, one(10))["spill"].item() * 1e6 == pytest.approx(25.6)
    cached = replace(GPU, memory=replace(GPU.memory, l1=L1Cache(size=20_000, latency=30e-9)))
    near = t.spill_terms(read_device(cached, "stream"), res, one(10))["spill"].item()
    assert near * 1e6 == pytest.approx(12.8 + 25.6 / 10)
