"""Predicted latencies of samples: the simulator's price of their kernels, under the timing of the measurement.

Everything is vectorised over samples: one call of the planner's pricing per timing mode.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fusesolve.candidates.pricing import price_workloads
from fusesolve.cost.table import PriceOptions
from fusesolve.group import Workload
from fusesolve.hardware import HardwareProfile
from fusesolve.study.operators import workload_of
from fusesolve.study.samples import Sample, Spec, Timing

Array: TypeAlias = NDArray[np.float64]

PROFILED = 1200.0  # clocks of a kernel's start and end that a profiler counts and kernels back to back overlap
_NO_LAUNCH = frozenset({"launch"})
# How each timing is priced: the launch that is in the number. The host's share comes later (`hosts`).
OPTIONS: Mapping[Timing, PriceOptions] = MappingProxyType({
    Timing.KERNEL: PriceOptions(implementation="library", without=_NO_LAUNCH),
    Timing.GRAPH: PriceOptions(implementation="library", launch="graph"),
    Timing.QUEUED: PriceOptions(implementation="library", launch="stream"),
    Timing.EAGER: PriceOptions(implementation="library", without=_NO_LAUNCH),
    Timing.WALL: PriceOptions(implementation="library", without=_NO_LAUNCH),
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a kernel's price belongs: the sample's position."""

    sample: int
    workload: Workload


def price_samples(samples: Sequence[Sample], profile: HardwareProfile) -> Array:
    """Seconds of each sample on the device, launches as its timing includes them, without the host; inf: no kernel."""
    seconds = np.zeros(len(samples))
    for timing in Timing:
        places = [
            _Place(index, workload)
            for index, sample in enumerate(samples)
            if sample.timing is timing
            for workload in repeated(sample, profile)
        ]
        if places:
            prices = price_workloads([place.workload for place in places], profile, OPTIONS[timing])
            counted = PROFILED / profile.compute.clock if timing is Timing.KERNEL else 0.0
            np.add.at(seconds, [place.sample for place in places], prices.latency + counted)
    return seconds


def repeated(sample: Sample, profile: HardwareProfile) -> list[Workload]:
    """The workloads when the same call is made again and again: what fits the L2 cache stays there, results too.

    What all kernels of the call touch competes for the cache, with the other sets of weights that take turns. The knee
    is the profile's (sharp: 1 / (1 + (knee / bytes)^12)), as for a plan's own intermediate tensors.
    """
    workloads = [workload_of(spec) for spec in sample.kernels]
    cache = profile.memory.l2
    if cache is None:
        return workloads
    moving = max(w.read_bytes - w.weight_bytes + w.write_bytes for w in workloads)
    everything = moving + sample.copies * sum(w.weight_bytes for w in workloads)
    warm, warm_weights = (1.0 - _cold(float(cache.knee), total) for total in (moving, everything))
    return [
        replace(
            w, warm_read_bytes=int(warm * (w.read_bytes - w.weight_bytes) + warm_weights * w.weight_bytes),
            warm_write_bytes=int(warm * w.write_bytes), footprint_bytes=1,
        )
        for w in workloads
    ]  # fmt: skip


def _cold(knee: float, total: int) -> float:
    ratio = min(knee / max(total, 1), 1e6)
    return 1.0 / (1.0 + min(ratio, 1e3) ** 12)


__all__ = ["OPTIONS", "Array", "Spec", "price_samples", "repeated"]
