"""Rows too wide for one block are read again or split over kernels; no plan exceeds a limit."""

from dataclasses import replace

import pytest

from fusesolve import plan
from fusesolve.hardware_yaml import load_profile
from tests.planner.test_one_kernel import within_limits
from tests.unit.native_program import graph

SOFTMAX = [
    "m = reduce_max(x; axis=1, keepdims=true)", "d = sub(x, m)", "e = exp(d)",
    "s = reduce_sum(e; axis=1, keepdims=true)", "y = div(e, s)",
]  # fmt: skip
NORM = [
    "mu = reduce_mean(x; axis=1, keepdims=true)", "c = sub(x, mu)", "c2 = mul(c, c)",
    "var = reduce_mean(c2; axis=1, keepdims=true)", "ve = add(var, 1e-6)", "rs = rsqrt(ve)", "y = mul(c, rs)",
]  # fmt: skip


def rows(ops, count, width):
    return graph([f"x: f32[{count},{width}]"], ops, ["y"])


@pytest.mark.parametrize("name", ["a100", "h100", "t4"])
@pytest.mark.parametrize("ops", [SOFTMAX, NORM], ids=["softmax", "norm"])
@pytest.mark.parametrize(("count", "width"), [(32, 262_144), (1024, 65_536), (4, 4_194_304)])
def test_a_row_that_no_block_holds_is_read_again_or_split(ops, count, width, name):
    """256 KiB to 16 MiB a row in f32: more than any block's registers or shared memory beside the work on it."""
    found = plan(rows(ops, count, width), name)
    assert found.status == "OPTIMAL"
    assert within_limits(found, name)
    for group in found.groups:
        assert group.spill_bytes == 0
        if group.template == "row" and len(group.nodes) > 1 and "mode" in group.tiling:
            assert group.tiling["mode"] == 2  # read again
    tensor = 4 * count * width
    assert found.dram_bytes >= 2 * tensor - 64  # rounding of the share that comes from the cache


@pytest.mark.parametrize("name", ["a100", "h100"])
def test_few_wide_rows_are_split_so_that_all_units_work(name):
    """32 rows would keep 32 of more than 100 units busy: the reductions are split over blocks instead."""
    found = plan(rows(SOFTMAX, 32, 262_144), name)
    units = load_profile(name).compute.units
    heavy = [group for group in found.groups if group.dram_bytes > 2**20]
    assert all(group.blocks >= units for group in heavy)
    assert len(found.groups) > 1


@pytest.mark.parametrize("ops", [SOFTMAX, NORM], ids=["softmax", "norm"])
def test_few_long_rows_are_read_again_and_nothing_of_their_size_is_written_but_the_result(ops):
    """16 rows of 4 Mi: three kernels over all units, 3 reads and 1 write; no exponential or centred value is kept."""
    tensor = 4 * 16 * 4_194_304
    found = plan(rows(ops, 16, 4_194_304), "h100")
    assert found.status == "OPTIMAL"
    assert 4 * tensor <= found.dram_bytes <= 4.01 * tensor
    assert len(found.groups) == 3


def with_shared(name, size):
    device = load_profile(name)
    shared = replace(device.memory.shared, per_unit=size, per_block_max=size - 1024)
    return replace(device, memory=replace(device.memory, shared=shared))


def test_a_row_that_fits_shared_memory_is_held_where_registers_do_not_do():
    """f32 rows of 30,000: 120 KB; 30 elements a thread of 1024 in registers, or 120 KB of shared memory."""
    found = plan(rows(NORM, 4096, 30_000), "a100")
    assert len(found.groups) == 1
    (group,) = found.groups
    assert group.tiling.get("mode", 0) in (0, 1)
    assert found.dram_bytes == 2 * 4096 * 30_000 * 4


@pytest.mark.parametrize("size", [17 * 1024, 65 * 1024, 164 * 1024, 512 * 1024])
def test_plans_follow_the_shared_memory_of_the_profile(size):
    device = with_shared("a100", size)
    found = plan(rows(NORM, 4096, 30_000), device)
    assert all(group.shared_bytes <= size - 1024 for group in found.groups)


def test_more_shared_memory_never_makes_a_slower_plan():
    source = rows(NORM, 2048, 50_000)
    times = [plan(source, with_shared("a100", size * 1024)).objective_ns for size in (9, 65, 164, 400)]
    assert times == sorted(times, reverse=True)
