"""The integer model over the columns that can still matter, solved by CP-SAT with lazily added cycle cuts."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ortools.sat.python import cp_model

from fusesolve.errors import InternalError
from fusesolve.solve.control import Control
from fusesolve.solve.instance import Instance
from fusesolve.solve.memory import Fit, MemoryCut, Need, needs_of, order_within, shrink
from fusesolve.solve.order import Order, order_columns
from fusesolve.solve.rows import Row, cut_cycles
from fusesolve.solve.searching import Outcome, Task, Verdict


def hunt(task: Task, control: Control, effort: float | None) -> Outcome:
    """Solve `task` as `searching.search` says."""
    return _Hunt(task=task, control=control, end=None if effort is None else control.work_used + effort).run()


@dataclass(slots=True, kw_only=True)
class _Hunt:
    """One search under way. `unsure`: a selection was left out whose memory could not be judged: no proof any more."""

    task: Task
    control: Control
    end: float | None
    cuts: list[Row] = field(default_factory=list)
    memory: list[MemoryCut] = field(default_factory=list)
    bound: int | None = None
    unsure: bool = False

    def run(self) -> Outcome:
        """Solve, cut off what cannot run or takes too much memory, solve again."""
        model, variables = _build_model(self.task)
        while not self.control.must_stop() and (self.end is None or self.control.work_used < self.end):
            solver = _configure(self.control, self.end)
            status = _run(solver, model, self.control)
            if status == cp_model.INFEASIBLE:
                return self._end(Verdict.STOPPED if self.unsure else Verdict.EMPTY)
            if status == cp_model.UNKNOWN:
                break
            if not self.unsure:
                self.bound = max(self.bound or 0, round(solver.best_objective_bound))
            chosen = [index for index, variable in variables.items() if solver.boolean_value(variable)]
            order = self._judge(model, variables, chosen)
            if order is not None:
                proven = status == cp_model.OPTIMAL and not self.unsure
                return self._end(Verdict.OPTIMAL if proven else Verdict.STOPPED, order.done)
        return self._end(Verdict.STOPPED)

    def _judge(
        self, model: cp_model.CpModel, variables: dict[int, cp_model.IntVar], chosen: Sequence[int]
    ) -> Order | None:
        """The order of a selection, or None after it was cut off."""
        instance = self.task.instance
        order = order_columns(instance.columns, chosen)
        if order.stuck:
            fresh = cut_cycles(instance, order)
            self.control.count("cycle_cuts", len(fresh))
            self.cuts.extend(fresh)
            for row in fresh:
                add_row(model, variables, row, tight=False)
            return None
        order, fit = order_within(instance.problem, order, instance.columns)
        if fit is Fit.FITS:
            return order
        if fit is Fit.UNKNOWN:
            self.unsure = True
            model.add_bool_or([~variables[index] for index in chosen])
            return None
        needs = needs_of(instance.columns[index] for index in order.done)
        cut = shrink(needs, instance.problem.live_bytes, instance.problem.max_live or 0)
        self.control.count("memory_cuts")
        self.memory.append(cut)
        add_memory_cut(model, variables, cut, instance)
        return None

    def _end(self, verdict: Verdict, selected: tuple[int, ...] = ()) -> Outcome:
        weight = sum(self.task.weight[index] for index in selected) if selected else None
        return Outcome(
            verdict=verdict, selected=selected, weight=weight, bound=self.bound, cuts=tuple(self.cuts),
            memory=tuple(self.memory), unsure=self.unsure,
        )  # fmt: skip


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
        add_row(model, variables, row, tight=tight)
    problem = task.instance.problem
    if problem.recompute:
        add_availability(model, variables, task.instance)
    everything = list(variables.values())
    for cut in task.memory:
        add_memory_cut(model, variables, cut, task.instance)
    if problem.max_kernels is not None:
        model.add(cp_model.LinearExpr.sum(everything) <= problem.max_kernels)
    for cap in task.caps:
        weights = [int(cap.weight[index]) for index in task.kept]
        model.add(cp_model.LinearExpr.weighted_sum(everything, weights) <= cap.most)
    objective = cp_model.LinearExpr.weighted_sum(everything, [int(task.weight[index]) for index in task.kept])
    if task.floor is not None:
        model.add(objective >= task.floor)
    model.minimize(objective)
    hinted = set(task.hint)
    if hinted and hinted <= variables.keys():
        for index, variable in variables.items():
            model.add_hint(variable, index in hinted)
    return model, variables


def add_availability(model: cp_model.CpModel, variables: dict[int, cp_model.IntVar], instance: Instance) -> None:
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


def add_memory_cut(
    model: cp_model.CpModel, variables: dict[int, cp_model.IntVar], cut: MemoryCut, instance: Instance, *,
    unless: cp_model.LiteralT | None = None,
) -> None:  # fmt: skip
    """The clause of a memory cut; it is void where the literal `unless` holds."""
    absent: list[cp_model.LiteralT] = [] if unless is None else [unless]
    serving: dict[Need, list[int]] = {}
    for need in cut.needs:
        near = instance.writers[min(need.writes)] if need.writes else instance.readers[min(need.reads)]
        serving[need] = [i for i in near.tolist() if i in variables and need.served_by(instance.columns[i])]
        if not serving[need]:
            return
    for items in serving.values():
        served = model.new_bool_var("")
        for index in items:
            model.add_implication(variables[index], served)
        absent.append(~served)
    for value in sorted(cut.handed):
        allowed = {index for need, items in serving.items() if value in need.writes for index in items}
        others = [i for i in instance.writers[value].tolist() if i in variables and i not in allowed]
        absent.extend(variables[index] for index in others)
    model.add_bool_or(absent)


def add_row(model: cp_model.CpModel, variables: dict[int, cp_model.IntVar], row: Row, *, tight: bool) -> None:
    """A row over those of its columns that have a variable; `tight`: with equality."""
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
