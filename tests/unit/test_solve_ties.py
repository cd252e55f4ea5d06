"""Ties by the relaxation: the least sum of ties where an exact bound proves it, open where it does not."""

import subprocess
import sys
from dataclasses import replace

import pytest

from fusesolve.solve import Column, Limits, PartitionProblem, ties
from fusesolve.solve.control import Control
from fusesolve.solve.cpsat import frame_of, task_within
from fusesolve.solve.instance import prepare_instance
from fusesolve.solve.searching import search
from fusesolve.solve.ties import least_of_relaxation


def column(members: tuple[int, ...], reads: tuple[int, ...], writes: tuple[int, ...], tie: int) -> Column:
    """A kernel of 10 ns for each of its operators: all plans of a chain cost the same."""
    return Column(members=members, reads=reads, writes=writes, cost=10 * len(members), tie=tie, full=True)


def chain_of_three(*, ties: tuple[int, int, int, int, int]) -> PartitionProblem:
    """Operators 0, 1, 2 in a row, alone or in pairs."""
    alone, pairs = ties[:3], ties[3:]
    columns = (
        *(column((i,), () if i == 0 else (i - 1,), (i,), tie) for i, tie in enumerate(alone)),
        column((0, 1), (), (1,), pairs[0]), column((1, 2), (0,), (2,), pairs[1]),
    )  # fmt: skip
    return PartitionProblem(
        n_ops=3, n_values=3, columns=columns, required=frozenset({2}), producer=(0, 1, 2), recompute=False
    )


def settle(problem: PartitionProblem, cost: int) -> tuple[tuple[int, ...] | None, tuple[int, ...]]:
    """What the relaxation and what the search choose, as indices of the problem's columns, ascending."""
    control = Control(limits=Limits())
    instance = prepare_instance(problem)
    task = task_within(frame_of(instance, control), cost, control, instance.tie.tolist())
    found = least_of_relaxation(task, cost, control)
    searched = search(task, control).selected
    named = None if found is None else tuple(sorted(instance.origin[i] for i in found))
    return named, tuple(sorted(instance.origin[i] for i in searched))


@pytest.mark.parametrize(
    ("ties", "chosen"),
    [
        ((1, 1, 1, 9, 9), (0, 1, 2)),  # 1 + 1 + 1 < 9 + 1
        ((5, 5, 5, 1, 9), (2, 3)),  # 1 + 5 < 5 + 9, 15
        ((5, 5, 5, 9, 1), (0, 4)),  # 5 + 1 < 9 + 5, 15
    ],
)
def test_the_least_sum_of_ties_is_found_without_a_search(ties: tuple[int, int, int, int, int], chosen: tuple[int, ...]):
    assert settle(chain_of_three(ties=ties), 30) == (chosen, chosen)


def test_a_memory_limit_leaves_it_open():
    problem = replace(chain_of_three(ties=(1, 1, 1, 9, 9)), max_live=2, live_bytes=(1, 1, 1))
    assert settle(problem, 30) == (None, (0, 1, 2))


def test_many_columns_leave_it_open(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ties, "MOST_COLUMNS", 4)  # the problem has five
    assert settle(chain_of_three(ties=(1, 1, 1, 9, 9)), 30) == (None, (0, 1, 2))


def test_a_plan_above_the_cost_is_none():
    """The relaxation of an infeasible task proves nothing: no plan costs 29 ns."""
    assert settle(chain_of_three(ties=(1, 1, 1, 9, 9)), 29)[0] is None


def test_a_proven_plan_loads_no_search():
    program = (
        "import sys, fusesolve\n"
        "assert fusesolve.plan('rms_norm', 'h100').status == 'OPTIMAL'\n"
        "assert 'ortools.math_opt' in sys.modules\n"
        "assert 'ortools.sat.python.cp_model' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
