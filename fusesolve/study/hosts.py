"""The host's share of a measured latency, estimated from the measured rows themselves, never kept in a profile.

Events around one eager call on an idle stream (notes of public tables, four CUDA hosts): the device starts the clock
and then waits for the host, so t = max(H, H - d + K): H is the host's time from event to event, d what it still does
after the launch (hidden behind the kernel), K the kernel's time. A host's clock around a call adds what it costs:
t = H + K.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fusesolve.study.predict import Array
from fusesolve.study.samples import Sample, Timing

SMALL = 0.10  # share of the rows of a family, shortest kernels first, that the estimate starts from
FEWEST = 5  # rows that an estimate needs at least (all, where there are fewer)
# (H - d) / H by vendor, least and most: 0.43 to 0.55 on four CUDA hosts, nearly 1 on a ROCm host.
VISIBLE = {"AMD": (0.9, 1.0)}
OTHERS = (0.43, 0.65)
SHORT = 0.25  # a kernel shorter than this share of the measured time leaves the host's floor visible
SPREAD = 1.3  # the median of bare calls over the shortest one: more says that the kernels are priced too low
# Families of calls in which a library prepares and launches several kernels. Their share of the host is neither short
# nor one number: the gap between the measured time and the kernels' runs from 40 to 350 us, and for equal shapes it is
# the same in microseconds on two devices that differ by half in speed (18 shapes, correlation 0.97).
UNEVEN = frozenset({"conv2d"})
UNEVEN_SHARE = 0.5  # share of their rows, shortest kernels first, whose median gap is taken
LONGEST = 30e-6  # seconds: H - d of the slowest of five hosts; more is an error of the kernels' prices


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """One host's share (s): `floor` H, `offset` H - d; from `rows` rows of `family` on `device`."""

    device: str
    family: str
    timing: Timing
    floor: float
    offset: float
    rows: int


def estimate_hosts(samples: Sequence[Sample], kernels: Array, vendor: str) -> dict[tuple[str, str], Host]:
    """The host of each device and family of eager and wall-clock samples, from kernel seconds and measured ones."""
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    for index, sample in enumerate(samples):
        if sample.timing in (Timing.EAGER, Timing.WALL) and np.isfinite(kernels[index]):
            groups[sample.device, sample.family].append(index)
    share = VISIBLE.get(vendor, OTHERS)
    return {key: _estimate(key, samples, kernels, np.array(index), share) for key, index in groups.items()}


def _estimate(
    key: tuple[str, str], samples: Sequence[Sample], kernels: Array, index: np.ndarray, share: tuple[float, float]
) -> Host:
    measured = np.array([samples[i].latency for i in index])
    work = kernels[index]
    order = np.argsort(work, kind="stable")
    first = order[: max(FEWEST, int(SMALL * len(order)))]
    timing = samples[index[0]].timing
    if key[1] in UNEVEN:
        first = order[: max(FEWEST, int(UNEVEN_SHARE * len(order)))]
        gap = max(0.0, _relative_median(measured[first] - work[first], measured[first]))
        floor = max(gap, float(measured.min()))
        return Host(device=key[0], family=key[1], timing=timing, floor=floor, offset=gap, rows=len(first))
    if timing is Timing.WALL:
        gap = max(0.0, float(np.median(measured[first] - work[first])))
        return Host(device=key[0], family=key[1], timing=timing, floor=gap, offset=gap, rows=len(first))
    bare = first[work[first] < SHORT * measured[first]]
    if len(bare) >= min(FEWEST, len(first)):
        floor = min(float(np.median(measured[bare])), SPREAD * float(measured.min()))
        visible = (work > 0.7 * floor) & (work < 4.0 * floor)
        gaps = measured[visible] - work[visible]
        offset = float(np.median(gaps)) if len(gaps) >= FEWEST else share[0] * floor
        used = len(bare) + (len(gaps) if len(gaps) >= FEWEST else 0)
        offset = min(max(offset, share[0] * floor), share[1] * floor)
        return Host(device=key[0], family=key[1], timing=timing, floor=floor, offset=offset, rows=used)
    gap = min(max(0.0, float(np.median(measured[first] - work[first]))), LONGEST)
    return Host(device=key[0], family=key[1], timing=timing, floor=gap / share[0], offset=gap, rows=len(first))


def _relative_median(gaps: Array, measured: Array) -> float:
    """The number with the least mean distance to the gaps, relative to the measured times: a weighted median."""
    order = np.argsort(gaps, kind="stable")
    weights = np.cumsum(1.0 / measured[order])
    return float(gaps[order[int(np.searchsorted(weights, 0.5 * weights[-1]))]])


def add_hosts(samples: Sequence[Sample], kernels: Array, hosts: dict[tuple[str, str], Host]) -> Array:
    """Predicted latencies (s): kernel seconds under each sample's timing, the host's share included."""
    floor, offset = np.zeros(len(samples)), np.zeros(len(samples))
    for index, sample in enumerate(samples):
        host = hosts.get((sample.device, sample.family))
        if host is not None and sample.timing is host.timing:
            floor[index], offset[index] = host.floor, host.offset
    return _read_clock(samples, np.maximum(floor, offset + kernels))


def _read_clock(samples: Sequence[Sample], seconds: Array) -> Array:
    """What a clock with whole steps shows: it cuts the fraction of a step off each kernel, and sums up what is left.

    Kineto (PyTorch's profiler) divides nanoseconds by 1,000 as integers, per kernel; DeepBench casts its mean time to
    whole microseconds. The kernels of such a sample are alike. A row is there only if it reads at least one step each.
    """
    step = np.array([sample.resolution * len(sample.kernels) for sample in samples])
    coarse = (step > 0) & np.isfinite(seconds)
    seconds[coarse] = np.maximum(step[coarse], np.floor(seconds[coarse] / step[coarse]) * step[coarse])
    return seconds


def with_true_kernels(samples: Sequence[Sample], kernels: Array, hosts: dict[tuple[str, str], Host]) -> Array:
    """Latencies (s) that a simulator without any error in its kernels would predict, with these hosts.

    Where the host hides the kernel, that is the host's one floor, whatever was measured; elsewhere what was measured.
    The order among hidden rows is the host's noise: the rank of these against the measured times bounds any model's.
    """
    measured = np.array([sample.latency for sample in samples])
    floor = np.array([_floor_of(sample, hosts) for sample in samples])
    hidden = add_hosts(samples, kernels, hosts) <= floor
    found: Array = np.where(hidden, floor, np.maximum(measured, floor))
    return found


def _floor_of(sample: Sample, hosts: dict[tuple[str, str], Host]) -> float:
    host = hosts.get((sample.device, sample.family))
    return host.floor if host is not None and sample.timing is host.timing else 0.0
