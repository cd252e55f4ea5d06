"""Launch order, streams and dependencies of the kernels of a plan, as columns for the event loop."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from fusesolve.cost.events.tables import Counts, Records
from fusesolve.cost.table import Array
from fusesolve.errors import InternalError
from fusesolve.hardware import HardwareProfile, launch_overhead


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A priced kernel: its row of the prices and its template (index into TEMPLATES)."""

    row: int
    template: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One launch, in launch order: the priced kernel and its stream (from 0).

    `after`: positions of the earlier steps whose results it reads. `parts`: the kernels of a pack, whose blocks have
    the registers, threads and shared memory of the pack's row.
    """

    row: int
    template: int
    stream: int = 0
    after: tuple[int, ...] = ()
    parts: tuple[Part, ...] = ()

    @property
    def kernels(self) -> tuple[Part, ...]:
        """The kernels that run: the parts, or the one kernel."""
        return self.parts or (Part(row=self.row, template=self.template),)


def first_places(steps: Sequence[Step]) -> list[int]:
    """Where the kernels of each step begin among those of all steps, and how many there are."""
    return list(accumulate((len(step.kernels) for step in steps), initial=0))


def link_steps(
    kernels: Records, steps: Sequence[Step], launches: Array, profile: HardwareProfile, launch: str
) -> Counts:
    """Fill stream, slot, what is waited for, launch and gap of the KERNEL rows of `steps`; returns the successors.

    `launches`: seconds that the launch of each step costs (0: nothing is launched). The parts of a pack are launched
    at once; all but the first have slots beyond those of the streams. Raises InternalError where a step waits for
    itself or for a later one.
    """
    places = first_places(steps)
    followers: list[list[int]] = [[] for _ in kernels]
    before: dict[int, int] = {}
    streams = 1 + max(step.stream for step in steps)
    widest = max(len(step.kernels) for step in steps)
    issued = launches if launch == "graph" else np.cumsum(launches)
    device = np.where(launches > 0, np.minimum(dispatch_seconds(profile), launches), 0.0)
    gaps = launches if launch == "graph" else device
    for place, step in enumerate(steps):
        sources = {*step.after, *({before[step.stream]} if step.stream in before else ())}
        if any(not 0 <= source < place for source in sources):
            raise InternalError(f"step {place} waits for {sorted(sources)}; it may wait for earlier ones only")
        earlier = [kernel for source in sorted(sources) for kernel in range(places[source], places[source + 1])]
        for number, kernel in enumerate(range(places[place], places[place + 1])):
            for source in earlier:
                followers[source].append(kernel)
            row = kernels[kernel]
            row["wanted"], row["issued"], row["gap"] = len(earlier), issued[place], gaps[place]
            row["stream"] = step.stream
            row["slot"] = step.stream if number == 0 else streams + step.stream * (widest - 1) + number - 1
        before[step.stream] = place
    kernels["first"] = np.cumsum([0, *map(len, followers)])[:-1]
    return np.array([kernel for others in followers for kernel in others], dtype=np.int64)


def dispatch_seconds(profile: HardwareProfile) -> float:
    """Seconds from the end of a kernel to the start of the next one that the device knows already."""
    return min(launch_overhead(profile, "graph"), launch_overhead(profile, "stream"))


def event_seconds(profile: HardwareProfile) -> float:
    """Seconds that a wait for an event of another stream adds: one more dispatch, unless the profile has its own."""
    return profile.constant("stream_event", dispatch_seconds(profile))
