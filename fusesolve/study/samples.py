"""Measured rows in the simulator's words: which kernels ran, how they were timed, how long they took."""

from dataclasses import dataclass
from enum import StrEnum


class Timing(StrEnum):
    """What a measured latency includes besides the kernels."""

    KERNEL = "kernel"  # a profiler's kernel duration: no launch
    GRAPH = "cuda-graph"  # kernels back to back in a graph: the dispatch of a graph node is in it
    QUEUED = "queued"  # kernels back to back on a stream: the launch of a kernel is in it
    EAGER = "eager"  # events around one call on an idle stream: the host's path is in it
    WALL = "wall"  # the host's clock around a call and a synchronisation


@dataclass(frozen=True, slots=True)
class Spec:
    """One operator: a key of `operators.OPERATORS`, an element type and its sizes (the operator's order)."""

    op: str
    dtype: str
    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One measured latency (s) of one call that runs `kernels` one after the other.

    `device` is the table's own text. `family` groups calls that take the same path through a host. `copies` is how
    many sets of weights took turns in the measurement: with several, weights stay in the cache only where all fit.
    `resolution` (s) is the step of the table's clock, which cuts the rest off each kernel (0: fine). `library`
    names the vintage of the library where it is not today's, such as "2023".
    """

    device: str
    op: str
    family: str
    timing: Timing
    kernels: tuple[Spec, ...]
    latency: float
    copies: int = 1
    resolution: float = 0.0
    library: str = ""

    @property
    def label(self) -> str:
        """The operator and its sizes as a person reads them."""
        return " + ".join(f"{k.op} {k.dtype} {'x'.join(map(str, k.sizes))}" for k in self.kernels)


@dataclass(frozen=True, slots=True)
class Skipped:
    """A row that is not counted: its device (None where the table has none) and why."""

    device: str | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A file as read: its name, its samples, and the rows that are not counted."""

    file: str
    samples: tuple[Sample, ...]
    skipped: tuple[Skipped, ...]
