"""Following a policy: its groups become a plan, solved only where a group is no kernel."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fusesolve.candidates.space import Kernel
from fusesolve.errors import InputError, InternalError
from fusesolve.pipeline.columns import ColumnSet, make_problem
from fusesolve.pipeline.planning import Planning
from fusesolve.solve import Limits, SolveResult, Status, check_solution, solve
from fusesolve.solve.memory import Fit, order_within
from fusesolve.solve.order import Order, order_columns
from fusesolve.strategies import POLICIES, Context, Illegal, Members, OutOfTimeError, Realised, realise

STRATEGY_NAMES: tuple[str, ...] = ("cpsat", "unfused", *POLICIES)


def check_strategy(name: str) -> None:
    """Raise InputError where `name` is no strategy."""
    if name not in STRATEGY_NAMES:
        raise InputError(f"no strategy {name!r}; choose one of {', '.join(STRATEGY_NAMES)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """A partition with a price: the columns, the chosen ones, and the groups that are no kernels.

    `planning` holds the prices of the space with the partition's own kernels beside it. `free`: views that cost
    nothing. `groups`: how many the partition has.
    """

    planning: Planning
    columns: ColumnSet
    result: SolveResult
    illegal: tuple[Illegal, ...]
    free: frozenset[Kernel]
    groups: int

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The kernels of the plan in execution order, free views left out."""
        chosen = (self.columns.kernels[i] for i in self.result.selected)
        return tuple(kernel for kernel in chosen if kernel not in self.free)

    @property
    def objective(self) -> int | None:
        """Cost of the plan in ns, None where there is none."""
        total = self.result.objective
        chosen = sum(self.columns.kernels[i] in self.free for i in self.result.selected)
        return None if total is None else total - chosen


def follow_policy(
    planning: Planning, name: str, context: Context | None = None, *, start: Sequence[Kernel] = ()
) -> Followed:
    """The plan of a policy (a key of POLICIES); InputError where pins are asked of it, which it cannot honour.

    `start`: see `follow_groups`.
    """
    if planning.options.together or planning.options.apart:
        raise InputError(f"strategy {name} follows its own rules and takes no pins; use cpsat")
    found = context or Context(planning.priced, planning.clock.over)
    try:
        return follow_groups(planning, POLICIES[name](found), found, start=start)
    except OutOfTimeError as stopped:
        return _stopped(planning, f"strategy {name}: {stopped}; raise --time-limit")


def _stopped(planning: Planning, line: str) -> Followed:
    """No plan: the policy did not end in time, and half of its groups would not be its plan."""
    result = SolveResult(
        status=Status.NO_SOLUTION, selected=(), objective=None, bound=None, seconds={}, stats={}, conflicts=(line,)
    )
    columns = planning.unfused[0]
    return Followed(planning=planning, columns=columns, result=result, illegal=(), free=frozenset(), groups=0)


def follow_groups(
    planning: Planning, groups: Sequence[Members], context: Context | None = None, *,
    views: frozenset[int] = frozenset(), start: Sequence[Kernel] = (),
) -> Followed:  # fmt: skip
    """The plan of given groups (ascending operator numbers; every operator in a group or in `views`, which are free).

    Where all of them are kernels there is nothing to choose. A group that is no kernel, or that waits for another one
    in a circle, is replaced by the cheapest kernels inside it; that search starts from those of `start`, a plan of the
    whole program.
    """
    found = context or Context(planning.priced)
    realised = realise(found, groups, views=views)
    if not realised.illegal:
        columns = _columns(planning, realised)
        order = order_columns(columns.problem.columns, range(len(columns.kernels)))
        if not order.stuck:
            return _followed(planning, realised, columns, _as_given(planning, columns, order), len(groups))
        stuck = {columns.kernels[i].members for i in order.stuck}
        waiting = frozenset(place for place, members in enumerate(groups) if stuck & {members})
        realised = realise(found, groups, views=views, split=waiting)
    columns = _columns(planning, realised)
    result = _cheapest(planning, columns, _first_plan(columns, realised, start))
    return _followed(planning, realised, columns, result, len(groups))


def _columns(planning: Planning, realised: Realised) -> ColumnSet:
    kernels = dict.fromkeys((*realised.whole, *realised.free, *realised.parts))
    return make_problem(
        realised.priced, tuple(kernels), recompute=True, max_kernels=planning.options.max_kernels,
        max_memory=planning.options.max_memory,
    )  # fmt: skip


def _as_given(planning: Planning, columns: ColumnSet, order: Order) -> SolveResult:
    """The partition itself, if it keeps the limits on kernels and memory; the order may change for the latter."""
    problem = columns.problem
    limit, room = problem.max_kernels, planning.options.max_memory
    order, fit = order_within(problem, order, problem.columns)
    faults = []
    if limit is not None and len(order.done) > limit:
        faults.append(f"the partition has {len(order.done)} kernels, --max-kernels allows {limit}")
    if fit is not Fit.FITS:
        faults.append(f"max-memory: no order of the partition's kernels was found that stays within {room} bytes")
    if faults:
        return SolveResult(
            status=Status.NO_SOLUTION, selected=(), objective=None, bound=None, seconds={}, stats={},
            conflicts=tuple(faults),
        )  # fmt: skip
    return SolveResult(
        status=Status.FEASIBLE, selected=order.done, bound=None, seconds={}, stats={},
        objective=sum(problem.columns[i].cost for i in order.done),
    )  # fmt: skip


def _cheapest(planning: Planning, columns: ColumnSet, first: Sequence[int]) -> SolveResult:
    """The cheapest plan of these columns, from `first` on."""
    limits = Limits(
        time_s=planning.clock.left(), work=planning.options.work_limit, workers=planning.workers,
        seed=planning.options.seed,
    )  # fmt: skip
    result = solve(columns.problem, strategy="cpsat", limits=limits, warm=first)
    status = Status.FEASIBLE if result.objective is not None else result.status
    return replace(result, status=status, bound=None)


def _first_plan(columns: ColumnSet, realised: Realised, start: Sequence[Kernel]) -> list[int]:
    """A plan of these columns: groups that are kernels, and in the others what `start` has there, else operators alone.

    The kernels of `start` are taken as they are where all of them are columns; else those that keep nothing back.
    """
    place = {(k.members, k.writes): i for i, k in enumerate(columns.kernels)}
    whole = [place[k.members, k.writes] for k in (*realised.whole, *realised.free) if (k.members, k.writes) in place]
    found = [place[k.members, k.writes] for k in start if (k.members, k.writes) in place]
    if start and len(found) == len(start):
        return found
    held = {m for i in whole for m in columns.kernels[i].members}
    for i in (*found, *place.values()):
        kernel = columns.kernels[i]
        alone = i in found or len(kernel.members) == 1
        if kernel.full and alone and held.isdisjoint(kernel.members):
            held.update(kernel.members)
            whole.append(i)
    return whole


def _followed(planning: Planning, realised: Realised, columns: ColumnSet, result: SolveResult, groups: int) -> Followed:
    faults = check_solution(columns.problem, result)
    if faults:
        raise InternalError(f"the plan of a partition fails the checker: {faults[0]}")
    return Followed(
        planning=replace(planning, priced=realised.priced), columns=columns, result=result, illegal=realised.illegal,
        free=frozenset(realised.free), groups=groups,
    )  # fmt: skip
