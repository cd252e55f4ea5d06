"""The linear relaxation: solved in floating point, its bound proven in integers."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import numpy as np
from numpy.typing import NDArray
from ortools.math_opt import model_pb2
from ortools.math_opt.python import mathopt
from ortools.util.python.solve_interrupter import SolveInterrupter

from fusesolve.solve.control import Control
from fusesolve.solve.rows import Row

WORK_PER_PIVOT = 2e-9  # of one simplex iteration, per column and row: fitted so that a unit is about one second


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearPoint:
    """A basic solution: `x` per column, `duals` per row (then one of the kernel limit, if there is one)."""

    x: NDArray[np.float64]
    duals: NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """A lower bound that is exact arithmetic: all numbers are integers in units of 1/`scale` ns.

    For every selection x that meets the rows: cost(x) * scale = bound + sum over selected k of max(0, reduced[k])
    + sum over rows of price * slack + something >= 0. Hence `bound` bounds every plan, and a plan with column k costs
    at least bound + max(0, reduced[k]).
    """

    bound: int
    scale: int
    reduced: NDArray[np.int64]
    prices: NDArray[np.int64]

    @property
    def lower(self) -> int:
        """The bound as a whole number of ns, rounded up since every cost is whole."""
        return -(-self.bound // self.scale)

    def room(self, limit: int) -> int:
        """How much reduced cost a plan of at most `limit` ns can hold, in units of 1/scale; may be negative."""
        return limit * self.scale - self.bound


@dataclass(slots=True)
class Relaxation:
    """min cost x over `rows`, x >= 0, and sum x <= `max_kernels` where given; rows may be added between solves."""

    cost: NDArray[np.int64]
    max_kernels: int | None
    control: Control
    rows: list[Row] = field(default_factory=list)
    _solver: mathopt.IncrementalSolver | None = None
    _model: mathopt.Model | None = None
    _variables: list[mathopt.Variable] = field(default_factory=list)
    _handles: list[mathopt.LinearConstraint] = field(default_factory=list)
    _kernel_limit: mathopt.LinearConstraint | None = None

    def add(self, rows: Sequence[Row]) -> None:
        """Append rows; the next solve starts from the last basis."""
        if self._model is not None:
            for row in rows:
                terms = mathopt.LinearSum(self._variables[index] for index in row.plus)
                low = 1.0
                if row.minus is not None:
                    terms, low = terms - self._variables[row.minus], 0.0
                upper = low if row.exact else float("inf")
                self._handles.append(self._model.add_linear_constraint(lb=low, ub=upper, expr=terms))
        self.rows.extend(rows)

    def solve(self) -> LinearPoint | None:
        """The optimum, or None if the control stopped it or the solver found no optimum (infeasible included)."""
        if self._solver is None:
            self._build()
        assert self._solver is not None
        interrupter = SolveInterrupter()
        with self.control.interruptible(interrupter.interrupt):
            result = self._solver.solve(params=self._parameters(), interrupter=interrupter)
        pivots = result.solve_stats.simplex_iterations
        self.control.work_used += WORK_PER_PIVOT * pivots * (len(self.cost) + len(self.rows))
        self.control.count("pivots", pivots)
        if result.termination.reason != mathopt.TerminationReason.OPTIMAL or not result.has_dual_feasible_solution():
            return None
        x = np.array(result.variable_values(self._variables), dtype=np.float64)
        handles = self._handles if self._kernel_limit is None else [*self._handles, self._kernel_limit]
        return LinearPoint(x=x, duals=np.array(result.dual_values(handles), dtype=np.float64))

    def certify(self, point: LinearPoint) -> Certificate:
        """The exact bound that the (rounded) duals of `point` prove.

        Duals are rounded to fixed point and clipped to their sign, reduced costs follow in integers, and the bound
        is sum(rhs * price) + sum(min(0, reduced)): weak duality with 0 <= x <= 1, so no rounding error can break it.
        """
        total = max(1, int(self.cost.sum()))
        scale = 1 << max(0, min(20, 60 - total.bit_length()))
        prices = np.rint(point.duals * scale).astype(np.int64)
        free = np.array([row.exact for row in self.rows] + [False] * (len(prices) - len(self.rows)), dtype=bool)
        prices[~free] = np.maximum(prices[~free], 0)
        rhs = np.array([row.minus is None for row in self.rows], dtype=np.int64)
        bound = int(np.dot(rhs, prices[: len(self.rows)]))
        reduced = self.cost * scale
        row_ids, column_ids, signs = self._matrix()
        np.subtract.at(reduced, column_ids, signs * prices[row_ids])
        if self.max_kernels is not None:
            limit_price = min(0, round(float(point.duals[-1]) * scale))
            prices[-1] = limit_price
            reduced -= limit_price
            bound += self.max_kernels * limit_price
        bound += int(np.minimum(reduced, 0).sum())
        return Certificate(bound=bound, scale=scale, reduced=reduced, prices=prices[: len(self.rows)])

    def _parameters(self) -> mathopt.SolveParameters:
        left = self.control.time_left_s()
        parameters = mathopt.SolveParameters(
            lp_algorithm=mathopt.LPAlgorithm.DUAL_SIMPLEX,
            time_limit=None if left is None else timedelta(seconds=left),
        )
        work = self.control.work_left()
        if work is not None:
            parameters.glop.max_deterministic_time = work
        return parameters

    def _matrix(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Row, column and sign (+1 or -1) of every entry, rows ascending and columns ascending within a row."""
        columns: list[int] = []
        lengths: list[int] = []
        for row in self.rows:
            columns.extend(row.plus)
            if row.minus is not None:
                columns.append(row.minus)
            lengths.append(len(row.plus) + (row.minus is not None))
        row_ids = np.repeat(np.arange(len(self.rows), dtype=np.int64), np.array(lengths, dtype=np.int64))
        signs = np.ones(len(columns), dtype=np.int64)
        ends = np.cumsum(np.array(lengths, dtype=np.int64)) - 1
        linked = np.array([row.minus is not None for row in self.rows], dtype=bool)
        signs[ends[linked]] = -1
        return row_ids, np.array(columns, dtype=np.int64), signs

    def _build(self) -> None:
        proto = model_pb2.ModelProto()
        size = len(self.cost)
        proto.variables.ids.extend(range(size))
        proto.variables.lower_bounds.extend([0.0] * size)
        proto.variables.upper_bounds.extend([float("inf")] * size)
        proto.variables.integers.extend([False] * size)
        proto.objective.linear_coefficients.ids.extend(range(size))
        proto.objective.linear_coefficients.values.extend(self.cost.astype(np.float64).tolist())
        low = [1.0 if row.minus is None else 0.0 for row in self.rows]
        proto.linear_constraints.ids.extend(range(len(self.rows)))
        proto.linear_constraints.lower_bounds.extend(low)
        proto.linear_constraints.upper_bounds.extend(
            [bound if row.exact else float("inf") for row, bound in zip(self.rows, low, strict=True)]
        )
        row_ids, column_ids, signs = self._matrix()
        order = np.lexsort((column_ids, row_ids))
        proto.linear_constraint_matrix.row_ids.extend(row_ids[order].tolist())
        proto.linear_constraint_matrix.column_ids.extend(column_ids[order].tolist())
        proto.linear_constraint_matrix.coefficients.extend(signs[order].astype(np.float64).tolist())
        model = mathopt.Model.from_model_proto(proto)
        self._variables = list(model.variables())
        self._handles = list(model.linear_constraints())
        if self.max_kernels is not None:
            limit = mathopt.LinearSum(self._variables) <= float(self.max_kernels)
            self._kernel_limit = model.add_linear_constraint(limit)
        self._model, self._solver = model, mathopt.IncrementalSolver(model, mathopt.SolverType.GLOP)
