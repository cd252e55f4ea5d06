"""Running generated CPU files in this process: compile on the first call, run on all cores, time by repetition."""

import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

from fusesolve.codegen.cpu.module import CpuModule
from fusesolve.codegen.cpu.preamble import PREAMBLE
from fusesolve.codegen.cpu.threads import pinned
from fusesolve.codegen.runtime import load_generated
from fusesolve.errors import ValidationError

if TYPE_CHECKING:
    from numpy import dtype as DType  # noqa: N812
    from numpy.typing import NDArray

    Array: TypeAlias = NDArray[Any]

LINE = 64  # bytes of a cache line
REPEATS = 9
SHORT_S = 0.02  # seconds of repeats that a short call takes at least
ENOUGH_S = 0.1  # seconds of repeats after which no more are made


class CpuKernelError(ValidationError):
    """A kernel that Numba refuses to compile; the message ends with what it said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Seconds of one call over the repeats: the least, the median, and the 20th and 80th percentile."""

    best: float
    median: float
    p20: float
    p80: float


class CpuRunner:
    """The groups of one generated CPU file, ready to be called on flat arrays."""

    def __init__(self, made: CpuModule) -> None:
        self._module = _load(made.text)
        self.groups: Mapping[int, Callable[..., None]] = self._module.GROUPS

    def run(self, group: int, reads: "Sequence[Array]", writes: "Sequence[Array]") -> None:
        """Compute a group on flat arrays, in the order of its reads and writes. CpuKernelError where it has none."""
        from numba.core.errors import NumbaError

        try:
            self.groups[group](*map(_bits, reads), *map(_bits, writes))
        except NumbaError as error:
            lines = [item.strip() for item in str(error).splitlines() if item.strip()]
            raise CpuKernelError(f"{type(error).__name__}: {lines[0] if lines else ''}") from error

    def time(self, group: int, reads: "Sequence[Array]", writes: "Sequence[Array]") -> Timing:
        """Seconds of a group after a warm-up call, a thread on every core."""
        self.run(group, reads, writes)
        arrays = [_bits(array) for array in (*reads, *writes)]
        with pinned():
            return timed(lambda: self.groups[group](*arrays))


def _bits(array: "Array") -> "Array":
    """Floats of 16 bits as the bits that the kernels take; everything else as it is."""
    import numpy as np

    return array.view(np.uint16) if array.dtype.itemsize == 2 and array.dtype.kind not in "iu" else array


def aligned(size: int, kind: "DType[Any]", fill: int = 0) -> "Array":
    """A flat array that starts at a cache line, its pages in place; every byte is `fill`."""
    import numpy as np

    raw = np.full(size * kind.itemsize + LINE, fill, np.uint8)
    return raw[-raw.ctypes.data % LINE :][: size * kind.itemsize].view(kind)


def timed(call: Callable[[], object], repeats: int = REPEATS) -> Timing:
    """Seconds of a call: at least three repeats, `repeats` and more where they are fast.

    Short calls are timed in batches, for `SHORT_S` together.
    """
    start = time.perf_counter()
    call()
    once = max(time.perf_counter() - start, 1e-9)
    batch = max(1, min(1000, int(2e-4 / once)))
    found: list[float] = []
    began = time.perf_counter()
    while len(found) < 3 or (time.perf_counter() - began < (SHORT_S if len(found) >= repeats else ENOUGH_S * repeats)):
        start = time.perf_counter()
        for _ in range(batch):
            call()
        found.append((time.perf_counter() - start) / batch)
    low, high = (statistics.quantiles(found, n=5)[k] for k in (0, 3))
    return Timing(best=min(found), median=statistics.median(found), p20=low, p80=high)


def _load(text: str) -> ModuleType:
    """Import source text as a module; it is ours, made from numbers only. Its functions compile once in a process."""
    given = {name: item for name, item in vars(_functions()).items() if not name.startswith("__")}
    return _imported(text.replace(PREAMBLE, ""), given)


@cache
def _functions() -> ModuleType:
    """The functions at the head of every file."""
    return _imported(PREAMBLE, {})


def _imported(text: str, given: Mapping[str, object]) -> ModuleType:
    with tempfile.TemporaryDirectory(prefix="fusesolve-") as folder:
        path = Path(folder) / "kernels.py"
        path.write_text(text, encoding="utf-8")
        return load_generated(path, given)
