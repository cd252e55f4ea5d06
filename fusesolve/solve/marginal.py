"""What columns are worth: reduced costs against the relaxation, for whoever looks for further columns."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fusesolve.solve.control import Control
from fusesolve.solve.instance import prepare_instance
from fusesolve.solve.linear import Relaxation
from fusesolve.solve.problem import Limits, PartitionProblem
from fusesolve.solve.rows import find_violated, make_base_rows

ROUNDS = 8  # of rows that the optimum of the relaxation violates
ROWS_PER_ROUND = 1000
HELD = 0.5  # a column with at least this share of the optimum is part of it


@dataclass(frozen=True, slots=True, kw_only=True)
class Marginal:
    """`bound`: of the relaxation, ns. `held`: columns of its optimum.

    `reduced[k]`: reduced cost (ns, >= 0) of column k, absent where no plan needs it.
    """

    reduced: Mapping[int, float]
    bound: int
    held: tuple[int, ...]


def price_columns(problem: PartitionProblem, limits: Limits) -> Marginal | None:
    """Reduced costs at the optimum of the relaxation, None where the limits end it before (or there is none).

    A column k with cost c that makes and reads what columns a and b do has a reduced cost of at least
    reduced[a] + reduced[b] - (cost of a and b - c), so one with less than that to save cannot lower the relaxation.
    """
    instance = prepare_instance(problem)
    control = Control(limits=limits)
    relaxation = Relaxation(cost=instance.cost, max_kernels=problem.max_kernels, control=control)
    relaxation.add(make_base_rows(instance))
    point = relaxation.solve()
    for _ in range(ROUNDS):
        if point is None or not point.optimal or control.must_stop():
            break
        fresh = find_violated(instance, point.x, ROWS_PER_ROUND)
        if not fresh:
            break
        relaxation.add(fresh)
        point = relaxation.solve()
    if point is None or not point.optimal:
        return None
    certificate = relaxation.certify(point)
    reduced = np.maximum(certificate.reduced, 0) / certificate.scale
    origin = instance.origin
    return Marginal(
        bound=certificate.lower, reduced={origin[k]: value for k, value in enumerate(reduced.tolist())},
        held=tuple(origin[k] for k in np.nonzero(point.x >= HELD)[0].tolist()),
    )
