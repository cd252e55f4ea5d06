"""Running generated CPU files in this process: compile on the first call, run on all cores, time by repetition."""

import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
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
ROUNDS = 15
SAMPLE_S = 1e-3  # seconds that the calls of one sample take together, at least one call
WARM_S = 2e-4  # seconds of calls before a sample: data and threads are then where repeated calls find them


class CpuKernelError(ValidationError):
    """A kernel that Numba refuses to compile; the message ends with what it said."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one call, a sample a round (two or more)."""

    samples: tuple[float, ...]

    @property
    def best(self) -> float:
        """The least sample."""
        return min(self.samples)

    @property
    def median(self) -> float:
        """The median sample: what predictions are compared with, and what constants are measured from."""
        return statistics.median(self.samples)

    @property
    def p20(self) -> float:
        """The 20th percentile."""
        return statistics.quantiles(self.samples, n=5, method="inclusive")[0]

    @property
    def p80(self) -> float:
        """The 80th percentile."""
        return statistics.quantiles(self.samples, n=5, method="inclusive")[3]


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

    def bound(self, group: int, reads: "Sequence[Array]", writes: "Sequence[Array]") -> Callable[[], object]:
        """The group as a call on these arrays, compiled. CpuKernelError where Numba refuses it."""
        self.run(group, reads, writes)
        return partial(self.groups[group], *map(_bits, reads), *map(_bits, writes))


def _bits(array: "Array") -> "Array":
    """Floats of 16 bits as the bits that the kernels take; everything else as it is."""
    import numpy as np

    return array.view(np.uint16) if array.dtype.itemsize == 2 and array.dtype.kind not in "iu" else array


def aligned(size: int, kind: "DType[Any]", fill: int = 0) -> "Array":
    """A flat array that starts at a cache line, its pages in place; every byte is `fill`."""
    import numpy as np

    raw = np.full(size * kind.itemsize + LINE, fill, np.uint8)
    return raw[-raw.ctypes.data % LINE :][: size * kind.itemsize].view(kind)


def timed(calls: Sequence[Callable[[], object]], rounds: int = ROUNDS) -> list[Timing]:
    """Seconds of each call, in `rounds` (two or more) rounds through all of them, a thread on every core.

    A machine that is slower for a while, as shared ones are, is slower for all of them. A round takes one sample of a
    call: the mean over `SAMPLE_S` of calls in a row, after others that do not count.
    """
    with pinned():
        once = [_sample(call, 2, 1) for call in calls]
        found: list[list[float]] = [[] for _ in calls]
        for _ in range(rounds):
            for call, each, samples in zip(calls, once, found, strict=True):
                samples.append(_sample(call, _calls(WARM_S, each), _calls(SAMPLE_S, each)))
    return [Timing(tuple(samples)) for samples in found]


def _calls(seconds: float, each: float) -> int:
    return max(1, min(1000, int(seconds / each)))


def _sample(call: Callable[[], object], warm: int, count: int) -> float:
    """Seconds of a call, the mean of `count` after `warm` others."""
    for _ in range(warm):
        call()
    start = time.perf_counter()
    for _ in range(count):
        call()
    return max((time.perf_counter() - start) / count, 1e-9)


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
