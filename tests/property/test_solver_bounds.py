"""What the proofs rest on: every row holds in every plan, and no duals, however wrong, prove a false bound."""

import random

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fusesolve.solve import Column, Limits, PartitionProblem
from fusesolve.solve.control import Control
from fusesolve.solve.halves import combine_half, find_half_cuts
from fusesolve.solve.instance import Instance, prepare_instance
from fusesolve.solve.linear import LinearPoint, Relaxation
from fusesolve.solve.order import order_columns
from fusesolve.solve.rows import Row, cut_cycles, find_violated, make_base_rows, make_entry_row, make_pair_row


def make_problem(rng: random.Random, *, recompute: bool) -> PartitionProblem:
    """A layered graph of 3 to 8 operators with unit values; random intervals of it as columns, some partial."""
    size = rng.randint(3, 8)
    reads = [tuple(sorted(rng.sample(range(op), min(op, rng.randint(1, 2))))) for op in range(size)]
    columns = []
    for _ in range(6 * size):
        first = rng.randrange(size)
        members = tuple(range(first, min(size, first + rng.randint(1, 3))))
        outside = tuple(sorted({value for op in members for value in reads[op]} - set(members)))
        wanted = {value for op in range(size) if op not in members for value in reads[op]} | {size - 1}
        leaving = tuple(op for op in members if op in wanted)
        writes = tuple(value for value in leaving if rng.random() < 0.8) if recompute else leaving
        if writes:
            columns.append(
                Column(
                    members=members, reads=outside, writes=writes, cost=rng.randint(1, 50), tie=rng.randrange(2**31),
                    full=writes == leaving,
                )
            )  # fmt: skip
    return PartitionProblem(
        n_ops=size, n_values=size, columns=tuple(columns), required=frozenset({size - 1}), producer=tuple(range(size)),
        recompute=recompute,
    )  # fmt: skip


def make_plan(instance: Instance, rng: random.Random) -> list[int] | None:
    """A random plan: run random columns that can run, until the required values (or all operators) are there."""
    problem = instance.problem
    chosen: list[int] = []
    written: set[int] = set()
    covered: set[int] = set()
    for _ in range(200):
        if problem.required <= written and (problem.recompute or len(covered) == problem.n_ops):
            return chosen
        index = rng.randrange(len(instance.columns))
        column = instance.columns[index]
        clash = not problem.recompute and covered.intersection(column.members)
        if index not in chosen and written.issuperset(column.reads) and not clash:
            chosen.append(index)
            written.update(column.writes)
            covered.update(column.members)
    return None


def holds(row: Row, plan: set[int]) -> bool:
    total = len(plan.intersection(row.plus)) + 2 * len(plan.intersection(row.twice))
    if row.minus is not None:
        return total >= (row.minus in plan)
    return total == row.need if row.exact else total >= row.need


@given(seed=st.integers(0, 2**32), recompute=st.booleans())
@settings(max_examples=150, deadline=None)
def test_every_row_holds_in_every_plan(seed: int, recompute: bool) -> None:
    rng = random.Random(seed)
    instance = prepare_instance(make_problem(rng, recompute=recompute))
    plan = make_plan(instance, rng) if instance.columns else None
    assume(plan is not None)
    assert plan is not None
    taken, values = set(plan), range(instance.problem.n_values)
    rows = make_base_rows(instance)
    for _ in range(20):
        some = tuple(rng.sample(values, rng.randint(1, 3)))
        rows.extend(make_pair_row(instance, op, some) for op in instance.necessary)
        readers = [i for i, c in enumerate(instance.columns) if not set(some).isdisjoint(c.reads)]
        rows.extend(make_entry_row(instance, index, some) for index in readers)
    point = np.array([rng.choice((0.0, 0.3, 0.5)) for _ in instance.columns])
    rows.extend(find_violated(instance, point, 50))
    covers = [row for row in rows if row.minus is None]
    rows.extend(combine_half(*(rng.choice(covers) for _ in range(3))) for _ in range(30))
    rows.extend(find_half_cuts(instance, point, covers, 50))
    assert [row for row in rows if not holds(row, taken)] == []


@given(seed=st.integers(0, 2**32), recompute=st.booleans(), wild=st.booleans())
@settings(max_examples=150, deadline=None)
def test_no_duals_prove_a_false_bound(seed: int, recompute: bool, wild: bool) -> None:
    rng = random.Random(seed)
    instance = prepare_instance(make_problem(rng, recompute=recompute))
    plan = make_plan(instance, rng) if instance.columns else None
    assume(plan is not None)
    assert plan is not None
    relaxation = Relaxation(cost=instance.cost, max_kernels=len(plan), control=Control(limits=Limits()))
    relaxation.add(make_base_rows(instance))
    point = relaxation.solve()
    assert point is not None
    duals = point.duals if not wild else np.array([rng.uniform(-40, 80) for _ in point.duals])
    certificate = relaxation.certify(LinearPoint(x=point.x, duals=duals))
    cost = sum(int(instance.cost[index]) for index in plan)
    above = sum(max(0, int(certificate.reduced[index])) for index in plan)
    assert certificate.bound + above <= cost * certificate.scale
    assert certificate.lower <= cost
    if not wild:
        exact = float(instance.cost @ point.x)
        assert certificate.bound / certificate.scale == pytest.approx(exact, abs=0.01)


@given(seed=st.integers(0, 2**32), recompute=st.booleans())
@settings(max_examples=150, deadline=None)
def test_cycle_cuts_exclude_what_they_came_from_and_nothing_that_runs(seed: int, recompute: bool) -> None:
    rng = random.Random(seed)
    size = rng.randint(2, 6)
    columns = []
    for op in [*range(size), *range(size)]:
        others = [value for value in range(size) if value != op]
        reads = tuple(sorted(rng.sample(others, rng.randint(0, min(2, len(others))))))
        columns.append(
            Column(members=(op,), reads=reads, writes=(op,), cost=op + 1, tie=rng.randrange(2**31), full=True)
        )
    problem = PartitionProblem(
        n_ops=size, n_values=size, columns=tuple(columns), required=frozenset({0}), producer=tuple(range(size)),
        recompute=recompute,
    )  # fmt: skip
    instance = prepare_instance(problem)
    selected = sorted({rng.choice(rows.tolist()) for rows in instance.covers if len(rows)})
    order = order_columns(instance.columns, selected)
    written = {value for index in selected for value in instance.columns[index].writes}
    assume(all(written.issuperset(instance.columns[index].reads) for index in selected))
    cuts = cut_cycles(instance, order)
    assert bool(cuts) == bool(order.stuck)
    assert not any(holds(row, set(selected)) for row in cuts)
    plan = make_plan(instance, rng) if instance.columns else None
    if plan is not None:
        assert all(holds(row, set(plan)) for row in cuts)


def test_an_odd_cycle_of_rows_gives_the_half_cut() -> None:
    # Columns 0, 1, 2 each hold two of three operators; at one half each row has 1, the cut asks for 2 of 1.5.
    columns = tuple(
        Column(members=pair, reads=(), writes=(pair[1],), cost=3, tie=0, full=True) for pair in ((0, 1), (0, 2), (1, 2))
    )
    problem = PartitionProblem(
        n_ops=3, n_values=3, columns=columns, required=frozenset(), producer=(0, 1, 2), recompute=False
    )
    instance = prepare_instance(problem)
    rows = make_base_rows(instance)
    assert find_half_cuts(instance, np.full(3, 0.5), rows, 9) == [Row(plus=(0, 1, 2), need=2)]
    assert find_half_cuts(instance, np.array([1.0, 0.0, 0.0]), rows, 9) == []
