"""Planning step by step: graph and profile in, solved columns out. `Planning` keeps what explanations ask again."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from fusesolve.candidates.pricing import Priced, price_space
from fusesolve.candidates.program import Program, build_program
from fusesolve.candidates.space import INTERRUPTED, Kernel, Space, enumerate_kernels
from fusesolve.cost import PACKERS
from fusesolve.cost.table import PriceOptions
from fusesolve.errors import InternalError
from fusesolve.graph import Graph
from fusesolve.hardware import HardwareProfile
from fusesolve.pipeline.collector import uncollected
from fusesolve.pipeline.columns import ColumnSet, apply_pins, by_source, find_operators, make_problem
from fusesolve.pipeline.levels import refine_plan
from fusesolve.pipeline.memory import constant_bytes
from fusesolve.pipeline.options import Event, PlanOptions, Report
from fusesolve.pipeline.packing import pack_space
from fusesolve.pipeline.seeds import seed_space
from fusesolve.solve import Limits, Progress, SolveResult, Status, check_solution, solve
from fusesolve.solve.memory import Fit, order_within
from fusesolve.solve.order import order_columns

HURRY_S = 2.0  # seconds for a last solve after an interrupt
WRITING_S = 1.5  # seconds kept for the unfused plan, the assembly and the output


@dataclass(kw_only=True)
class Clock:
    """Seconds per stage, and what is left of the limit (None: no limit)."""

    limit: float | None
    started: float = field(default_factory=time.monotonic)
    seconds: dict[str, float] = field(default_factory=dict)

    def left(self) -> float | None:
        """Seconds that a solve may take: until the limit, less what writing the plan takes; 0.2 at the least."""
        if self.limit is None:
            return None
        margin = min(WRITING_S, 0.05 * self.limit)
        return max(0.2, self.limit - margin - (time.monotonic() - self.started))

    def over(self) -> bool:
        """Whether nothing is left but the time to write the result."""
        if self.limit is None:
            return False
        return time.monotonic() - self.started > self.limit - min(WRITING_S, 0.05 * self.limit)

    def half_gone(self) -> bool:
        """Whether half of the limit is used: what is left belongs to pricing and solving."""
        return self.limit is not None and time.monotonic() - self.started > 0.5 * self.limit

    def solving_due(self) -> bool:
        """Whether three quarters of the limit are used: what is left belongs to solving."""
        return self.limit is not None and time.monotonic() - self.started > 0.75 * self.limit

    def hurry(self) -> None:
        """Leave only a moment: the caller was interrupted and wants what there is."""
        self.limit = time.monotonic() - self.started + HURRY_S

    def lap(self, stage: str, since: float) -> None:
        """Record a stage that began at `since` (monotonic seconds)."""
        self.seconds[stage] = self.seconds.get(stage, 0.0) + time.monotonic() - since


@dataclass(frozen=True, kw_only=True)
class Planning:
    """A graph with its priced kernel space on a profile, ready to be solved (again) under pins."""

    graph: Graph
    profile: HardwareProfile
    options: PlanOptions
    priced: Priced
    workers: int
    clock: Clock
    warnings: tuple[str, ...]
    report: Report | None = None
    start: tuple[Kernel, ...] = ()  # kernels of a plan that is known already, where there is one

    def solve(
        self, *, together: Sequence[Sequence[str]] = (), apart: Sequence[Sequence[str]] = (),
        strategy: str | None = None, warm: Sequence[Kernel] = (),
    ) -> tuple[ColumnSet, SolveResult]:  # fmt: skip
        """Solve under the options' pins and the given ones; the result has passed the checker."""
        space = self.priced.space
        chosen = strategy or self.options.strategy
        if chosen == "unfused":
            return within_memory(*self.unfused, self.options.max_memory, space.program)
        kernels = apply_pins(
            space.program, space.kernels, (*self.options.together, *together), (*self.options.apart, *apart)
        )
        return self._solve_over(kernels, chosen, warm)

    def _solve_over(
        self, kernels: Sequence[Kernel], strategy: str, warm: Sequence[Kernel]
    ) -> tuple[ColumnSet, SolveResult]:
        columns = make_problem(
            self.priced, kernels, recompute=self.options.recompute, max_kernels=self.options.max_kernels,
            max_memory=self.options.max_memory,
        )  # fmt: skip
        known = warm or (self.start if strategy == "cpsat" else ())
        position = {(k.members, k.writes): i for i, k in enumerate(columns.kernels)} if known else {}
        start = [position[key] for k in known if (key := (k.members, k.writes)) in position]
        result = self._run(columns, strategy, start)
        refined = refine_plan(self.priced, columns, result, self.options.objective, self._limits())
        _check(columns, refined)
        return columns, refined

    def without(self, banned: Kernel, *, warm: Sequence[Kernel] = ()) -> tuple[ColumnSet, SolveResult]:
        """Solve again with every kernel over the members of `banned` left out."""
        rest = [k for k in self.priced.space.kernels if k.members != banned.members]
        kernels = apply_pins(self.priced.space.program, rest, self.options.together, self.options.apart)
        return self._solve_over(kernels, self.options.strategy, warm)

    @cached_property
    def best(self) -> tuple[ColumnSet, SolveResult]:
        """The plan under the options, solved once."""
        return self.solve()

    @cached_property
    def unfused(self) -> tuple[ColumnSet, SolveResult]:
        """Every source operator alone, each by its best kernel (or kernels, where it is not one)."""
        columns = make_problem(self.priced, by_source(self.priced), recompute=False)
        return columns, self._run(columns, "cpsat", (), silent=True)

    def _run(self, columns: ColumnSet, strategy: str, warm: Sequence[int], *, silent: bool = False) -> SolveResult:
        progress = None if silent else self._progress(len(columns.kernels))
        result = solve(columns.problem, strategy=strategy, limits=self._limits(), warm=warm, progress=progress)
        _check(columns, result)
        return result

    def _limits(self) -> Limits:
        return Limits(
            time_s=self.clock.left(), work=self.options.work_limit, workers=self.workers, seed=self.options.seed
        )

    def _progress(self, candidates: int) -> Callable[[Progress], None] | None:
        report = self.report
        if report is None:
            return None
        return lambda step: report(
            Event(stage="solve", candidates=candidates, incumbent=step.incumbent, bound=step.bound)
        )


def _check(columns: ColumnSet, result: SolveResult) -> None:
    """Raise InternalError where the result does not hold what it claims."""
    faults = check_solution(columns.problem, result)
    if faults:
        raise InternalError(f"the solver's plan fails the checker: {faults[0]}")


def within_memory(
    columns: ColumnSet, result: SolveResult, limit: int | None, program: Program
) -> tuple[ColumnSet, SolveResult]:
    """The plan with its kernels in an order that peaks within `limit` bytes, or no plan where none was found."""
    if limit is None or result.objective is None:
        return columns, result
    problem = replace(columns.problem, max_live=limit - constant_bytes(program))
    order, fit = order_within(problem, order_columns(problem.columns, result.selected), problem.columns)
    if fit is Fit.FITS:
        return columns, replace(result, selected=order.done)
    line = f"max-memory: no order of these kernels was found that stays within {limit} bytes"
    return columns, replace(
        result, status=Status.NO_SOLUTION, selected=(), objective=None, bound=None, conflicts=(line,)
    )


def prepare(
    graph: Graph, profile: HardwareProfile, options: PlanOptions, *, workers: int, clock: Clock,
    warnings: tuple[str, ...], report: Report | None, separable: Sequence[str] = (),
) -> Planning:  # fmt: skip
    """Enumerate and price the kernel space of a graph on a profile; `separable` operators are not kept in chains."""
    space = enumerate_space(graph, options, clock=clock, report=report, separable=separable)
    return price_planning(
        space, graph, profile, options, workers=workers, clock=clock, warnings=warnings, report=report
    )


@uncollected
def enumerate_space(
    graph: Graph, options: PlanOptions, *, clock: Clock, report: Report | None = None, separable: Sequence[str] = ()
) -> Space:
    """The kernel space of a graph. It depends on no profile: limits are judged when it is priced."""
    since = time.monotonic()
    if report is not None:
        report(Event(stage="enumerate"))
    program = build_program(graph)
    pinned = frozenset().union(*(find_operators(program, name) for names in options.apart for name in names))
    apart = frozenset().union(pinned, *(find_operators(program, name) for name in separable))
    space = enumerate_kernels(program, recompute=options.recompute, separable=apart, late=clock.half_gone)
    clock.lap("enumerate", since)
    if INTERRUPTED in space.cut_by:
        clock.hurry()
    return space


@uncollected
def price_planning(
    space: Space, graph: Graph, profile: HardwareProfile, options: PlanOptions, *, workers: int, clock: Clock,
    warnings: tuple[str, ...] = (), report: Report | None = None, priced: Priced | None = None,
) -> Planning:  # fmt: skip
    """Price an enumerated space of `graph` on a profile; the same space serves any number of profiles.

    `priced`: what `price_space` makes of the space on this profile, where that is known already.
    """
    since = time.monotonic()
    if report is not None:
        report(Event(stage="price", candidates=len(space.kernels)))
    prices = PriceOptions(launch=options.launch, implementation=options.implementation)
    priced = price_space(space, profile, prices) if priced is None else priced
    start: tuple[Kernel, ...] = ()
    if space.cut_by:
        seeded = seed_space(priced, clock.solving_due)
        priced, start = seeded.priced, seeded.start
    elif profile.kind in PACKERS and options.strategy == "cpsat":
        priced = pack_space(priced, Limits(time_s=clock.left(), seed=options.seed), late=clock.half_gone)
    clock.lap("price", since)
    return Planning(
        graph=graph, profile=profile, options=options, priced=priced, workers=workers, clock=clock, warnings=warnings,
        report=report, start=start,
    )  # fmt: skip
