"""Ties by the relaxation: of the plans of least cost the one with the least sum of ties, mostly without a search."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from fusesolve.solve.control import Control
from fusesolve.solve.linear import Relaxation
from fusesolve.solve.order import order_columns
from fusesolve.solve.rows import Row
from fusesolve.solve.searching import Task

INTEGRAL = 1e-6
MOST_COLUMNS = 4_000  # kept columns up to which the relaxation is tried: the simplex takes long over a deep model's


def least_of_relaxation(task: Task, cost: int, control: Control) -> tuple[int, ...] | None:
    """Columns of the least weight among the selections of total `cost` ns that `task` allows; None where that is open.

    The relaxation of the kept columns and the task's rows holds every such selection. If its optimum is integral, can
    be ordered, costs no more than `cost`, and weighs what the relaxation's exact bound says, it is one of them and the
    least. A task with a memory limit stays open, of which the relaxation knows nothing, and one of over MOST_COLUMNS.
    """
    problem = task.instance.problem
    if problem.max_live is not None or not 0 < len(task.kept) <= MOST_COLUMNS:
        return None
    place = {index: spot for spot, index in enumerate(task.kept)}
    weight = np.array([task.weight[index] for index in task.kept], dtype=np.int64)
    relaxation = Relaxation(cost=weight, max_kernels=problem.max_kernels, control=control)
    for row, tight in zip(task.rows, task.tight, strict=True):
        if row.minus is None or row.minus in place:
            relaxation.add([_within(row, place, tight=tight)])
    point = relaxation.solve()
    if point is None or not point.optimal or np.abs(point.x - np.rint(point.x)).max() > INTEGRAL:
        return None
    chosen = [task.kept[spot] for spot in np.nonzero(point.x > 0.5)[0].tolist()]
    order = order_columns(task.instance.columns, chosen)
    fits = not order.stuck and int(task.instance.cost[chosen].sum()) <= cost
    proven = fits and relaxation.certify(point).lower == sum(task.weight[index] for index in chosen)
    return order.done if proven else None


def _within(row: Row, place: Mapping[int, int], *, tight: bool) -> Row:
    """The row over the kept columns, by their places."""
    return replace(
        row, plus=tuple(place[index] for index in row.plus if index in place),
        minus=None if row.minus is None else place[row.minus],
        twice=tuple(place[index] for index in row.twice if index in place), exact=row.exact or tight,
    )  # fmt: skip
