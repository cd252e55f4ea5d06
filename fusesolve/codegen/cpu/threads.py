"""The threads of Numba's parallel loops, each on a core of its own while kernels are timed.

Linux wakes a thread near the one that woke it, and short parallel regions are over before it looks for a better core:
two threads then share one core while another is idle, and times are those of one core.
"""

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any


@contextmanager
def pinned() -> Iterator[None]:
    """Within it each thread of the parallel loops stays on a core of its own; after it, where it was allowed before.

    Nothing changes where there are more threads than cores, or where the system has no such call (Linux has).
    """
    threads = _team()
    cores = sorted(os.sched_getaffinity(0)) if threads else []
    if not 1 < len(threads) <= len(cores):
        yield
        return
    before = {thread: os.sched_getaffinity(thread) for thread in threads}
    try:
        for thread, core in zip(threads, cores, strict=False):
            os.sched_setaffinity(thread, {core})
        yield
    finally:
        for thread, allowed in before.items():
            os.sched_setaffinity(thread, allowed)


def _team() -> list[int]:
    """Numbers of the threads that run the loops of this one, itself among them; none where they cannot be told."""
    if not hasattr(os, "sched_setaffinity") or not hasattr(ctypes.CDLL(None), "gettid"):
        return []
    import numba
    import numpy as np

    found = np.zeros(numba.get_num_threads(), np.int64)
    _sign()(found)
    return sorted(set(found.tolist()))


@cache
def _sign() -> Callable[[object], None]:
    """A parallel loop that leaves the number of the thread that ran each of its steps."""
    import numba

    thread = ctypes.CDLL(None).gettid
    thread.argtypes, thread.restype = (), ctypes.c_int

    def sign(found: Any) -> None:
        for n in numba.prange(found.size):
            found[n] = thread()

    made: Callable[[object], None] = numba.njit(parallel=True)(sign)
    return made
