"""Streams and start times by CP-SAT: optional intervals on streams, cumulative resources, waits, launches in turn.

List schedules come first; where one meets the lower bound there is nothing to search. One worker and a fixed seed make
every run the same, as in `fusesolve.solve.integer`.
"""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait

from ortools.sat.python import cp_model

from fusesolve.errors import InternalError
from fusesolve.solve.listing import place_by_tails, place_in_order, place_on_one_stream
from fusesolve.solve.problem import Limits, Status
from fusesolve.solve.tasks import (
    Placement,
    ScheduleProblem,
    ScheduleResult,
    check_tasks,
    faults_of_schedule,
    heads_of,
    least_makespan,
    tails_of,
)

WAIT_S = 0.05
EFFORT = 5.0  # units of deterministic work at most: what is not proven by then would take long


def solve_schedule(problem: ScheduleProblem, limits: Limits) -> ScheduleResult:
    """The placement of least makespan, with a proven lower bound; the best so far where a limit or Ctrl-C ends it.

    It takes EFFORT units of work at most; `limits.workers` changes nothing. Raises InternalError for a malformed
    problem.
    """
    check_tasks(problem)
    bound = least_makespan(problem)
    first = [place_on_one_stream(problem)]
    if problem.streams > 1:
        first.append(place_by_tails(problem))
    best = min(first, key=lambda found: found.makespan)
    if best.makespan > bound and problem.streams > 1:
        best, bound = _search(problem, best, bound, limits)
    faults = faults_of_schedule(problem, best)
    if faults:
        raise InternalError(f"the schedule fails the checker: {faults[0]}")
    status = Status.OPTIMAL if best.makespan == bound else Status.FEASIBLE
    return ScheduleResult(status=status, placement=best, bound=bound)


def _search(problem: ScheduleProblem, best: Placement, bound: int, limits: Limits) -> tuple[Placement, int]:
    """The best placement and bound that CP-SAT finds, not worse than `best` and `bound`."""
    model = _Model(problem, best, bound)
    solver = cp_model.CpSolver()
    parameters = solver.parameters
    parameters.num_workers = 1
    parameters.random_seed = limits.seed
    parameters.catch_sigint_signal = False
    if limits.time_s is not None:
        parameters.max_time_in_seconds = limits.time_s
    parameters.max_deterministic_time = EFFORT if limits.work is None else min(EFFORT, limits.work)
    status = _run(solver, model.model)
    if status == cp_model.MODEL_INVALID:
        raise InternalError(f"CP-SAT refused the schedule: {model.model.validate()}")
    if status == cp_model.INFEASIBLE:
        raise InternalError("CP-SAT finds no schedule where a list schedule is one")
    if status == cp_model.UNKNOWN:
        return best, bound
    bound = max(bound, round(solver.best_objective_bound))
    found = model.read(solver)
    return min((best, found), key=lambda item: item.makespan), bound


def _run(solver: cp_model.CpSolver, model: cp_model.CpModel) -> cp_model.CpSolverStatus:
    """Solve in a thread of its own, so that Ctrl-C stops the search and not the program."""
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="fusesolve-schedule") as pool:
        future: Future[cp_model.CpSolverStatus] = pool.submit(solver.solve, model)
        while not future.done():
            try:
                wait([future], timeout=WAIT_S)
            except KeyboardInterrupt:
                solver.stop_search()
    return future.result()


class _Model:
    """Variables and constraints, one method for each kind.

    Where nothing depends on which stream a task is on (`across` is 0), the streams are one resource of `streams`
    places, and tasks get their streams afterwards: where no more than `streams` overlap at a time there are enough.
    """

    def __init__(self, problem: ScheduleProblem, best: Placement, bound: int) -> None:
        self.problem = problem
        self.tasks = problem.tasks
        self.count = range(len(problem.tasks))
        self.model = cp_model.CpModel()
        heads, tails = heads_of(problem), tails_of(problem)
        self.start = [self.model.new_int_var(heads[i], best.makespan - tails[i], f"s{i}") for i in self.count]
        self.on: list[list[cp_model.IntVar]] = []
        self._run_within_capacity()
        self._launch_in_turn()
        if problem.across:
            self._choose_streams()
        else:
            self._share_streams()
        self._wait()
        makespan = self.model.new_int_var(bound, best.makespan, "makespan")
        for i in self.count:
            self.model.add(makespan >= self.start[i] + tails[i])
        self.model.minimize(makespan)
        self._hint(best, makespan)

    def _run_within_capacity(self) -> None:
        runs = [
            self.model.new_fixed_size_interval_var(self.start[i] + task.lead, task.duration - task.lead, f"r{i}")
            for i, task in enumerate(self.tasks)
        ]
        for r, limit in enumerate(self.problem.capacity):
            wanting = [i for i in self.count if self.tasks[i].demand[r]]
            if sum(self.tasks[i].demand[r] for i in wanting) > limit:
                demands = [self.tasks[i].demand[r] for i in wanting]
                self.model.add_cumulative([runs[i] for i in wanting], demands, limit)

    def _launch_in_turn(self) -> None:
        if self.problem.one_by_one:
            self.model.add_no_overlap(
                self.model.new_fixed_size_interval_var(self.start[i], task.lead, f"l{i}")
                for i, task in enumerate(self.tasks)
                if task.lead
            )

    def _share_streams(self) -> None:
        whole = [
            self.model.new_fixed_size_interval_var(self.start[i], task.duration, f"w{i}")
            for i, task in enumerate(self.tasks)
        ]
        if len(whole) > self.problem.streams:
            self.model.add_cumulative(whole, [1] * len(whole), self.problem.streams)

    def _choose_streams(self) -> None:
        """One optional interval for each task and stream; task i may open stream i at most, as streams are alike."""
        for i in self.count:
            self.on.append([self.model.new_bool_var(f"x{i},{s}") for s in range(min(i + 1, self.problem.streams))])
            self.model.add_exactly_one(self.on[i])
        for stream in range(self.problem.streams):
            self.model.add_no_overlap(
                self.model.new_optional_fixed_size_interval_var(
                    self.start[i], self.tasks[i].duration, self.on[i][stream], f"o{i},{stream}"
                )
                for i in self.count
                if stream < len(self.on[i])
            )

    def _wait(self) -> None:
        for i, task in enumerate(self.tasks):
            for source in sorted(set(task.after)):
                end = self.start[source] + self.tasks[source].duration
                if not self.problem.across:
                    self.model.add(self.start[i] >= end)
                    continue
                same = self.model.new_bool_var(f"e{source},{i}")
                self._same_stream(same, source, i)
                self.model.add(self.start[i] >= end + self.problem.across - self.problem.across * same)

    def _same_stream(self, same: cp_model.IntVar, first: int, second: int) -> None:
        """`same` implies that both tasks are on one stream."""
        for stream, there in enumerate(self.on[second]):
            if stream < len(self.on[first]):
                self.model.add_implication(same, self.on[first][stream]).only_enforce_if(there)
            else:
                self.model.add_implication(same, there.negated())

    def _hint(self, best: Placement, makespan: cp_model.IntVar) -> None:
        renamed: dict[int, int] = {}
        for i in self.count:
            self.model.add_hint(self.start[i], best.start[i])
            stream = renamed.setdefault(best.stream[i], len(renamed))
            for s, there in enumerate(self.on[i] if self.on else ()):
                self.model.add_hint(there, s == stream)
        self.model.add_hint(makespan, best.makespan)

    def read(self, solver: cp_model.CpSolver) -> Placement:
        """The solver's schedule, every task then moved as early as it can without changing order or streams."""
        start = [solver.value(variable) for variable in self.start]
        order = sorted(self.count, key=lambda i: (start[i], i))
        streams = self._streams(solver, start, order)
        end = max((start[i] + self.tasks[i].duration for i in self.count), default=0)
        raw = Placement(start=tuple(start), stream=streams, makespan=end)
        early = place_in_order(self.problem, order, streams)
        return early if early.makespan <= raw.makespan else raw

    def _streams(self, solver: cp_model.CpSolver, start: Sequence[int], order: Sequence[int]) -> tuple[int, ...]:
        if self.on:
            return tuple(next(s for s, x in enumerate(xs) if solver.boolean_value(x)) for xs in self.on)
        free = [0] * self.problem.streams
        found = [0] * len(start)
        for i in order:
            found[i] = next(s for s, time in enumerate(free) if time <= start[i])
            free[found[i]] = start[i] + self.tasks[i].duration
        return tuple(found)
