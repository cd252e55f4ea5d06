"""The integer model over the columns that can still matter, solved by CP-SAT with lazily added cycle cuts."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from ortools.sat.python import cp_model

from fusesolve.errors import InternalError
from fusesolve.solve.control import Control
from fusesolve.solve.instance import Instance
from fusesolve.solve.order import order_columns
from fusesolve.solve.rows import Row, cut_cycles


class Verdict(Enum):
    """How a search over a set of columns ended."""

    OPTIMAL = auto()  # the best selection out of the kept columns
    EMPTY = auto()  # proven: no selection out of the kept columns
    STOPPED = auto()  # a limit or an interrupt came first


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One search: minimise `weight` over selections out of `kept` (ascending columns) that meet `rows`.

    `tight[i]`: row i holds with equality in every selection
    of interest. `cost_limit`: most ns that a selection may cost, or None. `floor`: a known lower bound of the weight.
    `hint`: columns of a known plan.
    """

    instance: Instance
    kept: Sequence[int]
    rows: Sequence[Row]
    tight: Sequence[bool]
    weight: Sequence[int]
    cost_limit: int | None = None
    floor: int | None = None
    hint: Sequence[int] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a search ended.

    `selected`: columns in execution order, () without a plan. `weight`: its total. `bound`: proven for the kept
    columns, None when there is none. `cuts`: cycle cuts found on the way, valid for every plan.
    """

    verdict: Verdict
    selected: tuple[int, ...]
    weight: int | None
    bound: int | None
    cuts: tuple[Row, ...]


def search(task: Task, control: Control, effort: float | None = None) -> Outcome:
    """Solve `task`; each selection with stuck columns is cut off and the search repeated.

    `effort`: units of deterministic work after which it stops, or None for the control's limits alone.

    One CP-SAT worker with the full linear relaxation: covering rows need it (without it the bound stays near 0), and
    a single worker makes every run the same, whatever the number of threads.
    """
    model, variables = _build_model(task)
    cuts: list[Row] = []
    bound: int | None = None
    end = None if effort is None else control.work_used + effort
    while True:
        if control.must_stop() or (end is not None and control.work_used >= end):
            return Outcome(verdict=Verdict.STOPPED, selected=(), weight=None, bound=bound, cuts=tuple(cuts))
        solver = _configure(control, end)
        status = _run(solver, model, control)
        if status == cp_model.INFEASIBLE:
            return Outcome(verdict=Verdict.EMPTY, selected=(), weight=None, bound=bound, cuts=tuple(cuts))
        if status == cp_model.UNKNOWN:
            return Outcome(verdict=Verdict.STOPPED, selected=(), weight=None, bound=bound, cuts=tuple(cuts))
        bound = max(bound or 0, round(solver.best_objective_bound))
        chosen = [index for index, variable in variables.items() if solver.boolean_value(variable)]
        order = order_columns(task.instance.columns, chosen)
        if not order.stuck:
            weight = sum(task.weight[index] for index in chosen)
            verdict = Verdict.OPTIMAL if status == cp_model.OPTIMAL else Verdict.STOPPED
            return Outcome(verdict=verdict, selected=order.done, weight=weight, bound=bound, cuts=tuple(cuts))
        fresh = cut_cycles(task.instance, order)
        control.count("cycle_cuts", len(fresh))
        cuts.extend(fresh)
        for row in fresh:
            _add_row(model, variables, row, tight=False)


def _configure(control: Control, end: float | None) -> cp_model.CpSolver:
    solver = cp_model.CpSolver()
    parameters = solver.parameters
    parameters.num_workers = 1
    parameters.linearization_level = 2
    parameters.random_seed = control.limits.seed
    parameters.catch_sigint_signal = False
    left, work = control.time_left_s(), control.work_left()
    if left is not None:
        parameters.max_time_in_seconds = left
    if end is not None:
        rest = max(0.0, end - control.work_used)
        work = rest if work is None else min(work, rest)
    if work is not None:
        parameters.max_deterministic_time = work
    return solver


def _run(solver: cp_model.CpSolver, model: cp_model.CpModel, control: Control) -> cp_model.CpSolverStatus:
    with control.interruptible(solver.stop_search):
        status = solver.solve(model)
    if status == cp_model.MODEL_INVALID:
        raise InternalError(f"CP-SAT refused the model: {model.validate()}")
    control.work_used += solver.response_proto.deterministic_time
    control.count("cpsat_calls")
    control.count("branches", solver.num_branches)
    return status


def _build_model(task: Task) -> tuple[cp_model.CpModel, dict[int, cp_model.IntVar]]:
    model = cp_model.CpModel()
    variables = {index: model.new_bool_var("") for index in task.kept}
    for row, tight in zip(task.rows, task.tight, strict=True):
        _add_row(model, variables, row, tight=tight)
    problem = task.instance.problem
    if problem.recompute:
        _add_availability(model, variables, task.instance)
    everything = list(variables.values())
    if problem.max_kernels is not None:
        model.add(cp_model.LinearExpr.sum(everything) <= problem.max_kernels)
    if task.cost_limit is not None:
        costs = [int(task.instance.cost[index]) for index in task.kept]
        model.add(cp_model.LinearExpr.weighted_sum(everything, costs) <= task.cost_limit)
    objective = cp_model.LinearExpr.weighted_sum(everything, [int(task.weight[index]) for index in task.kept])
    if task.floor is not None:
        model.add(objective >= task.floor)
    model.minimize(objective)
    hinted = set(task.hint)
    if hinted and hinted <= variables.keys():
        for index, variable in variables.items():
            model.add_hint(variable, index in hinted)
    return model, variables


def _add_availability(model: cp_model.CpModel, variables: dict[int, cp_model.IntVar], instance: Instance) -> None:
    """Every value that a selected column reads is written by a selected column.

    One variable per value stands between its readers and its writers: the clauses grow with readers + writers, not
    with their product.
    """
    read = sorted({value for index in variables for value in instance.columns[index].reads})
    memory = {value: model.new_bool_var("") for value in read}
    for value, present in memory.items():
        writers = [variables[index] for index in instance.writers[value].tolist() if index in variables]
        model.add_bool_or([*writers, ~present])
    for index, variable in variables.items():
        for value in instance.columns[index].reads:
            model.add_implication(variable, memory[value])


def _add_row(model: cp_model.CpModel, variables: dict[int, cp_model.IntVar], row: Row, *, tight: bool) -> None:
    terms: list[cp_model.LiteralT] = [variables[index] for index in row.plus if index in variables]
    if row.minus is not None:
        if row.minus in variables:
            model.add_bool_or([*terms, ~variables[row.minus]])
    elif row.need > 1:
        doubled = [variables[index] for index in row.twice if index in variables]
        total = cp_model.LinearExpr.sum([variables[index] for index in row.plus if index in variables])
        total = total + 2 * cp_model.LinearExpr.sum(doubled)
        model.add(total == row.need if tight else total >= row.need)
    elif row.exact or tight:
        model.add_exactly_one(terms)
    else:
        model.add_bool_or(terms)
