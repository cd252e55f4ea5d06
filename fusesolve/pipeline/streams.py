"""Several streams: which kernels overlap. Partition first, then a schedule of its kernels, and a bound over both.

Up to three partitions are scheduled: the fastest on one stream, the fastest without packs, and one whose kernels
overlap better. The shortest makespan is taken: kernels packed into one launch compete with the same on streams.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fusesolve.candidates.space import Kernel
from fusesolve.cost.events import Need, capacity_of, event_seconds, read_needs
from fusesolve.errors import InternalError
from fusesolve.group import TEMPLATES
from fusesolve.pipeline.columns import ColumnSet
from fusesolve.pipeline.planning import Planning
from fusesolve.pipeline.timing import wait_for
from fusesolve.ragged import choose
from fusesolve.solve import Limits, SolveResult, Status, solve
from fusesolve.solve.chain import longest_chain
from fusesolve.solve.tasks import ScheduleProblem, ScheduleResult, Task

SEARCHED = ("cpsat", "unfused")  # strategies whose plans are proven over their columns
SECOND_LOOK_S = 10.0  # seconds at most for each further partition, and for the bound by work


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduled:
    """A plan on streams: start (ns) and stream of each kernel of `result.selected`, in the order of their starts.

    `result`: its objective is the end of the last kernel, its bound is proven for every plan of the space and every
    schedule (None without a proof). `kernels_bound`: proven for every schedule of these kernels.
    """

    result: SolveResult
    start: tuple[int, ...]
    stream: tuple[int, ...]
    kernels_bound: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Needs:
    """What every priced workload needs of the device, and how much of it there is."""

    rows: tuple[Need | None, ...]
    capacity: tuple[int, ...]

    def of(self, kernel: Kernel) -> Need:
        """The need of a kernel that has a price."""
        found = self.rows[kernel.unique]
        if found is None:
            raise InternalError(f"a kernel over operators {kernel.members[:6]} is in a plan and has no price")
        return found


def schedule_plan(planning: Planning, columns: ColumnSet, result: SolveResult, streams: int) -> Scheduled:
    """The best schedule found for a solved problem on `streams` streams; on one, its kernels in their order."""
    priced = planning.priced
    templates = [TEMPLATES.index(template) for template in priced.space.templates]
    rows = read_needs(priced.prices, priced.cost_ns, templates, priced.profile)
    needs = _Needs(rows=rows, capacity=capacity_of(priced.profile))
    chosen = result.selected
    best = _schedule(planning, needs, columns, chosen, streams)
    if planning.options.strategy not in SEARCHED:  # its kernels are what they are
        return _finish(chosen, best, result, None)
    bound = longest_chain(columns.problem)
    for look in (_alone, _overlapping):
        if streams > 1 and best.placement.makespan > bound:
            other = look(planning, needs, columns, result.selected)
            if other and set(other) != set(chosen):
                found = _schedule(planning, needs, columns, other, streams)
                if found.placement.makespan < best.placement.makespan:
                    chosen, best = other, found
    if streams > 1 and best.placement.makespan > bound:
        bound = max(bound, _bound_by_work(planning, needs, columns, chosen))
    return _finish(chosen, best, result, min(bound, best.placement.makespan))


def _finish(chosen: Sequence[int], found: ScheduleResult, result: SolveResult, bound: int | None) -> Scheduled:
    placed = found.placement
    order = sorted(range(len(chosen)), key=lambda i: (placed.start[i], placed.stream[i]))
    status = Status.OPTIMAL if bound == placed.makespan else Status.FEASIBLE
    return Scheduled(
        result=replace(
            result, selected=tuple(chosen[i] for i in order), objective=placed.makespan, bound=bound, status=status
        ),
        start=tuple(placed.start[i] for i in order), stream=tuple(placed.stream[i] for i in order),
        kernels_bound=found.bound,
    )  # fmt: skip


def _schedule(
    planning: Planning, needs: _Needs, columns: ColumnSet, chosen: Sequence[int], streams: int
) -> ScheduleResult:
    from fusesolve.solve.schedule import solve_schedule

    kernels = choose(columns.kernels, chosen)
    wanted = [needs.of(kernel) for kernel in kernels]
    tasks = tuple(
        Task(duration=need.time_ns, lead=need.launch_ns, demand=need.held, after=after)
        for need, after in zip(wanted, wait_for(planning.priced.space.program, kernels), strict=True)
    )
    graph = planning.options.launch == "graph"
    problem = ScheduleProblem(
        tasks=tasks, streams=max(1, min(streams, len(tasks))), capacity=needs.capacity,
        across=0 if graph else round(event_seconds(planning.profile) * 1e9), one_by_one=not graph,
    )  # fmt: skip
    options = planning.options
    return solve_schedule(problem, Limits(time_s=planning.clock.left(), work=options.work_limit, seed=options.seed))


def _work_ns(need: Need, capacity: Sequence[int]) -> list[float]:
    """Time (ns) for which a kernel would keep each whole resource busy."""
    return [need.run_ns * held / limit for held, limit in zip(need.held, capacity, strict=True)]


def _alone(planning: Planning, needs: _Needs, columns: ColumnSet, chosen: Sequence[int]) -> tuple[int, ...]:
    """The fastest plan on one stream without packs, whose parts may overlap on streams instead."""
    packs = planning.priced.space.packs
    if not any(columns.kernels[i].unique in packs for i in chosen):
        return ()
    single = [i for i, kernel in enumerate(columns.kernels) if kernel.unique not in packs]
    problem = replace(columns.problem, columns=tuple(columns.problem.columns[i] for i in single))
    return tuple(single[i] for i in solve(problem, limits=_limits(planning)).selected)


def _overlapping(planning: Planning, needs: _Needs, columns: ColumnSet, chosen: Sequence[int]) -> tuple[int, ...]:
    """The best plan at the mean of what each column takes (ns) and what it would add if everything overlapped.

    That is the host's time for it, or the time of the resource that it keeps busiest.
    """
    costs = []
    for kernel, column in zip(columns.kernels, columns.problem.columns, strict=True):
        need = needs.of(kernel)
        costs.append((column.cost + max(need.launch_ns, math.ceil(max(_work_ns(need, needs.capacity))))) // 2)
    return _solve_with(planning, columns, costs, chosen).selected


def _solve_with(planning: Planning, columns: ColumnSet, costs: Sequence[int], warm: Sequence[int]) -> SolveResult:
    """The same problem under other costs (ns), within SECOND_LOOK_S."""
    priced = tuple(
        replace(column, cost=max(1, cost)) for column, cost in zip(columns.problem.columns, costs, strict=True)
    )
    return solve(replace(columns.problem, columns=priced), limits=_limits(planning), warm=warm)


def _limits(planning: Planning) -> Limits:
    """What is left of the limits, SECOND_LOOK_S at most."""
    left = planning.clock.left()
    return Limits(
        time_s=SECOND_LOOK_S if left is None else min(left, SECOND_LOOK_S), work=planning.options.work_limit,
        workers=planning.workers, seed=planning.options.seed,
    )  # fmt: skip


def _bound_by_work(planning: Planning, needs: _Needs, columns: ColumnSet, chosen: Sequence[int]) -> int:
    """Least time (ns) for which any plan keeps DRAM or L2 busy, whichever this plan keeps busier.

    Packs move what their parts move, so that it also holds for packs that the search for plans on one stream left out.
    """
    work = [needs.of(kernel).moving_ns for kernel in columns.kernels]
    totals = [sum(work[i][r] for i in chosen) for r in range(len(work[0]))]
    busiest = totals.index(max(totals))
    found = _solve_with(planning, columns, [math.floor(moving[busiest]) for moving in work], chosen)
    spare = len(columns.problem.producer)  # a column costs 1 ns at least, and makes a value
    return max(0, (found.bound or 0) - spare) if found.status is not Status.INFEASIBLE else 0
