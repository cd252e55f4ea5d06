"""A plan's kernels on streams, simulated block by block: when each one runs, and when all are done."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from fusesolve.cost.events.launches import Step, event_seconds, first_places, link_steps
from fusesolve.cost.events.loads import read_loads, unit_room
from fusesolve.cost.events.tables import ENTRY, SLOT, UNIT, Counts, Records
from fusesolve.cost.table import Prices
from fusesolve.errors import InputError, InternalError
from fusesolve.hardware import HardwareProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """When each step runs on the device: start and end in seconds from the first launch; `total`: the last end.

    Launch and the wait for other kernels lie before the start. `events`: how often the simulated state changed.
    """

    start: tuple[float, ...]
    end: tuple[float, ...]
    total: float
    events: int


def check_events(profile: HardwareProfile, asked: str = "--simulate events") -> None:
    """Raise InputError where the event simulator does not model the device, which was `asked`: it has to be a GPU."""
    if profile.kind != "gpu":
        raise InputError(
            f"{asked}: profile {profile.name} is a {profile.kind} and runs one command at a time; "
            "leave the option out, or choose a GPU"
        )
    unit_room(profile)


def simulate_events(steps: Sequence[Step], prices: Prices, profile: HardwareProfile, launch: str) -> Timeline:
    """Run the steps on a GPU, launched in their order in mode `launch` ("stream" or "graph").

    In a stream the host needs `launch.stream` for each kernel and runs ahead of the device; a kernel starts once it is
    launched and `launch.graph` (the device's own dispatch) after the kernels that it waits for. A captured graph is
    known to the device as a whole: only the dispatch is left. Between streams a stream waits for an event: one more
    dispatch. The kernels of a pack start together. Raises InputError for a device that is no GPU.
    """
    check_events(profile)
    if not steps:
        return Timeline(start=(), end=(), total=0.0, events=0)
    parts = [part for step in steps for part in step.kernels]
    index = np.array([part.row for part in parts], dtype=np.intp)
    templates = np.array([part.template for part in parts], dtype=np.int64)
    hosts = np.array([step.row for step in steps for _ in step.kernels], dtype=np.intp)
    kernels, blocks = read_loads(prices, index, templates, profile, hosts)
    launches = prices.terms["launch"][[step.row for step in steps]]
    after = link_steps(kernels, steps, launches, profile, launch)
    across = 0.0 if launch == "graph" else event_seconds(profile)
    found = run_loads(kernels, blocks, after, across, unit_room(profile), profile.compute.units)
    places = first_places(steps)
    spans = [slice(*pair) for pair in pairwise(places)]
    return replace(
        found, start=tuple(min(found.start[span]) for span in spans), end=tuple(max(found.end[span]) for span in spans)
    )


def run_loads(
    kernels: Records, blocks: Records, after: Counts, across: float, capacity: Records, units: int
) -> Timeline:
    """The timeline of KERNEL and BLOCK rows on `units` units of room `capacity`; see `loop.run`."""
    from fusesolve.cost.events.loop import run

    slots, resident = 1 + int(kernels["slot"].max()), int(capacity["blocks"][0])
    kernels = kernels.copy()
    kernels["end"] = np.nan
    events = run(
        kernels, blocks, after, across, capacity, np.zeros(slots, SLOT), np.zeros(units, UNIT),
        np.zeros((units + 1, slots), np.int64), np.zeros(units * resident + 1, ENTRY),
        np.zeros((slots, 2, resident + 1)),
    )  # fmt: skip
    start, end = kernels["start"], kernels["end"]
    if np.isnan(end).any():
        raise InternalError(f"{int(np.isnan(end).sum())} of {len(kernels)} simulated kernels never ended")
    return Timeline(start=tuple(start.tolist()), end=tuple(end.tolist()), total=float(end.max()), events=int(events))
