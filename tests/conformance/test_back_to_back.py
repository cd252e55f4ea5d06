"""Small kernels back to back against a measurement: the interval between kernels of 64 kB on one stream.

The profiles of the devices that it was measured on give it as `launch.stream` (source gpubench in docs/SOURCES.md). The
closed form adds it to the start and drain of each kernel; the event simulator overlaps the two, as devices do.
"""

import numpy as np
import pytest

from fusesolve.candidates.pricing import price_workloads
from fusesolve.cost.events import Step, simulate_events
from fusesolve.cost.table import PriceOptions
from fusesolve.group import Workload
from fusesolve.hardware_yaml import load_profile

POINTS = 8192  # f32: 32 KiB in, 32 KiB out
COUNT = 50
KERNEL = Workload(
    template=0, inner=POINTS, read_bytes=4 * POINTS, write_bytes=4 * POINTS, full_reads=1, full_writes=1, arrays=2,
    instructions=2, live=2,
)  # fmt: skip


@pytest.mark.parametrize(("name", "within"), [("a100-sxm-80gb", 0.30), ("h200", 0.15), ("a40", 0.45)])
def test_the_interval_is_nearer_to_the_measured_one_than_the_closed_form(name, within):
    profile = load_profile(name)
    source = profile.sources["launch.stream"]
    assert (source.source, source.accuracy) == ("gpubench", "microbenchmark")
    prices = price_workloads([KERNEL], profile, PriceOptions())
    found = simulate_events([Step(row=0, template=0)] * COUNT, prices, profile, "stream")
    measured, simulated = profile.launch.stream, np.diff(found.end).mean()
    assert measured <= simulated <= (1 + within) * measured
    assert simulated < 0.85 * prices.latency[0]
