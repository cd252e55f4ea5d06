"""The sieve of large problems, on small ones: its prices bound every plan, and what it keeps holds the optimum."""

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from fusesolve import plan
from fusesolve.candidates import space
from fusesolve.errors import InternalError
from fusesolve.ragged import Ragged, Repeated, ragged, stack
from fusesolve.solve import PartitionProblem, Status, check_solution, sift, sifted, solve
from fusesolve.solve.control import Control
from fusesolve.solve.exhaustive import search_exhaustive
from fusesolve.solve.instance import find_necessary as find_necessary_exactly
from fusesolve.solve.instance import prepare_instance
from fusesolve.solve.problem import Column, Limits
from fusesolve.solve.sample import check_blocks, take_sample
from fusesolve.solve.sift import find_necessary, find_pairs, make_sieve
from fusesolve.solve.table import ColumnBlock, ColumnBlocks, blocks_of, check_table, make_blocks, table_of
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
    return side_by_side(problem, times, tuple(columns))


def side_by_side(part: PartitionProblem, times: int, columns: Sequence[Column]) -> PartitionProblem:
    """The operators and values of a problem `times` over, with these columns."""
    return PartitionProblem(
        n_ops=part.n_ops * times, n_values=part.n_values * times, columns=columns, recompute=part.recompute,
        required=frozenset(value + turn * part.n_values for turn in range(times) for value in part.required),
        producer=tuple(op + turn * part.n_ops for turn in range(times) for op in part.producer),
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


def chained(part: PartitionProblem, times: int) -> PartitionProblem:
    """The problem `times` over as blocks: each part's first operator reads the first required value of the part before.

    The first part, which reads nothing, is a block of its own.
    """
    n_ops, n_values, link = part.n_ops, part.n_values, min(part.required)
    members, writes, reads = (
        ragged([getattr(c, name) for c in part.columns]) for name in ("members", "writes", "reads")
    )
    linked = ragged([(*c.reads, n_values) if 0 in c.members else c.reads for c in part.columns])
    cost, tie = (np.array([getattr(c, name) for c in part.columns], dtype=np.int64) for name in ("cost", "tie"))
    full = np.array([c.full for c in part.columns], dtype=np.bool_)

    def block(rows: Ragged, first: int, last: int) -> ColumnBlock:
        turn = np.arange(first, last, dtype=np.int32)[:, None]
        before = (turn - 1) * n_values + link
        values = np.hstack((turn * n_values + np.arange(n_values, dtype=np.int32), before)).astype(np.int32)
        ops = (turn * n_ops + np.arange(n_ops, dtype=np.int32)).astype(np.int32)
        return ColumnBlock(
            Repeated(members, ops), Repeated(rows, values), Repeated(writes, values), cost, full, tie
        )

    return side_by_side(part, times, make_blocks([block(reads, 0, 1), block(linked, 1, times)]))


@pytest.mark.parametrize("recompute", [False, True])
def test_one_place_of_each_kind_says_the_same_as_all_places(recompute: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sifted, "SIFTED_COLUMNS", 0)
    for seed in range(8600, 8604):
        problem = chained(make_problem(seed, recompute=recompute, max_size=5), 12)
        assert isinstance(problem.columns, ColumnBlocks)
        check_blocks(problem, problem.columns)
        control = Control(limits=Limits(time_s=None))
        few = make_sieve(problem, control)
        with monkeypatch.context() as patch:
            patch.setattr(sift, "take_sample", lambda blocks, look: take_sample(blocks, _each_place))
            every = make_sieve(problem, control)
        assert few is not None and every is not None
        assert len(few.sample.table) < len(every.sample.table) == len(problem.columns)
        assert (few.bound, few.total, few.limit_of(9)) == (every.bound, every.total, every.limit_of(9))
        for limit in range(few.lower, few.lower + 40, 8):
            assert few.keep(limit).tolist() == every.keep(limit).tolist()
        plain = replace(problem, columns=tuple(problem.columns))
        assert [problem.columns[i] for i in range(len(plain.columns))] == list(plain.columns)
        found, expected = solve(problem), solve(plain)
        assert (found.status, found.objective) == (expected.status, expected.objective)
        assert check_solution(plain, found) == []


def _each_place(block: ColumnBlock) -> np.ndarray:
    return np.arange(block.places)[:, None]


def test_blocks_with_broken_promises_are_refused() -> None:
    problem = chained(make_problem(8600, recompute=True, max_size=6), 4)
    assert isinstance(problem.columns, ColumnBlocks)
    first, rest = problem.columns.blocks
    moved = first.writes.items.copy()
    moved[0, first.writes.rows.items[0]] += problem.n_values
    for items in (moved, (first.writes.items + 1) % problem.n_values):
        blocks = make_blocks([replace(first, writes=Repeated(first.writes.rows, items.astype(np.int32))), rest])
        with pytest.raises(InternalError):
            check_blocks(problem, blocks)


def test_what_leaves_no_choice_is_the_plan() -> None:
    problem = make_problem(8700, recompute=False, max_size=7)
    alone = tuple(column for column in problem.columns if len(column.members) == 1 and column.full)
    cheapest = {column.members: column for column in sorted(alone, key=lambda column: -column.cost)}
    forced = replace(problem, columns=tuple(cheapest.values()))
    found = solve(forced)
    assert found.status is Status.OPTIMAL and len(found.selected) == problem.n_ops
    assert check_solution(forced, found) == [] and "pivots" not in found.stats


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
        blocks = blocks_of(problem)
        found = find_necessary(problem, blocks, find_pairs(problem, blocks))
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
