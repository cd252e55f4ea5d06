"""The sieve of large problems, on small ones: its prices bound every plan, and what it keeps holds the optimum."""

import random

import numpy as np
import pytest

from fusesolve import plan
from fusesolve.candidates import space
from fusesolve.ragged import Ragged, ragged, stack
from fusesolve.solve import PartitionProblem, check_solution, sifted, solve
from fusesolve.solve.control import Control
from fusesolve.solve.exhaustive import search_exhaustive
from fusesolve.solve.instance import find_necessary as find_necessary_exactly
from fusesolve.solve.instance import prepare_instance
from fusesolve.solve.problem import Limits
from fusesolve.solve.sift import find_necessary, find_pairs, make_sieve
from fusesolve.solve.table import check_table, table_of
from tests.property.test_solver_exact import assert_exact, make_problem


def repeated(problem: PartitionProblem, times: int) -> PartitionProblem:
    """The problem `times` over, side by side: operators and values repeat as layers of a model do."""
    columns, n_ops, n_values = [], problem.n_ops, problem.n_values
    for turn in range(times):
        for column in problem.columns:
            columns.append(
                type(column)(
                    members=tuple(op + turn * n_ops for op in column.members),
                    reads=tuple(value + turn * n_values for value in column.reads),
                    writes=tuple(value + turn * n_values for value in column.writes),
                    cost=column.cost, tie=column.tie, full=column.full,
                )
            )  # fmt: skip
    return PartitionProblem(
        n_ops=n_ops * times, n_values=n_values * times, columns=tuple(columns), recompute=problem.recompute,
        required=frozenset(value + turn * n_values for turn in range(times) for value in problem.required),
        producer=tuple(op + turn * n_ops for turn in range(times) for op in problem.producer),
    )  # fmt: skip


@pytest.mark.parametrize("recompute", [False, True])
def test_a_sieved_solve_equals_exhaustive_search(recompute: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sifted, "SIFTED_COLUMNS", 0)
    monkeypatch.setattr(sifted, "COLUMNS_PER_OPERATOR", 1)
    for seed in range(7000, 7060):
        assert_exact(make_problem(seed, recompute=recompute, drop_columns=0.3 * (seed % 3), max_size=7))


@pytest.mark.parametrize("recompute", [False, True])
def test_prices_bound_the_best_plan_with_and_without_each_column(recompute: bool) -> None:
    for seed in range(8000, 8040):
        problem = make_problem(seed, recompute=recompute, max_size=6)
        best = search_exhaustive(problem)
        sieve = make_sieve(problem, Control(limits=Limits(time_s=None)))
        assert sieve is not None and best is not None
        cost, _, selected = best
        spent = sum(max(0, int(sieve.reduced[index])) for index in selected)
        assert sieve.bound + spent <= cost * sieve.scale
        assert set(selected) <= set(sieve.keep(cost).tolist())
        assert len(sieve.keep(sieve.limit_of(3))) >= min(3, int(sieve.usable.sum()))


@pytest.mark.parametrize("recompute", [False, True])
def test_equal_parts_cost_as_many_times_one(recompute: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sifted, "SIFTED_COLUMNS", 0)
    for seed in range(8500, 8506):
        part = make_problem(seed, recompute=recompute, max_size=7)
        best = search_exhaustive(part)
        whole = repeated(part, 5)
        found = solve(whole, limits=Limits(time_s=None))
        assert best is not None and check_solution(whole, found) == []
        assert (found.objective, found.bound) == (5 * best[0], 5 * best[0])


def test_necessary_operators_are_those_that_every_plan_computes() -> None:
    for seed in range(9000, 9040):
        problem = make_problem(seed, recompute=True, max_size=7)
        table = table_of(problem.columns)
        found = find_necessary(problem, table, find_pairs(problem, table))
        instance = prepare_instance(problem, drop_equals=False)
        assert set(np.nonzero(found)[0].tolist()) <= set(
            find_necessary_exactly(problem, instance.columns, instance.covers)
        )
        assert found[[problem.producer[value] for value in problem.required]].all()


def test_tables_give_back_their_columns() -> None:
    problem = make_problem(9100, recompute=True)
    table = table_of(problem.columns)
    check_table(problem, table)
    assert tuple(table) == problem.columns
    assert tuple(table[2:5]) == problem.columns[2:5] and table[-1] == problem.columns[-1]


def test_ragged_arrays_against_lists() -> None:
    rng = random.Random(3)
    rows = [sorted(rng.sample(range(12), rng.randint(0, 4))) for _ in range(30)]
    arrays = ragged(rows)
    assert [list(arrays.row(index)) for index in range(len(arrays))] == rows
    chosen = np.array([rng.randrange(30) for _ in range(50)])
    assert [list(arrays.take(chosen).row(i)) for i in range(50)] == [rows[i] for i in chosen.tolist()]
    inverse = arrays.invert(12)
    assert [list(inverse.row(v)) for v in range(12)] == [[i for i, r in enumerate(rows) if v in r] for v in range(12)]
    both = stack([arrays, arrays])
    assert len(both) == 60 and both.row(31) == arrays.row(1)
    falling = Ragged(arrays.starts, arrays.items[np.lexsort((-arrays.items, arrays.owners()))])
    assert [list(falling.sorted_rows().row(i)) for i in range(30)] == rows
    sizes = np.arange(12, dtype=np.int64) ** 2
    assert arrays.sums(sizes).tolist() == [sum(v * v for v in row) for row in rows]
    hashes = ragged([[1, 2], [3], [1, 2, 3]]).hashes(12)
    assert hashes[0] + hashes[1] == hashes[2] and len(set(hashes.tolist())) == 3


@pytest.mark.parametrize("graph", ["resnet50_bottleneck", "moe_router", "softmax"])
def test_arrays_and_the_sieve_change_no_plan(graph: str, monkeypatch: pytest.MonkeyPatch) -> None:
    small = plan(graph, "h100")
    monkeypatch.setattr(space, "STORED_KERNELS", 0)
    monkeypatch.setattr(sifted, "SIFTED_COLUMNS", 0)
    large = plan(graph, "h100")
    assert (large.status, large.objective_ns, large.bound_ns) == (small.status, small.objective_ns, small.bound_ns)
    assert large.space == small.space and large.unfused_ns == small.unfused_ns
    assert large.peak_memory_bytes is not None
