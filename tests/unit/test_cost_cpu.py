"""Prices of a CPU's kernels against numbers by hand: 2 cores, memory 10 GB/s, 1 G vector instructions a second."""

from dataclasses import replace

import numpy as np
import pytest

from fusesolve.cost.cpu import STREAMED, Machine
from fusesolve.cost.table import WorkloadTable
from fusesolve.group import TEMPLATES, Template, Workload

MACHINE = Machine(
    cores=2, call=1e-6, argument=0.0, region=2e-6, core_cache=1 << 20, core_rate=200e9, shared_cache=16 << 20,
    shared_rate=100e9, memory_rate=10e9, write_factor=2.0, stream_factor=0.5, row_stream_factor=1.0,
    stride_factor=4.0, vector=1e9, window=10.0, row=1e-8, overlap=1.0, contraction=1e9, gemm=1e9, library_call=1e-6,
)  # fmt: skip
POINTS = 1 << 24
OVERHEAD = 3e-6  # a call and a parallel region


def seconds(machine=MACHINE, **fields):
    item = Workload(template=TEMPLATES.index(Template.POINTWISE), arrays=0, **fields)
    _, terms = machine.generated(WorkloadTable([item]).rows(np.array([0])), {})
    return float(np.ravel(machine.combine(terms, frozenset()))[0])


def copy(points=POINTS, vector=0.0, **fields):
    moved = {"read_bytes": 4 * points, "write_bytes": 4 * points, "footprint_bytes": 8 * points}
    return {"inner": points, "vector": vector * points, "full_reads": 1, "full_writes": 1} | moved | fields


def test_memory_of_stores_around_the_caches_and_through_them():
    """64 MiB read and 64 MiB written at half price; half of that through the caches at twice the price."""
    assert seconds(**copy()) == pytest.approx(OVERHEAD + (4 + 2) * POINTS / 10e9)
    half = copy(POINTS // 4)
    assert half["footprint_bytes"] < STREAMED
    assert seconds(**half) == pytest.approx(OVERHEAD + (4 + 8) * POINTS / 4 / 10e9)


def test_a_cache_serves_what_it_holds_and_a_third_more_is_memory():
    """12 MiB at 100 GB/s; 22 MiB of 16 at memory's 10 GB/s."""
    points = 3 << 19
    assert seconds(**copy(points)) == pytest.approx(OVERHEAD + 12 * points / 100e9)
    points = 11 << 18
    assert seconds(**copy(points)) == pytest.approx(OVERHEAD + 12 * points / 10e9)


@pytest.mark.parametrize(("vector", "each"), [(8.0, 10 * 2.0), (98.0, 100 * 7.4)])
def test_a_long_loop_body_is_slower_than_its_instructions(vector, each):
    """8 instructions, a load and a store are the window: twice their time. From 64 on it grows no slower."""
    assert seconds(**copy(vector=vector)) == pytest.approx(OVERHEAD + each * POINTS / 1e9)


def test_a_window_is_a_loop_of_its_own():
    assert seconds(**copy(vector=98.0, windows=1)) == pytest.approx(OVERHEAD + 100 * POINTS / 1e9)


def test_passes_over_rows_do_not_hide_each_other():
    """Two passes of 3 instructions, two loads and a store: 6 x 1.6 ns, half in each pass; reading takes 0.4 ns."""
    row = copy(vector=3.0, outer=1 << 14, inner=1 << 10, passes=2, reductions=1, reread_bytes=4 * POINTS)
    body, ends = 6 * 1.6 * POINTS / 1e9, 2 * 2**14 * 1e-8 / 2
    assert seconds(**row) == pytest.approx(OVERHEAD + body + ends)
    fast = replace(MACHINE, vector=1e12)  # memory decides: all that is read, then all that is written
    assert seconds(fast, **row) == pytest.approx(OVERHEAD + (4 + 4) * POINTS / 10e9 + ends)
    middle = replace(MACHINE, vector=9.6e9)  # 1 ns: 0.5 while 0.4 are read, 0.5 while 0.4 are written
    assert seconds(middle, **row) == pytest.approx(OVERHEAD + (0.5 + 0.5) * POINTS / 1e9 + ends)


def test_what_is_not_hidden_of_the_shorter_is_added():
    """Memory 0.6 ns, arithmetic 20 ns: a quarter of the shorter shows at an overlap of three quarters."""
    partly = replace(MACHINE, overlap=0.75)
    assert seconds(partly, **copy(vector=8.0)) == pytest.approx(OVERHEAD + (20 + 0.15) * POINTS / 1e9)


def test_one_task_runs_on_one_core():
    """16,384 points have half the rate and no parallel region."""
    assert seconds(**copy(1 << 14, vector=8.0)) == pytest.approx(1e-6 + 20 * 2**14 / 0.5e9)
