"""From a block of points to rows: one kernel space for all of them, priced and solved for each."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TypeAlias

from fusesolve.candidates.packs import cost_of_packs
from fusesolve.candidates.pricing import Priced, price_space, shift_launch
from fusesolve.candidates.space import INTERRUPTED, Kernel, Space
from fusesolve.cost.table import TERMS, PriceOptions, WorkloadTable
from fusesolve.graph import Graph
from fusesolve.hardware import HardwareProfile
from fusesolve.pipeline.assemble import assemble_groups, bound_by
from fusesolve.pipeline.columns import ColumnSet, by_source, make_problem
from fusesolve.pipeline.options import PlanOptions
from fusesolve.pipeline.planning import Clock, Planning, enumerate_space, price_planning
from fusesolve.plan import partition_sha256
from fusesolve.ragged import choose
from fusesolve.solve import Shortlist, SolveResult, Status, start_shortlist
from fusesolve.solve.order import order_columns
from fusesolve.whatif.points import Block, Subject
from fusesolve.whatif.rows import BOUND_TERMS, Outcome

# Members, reads, writes and whether it is full: what a kernel is at every point, wherever its price stands.
_Name: TypeAlias = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], bool]

SPACES_KEPT = 4  # kernel spaces that a process keeps, one a graph
WIDE_SHARE = 0.5  # of all kernels: a longer shortlist saves nothing


def evaluate_block(block: Block) -> list[Outcome]:
    """The outcome of every point of a block, in order.

    A point's outcome depends on the block alone: not on the process, its earlier work or the number of processes.
    """
    bench = open_bench(block.subject, block.options)
    return [bench.outcome(point.profile) for point in block.points]


def open_bench(subject: Subject, options: PlanOptions) -> "Bench":
    """A bench for a graph; its kernel space is that of an earlier bench of the process where there was one."""
    space = _enumerated(_Key(subject.sha256, options, subject.graph))
    return Bench(graph=subject.graph, space=space, options=options)


@dataclass(frozen=True, slots=True)
class _Key:
    """What a kernel space depends on; the graph comes along but its hash stands for it."""

    sha256: str
    options: PlanOptions
    graph: Graph = field(compare=False)


@lru_cache(maxsize=SPACES_KEPT)
def _enumerated(key: _Key) -> Space:
    return enumerate_whole(key.graph, key.options)


def enumerate_whole(graph: Graph, options: PlanOptions) -> Space:
    """The kernel space of a graph without any clock; an interrupt ends the sweep instead of cutting the space."""
    space = enumerate_space(graph, options, clock=Clock(limit=None))
    if INTERRUPTED in space.cut_by:
        raise KeyboardInterrupt
    return space


@dataclass(kw_only=True)
class Bench:
    """One graph with its kernel space, ready to be priced and solved on any profile of its device's types."""

    graph: Graph
    space: Space
    options: PlanOptions
    _solved: dict[tuple[object, ...], tuple[ColumnSet, SolveResult]] = field(default_factory=dict)
    _last: tuple[_Name, ...] = ()
    _shortlist: Shortlist | None = None
    _place: dict[_Name, int] = field(default_factory=dict)
    _hashes: dict[tuple[_Name, ...], str] = field(default_factory=dict)
    _base: dict[str, Priced] = field(default_factory=dict)
    _table: WorkloadTable | None = None

    def outcome(self, profile: HardwareProfile) -> Outcome:
        """What the best plan of the graph on `profile` is and costs."""
        planning = self.price(profile)
        columns, result = self.solve(planning)
        order = choose(columns.kernels, result.selected)
        exists = result.objective is not None
        return Outcome(
            plan_sha256=self.hash_of(planning, order) if exists else None, status=result.status.value,
            objective_ns=result.objective, bound_ns=result.bound, gap=result.gap,
            unfused_ns=unfused_ns(planning), kernels=len(order) if exists else None,
            dram_bytes=_dram_bytes(planning.priced, order) if exists else None,
            shares=_shares(planning.priced, order),
        )  # fmt: skip

    def price(self, profile: HardwareProfile) -> Planning:
        """The kernel space priced on `profile`; where only the launch is new, the prices are shifted by it."""
        rest = _all_but_launch(profile)
        before = self._base.get(rest)
        priced = None if before is None else shift_launch(before, profile)
        if priced is None:
            options = PriceOptions(launch=self.options.launch, implementation=self.options.implementation)
            self._table = self._table or WorkloadTable(self.space.workloads)
            priced = price_space(self.space, profile, options, table=self._table)
            self._base = {rest: priced}
        return price_planning(
            self.space, self.graph, profile, self.options, workers=1, clock=Clock(limit=None), priced=priced
        )

    def solve(self, planning: Planning) -> tuple[ColumnSet, SolveResult]:
        """The best plan; the same costs are not solved twice, and new ones over a shortlist of kernels if possible."""
        space = planning.priced.space
        key = (planning.priced.cost_ns, *map(_name, space.kernels[len(self.space.kernels) :]))
        if key not in self._solved:
            found = self._solve_shortlist(planning) or _solve(planning)
            self._solved = {key: found}
            self._last = tuple(_name(found[0].kernels[i]) for i in found[1].selected) or self._last
        return self._solved[key]

    def _solve_shortlist(self, planning: Planning) -> tuple[ColumnSet, SolveResult] | None:
        """The optimum among the kernels that a plan as good as the last one can use, which is the optimum of all.

        None where there is no last plan, it does not exist here, or nothing is proven.
        """
        priced = planning.priced
        if self.space.cut_by:
            return None
        here = {_name(kernel): kernel for kernel in priced.space.kernels}
        fresh = [name for name in here if name not in self._place]
        if fresh:  # packs join the space point by point; a series with new columns starts anew, at the next point
            self._place.update({name: len(self._place) + i for i, name in enumerate(fresh)})
            self._shortlist = None
        if fresh or not self._last:
            return None
        series = self._series(priced)
        kernels = [here.get(name) for name in self._place]
        costs = [None if kernel is None else priced.cost_ns[kernel.unique] for kernel in kernels]
        kept = series.keep(costs, [self._place[name] for name in self._last])
        if kept is None or len(kept) > WIDE_SHARE * len(here):
            return None
        few = tuple(kernel for index in kept if (kernel := kernels[index]) is not None)
        chosen = replace(priced, space=replace(priced.space, kernels=few))
        columns, result = _solve(replace(planning, priced=chosen))
        proven = result.status is Status.OPTIMAL and result.stats.get("ties_settled")
        return (columns, result) if proven else None

    def _series(self, priced: Priced) -> Shortlist:
        """The shortlist over all kernels seen so far."""
        if self._shortlist is None:
            kernels = [Kernel(members=m, reads=r, writes=w, full=f, unique=0) for m, r, w, f in self._place]
            problem = make_problem(replace(priced, cost_ns=(1,)), kernels, recompute=self.options.recompute).problem
            self._shortlist = start_shortlist(problem)
        return self._shortlist

    def hash_of(self, planning: Planning, order: tuple[Kernel, ...]) -> str:
        """The hash of a plan of `planning`, given by its kernels in execution order (see `partition_sha256`)."""
        key = tuple(map(_name, order))
        if key not in self._hashes:
            self._hashes[key] = partition_sha256(assemble_groups(planning, order))
        return self._hashes[key]


def _name(kernel: Kernel) -> _Name:
    return kernel.members, kernel.reads, kernel.writes, kernel.full


def cost_elsewhere(planning: Planning, order: Sequence[Kernel], home: Planning, shapes: int) -> int | None:
    """What the kernels of a plan of `home` cost on `planning` in ns; None where one of them does not exist there.

    Both price one space, whose first `shapes` workloads they have in common; a pack is priced from its parts.
    """
    packed = home.priced.space.packs
    packs = [packed[kernel.unique] for kernel in order if kernel.unique in packed]
    alone = [kernel.unique for kernel in order if kernel.unique not in packed]
    paid = [planning.priced.cost_ns[shape] if shape < shapes else None for shape in alone]
    paid += cost_of_packs(planning.priced, packs)
    return None if None in paid else sum(cost for cost in paid if cost is not None)


def _solve(planning: Planning) -> tuple[ColumnSet, SolveResult]:
    columns, result = planning.solve()
    if result.stats.get("interrupted"):
        raise KeyboardInterrupt
    return columns, result


def unfused_ns(planning: Planning) -> int | None:
    """Cost of every source operator alone in ns; the solver is asked only where an operator is no kernel by itself."""
    columns = make_problem(planning.priced, by_source(planning.priced), recompute=False).problem.columns
    held = Counter(member for column in columns for member in column.members)
    covered = len(held) == len(planning.priced.space.program.operators) and set(held.values()) <= {1}
    if covered and not order_columns(columns, range(len(columns))).stuck:
        return sum(column.cost for column in columns)
    return planning.unfused[1].objective


def _all_but_launch(profile: HardwareProfile) -> str:
    return json.dumps({key: value for key, value in profile.definition.items() if key != "launch"}, sort_keys=True)


def _dram_bytes(priced: Priced, order: Sequence[Kernel]) -> int:
    column = priced.prices.resources["dram_bytes"]
    return sum(int(column[kernel.unique]) for kernel in order)


def _shares(priced: Priced, order: Sequence[Kernel]) -> tuple[float | None, ...]:
    """For each of BOUND_TERMS the share of the plan's time in kernels that it bounds; None without a plan."""
    spent: Counter[str] = Counter()
    for kernel in order:
        terms = {name: round(float(priced.prices.terms[name][kernel.unique]) * 1e9) for name in TERMS}
        spent[bound_by(terms)] += priced.cost_ns[kernel.unique] or 0
    total = spent.total()
    return tuple(round(spent[name] / total, 6) if total else None for name in BOUND_TERMS)
