"""The scheduling problem: tasks on streams, integers only. Nothing here knows a kernel or a device.

A task runs for its duration on one stream. For the first `lead` ns it is launched (by a host that may have one pair of
hands for all streams), then it holds its demand of each shared resource to its end.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from fusesolve.errors import InternalError
from fusesolve.solve.problem import Status

Ints: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """`duration` >= 1 ns, `lead` in [0, duration) ns of it before it holds `demand[r]` >= 0 of each resource r.

    `after`: earlier tasks that must have ended before it starts.
    """

    duration: int
    lead: int
    demand: Ints
    after: Ints = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleProblem:
    """Tasks in a topological order, to be run on `streams` >= 1 streams.

    `capacity[r]`: what the tasks that run at one time may hold of resource r. `across`: ns between the end of a task
    and the start of one that waits for it on another stream. `one_by_one`: leads must not overlap.
    """

    tasks: tuple[Task, ...]
    streams: int
    capacity: Ints
    across: int = 0
    one_by_one: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Start (ns) and stream of every task, and the end of the last one."""

    start: Ints
    stream: Ints
    makespan: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleResult:
    """The best placement found, a proven lower bound on every makespan (ns), and what that proves."""

    status: Status
    placement: Placement
    bound: int


def check_tasks(problem: ScheduleProblem) -> None:
    """Raise InternalError at the first task that breaks the promises of the classes above."""
    if problem.streams < 1 or problem.across < 0 or any(limit < 0 for limit in problem.capacity):
        raise InternalError(f"{problem.streams} streams, {problem.across} ns across, capacity {problem.capacity}")
    for index, task in enumerate(problem.tasks):
        if not 0 <= task.lead < task.duration:
            raise InternalError(f"task {index}: lead {task.lead} ns must be in [0, {task.duration}) ns")
        if any(not 0 <= source < index for source in task.after):
            raise InternalError(f"task {index} waits for {task.after}; it may wait for earlier ones only")
        if len(task.demand) != len(problem.capacity):
            raise InternalError(f"task {index} has {len(task.demand)} demands for {len(problem.capacity)} resources")
        if any(not 0 <= want <= limit for want, limit in zip(task.demand, problem.capacity, strict=True)):
            raise InternalError(f"task {index} demands {task.demand} of {problem.capacity}")


def heads_of(problem: ScheduleProblem) -> list[int]:
    """Earliest start of every task (ns) if only the waits counted."""
    heads: list[int] = []
    for task in problem.tasks:
        heads.append(max((heads[i] + problem.tasks[i].duration for i in task.after), default=0))
    return heads


def tails_of(problem: ScheduleProblem) -> list[int]:
    """From the start of every task to the end of the last one that waits for it (ns), its own duration included."""
    tails = [task.duration for task in problem.tasks]
    for index in reversed(range(len(tails))):
        for source in problem.tasks[index].after:
            tails[source] = max(tails[source], problem.tasks[source].duration + tails[index])
    return tails


def least_makespan(problem: ScheduleProblem) -> int:
    """A lower bound (ns): the longest chain of waits, the work over each capacity, the leads of a single host.

    Work that is launched one by one is preceded by the shortest lead at least.
    """
    tasks = problem.tasks
    if not tasks:
        return 0
    chain = max(head + task.duration for head, task in zip(heads_of(problem), tasks, strict=True))
    first = min(task.lead for task in tasks)
    work = [
        first + -(-sum((task.duration - task.lead) * task.demand[r] for task in tasks) // limit)
        for r, limit in enumerate(problem.capacity)
        if limit > 0
    ]
    alone = -(-sum(task.duration for task in tasks) // problem.streams)
    leads = 0
    if problem.one_by_one:
        leads = sum(task.lead for task in tasks) + min(task.duration - task.lead for task in tasks)
    return max(chain, alone, leads, *work)


def faults_of_schedule(problem: ScheduleProblem, found: Placement) -> list[str]:
    """Every broken promise of a placement, in words; none where it is a schedule. Uses no solver."""
    tasks = problem.tasks
    if not len(found.start) == len(found.stream) == len(tasks):
        return [f"{len(found.start)} starts and {len(found.stream)} streams for {len(tasks)} tasks"]
    faults = [f"task {i} starts at {start} ns" for i, start in enumerate(found.start) if start < 0]
    faults += [f"task {i} is on stream {s}" for i, s in enumerate(found.stream) if not 0 <= s < problem.streams]
    end = [start + task.duration for start, task in zip(found.start, tasks, strict=True)]
    if found.makespan != max(end, default=0):
        faults.append(f"the makespan is stated as {found.makespan} ns, the last task ends at {max(end, default=0)} ns")
    for index, task in enumerate(tasks):
        for source in task.after:
            gap = problem.across if found.stream[source] != found.stream[index] else 0
            if found.start[index] < end[source] + gap:
                faults.append(f"task {index} starts at {found.start[index]} ns, before task {source} lets it")
    spans = list(zip(found.start, end, strict=True))
    for stream in range(problem.streams):
        mine = [span for span, where in zip(spans, found.stream, strict=True) if where == stream]
        faults += [f"stream {stream} runs two tasks at {time} ns" for time in _overfull(mine, [1] * len(mine), 1)]
    if problem.one_by_one:
        leads = [(start, start + task.lead) for start, task in zip(found.start, tasks, strict=True)]
        faults += [f"two tasks are launched at {time} ns" for time in _overfull(leads, [1] * len(leads), 1)]
    runs = [(start + task.lead, after) for (start, after), task in zip(spans, tasks, strict=True)]
    for r, limit in enumerate(problem.capacity):
        wants = [task.demand[r] for task in tasks]
        faults += [f"resource {r} is over its capacity {limit} at {time} ns" for time in _overfull(runs, wants, limit)]
    return faults


def _overfull(spans: Sequence[tuple[int, int]], wants: Sequence[int], limit: int) -> list[int]:
    """Times at which more than `limit` is held; span i holds `wants[i]` from its first time up to its second."""
    steps: dict[int, int] = {}
    for (begin, end), want in zip(spans, wants, strict=True):
        if end > begin:
            steps[begin] = steps.get(begin, 0) + want
            steps[end] = steps.get(end, 0) - want
    held, found = 0, []
    for time in sorted(steps):
        held += steps[time]
        if held > limit:
            found.append(time)
    return found
