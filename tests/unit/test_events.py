"""The event loop on hand-made kernels: two units, round numbers (microseconds), every time worked out."""

import math

import numpy as np
import pytest

from fusesolve.cost.events.launches import Part, Step, first_places, link_steps
from fusesolve.cost.events.simulator import run_loads, simulate_events
from fusesolve.cost.events.tables import BLOCK, KERNEL, UNIT
from fusesolve.cost.table import PriceOptions
from fusesolve.errors import InputError, InternalError
from tests.unit.cost_device import GPU, NPU, US

UNITS = 2
ROOM = np.array([(8, 1000, 1000, 4, 0)], dtype=UNIT)
INNER, OUTER = 2.0, 6.0


class Bench:
    """Kernels that are added one by one, launched in that order."""

    def __init__(self):
        self.kernels, self.blocks, self.after = [], [], []

    def add(self, *, blocks=4, most=2, latency=10.0, last=1.0, dram=0.0, l2=0.0, vector=0.0, tensor=0.0, head=0.0,
            post=0.0, warps=1, shared=1, issued=0.0, gap=0.0, stream=0, after=(), outer=OUTER):  # fmt: skip
        row = np.zeros(1, dtype=KERNEL)
        fields = {"head": head, "post": post, "dram": dram, "l2": l2, "inner": INNER, "outer": outer,
                  "blocks": blocks, "tail": blocks - blocks % (UNITS * most), "warps": warps, "registers": 1,
                  "shared": shared, "most": most, "stream": stream, "issued": issued, "gap": gap}  # fmt: skip
        for name, value in fields.items():
            row[name] = value
        self.kernels.append(row)
        self.blocks += [(latency, vector, tensor), (latency * last, vector, tensor)]
        self.after.append(tuple(after))

    def run(self, across=0.0):
        kernels = np.concatenate(self.kernels)
        issued, gap = kernels["issued"].copy(), kernels["gap"].copy()
        steps = [Step(row=0, template=0, stream=int(k["stream"]), after=a)
                 for k, a in zip(kernels, self.after, strict=True)]  # fmt: skip
        successors = link_steps(kernels, steps, np.zeros(len(steps)), GPU, "stream")
        kernels["issued"], kernels["gap"] = issued, gap
        return run_loads(kernels, np.array(self.blocks, dtype=BLOCK), successors, across, ROOM, UNITS)


@pytest.fixture
def bench():
    return Bench()


def test_one_wave_takes_head_block_and_post(bench):
    bench.add(issued=3.0, head=1.0, post=2.0)
    found = bench.run()
    assert found.start == (3.0,)
    assert found.total == pytest.approx(3 + 1 + 10 + 2)


def test_waves_follow_each_other_and_the_last_one_has_its_own_length(bench):
    bench.add(blocks=4 * 3 + 1, last=0.25)  # 3 full waves of 2 x 2 blocks, and one block
    assert bench.run().total == pytest.approx(3 * 10 + 2.5)


def test_many_equal_waves_are_one_event(bench):
    bench.add(blocks=4 * 100_000)
    found = bench.run()
    assert found.total == pytest.approx(1_000_000)
    assert found.events < 10


def test_a_wave_waits_for_memory_by_its_norm(bench):
    bench.add(dram=1.0, l2=0.5, latency=8.0)  # 4 blocks x 1.5 us = 6 us of memory beside 8 us: p2 = 10
    assert bench.run().total == pytest.approx(10.0)


def test_the_last_wave_shares_memory_among_fewer(bench):
    bench.add(blocks=6, dram=1.5, latency=8.0)  # p2(6, 8) + p2(3, 8)
    assert bench.run().total == pytest.approx(10 + math.hypot(3, 8))


def test_pipes_are_shared_by_the_blocks_of_a_unit(bench):
    bench.add(blocks=3, latency=0.0, vector=5.0)  # units with 2 blocks and 1 block: 10 us and 5 us
    found = bench.run()
    assert found.total == pytest.approx(10.0)
    assert found.events == 2  # the end of each unit


def test_pipes_inside_the_latency_set_a_floor(bench):
    bench.add(latency=3.0, tensor=4.0, outer=0.0)
    assert bench.run().total == pytest.approx(8.0)


def test_long_kernels_hide_the_launch_of_the_next(bench):
    bench.add(issued=3.0, gap=1.0)
    bench.add(issued=6.0, gap=1.0)
    found = bench.run()
    assert found.start == pytest.approx((3.0, 14.0))  # launched at 6; the first ends at 13, dispatch 1
    assert found.total == pytest.approx(24.0)


def test_short_kernels_wait_for_their_launch(bench):
    for number in range(1, 4):
        bench.add(issued=3.0 * number, gap=1.0, latency=0.5)
    found = bench.run()
    assert found.start == pytest.approx((3.0, 6.0, 9.0))
    assert found.total == pytest.approx(9.5)


def test_independent_kernels_on_two_streams_overlap(bench):
    bench.add(blocks=2, most=4)  # one block a unit
    bench.add(blocks=2, most=4, stream=1, issued=3.0)
    found = bench.run()
    assert found.end == pytest.approx((10.0, 13.0))


def test_a_full_device_makes_the_second_kernel_wait(bench):
    bench.add(blocks=8, most=4)  # all 4 block slots of both units
    bench.add(blocks=2, most=4, stream=1, latency=5.0)
    found = bench.run()
    assert found.start == (0.0, 0.0)
    assert found.end == pytest.approx((10.0, 15.0))


def test_shared_memory_keeps_blocks_apart(bench):
    bench.add(blocks=2, most=2, shared=600)
    bench.add(blocks=2, most=2, shared=600, stream=1)  # 1,200 > 1,000 bytes on a unit
    assert bench.run().total == pytest.approx(20.0)


def test_idle_units_of_a_last_wave_serve_the_other_stream(bench):
    bench.add(blocks=9, most=4)  # a full wave of 8, then 1
    bench.add(blocks=7, most=4, stream=1)  # starts with the last block of the first
    assert bench.run().end == pytest.approx((20.0, 20.0))


def test_two_streaming_kernels_share_the_bandwidth(bench):
    for stream in range(2):
        bench.add(blocks=4, latency=1e-6, dram=2.5, stream=stream)
    assert bench.run().total == pytest.approx(20.0, rel=1e-3)  # 10 us each alone


def test_a_kernel_that_wants_little_is_hardly_slowed(bench):
    bench.add(blocks=4, latency=1e-6, dram=10.0)  # wants all of it
    bench.add(blocks=4, latency=10.0, dram=0.1, stream=1)  # wants 1 % for each block; an equal share is 12.5 %
    _, modest = bench.run().end
    assert modest == pytest.approx(10 * math.hypot(1, 0.01 / 0.125), rel=0.01)


def test_two_kernels_on_one_unit_share_its_pipes(bench):
    for stream in range(2):
        bench.add(blocks=2, most=1, latency=0.0, vector=10.0, stream=stream)
    assert bench.run().total == pytest.approx(20.0, rel=1e-3)


def test_tensor_and_vector_pipes_work_side_by_side(bench):
    bench.add(blocks=2, most=1, latency=0.0, vector=10.0)
    bench.add(blocks=2, most=1, latency=0.0, tensor=10.0, stream=1)
    assert bench.run().total == pytest.approx(10.0, rel=1e-3)


def test_a_reader_on_another_stream_waits_for_an_event(bench):
    bench.add(blocks=1)
    bench.add(blocks=1, stream=1, after=(0,), gap=1.0)
    found = bench.run(across=2.0)
    assert found.start == pytest.approx((0.0, 13.0))
    assert found.total == pytest.approx(23.0)


def test_a_kernel_without_blocks_takes_its_head(bench):
    bench.add(blocks=0, head=4.0, post=1.0)
    bench.add(after=(0,))
    assert bench.run().start == pytest.approx((0.0, 5.0))


def test_launches_on_a_stream_and_in_a_graph():
    launches = np.array([3.0, 0.0, 3.0]) * US  # round-gpu: 3 us on a stream, 1 us in a graph
    steps = [Step(row=0, template=0), Step(row=0, template=0), Step(row=0, template=0, stream=1, after=(0,))]
    kernels = np.zeros(3, dtype=KERNEL)
    assert link_steps(kernels, steps, launches, GPU, "stream").tolist() == [1, 2]
    assert kernels["issued"] / US == pytest.approx([3, 3, 6])
    assert kernels["gap"] / US == pytest.approx([1, 0, 1])  # the device's dispatch; nothing where nothing is launched
    assert kernels["wanted"].tolist() == [0, 1, 1]
    link_steps(kernels, steps, launches / 3, GPU, "graph")
    assert kernels["issued"] / US == pytest.approx([1, 0, 1])
    assert kernels["gap"] / US == pytest.approx([1, 0, 1])


def test_the_parts_of_a_pack_share_a_launch_and_each_has_a_slot():
    part = Part(row=0, template=0)
    steps = [
        Step(row=0, template=0, parts=(part, part, part)), Step(row=0, template=0),
        Step(row=0, template=0, stream=1, after=(0,), parts=(part, part)),
    ]  # fmt: skip
    assert first_places(steps) == [0, 3, 4, 6]
    kernels = np.zeros(6, dtype=KERNEL)
    after = link_steps(kernels, steps, np.array([3.0, 3.0, 3.0]) * US, GPU, "stream")
    assert kernels["issued"] / US == pytest.approx([3, 3, 3, 6, 9, 9])
    assert kernels["stream"].tolist() == [0, 0, 0, 0, 1, 1]
    assert kernels["slot"].tolist() == [0, 2, 3, 0, 1, 4]  # two streams, then two more places for each
    assert kernels["wanted"].tolist() == [0, 0, 0, 3, 3, 3]
    assert after.tolist() == [3, 4, 5] * 3


def test_a_pack_takes_as_long_as_its_parts_together():
    """Two streams of bytes in one launch: no part waits for the other, and both share the bandwidth."""
    from fusesolve.candidates.pricing import price_workloads
    from fusesolve.group import Workload

    points = 25_600 * 1024
    one = Workload(template=0, inner=points, read_bytes=4 * points, write_bytes=4 * points, full_reads=1, full_writes=1)
    prices = price_workloads([one], GPU, PriceOptions())
    alone = simulate_events([Step(row=0, template=0)], prices, GPU, "stream").total
    part = Part(row=0, template=0)
    both = simulate_events([Step(row=0, template=0, parts=(part, part))], prices, GPU, "stream").total
    assert both == pytest.approx(2 * alone, rel=0.05)


def test_a_step_waits_for_earlier_ones_only():
    steps = [Step(row=0, template=0, after=(1,)), Step(row=0, template=0)]
    with pytest.raises(InternalError, match="step 0 waits for"):
        link_steps(np.zeros(2, dtype=KERNEL), steps, np.zeros(2), GPU, "stream")


def test_other_devices_are_refused():
    from fusesolve.candidates.pricing import price_workloads
    from fusesolve.group import Workload

    prices = price_workloads([Workload(template=0, inner=4096, read_bytes=4096)], NPU, PriceOptions())
    with pytest.raises(InputError, match="round-npu is a npu"):
        simulate_events([Step(row=0, template=0)], prices, NPU, "stream")


def test_no_steps_take_no_time():
    from fusesolve.candidates.pricing import price_workloads
    from fusesolve.group import Workload

    prices = price_workloads([Workload(template=0, inner=4096)], GPU, PriceOptions())
    assert simulate_events([], prices, GPU, "stream").total == 0.0


def test_code_that_cannot_be_kept_on_disk_is_compiled_all_the_same():
    """Numba finds no place for a function without a source file, as in an installation that it may not write to."""
    from fusesolve.cost.events.compiled import compiled

    names: dict[str, object] = {}
    exec("def double(x):\n    return 2.0 * x", names)
    assert compiled(names["double"])(1.5) == 3.0
