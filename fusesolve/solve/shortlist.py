"""A series of problems over the same columns with other costs: which columns can still matter at the next costs.

Rows of the relaxation say what every plan obeys, whatever the costs; they are kept from one problem to the next. At new
costs one linear solve over them gives duals, and the duals an exact bound (see `linear.Certificate`). With a known plan
(the optimum at the costs before, say) of cost U, a column whose reduced cost exceeds U - bound is in no plan as good as
that one. What is left is a problem of a few dozen columns with the same optimal plans.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fusesolve.solve.control import Control
from fusesolve.solve.instance import Instance, find_necessary, invert
from fusesolve.solve.linear import Certificate, Relaxation
from fusesolve.solve.order import close_available
from fusesolve.solve.problem import COST_LIMIT, Limits, PartitionProblem
from fusesolve.solve.rows import Row, find_violated, make_base_rows

ROUNDS = 6
ROWS_PER_ROUND = 1000


@dataclass(slots=True)
class Shortlist:
    """All columns that any problem of the series has (their costs are not looked at), and the rows found so far."""

    instance: Instance
    rows: list[Row] = field(default_factory=list)

    def keep(self, costs: Sequence[int | None], known: Sequence[int]) -> tuple[int, ...] | None:
        """Columns (ascending indices of the series' problem) that a plan no dearer than `known` can use.

        `costs[i]`: ns of column i, None where it is not in the problem at hand. `known`: columns of a plan of that
        problem. None where the relaxation proves nothing.
        """
        paid = [costs[index] for index in known]
        total = sum(cost for cost in paid if cost is not None)
        if not paid or None in paid or total >= COST_LIMIT:
            return None
        mine = [costs[index] for index in self.instance.origin]
        cost = np.array([total + 1 if c is None else min(c, total + 1) for c in mine], dtype=np.int64)
        certificate = self._bound(cost)
        if certificate is None:
            return None
        kept = np.nonzero(certificate.reduced <= certificate.room(total))[0]
        return tuple(sorted(self.instance.origin[place] for place in kept.tolist() if mine[place] is not None))

    def _bound(self, cost: np.ndarray) -> Certificate | None:
        """The best certificate at these costs; rows that its points violate join those of the series."""
        relaxation = Relaxation(
            cost=cost, max_kernels=self.instance.problem.max_kernels, control=Control(limits=Limits(time_s=None))
        )
        relaxation.add(self.rows)
        best: Certificate | None = None
        for _ in range(ROUNDS):
            point = relaxation.solve()
            if point is None or not point.optimal:
                break
            certificate = relaxation.certify(point)
            if best is None or certificate.bound > best.bound:
                best = certificate
            known = set(self.rows)
            found = find_violated(self.instance, point.x, ROWS_PER_ROUND)
            fresh = [row for row in dict.fromkeys(found) if row not in known]
            if not fresh:
                break
            self.rows += fresh
            relaxation.add(fresh)
        return best


def start_shortlist(problem: PartitionProblem) -> Shortlist:
    """The shortlist of a series: `problem` has every column that any of its problems has, at any cost."""
    usable = [(c, i) for i, c in enumerate(problem.columns) if problem.recompute or c.full]
    usable.sort(key=lambda pair: (pair[0].members, pair[0].reads, pair[0].writes, pair[0].tie))
    never = set(close_available([column for column, _ in usable]).stuck)
    kept = [pair for place, pair in enumerate(usable) if place not in never]
    columns = tuple(column for column, _ in kept)
    covers = invert([column.members for column in columns], problem.n_ops)
    instance = Instance(
        problem=problem, columns=columns, origin=tuple(index for _, index in kept),
        cost=np.ones(len(columns), dtype=np.int64), tie=np.array([column.tie for column in columns], dtype=np.int64),
        writers=invert([column.writes for column in columns], problem.n_values),
        readers=invert([column.reads for column in columns], problem.n_values),
        covers=covers, necessary=find_necessary(problem, columns, covers),
    )  # fmt: skip
    return Shortlist(instance=instance, rows=make_base_rows(instance))
