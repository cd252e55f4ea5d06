"""Progress of a long plan: one live line on a terminal, one line a stage in a log, nothing where nobody looks."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TextIO

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from fusesolve.units import format_seconds


class ProgressEvent(Protocol):
    """What a running plan reports; None is not known yet."""

    @property
    def stage(self) -> str:
        """Name of the stage: import, enumerate, price, solve, assemble."""

    @property
    def candidates(self) -> int | None:
        """Kernels found so far."""

    @property
    def incumbent(self) -> int | None:
        """Objective of the best plan so far, ns."""

    @property
    def bound(self) -> int | None:
        """Proven lower bound, ns."""


def progress_line(event: ProgressEvent, elapsed: float) -> str:
    """`solve: 1,302 kernels, best 41.2 us, bound 41 us, gap 0.5 %, 3.2 s`: what is known, after `elapsed` seconds."""
    parts: list[str] = []
    if event.candidates is not None:
        parts.append(f"{event.candidates:,} kernels")
    if event.incumbent is not None:
        parts.append(f"best {format_seconds(event.incumbent / 1e9)}")
    if event.bound is not None:
        parts.append(f"bound {format_seconds(event.bound / 1e9)}")
    if event.incumbent and event.bound is not None:
        parts.append(f"gap {100 * (event.incumbent - event.bound) / event.incumbent:.2f} %")
    parts.append(f"{elapsed:.1f} s")
    return f"{event.stage}: {', '.join(parts)}"


class _Line:
    """The live line: rendered anew several times a second, so that the clock runs between events."""

    def __init__(self) -> None:
        self.event: ProgressEvent | None = None
        self.started = time.monotonic()
        self.spinner = Spinner("line")

    def __rich__(self) -> Spinner:
        elapsed = time.monotonic() - self.started
        text = f"starting: {elapsed:.1f} s" if self.event is None else progress_line(self.event, elapsed)
        self.spinner.update(text=Text(text, no_wrap=True, overflow="ellipsis"))
        return self.spinner


@contextmanager
def progress(
    stream: TextIO, *, live: bool, shown: bool, every: float = 0.0
) -> Iterator[Callable[[ProgressEvent], None] | None]:
    """A callback that shows events on `stream`: as one live line, or (`live` false) as a log line a change.

    None where nothing is to be `shown`. The live line disappears at the end. `every`: seconds before the first log
    line and between two of them, so that what is done at once says nothing.
    """
    if not shown:
        yield None
    elif live:
        line = _Line()
        with Live(line, console=Console(file=stream), refresh_per_second=8, transient=True):
            yield lambda event: setattr(line, "event", event)
    else:
        yield _logger(stream, every)


def _logger(stream: TextIO, every: float) -> Callable[[ProgressEvent], None]:
    started = said = time.monotonic()
    last: tuple[str, int | None, int | None] | None = None

    def log(event: ProgressEvent) -> None:
        nonlocal last, said
        key, now = (event.stage, event.incumbent, event.bound), time.monotonic()
        if last != key and now - said >= every:
            last, said = key, now
            stream.write(progress_line(event, now - started) + "\n")
            stream.flush()

    return log
