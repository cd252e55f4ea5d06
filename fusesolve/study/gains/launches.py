"""The host of a chain of launches: what a measured time holds besides the kernels, estimated from the rows themselves.

Events around a chain of n kernels: the host issues the first after `head`, each further one a `gap` later, and comes
back after floor + (n - 1) gap. A kernel starts when it is issued and the one before has ended. Kernels that are short
leave the host's path visible (t = floor + (n - 1) gap); long ones hide all of it but the head.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fusesolve.study.gains.library import Mode

SHORT = 0.3  # kernels below this share of the measured time leave the host visible
LONGEST = 500e-6  # seconds: no host takes longer for one call; more is an error of the kernels' prices
FEWEST = 3  # rows that an estimate needs
# The part of the floor that lies before the first launch: half of it in eager calls (four hosts of another table:
# 0.45 to 0.54), nearly all in compiled ones, where guards and wrapper come first.
BEFORE = {Mode.EAGER: 0.5, Mode.COMPILED: 0.85}


@dataclass(frozen=True, slots=True, kw_only=True)
class Launches:
    """A host in one mode (s): `floor` of a call with one kernel, `gap` of each further one; from `rows` rows."""

    mode: Mode
    floor: float
    gap: float
    rows: int

    @property
    def head(self) -> float:
        """Seconds before the first launch."""
        return BEFORE[self.mode] * self.floor

    def total(self, kernels: np.ndarray) -> float:
        """Seconds from event to event for kernels (s) in order, at least one."""
        issued = self.head + self.gap * np.arange(len(kernels))
        left = np.cumsum(kernels[::-1])[::-1]
        return float(max(np.max(issued + left), self.floor + (len(kernels) - 1) * self.gap))


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """One measured chain: seconds of its kernels as predicted, and from event to event as measured."""

    kernels: np.ndarray
    measured: float


def estimate_launches(rows: Sequence[Timed], mode: Mode) -> Launches | None:
    """The host of these rows, from those whose kernels are short; None where there are too few of them."""
    short = [row for row in rows if float(row.kernels.sum()) < SHORT * row.measured < SHORT * LONGEST]
    single = [row.measured for row in short if len(row.kernels) == 1]
    if len(single) < FEWEST:
        return None
    floor = float(np.median(single))
    gaps = [(row.measured - floor) / (len(row.kernels) - 1) for row in short if len(row.kernels) > 2]
    gap = max(0.0, float(np.median(gaps))) if len(gaps) >= FEWEST else 0.25 * floor
    return Launches(mode=mode, floor=floor, gap=gap, rows=len(short))


def borrowed(known: Iterable[Launches]) -> Launches | None:
    """For a host whose rows are all long: the fastest of the others in the same mode, from no row of its own."""
    found = min(known, key=lambda host: host.floor, default=None)
    return None if found is None else replace(found, rows=0)
