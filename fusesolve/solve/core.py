"""Which of the caller's rules exclude each other: a smallest core, found with assumption literals.

Each rule has a literal; what the rule forbids is forbidden while the literal holds. An infeasible solve under all
literals names a sufficient subset of them, and leaving out one after the other makes it minimal.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ortools.sat.python import cp_model

from fusesolve.solve.driver import solve
from fusesolve.solve.instance import Instance, prepare_instance
from fusesolve.solve.integer import add_availability, add_memory_cut, add_row
from fusesolve.solve.memory import Fit, MemoryCut, needs_of, order_within, own_bytes, shrink
from fusesolve.solve.order import order_columns
from fusesolve.solve.problem import Limits, PartitionProblem, Status
from fusesolve.solve.rows import cut_cycles, make_base_rows

CORE_WORK = 2.0  # units of deterministic work (about a second each) of one solve
LEAST_STEPS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One demand of the caller: columns that break it, or a limit on kernels, or one on live bytes."""

    banned: frozenset[int] = frozenset()
    max_kernels: int | None = None
    max_live: int | None = None


def find_core(problem: PartitionProblem, rules: Sequence[Rule], work: float = CORE_WORK) -> tuple[int, ...]:
    """Positions of rules that together leave no plan while any of them fewer leaves one; () where that is not proven.

    `problem` is the one without the rules: all columns, no limits. `work` bounds each solve.
    """
    free = replace(problem, max_kernels=None, max_live=None)
    model = _CoreModel(instance=prepare_instance(free, drop_equals=False), rules=rules, work=work)
    model.build()
    core = model.refute(range(len(rules)))
    if core is None:
        return ()
    for rule in tuple(core):
        smaller = model.refute([other for other in core if other != rule]) if rule in core else None
        core = smaller if smaller is not None else core
    return tuple(sorted(core))


@dataclass(slots=True, kw_only=True)
class _CoreModel:
    """The feasibility model with one literal for each rule; cycles and memory are cut off as they turn up."""

    instance: Instance
    rules: Sequence[Rule]
    work: float
    model: cp_model.CpModel = field(default_factory=cp_model.CpModel)
    variables: dict[int, cp_model.IntVar] = field(default_factory=dict)
    literals: list[cp_model.IntVar] = field(default_factory=list)

    def build(self) -> None:
        """Rows of the problem, and what each rule forbids under its literal."""
        instance, model = self.instance, self.model
        self.variables = {index: model.new_bool_var("") for index in range(len(instance.columns))}
        self.literals = [model.new_bool_var("") for _ in self.rules]
        for row in make_base_rows(instance):
            add_row(model, self.variables, row, tight=False)
        if instance.problem.recompute:
            add_availability(model, self.variables, instance)
        total = cp_model.LinearExpr.sum(list(self.variables.values()))
        for rule, literal in zip(self.rules, self.literals, strict=True):
            for index, origin in enumerate(instance.origin):
                if origin in rule.banned or self._too_big(rule, index):
                    model.add_implication(literal, ~self.variables[index])
            if rule.max_kernels is not None:
                model.add(total <= rule.max_kernels).only_enforce_if(literal)

    def _too_big(self, rule: Rule, index: int) -> bool:
        room = rule.max_live
        return room is not None and own_bytes(self.instance.columns[index], self.instance.problem.live_bytes) > room

    def refute(self, rules: Sequence[int]) -> list[int] | None:
        """A subset of `rules` that leaves no plan, or None where they leave one or nothing is proven in time."""
        self.model.clear_assumptions()
        self.model.add_assumptions([self.literals[rule] for rule in rules])
        named = {self.literals[rule].index: rule for rule in rules}
        while True:
            solver = cp_model.CpSolver()
            solver.parameters.num_workers = 1
            solver.parameters.catch_sigint_signal = False
            solver.parameters.max_deterministic_time = self.work
            status = solver.solve(self.model)
            if status == cp_model.INFEASIBLE:
                return sorted(named[i] for i in solver.sufficient_assumptions_for_infeasibility() if i in named)
            if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
                return None
            chosen = [index for index, variable in self.variables.items() if solver.boolean_value(variable)]
            if not self._cut_off(chosen, rules):
                return None

    def _cut_off(self, chosen: Sequence[int], rules: Sequence[int]) -> bool:
        """Forbid a selection that is no plan; False where it is one, or its memory cannot be judged."""
        columns = self.instance.columns
        order = order_columns(columns, chosen)
        if order.stuck:
            for row in cut_cycles(self.instance, order):
                add_row(self.model, self.variables, row, tight=False)
            return True
        for rule in rules:
            room = self.rules[rule].max_live
            limited = replace(self.instance.problem, max_live=room)
            if room is not None and order_within(limited, order, columns)[1] is Fit.NEVER:
                needs = needs_of(columns[index] for index in order.done)
                cut = shrink(needs, limited.live_bytes, room)
                self._forbid(cut, self.literals[rule])
                return True
        return False

    def _forbid(self, cut: MemoryCut, literal: cp_model.IntVar) -> None:
        add_memory_cut(self.model, self.variables, cut, self.instance, unless=~literal)


@dataclass(frozen=True, slots=True, kw_only=True)
class Least:
    """A smallest limit that leaves a plan: no plan has fewer than `proven`, one with `enough` is known (or None)."""

    proven: int | None
    enough: int | None


def least_kernels(problem: PartitionProblem, work: float = CORE_WORK) -> Least:
    """The fewest kernels of any plan of `problem` without its limit on them: every column at the same cost."""
    alike = tuple(replace(column, cost=1) for column in problem.columns)
    found = solve(replace(problem, columns=alike, max_kernels=None), limits=Limits(time_s=None, work=work))
    return Least(proven=found.bound, enough=found.objective)


def least_live(problem: PartitionProblem, work: float = CORE_WORK) -> Least:
    """The least bytes of live values of any plan of `problem` without its limit on them, by bisection."""
    low, high = 0, sum(problem.live_bytes)
    enough: int | None = None
    proven: int | None = None
    for _ in range(LEAST_STEPS):
        if low >= high and enough is not None:
            break
        middle = (low + high) // 2 if enough is not None else high
        found = solve(replace(problem, max_live=middle), limits=Limits(time_s=None, work=work))
        if found.objective is not None:
            enough = high = middle
        elif found.status is Status.INFEASIBLE:
            proven = low = middle + 1
        else:
            break
        if enough is None and proven is not None:
            break
    return Least(proven=proven, enough=enough)
