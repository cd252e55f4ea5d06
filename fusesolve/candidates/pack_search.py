"""Packs by column generation: those that lower the relaxation of a problem, until it is no lower.

The packs left out lower neither its bound nor, where a plan meets that bound, the plan. Where even the sets of
independent kernels are too many to list, pairs and runs of kernels near the relaxation are tried.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fusesolve.candidates.packs import Packer, Packs, Part, add_packs, pairs, price_packs, runs
from fusesolve.candidates.pricing import Priced
from fusesolve.candidates.table import Kernel, KernelTable, stack_tables, table_of
from fusesolve.ragged import Ints

ROUNDS = 12
MORE = 300  # packs that join after the last round, as a plan that computes something twice may use them
FRESH_PER_LEVEL = 30  # packs of a level that join in a round, those that lower the relaxation most
PARTS_PER_LEVEL = 40  # kernels of a level with too many sets, those nearest to the relaxation, that are paired
LEAST = 2e-5  # share of the bound: a round that lowers it by less is the last


class Marginal(Protocol):
    """What kernels are worth against a relaxation, by position: its bound (ns), reduced costs (ns), its optimum."""

    @property
    def bound(self) -> int:
        """Of the relaxation, ns."""

    @property
    def reduced(self) -> Mapping[int, float]:
        """Reduced cost (ns, >= 0) of each kernel, absent where no plan needs it."""

    @property
    def held(self) -> tuple[int, ...]:
        """Kernels of its optimum."""


# The relaxation of the exact partition over kernels of a priced space, None where there is none in time.
Weigh: TypeAlias = Callable[[Priced, KernelTable], Marginal | None]


@dataclass(frozen=True, slots=True)
class _Worth:
    """Reduced costs (ns; inf: no plan needs it) and which are held, of the table's kernels and of active packs."""

    slack: NDArray[np.float64]
    held: NDArray[np.bool_]
    packs_held: NDArray[np.bool_]
    bound: int


class PackSearch:
    """Which packs matter. `table`: kernels without packs; `wide`: levels whose packs are too many to list."""

    def __init__(self, packer: Packer, table: KernelTable, wide: frozenset[int], weigh: Weigh) -> None:
        self.packer = packer
        self.wide = wide
        self.weigh = weigh
        self.table = table
        cost = np.array([-1 if c is None else c for c in packer.priced.cost_ns], dtype=np.int64)[table.unique]
        self.cost = np.maximum(cost, 0)
        self.levels = packer.levels(table)
        self.usable: Ints = np.flatnonzero(table.full & (cost > 0))

    def run(self, packs: Packs) -> tuple[Packs, bool]:
        """Those that lower the relaxation, round by round, MORE near it, their likes elsewhere; whether that ended."""
        active = np.zeros(len(packs), dtype=np.bool_)
        bound = np.inf
        for step in range(ROUNDS + 1):
            worth = self._weigh(packs.take(np.flatnonzero(active)))
            if worth is None:
                return packs.take(np.flatnonzero(active)), False
            ended = worth.bound > bound * (1.0 - LEAST)
            if self.wide and not ended:
                packs, active = self._widen(packs, active, worth)
            reduced = self._reduced(packs, worth)
            reduced[active] = 0.0
            fresh = self._fresh(packs, reduced, LEAST * worth.bound)
            if ended or not len(fresh) or step == ROUNDS:
                break
            active[fresh] = True
            bound = worth.bound
        active[np.argsort(np.where(active, np.inf, reduced), kind="stable")[:MORE]] = True
        kinds = packs.kinds()
        active |= np.isin(kinds, kinds[active])  # the sieve prices columns as one where all around them is alike
        return packs.take(np.flatnonzero(active)), ended or not len(fresh)

    def _fresh(self, packs: Packs, reduced: NDArray[np.float64], least: float) -> Ints:
        """Packs of each level that would lower the relaxation most, those by less than `least` ns left out."""
        rows = np.argsort(reduced, kind="stable")
        rows = rows[reduced[rows] < -least]
        levels = self.levels[packs.parts.items[packs.parts.starts[:-1][rows]]]
        order = np.argsort(levels, kind="stable")
        first = np.searchsorted(levels[order], levels[order])
        found: Ints = rows[order[np.arange(len(order)) - first < FRESH_PER_LEVEL]]
        return found

    def _weigh(self, packs: Packs) -> _Worth | None:
        priced = add_packs(self.packer.priced, packs)
        fresh = table_of(priced.space.kernels[len(self.table) :])
        marginal = self.weigh(priced, stack_tables([self.table.take(self.usable), fresh]))
        if marginal is None:
            return None
        rows = np.concatenate((self.usable, len(self.table) + np.arange(len(fresh), dtype=np.int64)))
        slack = np.full(len(self.table) + len(fresh), np.inf)
        slack[rows[list(marginal.reduced)]] = list(marginal.reduced.values())
        held = np.zeros(len(slack), dtype=np.bool_)
        held[rows[list(marginal.held)]] = True
        count = len(self.table)
        return _Worth(slack[:count], held[:count], held[count:], marginal.bound)

    def _reduced(self, packs: Packs, worth: _Worth) -> NDArray[np.float64]:
        """Least reduced cost (ns) of each pack: that of its parts, less what it saves."""
        first, items = packs.parts.starts[:-1], packs.parts.items
        saved = np.add.reduceat(self.cost[items], first) - 1e9 * packs.prices.latency
        found: NDArray[np.float64] = np.add.reduceat(worth.slack[items], first) - saved
        return found

    def _widen(self, packs: Packs, active: NDArray[np.bool_], worth: _Worth) -> tuple[Packs, NDArray[np.bool_]]:
        """With the packs of wide levels that could lower the relaxation."""
        known = {tuple(kernel.members for kernel in pack) for pack in packs.kernels}
        held = [packs.kernels[place] for place in np.flatnonzero(active)[worth.packs_held].tolist()]
        found = {
            key: parts for parts in self._look(worth, held)
            if (key := tuple(sorted(part.kernel.members for part in parts))) not in known
        }  # fmt: skip
        fresh = price_packs(self.packer, list(found.values()))
        return packs.below(fresh), np.concatenate((active, np.zeros(len(fresh), dtype=np.bool_)))

    def _look(self, worth: _Worth, held: Sequence[Sequence[Kernel]]) -> Iterator[tuple[Part, ...]]:
        """Pairs of kernels near the relaxation, runs of those in its optimum, packs in it (`held`) grown by one."""
        levels = self.packer.parts(self.table, worth.slack)
        best = self.packer.parts(self.table, np.where(worth.held, worth.slack, np.inf))
        place = {part.kernel.members: part for parts in levels.values() for part in parts}
        for level in sorted(self.wide & levels.keys()):
            yield from pairs(levels[level][:PARTS_PER_LEVEL])
            yield from runs(best.get(level, ()))
        for kernels in held:
            parts = tuple(place[kernel.members] for kernel in kernels if kernel.members in place)
            if len(parts) == len(kernels) and parts[0].level in self.wide:
                for other in levels[parts[0].level][:PARTS_PER_LEVEL]:
                    if all(part.independent(other) for part in parts):
                        yield (*parts, other)
