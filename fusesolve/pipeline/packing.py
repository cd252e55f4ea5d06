"""Packs join the space: all that start at one level, where they can be counted, or those that a good plan could use.

Where there are many, they join by column generation over the relaxation of the exact partition until that is no lower:
the packs left out lower neither its bound nor, where a plan meets that bound, the plan.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fusesolve.candidates.packs import (
    Packer,
    Packs,
    Part,
    add_packs,
    add_twins,
    independent_sets,
    pairs,
    price_packs,
    runs,
)
from fusesolve.candidates.pricing import Priced
from fusesolve.candidates.table import Kernel, KernelTable, table_of
from fusesolve.pipeline.columns import make_problem
from fusesolve.ragged import Ints
from fusesolve.solve import Limits
from fusesolve.solve.marginal import price_columns

SETS_PER_LEVEL = 3000  # sets of independent kernels that start at one level, all of which are priced
FEW = 1000  # packs that join the space as they are; more are weighed first
ROUNDS = 12
MORE = 300  # packs that join after the last round, as a plan that computes something twice may use them
FRESH_PER_LEVEL = 30  # packs of a level that join in a round, those that lower the relaxation most
MOST_OPERATORS = 2500  # graphs above this are planned without packs, and say so
PARTS_PER_LEVEL = 40  # kernels of a level with more sets, those nearest to the best plan, that are paired
LEAST = 2e-5  # share of the bound: a round that lowers it by less is the last


def pack_space(priced: Priced, limits: Limits, *, late: bool = False) -> Priced:
    """The priced space with packs. A second launch costs the most where kernels are short; see docs/MODEL.md.

    Levels of more than SETS_PER_LEVEL sets are searched against the relaxation, and `cut_by` names them; it says so,
    too, where there are no packs: in graphs of more than MOST_OPERATORS, or where `late` leaves no time for them.
    """
    if late:
        return _cut(priced, "packs: none, as half of the time limit was gone")
    count = len(priced.space.program.operators)
    if count > MOST_OPERATORS:
        return _cut(priced, f"packs: none in a graph of {count} operators (limit {MOST_OPERATORS})")
    packer = Packer(add_twins(priced))
    table = table_of(priced.space.kernels)
    sets: list[tuple[Part, ...]] = []
    wide: dict[int, str] = {}
    for level, parts in packer.parts(table, np.zeros(len(table))).items():
        found = independent_sets(parts, SETS_PER_LEVEL)
        sets.extend(found or ())
        if found is None:
            wide[level] = f"packs: more than {SETS_PER_LEVEL} sets of kernels beside {_first_name(priced, parts)}"
    packs = price_packs(packer, sets)
    reasons = list(wide.values())
    if wide or len(packs) > FEW:
        packs, ended = _Search(packer, table, frozenset(wide), limits).run(packs)
        reasons += [] if ended or wide else [f"packs: those of the last of {ROUNDS} rounds, or none in time"]
    return _cut(add_packs(packer.priced, packs), *reasons)


def _cut(priced: Priced, *reasons: str) -> Priced:
    return replace(priced, space=replace(priced.space, cut_by=(*priced.space.cut_by, *reasons)))


def _first_name(priced: Priced, parts: Sequence[Part]) -> str:
    program = priced.space.program
    first = min(part.kernel.members[0] for part in parts)
    return program.graph.nodes[program.operators[first].node].name


@dataclass(frozen=True, slots=True)
class _Worth:
    """What kernels are worth against a relaxation: reduced costs (ns; inf: no plan needs it), and its optimum."""

    slack: NDArray[np.float64]
    held: NDArray[np.bool_]
    bound: int


class _Search:
    """Which packs matter. `table`: kernels without packs; `wide`: levels whose packs are too many to count."""

    def __init__(self, packer: Packer, table: KernelTable, wide: frozenset[int], limits: Limits) -> None:
        self.packer = packer
        self.wide = wide
        self.limits = limits
        self.table = table
        cost = np.array([-1 if c is None else c for c in packer.priced.cost_ns], dtype=np.int64)[table.unique]
        self.cost = np.maximum(cost, 0)
        self.levels = packer.levels(table)
        self.usable: Ints = np.flatnonzero(table.full & (cost > 0))

    def run(self, packs: Packs) -> tuple[Packs, bool]:
        """Those that lower the relaxation, round by round, MORE near it, and whether its end was reached."""
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
        """Against the exact partition: its relaxation is nearly always whole."""
        priced = add_packs(self.packer.priced, packs)
        fresh = table_of(priced.space.kernels[len(self.table) :])
        columns = make_problem(priced, self.table.take(self.usable).below(fresh), recompute=False)
        marginal = price_columns(columns.problem, self.limits)
        if marginal is None:
            return None
        slack = np.full(len(columns.kernels), np.inf)
        slack[list(marginal.reduced)] = list(marginal.reduced.values())
        held = np.zeros(len(slack), dtype=np.bool_)
        held[list(marginal.held)] = True
        return _Worth(slack, held, marginal.bound)

    def _reduced(self, packs: Packs, worth: _Worth) -> NDArray[np.float64]:
        """Least reduced cost (ns) of each pack: that of its parts, less what it saves."""
        slack = np.full(len(self.table), np.inf)
        slack[self.usable] = worth.slack[: len(self.usable)]
        saved = np.add.reduceat(self.cost[packs.parts.items], packs.parts.starts[:-1]) - 1e9 * packs.prices.latency
        found: NDArray[np.float64] = np.add.reduceat(slack[packs.parts.items], packs.parts.starts[:-1]) - saved
        return found

    def _widen(self, packs: Packs, active: NDArray[np.bool_], worth: _Worth) -> tuple[Packs, NDArray[np.bool_]]:
        """With the packs of wide levels that could lower the relaxation."""
        known = {tuple(kernel.members for kernel in pack) for pack in packs.kernels}
        held = [packs.kernels[place] for place in np.flatnonzero(active)[worth.held[len(self.usable) :]].tolist()]
        found = {
            key: parts for parts in self._look(worth, held)
            if (key := tuple(sorted(part.kernel.members for part in parts))) not in known
        }  # fmt: skip
        fresh = price_packs(self.packer, list(found.values()))
        return packs.below(fresh), np.concatenate((active, np.zeros(len(fresh), dtype=np.bool_)))

    def _look(self, worth: _Worth, held: Sequence[Sequence[Kernel]]) -> Iterator[tuple[Part, ...]]:
        """Pairs of kernels near the relaxation, runs of those in its optimum, packs in it (`held`) grown by one."""
        slack = np.full(len(self.table), np.inf)
        slack[self.usable] = worth.slack[: len(self.usable)]
        levels = self.packer.parts(self.table, slack)
        slack[self.usable[~worth.held[: len(self.usable)]]] = np.inf
        best = self.packer.parts(self.table, slack)
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
