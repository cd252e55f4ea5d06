"""Launch order, streams and dependencies of the kernels of a plan, as columns for the event loop."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fusesolve.cost.events.tables import Counts, Records
from fusesolve.cost.table import Array
from fusesolve.errors import InternalError
from fusesolve.hardware import HardwareProfile, launch_overhead


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One kernel, in launch order: its row of the prices, its template (index into TEMPLATES) and its stream (from 0).

    `after`: positions of the earlier steps whose results it reads.
    """

    row: int
    template: int
    stream: int = 0
    after: tuple[int, ...] = ()


def link_steps(
    kernels: Records, steps: Sequence[Step], launches: Array, profile: HardwareProfile, launch: str
) -> Counts:
    """Fill `stream`, `wanted`, `first`, `issued` and `gap` of the KERNEL rows of `steps`; returns the successors.

    `launches`: seconds that the launch of each costs (0: nothing is launched). Raises InternalError where a step waits
    for itself or for a later one.
    """
    followers: list[list[int]] = [[] for _ in steps]
    before: dict[int, int] = {}
    for place, step in enumerate(steps):
        sources = {*step.after, *({before[step.stream]} if step.stream in before else ())}
        if any(not 0 <= source < place for source in sources):
            raise InternalError(f"step {place} waits for {sorted(sources)}; it may wait for earlier ones only")
        for source in sources:
            followers[source].append(place)
        kernels["wanted"][place] = len(sources)
        before[step.stream] = place
    device = np.where(launches > 0, np.minimum(dispatch_seconds(profile), launches), 0.0)
    kernels["stream"] = [step.stream for step in steps]
    kernels["first"] = np.cumsum([0, *map(len, followers)])[:-1]
    kernels["issued"] = launches if launch == "graph" else np.cumsum(launches)
    kernels["gap"] = launches if launch == "graph" else device
    return np.array([place for places in followers for place in places], dtype=np.int64)


def dispatch_seconds(profile: HardwareProfile) -> float:
    """Seconds from the end of a kernel to the start of the next one that the device knows already."""
    return min(launch_overhead(profile, "graph"), launch_overhead(profile, "stream"))


def event_seconds(profile: HardwareProfile) -> float:
    """Seconds that a wait for an event of another stream adds: one more dispatch, unless the profile has its own."""
    return profile.constant("stream_event", dispatch_seconds(profile))
