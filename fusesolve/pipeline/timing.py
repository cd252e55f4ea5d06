"""When the kernels of a plan run: one after the other by the closed form, or simulated block by block."""

from collections.abc import Sequence
from dataclasses import dataclass

from fusesolve.candidates.pricing import Priced
from fusesolve.candidates.space import Kernel
from fusesolve.cost.events import Step, Timeline, simulate_events
from fusesolve.group import TEMPLATES


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """A simulated plan in whole ns: start and latency of each kernel on the device, the total from the first launch."""

    start_ns: tuple[int, ...]
    latency_ns: tuple[int, ...]
    total_ns: int


def wait_for(order: Sequence[Kernel]) -> tuple[tuple[int, ...], ...]:
    """For each kernel the places of the earlier kernels that first write what it reads."""
    writer: dict[int, int] = {}
    found = []
    for place, kernel in enumerate(order):
        found.append(tuple(sorted({writer[storage] for storage in kernel.reads if storage in writer})))
        for storage in kernel.writes:
            writer.setdefault(storage, place)
    return tuple(found)


def simulate_order(priced: Priced, order: Sequence[Kernel], streams: Sequence[int] | None = None) -> Simulated:
    """Simulate kernels launched in `order`, kernel i on `streams[i]` (None: all on one)."""
    places = streams or [0] * len(order)
    steps = [
        Step(row=k.unique, template=TEMPLATES.index(priced.space.templates[k.unique]), stream=stream, after=after)
        for k, stream, after in zip(order, places, wait_for(order), strict=True)
    ]
    return _in_ns(simulate_events(steps, priced.prices, priced.profile, priced.options.launch))


def _in_ns(timeline: Timeline) -> Simulated:
    start = tuple(round(seconds * 1e9) for seconds in timeline.start)
    end = tuple(round(seconds * 1e9) for seconds in timeline.end)
    latency = tuple(after - before for before, after in zip(start, end, strict=True))
    return Simulated(start_ns=start, latency_ns=latency, total_ns=round(timeline.total * 1e9))
