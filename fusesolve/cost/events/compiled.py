"""Compiling the event loop: Numba behind one decorator, machine code cached beside the source or in the user's cache."""

from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """`function` compiled at its first call; the code is kept on disk where there is a place to write, else not."""
    try:
        found: F = njit(cache=True, error_model="numpy")(function)
    except RuntimeError:  # Numba found no folder that it may write to: compile again in each process
        found = njit(error_model="numpy")(function)
    return found
