"""How far a study is, and about how long the rest takes."""

import time
from collections.abc import Callable

from fusesolve.pipeline.options import Event, Report


def teller(noun: str, total: int, kept: int, progress: Report | None) -> Callable[[int], None]:
    """A function that is told how many more are done, and reports `40 of 1,000 points, 2 min 5 s left`.

    `kept` of the `total` were there before; the time left is that of this run so far, for as many as are left.
    """
    started = time.monotonic()
    done = 0

    def tell(more: int) -> None:
        nonlocal done
        done += more
        if progress is None:
            return
        said = f"{kept + done:,} of {total:,} {noun}" + (f" ({kept:,} kept from before)" if kept else "")
        left = (time.monotonic() - started) / done * (total - kept - done) if done else None
        progress(Event(stage=said if left is None else f"{said}, {duration(left)} left"))

    return tell


def duration(seconds: float) -> str:
    """`45 s`, `3 min 20 s`, `2 h 5 min`: a length of time for people."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
