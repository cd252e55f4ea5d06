"""Schedules without search: tasks placed one by one, as early as everything placed before allows."""

from collections.abc import Sequence

from fusesolve.solve.tasks import Placement, ScheduleProblem, Task, tails_of


def place_in_order(
    problem: ScheduleProblem, order: Sequence[int], streams: Sequence[int] | None = None
) -> Placement:
    """Place tasks in `order` (each after those that it waits for), each as early as it can.

    `streams[i]`: the stream of task i; None: the one where it can start first, the lowest of equals.
    """
    placer = _Placer(problem)
    for index in order:
        choices = range(problem.streams) if streams is None else (streams[index],)
        start, stream = min((placer.earliest(index, stream), stream) for stream in choices)
        placer.put(index, start, stream)
    return placer.placement()


def place_by_tails(problem: ScheduleProblem) -> Placement:
    """List schedule: of the tasks that wait for nothing unplaced, the one with the longest way to the end first."""
    tails = tails_of(problem)
    waiting = [len(set(task.after)) for task in problem.tasks]
    readers: list[list[int]] = [[] for _ in problem.tasks]
    for index, task in enumerate(problem.tasks):
        for source in set(task.after):
            readers[source].append(index)
    ready = [index for index, count in enumerate(waiting) if not count]
    order: list[int] = []
    while ready:
        index = min(ready, key=lambda i: (-tails[i], i))
        ready.remove(index)
        order.append(index)
        for reader in readers[index]:
            waiting[reader] -= 1
            if not waiting[reader]:
                ready.append(reader)
    return place_in_order(problem, order)


def place_on_one_stream(problem: ScheduleProblem) -> Placement:
    """One task after the other on stream 0, in the order of the problem."""
    starts, now = [], 0
    for task in problem.tasks:
        starts.append(now)
        now += task.duration
    return Placement(start=tuple(starts), stream=(0,) * len(starts), makespan=now)


class _Placer:
    """What is placed so far."""

    def __init__(self, problem: ScheduleProblem) -> None:
        self.problem = problem
        self.tasks = problem.tasks
        self.start: dict[int, int] = {}
        self.stream: dict[int, int] = {}
        self.free = [0] * problem.streams

    def earliest(self, index: int, stream: int) -> int:
        """First time (ns) at which task `index` can start at the end of `stream`."""
        task = self.tasks[index]
        least = self.free[stream]
        for source in task.after:
            gap = self.problem.across if self.stream[source] != stream else 0
            least = max(least, self.start[source] + self.tasks[source].duration + gap)
        others = [i for i, begin in self.start.items() if begin + self.tasks[i].duration > least]
        times = {least}
        for i in others:
            end = self.start[i] + self.tasks[i].duration
            times.update((end - task.lead, end, self.start[i] + self.tasks[i].lead))
        return next(time for time in sorted(times) if time >= least and self._fits(task, time, others))

    def _fits(self, task: Task, time: int, others: Sequence[int]) -> bool:
        """Whether a task that starts at `time` leaves every resource, and the host, within its capacity."""
        run, end = time + task.lead, time + task.duration
        beside = [(self.start[i], self.tasks[i]) for i in others]
        if self.problem.one_by_one and any(
            time < begin + other.lead and begin < run for begin, other in beside if other.lead and task.lead
        ):
            return False
        held = [(b + o.lead, b + o.duration, o.demand) for b, o in beside if b + o.lead < end and b + o.duration > run]
        points = {run, *(begin for begin, _, _ in held if begin > run)}
        return all(
            want + sum(demand[r] for begin, after, demand in held if begin <= point < after) <= limit
            for r, (want, limit) in enumerate(zip(task.demand, self.problem.capacity, strict=True))
            if want
            for point in points
        )

    def put(self, index: int, start: int, stream: int) -> None:
        """Place task `index`."""
        self.start[index], self.stream[index] = start, stream
        self.free[stream] = start + self.tasks[index].duration

    def placement(self) -> Placement:
        """All tasks, once all are placed."""
        count = range(len(self.tasks))
        return Placement(
            start=tuple(self.start[i] for i in count), stream=tuple(self.stream[i] for i in count),
            makespan=max(self.free, default=0),
        )  # fmt: skip
