"""The solver on problems small enough to solve by hand, and on chains whose optimum a shortest path gives."""

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from fusesolve.errors import InputError, InternalError
from fusesolve.solve import (
    STRATEGIES,
    Column,
    Limits,
    PartitionProblem,
    Progress,
    Status,
    check_problem,
    check_solution,
    solve,
)


def column(
    members: tuple[int, ...],
    reads: tuple[int, ...],
    writes: tuple[int, ...],
    cost: int,
    tie: int = 0,
    full: bool = True,
) -> Column:
    return Column(members=members, reads=reads, writes=writes, cost=cost, tie=tie, full=full)


def crossing(*, recompute: bool) -> PartitionProblem:
    """a1 = 0, b1 = 1, a2 = 2, b2 = 3; a2 and b2 both read a1 and b1; value i is made by operator i.

    Alone each costs 10; {a1, a2} and {b1, b2} cost 1 each, are convex, and wait for each other.
    """
    columns = (
        column((0,), (), (0,), 10, 1), column((1,), (), (1,), 10, 2),
        column((2,), (0, 1), (2,), 10, 3), column((3,), (0, 1), (3,), 10, 4),
        column((0, 2), (1,), (0, 2), 1, 5), column((1, 3), (0,), (1, 3), 1, 6),
    )  # fmt: skip
    return PartitionProblem(
        n_ops=4, n_values=4, columns=columns, required=frozenset({2, 3}), producer=(0, 1, 2, 3), recompute=recompute
    )


def chain(size: int, longest: int, seed: int, *, recompute: bool = False) -> PartitionProblem:
    """A chain of `size` operators; every run of at most `longest` of them is a column at a random cost."""
    rng = random.Random(seed)
    columns = [
        column(
            tuple(range(first, last)), (first - 1,) if first else (), (last - 1,),
            rng.randint(1, 30) + 9 * (last - first), rng.randrange(2**31),
        )
        for first in range(size) for last in range(first + 1, min(size, first + longest) + 1)
    ]  # fmt: skip
    return PartitionProblem(
        n_ops=size, n_values=size, columns=tuple(columns), required=frozenset({size - 1}),
        producer=tuple(range(size)), recompute=recompute,
    )  # fmt: skip


def chain_optimum(problem: PartitionProblem) -> tuple[int, int]:
    """(cost, tie) of the best cut of a chain: a shortest path over its positions."""
    best = {0: (0, 0)}
    for item in sorted(problem.columns, key=lambda item: item.members):
        first, after = item.members[0], item.members[-1] + 1
        rank = (best[first][0] + item.cost, best[first][1] + item.tie)
        best[after] = min(best.get(after, rank), rank)
    return best[problem.n_ops]


def test_a_cycle_between_two_convex_groups_is_cut_off() -> None:
    # The two cheap pairs (cost 2) cannot both run; one pair and two single operators can: 1 + 10 + 10.
    result = solve(crossing(recompute=False))
    assert (result.status, result.objective, result.bound) == (Status.OPTIMAL, 21, 21)
    # {a1, a2} with ties 5 + 2 + 4 = 11 against {b1, b2} with 6 + 1 + 3 = 10: the second is taken.
    assert result.selected == (0, 5, 2)
    assert check_solution(crossing(recompute=False), result) == []


def test_recomputation_breaks_the_cycle_for_less() -> None:
    # a1 alone (10) feeds {b1, b2} (1), which writes b1 for {a1, a2} (1): 12, against b1 first: also 12, tie 13 > 12.
    problem = crossing(recompute=True)
    result = solve(problem)
    assert (result.status, result.objective) == (Status.OPTIMAL, 12)
    assert result.selected == (0, 5, 4)
    assert check_solution(problem, result) == []


@pytest.mark.parametrize("strategy", ["greedy", "unfused"])
def test_baselines_on_the_crossing(strategy: str) -> None:
    result = solve(crossing(recompute=False), strategy=strategy)
    assert (result.status, result.bound) == (Status.FEASIBLE, None)
    assert result.objective == {"greedy": 21, "unfused": 40}[strategy]
    assert check_solution(crossing(recompute=False), result) == []


def test_greedy_takes_the_greatest_saving_first_and_misses_the_optimum() -> None:
    # Chain 0-1-2-3, singles 10. {1,2} saves 9 (cost 11), {0,1} and {2,3} save 8 (12 each).
    # Greedy: 10 + 11 + 10 = 31. Optimum: 12 + 12 = 24.
    singles = [column((op,), (op - 1,) if op else (), (op,), 10) for op in range(4)]
    pairs = [column((0, 1), (), (1,), 12), column((1, 2), (0,), (2,), 11), column((2, 3), (1,), (3,), 12)]
    problem = PartitionProblem(
        n_ops=4, n_values=4, columns=(*singles, *pairs), required=frozenset({3}), producer=(0, 1, 2, 3), recompute=False
    )
    assert solve(problem, strategy="greedy").objective == 31
    assert solve(problem).objective == 24


def test_recomputing_a_cheap_producer_beats_writing_it() -> None:
    # 0 feeds 1 and 2. Writing value 0 costs 50 and reading it back 20 more each; {0,1} and {0,2} cost 12 each.
    columns = (
        column((0,), (), (0,), 50), column((1,), (0,), (1,), 30), column((2,), (0,), (2,), 30),
        column((0, 1), (), (1,), 12, full=False), column((0, 2), (), (2,), 12, full=False),
        column((0, 1), (), (0, 1), 52), column((0, 2), (), (0, 2), 52),
        column((0, 1, 2), (), (1, 2), 60),
    )  # fmt: skip
    problem = PartitionProblem(
        n_ops=3, n_values=3, columns=columns, required=frozenset({1, 2}), producer=(0, 1, 2), recompute=True
    )
    result = solve(problem)
    assert (result.objective, set(result.selected)) == (24, {3, 4})
    exact = solve(replace(problem, recompute=False))
    assert (exact.objective, exact.selected) == (60, (7,))


def test_equal_costs_are_settled_by_the_sum_of_ties() -> None:
    columns = (
        column((0,), (), (0,), 5, 100), column((1,), (0,), (1,), 5, 100),
        column((0, 1), (), (1,), 10, 201), column((0, 1), (), (0, 1), 10, 199),
    )  # fmt: skip
    problem = PartitionProblem(
        n_ops=2, n_values=2, columns=columns, required=frozenset({1}), producer=(0, 1), recompute=False
    )
    assert solve(problem).selected == (3,)
    assert solve(replace(problem, columns=columns[:3])).selected == (0, 1)


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("size", [1, 2, 40, 300])
def test_chains_reach_the_shortest_path(size: int, recompute: bool) -> None:
    problem = chain(size, 8, size, recompute=recompute)
    result = solve(problem)
    cost, tie = chain_optimum(problem)
    assert (result.status, result.objective, result.bound) == (Status.OPTIMAL, cost, cost)
    assert sum(problem.columns[index].tie for index in result.selected) == tie
    assert check_solution(problem, result) == []


def test_kernel_limit_binds_and_excludes() -> None:
    problem = chain(12, 4, 5)
    free = solve(problem)
    assert len(free.selected) > 3
    tight = solve(replace(problem, max_kernels=3))
    assert tight.status is Status.OPTIMAL and len(tight.selected) == 3  # 12 operators in runs of at most 4
    assert tight.objective is not None and free.objective is not None and tight.objective >= free.objective
    none = solve(replace(problem, max_kernels=2))
    assert (none.status, none.objective, none.bound, none.selected) == (Status.INFEASIBLE, None, None, ())
    assert "at most 2 kernels" in none.conflicts[0]
    greedy = solve(replace(problem, max_kernels=3), strategy="greedy")
    assert greedy.status in (Status.FEASIBLE, Status.NO_SOLUTION)
    assert check_solution(replace(problem, max_kernels=3), greedy) == []


def test_an_operator_without_a_column_is_named() -> None:
    problem = chain(4, 2, 1)
    kept = tuple(item for item in problem.columns if 2 not in item.members)
    result = solve(replace(problem, columns=kept))
    assert result.status is Status.INFEASIBLE
    assert any("operator 2 is in no column" in line for line in result.conflicts)
    assert any("required value 3" in line and "value" in line for line in result.conflicts)


def test_a_required_value_that_nobody_writes_is_named() -> None:
    problem = crossing(recompute=True)
    result = solve(replace(problem, columns=problem.columns[:3]))
    assert result.status is Status.INFEASIBLE
    assert result.conflicts == (
        "required value 3 (operator 3) is written by no column that can run: value 3 cannot be written; "
        "operators [3] have no column",
    )


def test_columns_that_only_feed_each_other_cannot_run() -> None:
    problem = crossing(recompute=True)
    result = solve(replace(problem, columns=problem.columns[4:]))
    assert result.status is Status.INFEASIBLE
    assert len(result.conflicts) == 2


def test_disjoint_columns_that_cannot_tile_the_operators_are_infeasible() -> None:
    columns = (column((0, 1), (), (1,), 5), column((1, 2), (0,), (2,), 5), column((0,), (), (0,), 5))
    problem = PartitionProblem(
        n_ops=4, n_values=4, required=frozenset({3}), producer=(0, 1, 2, 3), recompute=False,
        columns=(*columns, column((2, 3), (1,), (3,), 5), column((0, 1, 3), (2,), (3,), 5)),
    )  # fmt: skip
    assert solve(problem).objective == 10  # {0,1} then {2,3}
    result = solve(replace(problem, columns=(*columns, column((1, 3), (0, 2), (1, 3), 5))))
    assert result.status is Status.INFEASIBLE
    assert result.conflicts


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
@pytest.mark.parametrize("recompute", [False, True])
def test_nothing_to_do_is_an_empty_optimal_plan(strategy: str, recompute: bool) -> None:
    problem = PartitionProblem(
        n_ops=0, n_values=0, columns=(), required=frozenset(), producer=(), recompute=recompute
    )
    result = solve(problem, strategy=strategy)
    assert (result.status, result.objective, result.bound, result.selected) == (Status.OPTIMAL, 0, 0, ())
    assert check_solution(problem, result) == []


def test_single_operators_are_asked_for_by_the_baselines() -> None:
    problem = chain(4, 2, 1)
    pairs = replace(problem, columns=tuple(item for item in problem.columns if len(item.members) == 2))
    for strategy in ("greedy", "unfused"):
        result = solve(pairs, strategy=strategy)
        assert result.status is Status.NO_SOLUTION
        assert "no column of their own" in result.conflicts[0]
    assert solve(pairs).status is Status.OPTIMAL


def test_unknown_strategies_and_malformed_problems_are_refused() -> None:
    with pytest.raises(InputError, match="'magic'; choose one of cpsat, greedy, unfused"):
        solve(crossing(recompute=False), strategy="magic")
    good = crossing(recompute=False)
    with pytest.raises(InternalError, match="column 6"):
        solve(replace(good, columns=(*good.columns, column((9,), (), (0,), 1))))


@pytest.mark.parametrize(
    "bad",
    [
        column((), (), (0,), 1), column((1, 0), (), (0,), 1), column((0,), (), (), 1), column((0,), (), (1,), 1),
        column((0,), (0,), (0,), 1), column((0,), (), (0,), 0), column((0,), (), (0,), 1, tie=-1),
        column((0,), (), (0,), 1, tie=2**31), column((0,), (9,), (0,), 1), column((0,), (), (0,), 2**40),
    ],
)  # fmt: skip
def test_each_broken_column_is_refused(bad: Column) -> None:
    with pytest.raises(InternalError, match="column 0"):
        check_problem(replace(crossing(recompute=True), columns=(bad,)))


@pytest.mark.parametrize(
    "change",
    [{"producer": (0, 1)}, {"producer": (0, 1, 2, 9)}, {"required": frozenset({9})}, {"max_kernels": -1}],
)
def test_each_broken_field_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(InternalError):
        check_problem(replace(crossing(recompute=True), **change))  # type: ignore[arg-type]  # wrong on purpose


def test_a_warm_plan_is_returned_when_there_is_no_time() -> None:
    problem = chain(40, 8, 2)
    best = solve(problem)
    late = solve(problem, limits=Limits(time_s=0.0), warm=best.selected)
    assert (late.status, late.objective, late.bound) == (Status.FEASIBLE, best.objective, None)
    assert late.selected == best.selected
    assert late.gap is None


@pytest.mark.parametrize("warm", [(0,), (0, 0), (9999,), (4, 5)])
def test_a_warm_plan_that_is_none_is_ignored(warm: tuple[int, ...]) -> None:
    assert solve(crossing(recompute=False), warm=warm).objective == 21


def test_work_limits_reproduce_the_same_result() -> None:
    problem = chain(400, 12, 3, recompute=True)
    for work in (1e-4, 1e-2, 0.05):
        runs = [solve(problem, limits=Limits(time_s=None, work=work, workers=workers)) for workers in (1, 2)]
        assert runs[0].selected == runs[1].selected
        assert (runs[0].status, runs[0].bound, runs[0].stats) == (runs[1].status, runs[1].bound, runs[1].stats)
        assert check_solution(problem, runs[0]) == []


def test_progress_tells_stages_and_ends_at_the_result() -> None:
    seen: list[Progress] = []
    result = solve(chain(200, 8, 4), progress=seen.append)
    assert seen[0].stage == "prepare"
    assert {"prepare", "greedy", "relax"} <= {item.stage for item in seen}
    assert (seen[-1].incumbent, seen[-1].bound) == (result.objective, result.bound)
    costs = [item.incumbent for item in seen if item.incumbent is not None]
    bounds = [item.bound for item in seen if item.bound is not None]
    assert costs == sorted(costs, reverse=True) and bounds == sorted(bounds)
    assert all(first.seconds <= second.seconds for first, second in pairwise(seen))


@pytest.fixture
def interrupt_soon() -> Iterator[threading.Timer]:
    timer = threading.Timer(0.25, os.kill, (os.getpid(), signal.SIGINT))
    yield timer
    timer.cancel()


def test_ctrl_c_returns_the_best_plan(interrupt_soon: threading.Timer) -> None:
    problem = chain(3000, 12, 6, recompute=True)
    interrupt_soon.start()
    result = solve(problem, limits=Limits(time_s=None))
    assert result.stats["interrupted"] == 1
    assert result.status in (Status.FEASIBLE, Status.NO_SOLUTION)
    assert check_solution(problem, result) == []


def test_ctrl_c_inside_the_progress_callback_counts_too() -> None:
    calls: list[Progress] = []

    def report(item: Progress) -> None:
        calls.append(item)
        if len(calls) == 1:
            raise KeyboardInterrupt

    problem = chain(3000, 12, 6)
    result = solve(problem, limits=Limits(time_s=None), progress=report)
    assert result.stats["interrupted"] == 1
    assert result.status is not Status.OPTIMAL
    assert check_solution(problem, result) == []


def test_an_error_in_the_progress_callback_stops_the_solve() -> None:
    def report(item: Progress) -> None:
        raise ZeroDivisionError(item.stage)

    before = threading.active_count()
    with pytest.raises(ZeroDivisionError):
        solve(chain(3000, 12, 6), limits=Limits(time_s=None), progress=report)
    assert threading.active_count() == before


def test_a_time_limit_returns_soon_and_soundly() -> None:
    problem = chain(3000, 12, 6, recompute=True)
    result = solve(problem, limits=Limits(time_s=0.4))
    assert result.status is not Status.OPTIMAL  # the whole solve takes several seconds
    assert result.seconds["total"] < 30.0
    assert check_solution(problem, result) == []


HASH_SCRIPT = """
import sys
sys.path[:0] = [{unit!r}]
from test_solve_strategies import chain, crossing
from fusesolve.solve import Limits, solve
for problem in (chain(60, 6, 1), chain(60, 6, 1, recompute=True), crossing(recompute=True)):
    for strategy in ("cpsat", "greedy"):
        result = solve(problem, strategy=strategy, limits=Limits(workers={workers}))
        print(result.selected, result.objective, result.bound, sorted(result.stats.items()))
"""


def test_hash_seed_and_workers_do_not_change_a_byte() -> None:
    here = Path(__file__).resolve().parent
    outputs = set()
    for seed, workers in (("0", 1), ("1", 2), ("77", 2)):
        run = subprocess.run(
            [sys.executable, "-c", HASH_SCRIPT.format(unit=str(here), workers=workers)],
            env={**os.environ, "PYTHONHASHSEED": seed}, cwd=here.parents[1],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        outputs.add(run.stdout)
    assert len(outputs) == 1
