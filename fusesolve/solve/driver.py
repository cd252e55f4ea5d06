"""Running a strategy: validation, the waiting thread, interrupts, and the result."""

import queue
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeAlias

from fusesolve.errors import InputError
from fusesolve.solve.baselines import offer_columns, solve_greedy, solve_unfused
from fusesolve.solve.control import Control, Finding, Incumbent
from fusesolve.solve.cpsat import solve_cpsat
from fusesolve.solve.instance import Instance, find_conflicts, prepare_instance
from fusesolve.solve.problem import Limits, PartitionProblem, Progress, SolveResult, Status, check_problem
from fusesolve.solve.sample import check_blocks
from fusesolve.solve.sifted import solve_sifted, worth_sifting
from fusesolve.solve.table import ColumnBlocks, ColumnTable, check_table

Strategy: TypeAlias = Callable[[Instance, Control], Finding]

STRATEGIES: Mapping[str, Strategy] = {"cpsat": solve_cpsat, "greedy": solve_greedy, "unfused": solve_unfused}
WAIT_S = 0.05


def solve(
    problem: PartitionProblem,
    *,
    strategy: str = "cpsat",
    limits: Limits | None = None,
    progress: Callable[[Progress], None] | None = None,
    warm: Sequence[int] | None = None,
) -> SolveResult:
    """Choose columns of `problem` by the named strategy (a key of STRATEGIES).

    `progress` is called from this thread, at most once per change of stage, incumbent or bound. `warm`: column indices
    of a known plan; ignored if it is none. At the time or work limit, and at KeyboardInterrupt, the best plan so far
    and its bound are returned. Raises InputError for an unknown strategy and InternalError for a malformed problem.
    The result depends on the content of the columns alone, not on their order, nor on `workers`.
    """
    if strategy not in STRATEGIES:
        raise InputError(f"no strategy {strategy!r}; choose one of {', '.join(STRATEGIES)}")
    reports: queue.SimpleQueue[Progress] = queue.SimpleQueue()
    control = Control(limits=limits or Limits(), report=reports.put if progress else None)
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="fusesolve-solve") as pool:
        future = pool.submit(_run, problem, STRATEGIES[strategy], control, tuple(warm or ()))
        try:
            finding = _wait(future, control, reports, progress)
        finally:
            control.stop()
    return _conclude(control, finding)


def _run(problem: PartitionProblem, strategy: Strategy, control: Control, warm: tuple[int, ...]) -> Finding:
    with control.stage("prepare"):
        check_problem(problem)
        if isinstance(problem.columns, ColumnTable):
            check_table(problem, problem.columns)
        if isinstance(problem.columns, ColumnBlocks):
            check_blocks(problem, problem.columns)
        _offer_warm(problem, control, warm)
        if strategy is solve_cpsat and _is_forced(problem) and not offer_columns(
            problem, control, range(len(problem.columns))
        ).conflicts:
            control.raise_bound(control.incumbent.cost if control.incumbent is not None else 0)
            return Finding()
    needless = not problem.required and (problem.recompute or not problem.n_ops)
    if strategy is solve_cpsat and worth_sifting(problem) and not needless:
        finding = solve_sifted(problem, control)
        if finding is not None:
            return finding
    with control.stage("prepare"):
        instance = prepare_instance(problem)
        control.stats["columns"] = len(instance.columns)
        conflicts = find_conflicts(instance)
        if conflicts:
            return Finding(infeasible=True, conflicts=conflicts)
    if needless:
        control.offer(Incumbent(cost=0, tie=0, selected=()))
        control.raise_bound(0)
        return Finding()
    return strategy(instance, control)


def _is_forced(problem: PartitionProblem) -> bool:
    """Whether an exact partition has no choice: every operator is in one column, which keeps nothing back."""
    if problem.recompute or not 0 < len(problem.columns) <= problem.n_ops:
        return False
    held = [op for column in problem.columns for op in column.members]
    return sorted(held) == list(range(problem.n_ops)) and all(column.full for column in problem.columns)


def _wait(
    future: Future[Finding],
    control: Control,
    reports: "queue.SimpleQueue[Progress]",
    progress: Callable[[Progress], None] | None,
) -> Finding:
    """Wait for the solving thread, pass its reports on, and turn limits and Ctrl-C into an orderly stop."""
    while not future.done():
        try:
            wait([future], timeout=WAIT_S)
            if control.time_left_s() == 0.0:
                control.stop()
            _drain(reports, progress)
        except KeyboardInterrupt:
            control.stats["interrupted"] = 1
            control.stop()
    _drain(reports, progress)
    return future.result()


def _drain(reports: "queue.SimpleQueue[Progress]", progress: Callable[[Progress], None] | None) -> None:
    while progress is not None and not reports.empty():
        progress(reports.get())


def _offer_warm(problem: PartitionProblem, control: Control, warm: tuple[int, ...]) -> None:
    """Offer the caller's plan, if it is one."""
    if not warm or len(set(warm)) != len(warm) or not all(0 <= index < len(problem.columns) for index in warm):
        return
    held = [op for index in warm for op in problem.columns[index].members]
    exact = all(problem.columns[index].full for index in warm) and sorted(held) == list(range(problem.n_ops))
    if exact or problem.recompute:
        offer_columns(problem, control, warm)


def _conclude(control: Control, finding: Finding) -> SolveResult:
    best = control.incumbent
    status = Status.NO_SOLUTION
    if best is not None:
        proven = best.cost == control.bound and not control.stats.get("ties_cut")
        status = Status.OPTIMAL if proven else Status.FEASIBLE
    elif finding.infeasible:
        status = Status.INFEASIBLE
    return SolveResult(
        status=status,
        selected=best.selected if best is not None else (),
        objective=best.cost if best is not None else None,
        bound=None if status is Status.INFEASIBLE else control.bound,
        seconds={**control.seconds, "total": control.elapsed_s()},
        stats=dict(control.stats),
        conflicts=() if best is not None else finding.conflicts,
    )
