"""When the kernels of a plan run: one after the other by the closed form, or simulated block by block."""

from collections.abc import Sequence
from dataclasses import dataclass

from fusesolve.candidates.pricing import Priced
from fusesolve.candidates.program import Program
from fusesolve.candidates.space import Kernel
from fusesolve.cost.events import Part, Step, Timeline, simulate_events
from fusesolve.group import TEMPLATES
from fusesolve.pipeline.memory import constant_bytes, live_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """A simulated plan in whole ns: start and latency of each kernel on the device, the total from the first launch."""

    start_ns: tuple[int, ...]
    latency_ns: tuple[int, ...]
    total_ns: int


def wait_for(program: Program, order: Sequence[Kernel]) -> tuple[tuple[int, ...], ...]:
    """For each kernel the places of the earlier kernels that it waits for.

    Those that first write what it reads, and those that read what it writes over.
    """
    writer: dict[int, int] = {}
    places: dict[int, list[int]] = {}
    found = []
    for place, kernel in enumerate(order):
        sources = {writer[storage] for storage in kernel.reads if storage in writer}
        for reader, destroyer in program.orders:
            if destroyer in kernel.members:
                sources.update(places.get(reader, ()))
        found.append(tuple(sorted(sources)))
        for storage in kernel.writes:
            writer.setdefault(storage, place)
        for member in kernel.members:
            places.setdefault(member, []).append(place)
    return tuple(found)


def peak_of_schedule(program: Program, order: Sequence[Kernel], start: Sequence[int], end: Sequence[int]) -> int:
    """Bytes of inputs, weights and outputs plus the most that intermediates take at one time, kernels running as given.

    An intermediate is live from the start of the kernel that first writes it to the end of the last one that uses it.
    """
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for kernel, begin, finish in zip(order, start, end, strict=True):
        for storage in kernel.writes:
            first[storage] = min(first.get(storage, begin), begin)
        for storage in (*kernel.reads, *kernel.writes):
            last[storage] = max(last.get(storage, finish), finish)
    steps: dict[int, int] = {}
    for storage, begin in first.items():
        size = live_bytes(program, storage)
        steps[begin] = steps.get(begin, 0) + size
        steps[last[storage]] = steps.get(last[storage], 0) - size
    live = most = 0
    for time in sorted(steps):
        live += steps[time]
        most = max(most, live)
    return constant_bytes(program) + most


def make_step(priced: Priced, kernel: Kernel, stream: int, after: tuple[int, ...]) -> Step:
    """A launch for the event simulator: one kernel, or the parts of a pack."""
    space = priced.space
    parts_of = space.packs.get(kernel.unique, ())
    rows = (kernel.unique, *(priced.packed_row(part.unique) for part in parts_of))
    whole, *parts = (Part(row=row, template=TEMPLATES.index(space.templates[row])) for row in rows)
    return Step(row=whole.row, template=whole.template, stream=stream, after=after, parts=tuple(parts))


def simulate_order(priced: Priced, order: Sequence[Kernel], streams: Sequence[int] | None = None) -> Simulated:
    """Simulate kernels launched in `order`, kernel i on `streams[i]` (None: all on one)."""
    places = streams or [0] * len(order)
    steps = [
        make_step(priced, kernel, stream, after)
        for kernel, stream, after in zip(order, places, wait_for(priced.space.program, order), strict=True)
    ]
    return _in_ns(simulate_events(steps, priced.prices, priced.profile, priced.options.launch))


def _in_ns(timeline: Timeline) -> Simulated:
    start = tuple(round(seconds * 1e9) for seconds in timeline.start)
    end = tuple(round(seconds * 1e9) for seconds in timeline.end)
    latency = tuple(after - before for before, after in zip(start, end, strict=True))
    return Simulated(start_ns=start, latency_ns=latency, total_ns=round(timeline.total * 1e9))
