"""Compiling the event loop: Numba behind one decorator; machine code is cached beside the source, or for the user."""

from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """`function` compiled at its first call; the code is kept on disk where there is a place to write, else not."""
    compile_later: Any = njit(error_model="numpy", cache=True)
    try:
        found: F = compile_later(function)
    except RuntimeError:  # Numba found no folder that it may write to: compile again in each process
        compile_later = njit(error_model="numpy")
        found = compile_later(function)
    return found
