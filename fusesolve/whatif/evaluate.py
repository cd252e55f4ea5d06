"""From a block of points to rows: one kernel space for all of them, priced and solved for each."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from fusesolve.candidates.pricing import Priced, shift_launch
from fusesolve.candidates.space import INTERRUPTED, Kernel, Space
from fusesolve.cost.table import TERMS
from fusesolve.graph import Graph
from fusesolve.hardware import HardwareProfile
from fusesolve.pipeline.assemble import assemble_groups, bound_by
from fusesolve.pipeline.columns import ColumnSet, by_source, make_problem
from fusesolve.pipeline.options import PlanOptions
from fusesolve.pipeline.planning import Clock, Planning, enumerate_space, price_planning
from fusesolve.plan import partition_sha256
from fusesolve.solve import Shortlist, SolveResult, Status, start_shortlist
from fusesolve.solve.order import order_columns
from fusesolve.whatif.points import Block, Subject
from fusesolve.whatif.rows import BOUND_TERMS, Outcome

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
    _solved: dict[tuple[int | None, ...], tuple[ColumnSet, SolveResult]] = field(default_factory=dict)
    _last: tuple[Kernel, ...] = ()
    _shortlist: Shortlist | None = None
    _place: dict[Kernel, int] = field(default_factory=dict)
    _hashes: dict[tuple[Kernel, ...], str] = field(default_factory=dict)
    _priced: dict[str, Planning] = field(default_factory=dict)

    def outcome(self, profile: HardwareProfile) -> Outcome:
        """What the best plan of the graph on `profile` is and costs."""
        planning = self.price(profile)
        columns, result = self.solve(planning)
        order = tuple(columns.kernels[i] for i in result.selected)
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
        before = self._priced.get(rest)
        if before is not None and not self.space.cut_by:  # a cut space is seeded by policies that look at prices
            priced = shift_launch(before.priced, profile)
            if priced is not None:
                return replace(before, priced=priced, profile=profile, clock=Clock(limit=None))
        found = price_planning(self.space, self.graph, profile, self.options, workers=1, clock=Clock(limit=None))
        self._priced = {rest: found}
        return found

    def solve(self, planning: Planning) -> tuple[ColumnSet, SolveResult]:
        """The best plan; the same costs are not solved twice, and new ones over a shortlist of kernels if possible."""
        key = planning.priced.cost_ns
        if key in self._solved and not self.space.cut_by:
            return self._solved[key]
        found = self._solve_shortlist(planning) or _solve(planning)
        self._solved = {key: found}
        self._last = tuple(found[0].kernels[i] for i in found[1].selected) or self._last
        return found

    def _solve_shortlist(self, planning: Planning) -> tuple[ColumnSet, SolveResult] | None:
        """The optimum among the kernels that a plan as good as the last one can use, which is the optimum of all.

        None where there is no last plan, it is not allowed here, or nothing is proven.
        """
        space, costs = self.space, planning.priced.cost_ns
        if space.cut_by or not self._last:
            return None
        if self._shortlist is None:
            free = replace(planning.priced, cost_ns=(1,) * len(costs))
            everything = make_problem(free, space.kernels, recompute=self.options.recompute)
            self._shortlist = start_shortlist(everything.problem)
            self._place = {kernel: index for index, kernel in enumerate(space.kernels)}
        kept = self._shortlist.keep(
            [costs[kernel.unique] for kernel in space.kernels], [self._place[kernel] for kernel in self._last]
        )
        if kept is None or len(kept) > WIDE_SHARE * len(space.kernels):
            return None
        few = replace(space, kernels=tuple(space.kernels[index] for index in kept))
        columns, result = _solve(replace(planning, priced=replace(planning.priced, space=few)))
        proven = result.status is Status.OPTIMAL and result.stats.get("ties_settled")
        return (columns, result) if proven else None

    def hash_of(self, planning: Planning, order: tuple[Kernel, ...]) -> str:
        """The hash of a plan of `planning`, given by its kernels in execution order (see `partition_sha256`)."""
        if order not in self._hashes:
            self._hashes[order] = partition_sha256(assemble_groups(planning, order))
        return self._hashes[order]


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
