"""A library's row kernels on a device with round numbers, the arithmetic shown; times in microseconds."""

from dataclasses import replace

import pytest

from fusesolve.cost.gpu import library_rows, pointwise
from fusesolve.cost.gpu.device import read_device
from fusesolve.group import Template
from tests.unit.cost_device import GPU, columns, tiling, value, workload

DEVICE = read_device(GPU, "stream")
ROWS = {"outer": 1000, "inner": 4096, "full_reads": 1, "full_writes": 1, "arrays": 2, "element_bytes": 2}
BYTES = 1000 * 4096 * 2


def us(columns, name):
    return value(columns, name) * 1e6


def rows(**numbers):
    """1,000 rows of 4,096 16-bit elements, read and written once."""
    found = {"read_bytes": BYTES, "write_bytes": BYTES, "footprint_bytes": 1, "row_threads": 1024, "row_load_bytes": 2}
    return workload(Template.ROW, **(ROWS | found | numbers))


def price(item):
    return library_rows.evaluate(DEVICE, columns(item), library_rows.tilings())[1]


def test_scalar_rows_take_a_trip_per_element_of_a_thread():
    found = price(rows(reductions=1))
    # 1,000 blocks, two of 1,024 threads on each of 100 units: five whole waves; 0.9 us and four trips of 0.5 us, each
    # of which waits 60 % of the DRAM's 0.5 us more than the cache would take
    assert us(found, "latency") == pytest.approx(5 * (0.9 + 4 * (0.5 + 0.3)))
    assert us(found, "floor") == pytest.approx(0.2)
    warm = price(rows(reductions=1, warm_read_bytes=BYTES))
    assert us(warm, "latency") == pytest.approx(5 * (0.9 + 4 * 0.5))
    streamed = price(rows(warm_read_bytes=BYTES))
    assert us(streamed, "latency") == pytest.approx(5 * 4 * 0.5)  # nothing to combine
    assert us(streamed, "floor") == pytest.approx(0.5)


def test_a_quantiser_leaves_threads_idle_and_passes_the_cache_twice():
    item = rows(row_threads=256, row_load_bytes=16, row_kind=library_rows.QUANTISED, reductions=1, passes=2,
                reread_bytes=float(BYTES), write_bytes=BYTES // 2, warm_read_bytes=BYTES, inner=3000)  # fmt: skip
    found = price(item)
    # 800 slots: 1.25 waves, the second of which counts by exp(-1/6); two trips of 2,048 elements in each of two passes
    waves = 1.25 + 0.75 * 0.8464817
    assert us(found, "latency") == pytest.approx(waves * (2 * 0.5 + 2 * 2 * 0.2), rel=1e-6)
    assert us(found, "floor") == 0.0
    # through the cache: 8.192 MB twice and 4.096 MB at 2e12 B/s; what the streams do not cover already is the re-read
    streams = us(found, "dram") + us(found, "l2")
    assert us(found, "reread") + streams == pytest.approx(max(streams, 2.5 * 8.192 / 2.0))


def test_blocks_that_meet_in_one_number_wait_for_each_other():
    found = price(rows(outer=1024, inner=4000, row_threads=256, row_kind=library_rows.MERGED, warm_read_bytes=BYTES))
    assert us(found, "floor") == pytest.approx(1024 * 1.35e-3)
    assert us(found, "latency") == pytest.approx((1.28 + 0.72 * 0.8464817) * (0.5 + 16 * 0.2), rel=1e-6)


def test_a_layer_norm_in_16_bits_has_half_the_blocks():
    wide, narrow = (
        price(rows(outer=1600, row_threads=128, row_load_bytes=8, row_kind=library_rows.NORM, reductions=2,
                   element_bytes=size, warm_read_bytes=BYTES))
        for size in (4, 2)
    )  # fmt: skip
    assert us(narrow, "latency") == pytest.approx(2 * (4.0 + 8 * 0.5))  # 8 blocks a unit: two waves, trips of 512
    assert us(wide, "latency") == pytest.approx(1 * (4.0 + 16 * 0.5))  # 16 blocks a unit: one wave, trips of 256


def test_a_layer_norm_has_wide_loads_only():
    shape = {"row_threads": 128, "row_load_bytes": 16, "element_bytes": 4, "reductions": 2, "warm_read_bytes": BYTES}
    part, whole = (price(rows(inner=size, row_kind=library_rows.NORM, **shape)) for size in (516, 1024))
    assert us(part, "latency") == us(whole, "latency")  # two trips of 512, most threads idle in the second


def test_indices_that_are_chased_wait_for_two_loads():
    found = price(rows(outer=32, inner=16 * 128, row_threads=128, row_kind=library_rows.CHASED, warm_read_bytes=BYTES))
    assert us(found, "latency") == pytest.approx(16 * (2 * 0.2 + 0.45))
    assert us(found, "floor") == pytest.approx(DEVICE.floor * 1e6)


def test_a_gather_waits_for_its_index():
    """A pointwise kernel's floor, the index from the cache, and its divisions."""
    item = workload(Template.POINTWISE, inner=4096, full_reads=1, full_writes=1, read_bytes=BYTES, write_bytes=BYTES)
    plain, gather = (
        pointwise.evaluate(DEVICE, columns(replace(item, row_kind=kind)), tiling(threads=256, per_thread=4))[1]
        for kind in (0, library_rows.CHASED)
    )
    assert us(gather, "floor") - us(plain, "floor") == pytest.approx(0.2 + 0.45)


def test_a_warp_loads_its_row_at_once():
    short, long = (price(rows(inner=size, row_threads=32, reductions=1, warm_read_bytes=BYTES)) for size in (64, 1024))
    assert us(short, "latency") == us(long, "latency") == pytest.approx(0.9 + 0.5)  # 6,400 slots: one wave


def test_rows_that_start_anywhere_peel_their_first_elements():
    wide = {"row_threads": 256, "row_load_bytes": 16, "element_bytes": 4, "reductions": 1, "warm_read_bytes": BYTES}
    even, odd = (price(rows(inner=size, **wide)) for size in (1024, 1025))
    waves = 1.25 + 0.75 * 0.8464817  # 800 slots; one trip; of the odd rows a quarter takes two, the others five halves
    assert us(even, "latency") == pytest.approx(waves * (0.9 + 0.5), rel=1e-6)
    assert us(odd, "latency") == pytest.approx(waves * (0.9 + (0.25 * 2.0 + 0.75 * 2.5) * 0.5), rel=1e-6)


def test_more_units_or_threads_never_push_rows_out_of_the_cache():
    """20,000 rows of 16 KiB, re-read: what competes for the cache does not grow with the device."""
    item = rows(outer=20_000, row_threads=128, passes=2, reread_bytes=20_000 * 16_384.0)
    before = price(item)["reread"]
    assert value({"x": before}, "x") > 0
    larger = replace(GPU, compute=replace(GPU.compute, units=400), limits=replace(GPU.limits, threads_per_unit=4096))
    after = library_rows.evaluate(read_device(larger, "stream"), columns(item), library_rows.tilings())[1]["reread"]
    assert after.item() == before.item()


def test_a_cached_operand_answers_sooner():
    """One wave of a pointwise kernel: the first load comes after 0.5 us from DRAM and after 0.2 us from the cache."""
    one = {"inner": 100, "full_reads": 1, "full_writes": 1, "read_bytes": 400, "write_bytes": 400}
    tile = tiling(threads=256, per_thread=4)
    cold, warm = (
        pointwise.evaluate(DEVICE, columns(workload(Template.POINTWISE, footprint_bytes=1, **one, **more)), tile)[1]
        for more in ({}, {"warm_read_bytes": 400})
    )
    assert us(cold, "latency") == pytest.approx(0.5 + 0.02)
    assert us(warm, "latency") == pytest.approx(0.2 + 0.02)
