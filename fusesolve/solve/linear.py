"""The linear relaxation: solved in floating point, its bound proven in integers."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from ortools.math_opt import (
    callback_pb2,
    model_parameters_pb2,
    model_pb2,
    model_update_pb2,
    parameters_pb2,
    result_pb2,
    solution_pb2,
    sparse_containers_pb2,
)
from ortools.math_opt.core.python import solver as mathopt
from ortools.util.python.solve_interrupter import SolveInterrupter

from fusesolve.solve.control import Control
from fusesolve.solve.rows import Row

GLOP = parameters_pb2.SOLVER_TYPE_GLOP
WORK_PER_PIVOT = 2e-9  # of one simplex iteration, per column and row: fitted so that a unit is about one second


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearPoint:
    """A basic solution: `x` per column, `duals` per row and then that of the kernel limit (0 where there is none).

    `optimal` is False where the solver was stopped: `x` then means nothing, but the duals still prove a bound.
    """

    x: NDArray[np.float64]
    duals: NDArray[np.float64]
    optimal: bool = True


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
    """min cost x over `rows`, x >= 0, and sum x <= `max_kernels` where given; rows may be added between solves.

    Solved by GLOP through MathOpt's message interface: whole arrays go in and come out, where the modelling interface
    spends several times the solver's own time on one object per coefficient.
    """

    cost: NDArray[np.int64]
    max_kernels: int | None
    control: Control
    rows: list[Row] = field(default_factory=list)
    _solver: mathopt.Solver | None = None
    _loaded: int = 0

    def add(self, rows: Sequence[Row]) -> None:
        """Append rows; the next solve starts from the last basis."""
        self.rows.extend(rows)

    def solve(self) -> LinearPoint | None:
        """The optimum, or what the solver had when the control stopped it; None without any duals (infeasible too)."""
        solver = self._load()
        interrupter = SolveInterrupter()
        with self.control.interruptible(interrupter.interrupt):
            result = solver.solve(
                _limits(self.control),
                model_parameters_pb2.ModelSolveParametersProto(
                    reduced_costs_filter=sparse_containers_pb2.SparseVectorFilterProto(filter_by_ids=True)
                ),
                None,
                callback_pb2.CallbackRegistrationProto(),
                None,
                interrupter.pybind_interrupter,
            )
        pivots = int(result.solve_stats.simplex_iterations)
        self.control.work_used += WORK_PER_PIVOT * pivots * (len(self.cost) + len(self.rows))
        self.control.count("pivots", pivots)
        if not result.solutions:
            return None
        solution = result.solutions[0]
        if solution.dual_solution.feasibility_status != solution_pb2.SOLUTION_STATUS_FEASIBLE:
            return None
        optimal = result.termination.reason == result_pb2.TERMINATION_REASON_OPTIMAL
        x = _densify(solution.primal_solution.variable_values, len(self.cost))
        duals = _densify(solution.dual_solution.dual_values, len(self.rows) + 1)
        return LinearPoint(x=x, duals=np.roll(duals, -1), optimal=optimal)

    def certify(self, point: LinearPoint) -> Certificate:
        """The exact bound that the (rounded) duals of `point` prove.

        Duals are rounded to fixed point and clipped to their sign, reduced costs follow in integers, and the bound
        is sum(rhs * price) + sum(min(0, reduced)): weak duality with 0 <= x <= 1, so no rounding error can break it.
        """
        total = max(1, int(self.cost.sum()))
        scale = 1 << max(0, min(20, 60 - total.bit_length()))
        prices = np.rint(point.duals * scale).astype(np.int64)
        free = np.array([*(row.exact for row in self.rows), False], dtype=bool)
        prices[~free] = np.maximum(prices[~free], 0)
        rhs = np.array([row.low for row in self.rows], dtype=np.int64)
        bound = int(np.dot(rhs, prices[: len(self.rows)]))
        reduced = self.cost * scale
        entries = _list_entries(self.rows)
        np.subtract.at(reduced, entries.column, entries.factor * prices[entries.row])
        if self.max_kernels is not None:
            limit_price = min(0, round(float(point.duals[-1]) * scale))
            reduced -= limit_price
            bound += self.max_kernels * limit_price
        bound += int(np.minimum(reduced, 0).sum())
        return Certificate(bound=bound, scale=scale, reduced=reduced, prices=prices[: len(self.rows)])

    def _load(self) -> mathopt.Solver:
        """The solver with all rows: made at first, then told of the rows added since. Row 0 is the kernel limit."""
        fresh = self.rows[self._loaded :]
        if self._solver is None:
            model = self._empty_model()
            _append(model.linear_constraints, model.linear_constraint_matrix, fresh, 1)
            self._solver = mathopt.new(GLOP, model, parameters_pb2.SolverInitializerProto())
        elif fresh:
            update = model_update_pb2.ModelUpdateProto()
            matrix = update.linear_constraint_matrix_updates
            _append(update.new_linear_constraints, matrix, fresh, 1 + self._loaded)
            if not self._solver.update(update):
                self._solver, self._loaded = None, 0
                return self._load()
        self._loaded = len(self.rows)
        return self._solver

    def _empty_model(self) -> model_pb2.ModelProto:
        """All columns and the kernel limit as row 0 (free where there is no limit)."""
        size = len(self.cost)
        limit = float("inf") if self.max_kernels is None else float(self.max_kernels)
        model = _free_columns(self.cost)
        model.linear_constraints.ids.append(0)
        model.linear_constraints.lower_bounds.append(-float("inf"))
        model.linear_constraints.upper_bounds.append(limit)
        if self.max_kernels is not None:
            model.linear_constraint_matrix.row_ids.extend([0] * size)
            model.linear_constraint_matrix.column_ids.extend(range(size))
            model.linear_constraint_matrix.coefficients.extend([1.0] * size)
        return model


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseRows:
    """Rows as arrays: entry i puts `factor[i]` at (`row[i]`, `column[i]`), no place twice; sums are >= `low`.

    `exact[r]`: row r asks for equality.
    """

    row: NDArray[np.int64]
    column: NDArray[np.int64]
    factor: NDArray[np.float64]
    low: NDArray[np.float64]
    exact: NDArray[np.bool_]


def solve_sparse(cost: NDArray[np.float64], rows: SparseRows, control: Control) -> NDArray[np.float64] | None:
    """Duals of min cost x over `rows`, x >= 0, one for each row; None where the solver has none."""
    model = _free_columns(cost)
    model.linear_constraints.ids.extend(range(len(rows.low)))
    model.linear_constraints.lower_bounds.extend(rows.low.tolist())
    model.linear_constraints.upper_bounds.extend(np.where(rows.exact, rows.low, np.inf).tolist())
    order = np.lexsort((rows.column, rows.row))
    model.linear_constraint_matrix.row_ids.extend(rows.row[order].tolist())
    model.linear_constraint_matrix.column_ids.extend(rows.column[order].tolist())
    model.linear_constraint_matrix.coefficients.extend(rows.factor[order].tolist())
    interrupter = SolveInterrupter()
    with control.interruptible(interrupter.interrupt):
        result = mathopt.new(GLOP, model, parameters_pb2.SolverInitializerProto()).solve(
            _limits(control), model_parameters_pb2.ModelSolveParametersProto(), None,
            callback_pb2.CallbackRegistrationProto(), None, interrupter.pybind_interrupter,
        )  # fmt: skip
    control.count("pivots", int(result.solve_stats.simplex_iterations))
    if not result.solutions:
        return None
    dual = result.solutions[0].dual_solution
    feasible = dual.feasibility_status == solution_pb2.SOLUTION_STATUS_FEASIBLE
    return _densify(dual.dual_values, len(rows.low)) if feasible else None


def _free_columns(cost: NDArray[np.int64] | NDArray[np.float64]) -> model_pb2.ModelProto:
    """A model that minimises cost x over x >= 0, without rows."""
    size = len(cost)
    model = model_pb2.ModelProto()
    model.variables.ids.extend(range(size))
    model.variables.lower_bounds.extend([0.0] * size)
    model.variables.upper_bounds.extend([float("inf")] * size)
    model.variables.integers.extend([False] * size)
    model.objective.linear_coefficients.ids.extend(range(size))
    model.objective.linear_coefficients.values.extend(cost.astype(np.float64).tolist())
    return model


def _limits(control: Control) -> parameters_pb2.SolveParametersProto:
    """Dual simplex within the control's limits."""
    parameters = parameters_pb2.SolveParametersProto(lp_algorithm=parameters_pb2.LP_ALGORITHM_DUAL_SIMPLEX)
    left, work = control.time_left_s(), control.work_left()
    if left is not None:
        parameters.time_limit.FromNanoseconds(int(left * 1e9))
    if work is not None:
        parameters.glop.max_deterministic_time = work
    return parameters


def _append(
    constraints: model_pb2.LinearConstraintsProto,
    matrix: sparse_containers_pb2.SparseDoubleMatrixProto,
    rows: Sequence[Row],
    first: int,
) -> None:
    """Add `rows`, numbered from `first`, to a model or an update."""
    low = [float(row.low) for row in rows]
    high = [bound if row.exact else float("inf") for row, bound in zip(rows, low, strict=True)]
    constraints.ids.extend(range(first, first + len(rows)))
    constraints.lower_bounds.extend(low)
    constraints.upper_bounds.extend(high)
    entries = _list_entries(rows)
    order = np.lexsort((entries.column, entries.row))
    matrix.row_ids.extend((entries.row[order] + first).tolist())
    matrix.column_ids.extend(entries.column[order].tolist())
    matrix.coefficients.extend(entries.factor[order].astype(np.float64).tolist())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entries:
    """The matrix of some rows: row, column and factor (1, 2 or -1) of every entry, rows ascending."""

    row: NDArray[np.int64]
    column: NDArray[np.int64]
    factor: NDArray[np.int64]


def _list_entries(rows: Sequence[Row]) -> _Entries:
    columns: list[int] = []
    factors: list[int] = []
    lengths = np.zeros(len(rows), dtype=np.int64)
    for place, row in enumerate(rows):
        minus = () if row.minus is None else (row.minus,)
        columns.extend((*row.plus, *row.twice, *minus))
        factors.extend([1] * len(row.plus) + [2] * len(row.twice) + [-1] * len(minus))
        lengths[place] = len(row.plus) + len(row.twice) + len(minus)
    return _Entries(
        row=np.repeat(np.arange(len(rows), dtype=np.int64), lengths),
        column=np.array(columns, dtype=np.int64),
        factor=np.array(factors, dtype=np.int64),
    )


def _densify(vector: sparse_containers_pb2.SparseDoubleVectorProto, size: int) -> NDArray[np.float64]:
    """All `size` entries of a sparse vector."""
    dense = np.zeros(size, dtype=np.float64)
    dense[np.array(vector.ids, dtype=np.int64)] = np.array(vector.values, dtype=np.float64)
    return dense
