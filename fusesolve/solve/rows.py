"""The rows of the exact model, and the valid inequalities that make its linear relaxation tight.

Every row is a cover, sum of x over `plus` >= 1, or a link, sum of x over `plus` >= x of `minus`.

Why the pair rows hold: let U be any set of values and c an operator that every plan computes. The first selected
column to run among those that hold c either reads nothing of U, or reads some u in U; then U was entered by a
column that writes into U and, being the first to do so, reads nothing of U. So

    sum {x_k : k holds c, k reads nothing of U} + sum {x_j : j writes into U, j reads nothing of U} >= 1.

With U empty it is the cover row of c; with U = {u} it says, per edge, "u is written, or c sits with its producer",
which the link rows x_k <= sum of writers of u do not imply in a relaxation: two half columns that read u ask for half
a writer each, the pair row for a whole one. With U an unfounded set it cuts off a cycle between groups.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fusesolve.solve.instance import Instance
from fusesolve.solve.order import Order, find_unfounded

VIOLATION = 1e-4
Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """sum of `plus` + 2 * sum of `twice` >= `need`, or, for a link, sum of `plus` >= x[`minus`].

    `exact` asks for equality. `plus` and `twice` ascend; only zero-half cuts have `twice` or a need of 2.
    """

    plus: tuple[int, ...]
    minus: int | None = None
    exact: bool = False
    twice: tuple[int, ...] = ()
    need: int = 1

    @property
    def low(self) -> int:
        """The right-hand side when all terms stand on the left: `need`, or 0 for a link."""
        return self.need if self.minus is None else 0


def make_base_rows(instance: Instance) -> list[Row]:
    """Cover rows of all necessary operators and required values; with recomputation also the first pair rows.

    The pair rows start from the reads of each operator's smallest column, which are its edges in the graph.
    """
    problem = instance.problem
    rows = [Row(plus=_tuple(instance.covers[op]), exact=not problem.recompute) for op in instance.necessary]
    rows += [Row(plus=_tuple(instance.writers[value])) for value in sorted(problem.required)]
    if problem.recompute:
        for op in instance.necessary:
            smallest = min(instance.covers[op].tolist(), key=lambda index: len(instance.columns[index].members))
            rows += [make_pair_row(instance, op, (value,)) for value in instance.columns[smallest].reads]
    return list(dict.fromkeys(rows))


def make_pair_row(instance: Instance, op: int, values: Iterable[int]) -> Row:
    """The pair row of operator `op`, which every plan computes, and the set `values`; see the top of the file."""
    inside = tuple(values)
    entering = _union(instance.writers, inside).union(instance.covers[op].tolist())
    return Row(plus=tuple(sorted(entering - _union(instance.readers, inside))))


def make_entry_row(instance: Instance, column: int, values: Iterable[int]) -> Row:
    """x[column] <= sum of the columns that write into `values` and read nothing of it; `column` reads some of it."""
    inside = tuple(values)
    entering = _union(instance.writers, inside) - _union(instance.readers, inside)
    return Row(plus=tuple(sorted(entering)), minus=column)


def find_violated(instance: Instance, point: NDArray[np.float64], limit: int) -> list[Row]:
    """Link and pair rows that the fractional `point` violates, the worst first, at most `limit`."""
    support = np.nonzero(point > VIOLATION)[0].tolist()
    level = _levels(instance, point, support)
    worst: list[tuple[float, int, tuple[int, int]]] = []
    necessary = set(instance.necessary)
    shares: dict[tuple[int, int], float] = {}
    for index in support:
        column, weight = instance.columns[index], float(point[index])
        for value in column.reads:
            short = weight - level.get(value, 0.0)
            if short > VIOLATION:
                worst.append((-short, 0, (index, value)))
            for op in column.members:
                shares[op, value] = shares.get((op, value), 0.0) + weight
    covered = _covered(instance, point, support)
    for (op, value), share in shares.items():
        short = 1.0 - (covered[op] - share + level.get(value, 0.0))
        if short > VIOLATION and op in necessary:
            worst.append((-short, 1, (op, value)))
    worst.sort()
    makers = (
        lambda pair: make_entry_row(instance, pair[0], (pair[1],)),
        lambda pair: make_pair_row(instance, pair[0], (pair[1],)),
    )
    return [makers[kind](pair) for _, kind, pair in worst[:limit]]


def cut_cycles(instance: Instance, order: Order) -> list[Row]:
    """Rows that exclude a selection with stuck columns: one unfounded set from each stuck column.

    Each is the pair row of a necessary operator of the stuck column (the one with the fewest terms), else its entry
    row. The selection violates every one of them.
    """
    necessary = set(instance.necessary)
    rows = []
    for index in order.stuck:
        unfounded = find_unfounded(instance.columns, order, index)
        ops = [op for op in instance.columns[index].members if op in necessary]
        taken = order.done + order.stuck
        pairs = [make_pair_row(instance, op, unfounded) for op in ops]
        pairs = [row for row in pairs if set(row.plus).isdisjoint(taken)]
        if pairs:
            rows.append(min(pairs, key=lambda row: (len(row.plus), row.plus)))
        else:
            rows.append(make_entry_row(instance, index, unfounded))
    return list(dict.fromkeys(rows))


def _levels(instance: Instance, point: NDArray[np.float64], support: Sequence[int]) -> dict[int, float]:
    level: dict[int, float] = {}
    for index in support:
        for value in instance.columns[index].writes:
            level[value] = level.get(value, 0.0) + float(point[index])
    return level


def _covered(instance: Instance, point: NDArray[np.float64], support: Sequence[int]) -> dict[int, float]:
    covered: dict[int, float] = {}
    for index in support:
        for op in instance.columns[index].members:
            covered[op] = covered.get(op, 0.0) + float(point[index])
    return covered


def _union(columns: Sequence[Indices], values: Sequence[int]) -> set[int]:
    """All of `columns[value]` of some values."""
    return {index for value in values for index in columns[value].tolist()}


def _tuple(indices: Indices) -> tuple[int, ...]:
    return tuple(indices.tolist())
