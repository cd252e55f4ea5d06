"""What a kernel holds of a GPU while it runs, on average, in whole numbers: what a schedule on streams shares out."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fusesolve.cost.events.loads import read_loads
from fusesolve.cost.table import Prices
from fusesolve.hardware import HardwareProfile

SHARES = 1000  # what all blocks share is handed out in thousandths


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """A kernel's time and launch (ns, the launch is part of the time) and what it holds after its launch.

    `held`: units that its blocks fill, and thousandths of DRAM, L2, and the vector and tensor pipes of all units.
    `moving_ns`: time for which it keeps all of DRAM, and all of L2, busy; never more than `held` times its run.
    """

    time_ns: int
    launch_ns: int
    held: tuple[int, ...]
    moving_ns: tuple[float, ...]

    @property
    def run_ns(self) -> int:
        """Time after the launch."""
        return self.time_ns - self.launch_ns


def capacity_of(profile: HardwareProfile) -> tuple[int, ...]:
    """All there is of what `Need.held` counts."""
    return (profile.compute.units, SHARES, SHARES, SHARES, SHARES)


def read_needs(
    prices: Prices, costs_ns: Sequence[int | None], templates: Sequence[int], profile: HardwareProfile
) -> tuple[Need | None, ...]:
    """The need of every priced row, None for one without a legal tiling; `templates[i]` is an index into TEMPLATES."""
    index = np.flatnonzero(np.isfinite(prices.latency))
    kernels, blocks = read_loads(prices, index, np.array(templates, dtype=np.int64)[index], profile)
    count, units = kernels["blocks"], profile.compute.units
    busy = [kernels["dram"] * count, kernels["l2"] * count]
    busy += [blocks[pipe][::2] * count / units for pipe in ("vector", "tensor")]
    terms = {name: column[index] for name, column in prices.terms.items()}
    moving = (terms["dram"] + terms["staging"], terms["l2"] + terms["reread"] + terms["spill"])
    launch = np.rint(prices.terms["launch"][index] * 1e9).astype(np.int64)
    filled = np.minimum(-(-count // kernels["most"]), units)
    found: list[Need | None] = [None] * len(costs_ns)
    for place, row in enumerate(index.tolist()):
        time = costs_ns[row] or 1
        lead = min(int(launch[place]), time - 1)
        shares = (SHARES * float(seconds[place]) * 1e9 / (time - lead) for seconds in busy)
        held = (int(filled[place]), *(min(SHARES, int(np.ceil(share))) for share in shares))
        most = [(time - lead) * share / SHARES for share in held[1 : 1 + len(moving)]]
        moved = tuple(min(1e9 * float(part[place]), limit) for part, limit in zip(moving, most, strict=True))
        found[row] = Need(time_ns=time, launch_ns=lead, held=held, moving_ns=moved)
    return tuple(found)
