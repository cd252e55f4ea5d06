"""From a block of points to rows: one kernel space for all of them, priced and solved for each."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from fusesolve.candidates.pricing import Priced
from fusesolve.candidates.space import INTERRUPTED, Kernel, Space
from fusesolve.cost.table import TERMS
from fusesolve.graph import Graph
from fusesolve.hardware import HardwareProfile
from fusesolve.pipeline.assemble import assemble_groups, bound_by
from fusesolve.pipeline.columns import ColumnSet, by_source, make_problem
from fusesolve.pipeline.options import PlanOptions
from fusesolve.pipeline.planning import Clock, Planning, enumerate_space, price_planning
from fusesolve.plan import partition_sha256
from fusesolve.solve import SolveResult
from fusesolve.solve.order import order_columns
from fusesolve.whatif.points import Block
from fusesolve.whatif.rows import BOUND_TERMS, Outcome

SPACES_KEPT = 4  # kernel spaces that a process keeps, one a graph


def evaluate_block(block: Block) -> list[Outcome]:
    """The outcome of every point of a block, in order.

    A point's outcome depends on the block alone: not on the process, its earlier work or the number of processes.
    """
    bench = Bench(graph=block.subject.graph, space=_space(block), options=block.options)
    return [bench.outcome(point.profile) for point in block.points]


def _space(block: Block) -> Space:
    return _enumerated(_Key(block.subject.sha256, block.options, block.subject.graph))


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
    _solved: dict[tuple[int | None, ...], SolveResult] = field(default_factory=dict)
    _hashes: dict[tuple[Kernel, ...], str] = field(default_factory=dict)

    def outcome(self, profile: HardwareProfile) -> Outcome:
        """What the best plan of the graph on `profile` is and costs."""
        planning = self.price(profile)
        columns, result = self.solve(planning)
        order = tuple(columns.kernels[i] for i in result.selected)
        exists = result.objective is not None
        return Outcome(
            plan_sha256=self._hash(planning, order) if exists else None, status=result.status.value,
            objective_ns=result.objective, bound_ns=result.bound, gap=result.gap,
            unfused_ns=unfused_ns(planning), kernels=len(order) if exists else None,
            dram_bytes=_dram_bytes(planning.priced, order) if exists else None,
            shares=_shares(planning.priced, order),
        )  # fmt: skip

    def price(self, profile: HardwareProfile) -> Planning:
        """The kernel space priced on `profile`."""
        return price_planning(self.space, self.graph, profile, self.options, workers=1, clock=Clock(limit=None))

    def solve(self, planning: Planning) -> tuple[ColumnSet, SolveResult]:
        """The best plan; a problem that was solved before is not solved again."""
        key = planning.priced.cost_ns
        if key in self._solved and not self.space.cut_by:
            kernels = planning.priced.space.kernels
            return make_problem(planning.priced, kernels, recompute=self.options.recompute), self._solved[key]
        columns, result = planning.solve()
        if result.stats.get("interrupted"):
            raise KeyboardInterrupt
        self._solved[key] = result
        return columns, result

    def _hash(self, planning: Planning, order: tuple[Kernel, ...]) -> str:
        if order not in self._hashes:
            self._hashes[order] = partition_sha256(assemble_groups(planning, order))
        return self._hashes[order]


def unfused_ns(planning: Planning) -> int | None:
    """Cost of every source operator alone in ns; the solver is asked only where an operator is no kernel by itself."""
    columns = make_problem(planning.priced, by_source(planning.priced), recompute=False).problem.columns
    held = Counter(member for column in columns for member in column.members)
    covered = len(held) == len(planning.priced.space.program.operators) and set(held.values()) <= {1}
    if covered and not order_columns(columns, range(len(columns))).stuck:
        return sum(column.cost for column in columns)
    return planning.unfused[1].objective


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
