"""Schedules on streams: by hand, against an exhaustive search over all start times, and through the checker."""

import random

import pytest

from fusesolve.errors import InternalError
from fusesolve.solve.listing import place_by_tails, place_on_one_stream
from fusesolve.solve.problem import Limits, Status
from fusesolve.solve.schedule import solve_schedule
from fusesolve.solve.tasks import (
    Placement,
    ScheduleProblem,
    Task,
    check_tasks,
    faults_of_schedule,
    least_makespan,
)

LIMITS = Limits(time_s=None, work=20.0)


def task(duration, lead=0, demand=(0,), after=()):
    return Task(duration=duration, lead=lead, demand=demand, after=after)


def problem(*tasks, streams=2, capacity=(10,), **more):
    return ScheduleProblem(tasks=tasks, streams=streams, capacity=capacity, **more)


def solved(found):
    result = solve_schedule(found, LIMITS)
    assert result.status is Status.OPTIMAL
    assert result.bound == result.placement.makespan
    assert not faults_of_schedule(found, result.placement)
    return result.placement


def test_independent_tasks_share_the_streams():
    assert solved(problem(task(5), task(4), task(3), task(6))).makespan == 9  # 5 + 4 | 3 + 6


def test_one_stream_runs_one_after_the_other():
    found = solved(problem(task(5), task(4), task(3), streams=1))
    assert found == Placement(start=(0, 5, 9), stream=(0, 0, 0), makespan=12)


def test_a_chain_gains_nothing():
    assert solved(problem(task(5), task(4, after=(0,)), task(3, after=(1,)))).makespan == 12


def test_a_resource_that_is_full_keeps_tasks_apart():
    assert solved(problem(task(5, demand=(6,)), task(4, demand=(5,)))).makespan == 9
    assert solved(problem(task(5, demand=(6,)), task(4, demand=(4,)))).makespan == 5


def test_a_lead_holds_no_resource():
    assert solved(problem(task(5, lead=2, demand=(10,)), task(5, lead=2, demand=(10,)))).makespan == 8  # 2 + 3 + 3


def test_a_single_host_launches_one_by_one():
    leads = (task(5, lead=3), task(5, lead=3))
    assert solved(problem(*leads)).makespan == 5
    assert solved(problem(*leads, one_by_one=True)).makespan == 8


def test_crossing_streams_costs():
    fork = (task(2), task(4, after=(0,)), task(4, after=(0,)), task(2, after=(1, 2)))
    assert solved(problem(*fork)).makespan == 8
    assert solved(problem(*fork, across=1)).makespan == 9  # 2, 1 to cross, 4, 2; the other branch crosses meanwhile
    assert solved(problem(*fork, across=3)).makespan == 11
    assert solved(problem(*fork, across=5)).makespan == 12  # not worth it: 2 + 4 + 4 + 2 on one stream


def test_the_longest_way_goes_first():
    tasks = (task(1), task(1), task(9, after=(1,)))
    found = place_by_tails(problem(*tasks, streams=1))
    assert found.start == (10, 0, 1)


def test_nothing_to_do():
    assert solved(problem()).makespan == 0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (problem(task(0)), "lead 0 ns must be in"),
        (problem(task(3, lead=3)), "lead 3 ns must be in"),
        (problem(task(3, after=(0,))), "waits for"),
        (problem(task(3, demand=(11,))), "demands"),
        (problem(task(3, demand=())), "0 demands for 1 resources"),
        (problem(task(3), streams=0), "0 streams"),
    ],
)
def test_a_malformed_problem_is_named(wrong, message):
    with pytest.raises(InternalError, match=message):
        check_tasks(wrong)


TWO = (task(4, lead=1, demand=(6,)), task(4, lead=1, demand=(6,), after=(0,)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"start": (0,)}, "1 starts"),
        ({"start": (-1, 4)}, "starts at -1 ns"),
        ({"stream": (0, 2)}, "on stream 2"),
        ({"makespan": 7}, "stated as 7 ns"),
        ({"start": (0, 3)}, "before task 0 lets it"),
        ({"start": (0, 4), "stream": (0, 1)}, "before task 0 lets it"),
    ],
)
def test_the_checker_sees_each_fault(change, message):
    base = {"start": (0, 4), "stream": (0, 0), "makespan": 8}
    assert not faults_of_schedule(problem(*TWO, across=2), Placement(**base))
    faults = faults_of_schedule(problem(*TWO, across=2), Placement(**(base | change)))
    assert any(message in fault for fault in faults)


def test_the_checker_counts_resources_streams_and_launches():
    pair = (task(4, lead=2, demand=(6,)), task(4, lead=2, demand=(6,)))
    both = Placement(start=(0, 0), stream=(0, 0), makespan=4)
    faults = faults_of_schedule(problem(*pair, one_by_one=True), both)
    assert faults == [
        "stream 0 runs two tasks at 0 ns", "two tasks are launched at 0 ns",
        "resource 0 is over its capacity 10 at 2 ns",
    ]  # fmt: skip


def exhaustive(found):
    """Least makespan over all whole start times and streams, depth first with nothing but the incumbent to cut."""
    tasks, best = found.tasks, place_on_one_stream(found).makespan

    def extend(starts, streams):
        nonlocal best
        index = len(starts)
        if index == len(tasks):
            best = max(s + t.duration for s, t in zip(starts, tasks, strict=True))
            return
        for start in range(best - tasks[index].duration):
            for stream in range(min(index + 1, found.streams)):
                placed = Placement(
                    start=(*starts, start), stream=(*streams, stream),
                    makespan=max(s + t.duration for s, t in zip((*starts, start), tasks, strict=False)),
                )  # fmt: skip
                part = ScheduleProblem(
                    tasks=tasks[: index + 1], streams=found.streams, capacity=found.capacity, across=found.across,
                    one_by_one=found.one_by_one,
                )  # fmt: skip
                if placed.makespan < best and not faults_of_schedule(part, placed):
                    extend(placed.start, placed.stream)

    extend((), ())
    return best


def random_problem(seed):
    draw = random.Random(seed)
    tasks = []
    for index in range(draw.randint(2, 4)):
        duration = draw.randint(1, 4)
        after = tuple(sorted({draw.randrange(index) for _ in range(draw.randint(0, 1))})) if index else ()
        demand = (draw.choice((1, 2, 3, 4)), draw.choice((0, 0, 2, 5)))
        tasks.append(task(duration, lead=draw.randint(0, duration - 1), demand=demand, after=after))
    return problem(
        *tasks, streams=draw.choice((2, 2, 3)), capacity=(4, 5), across=draw.choice((0, 0, 1, 2)),
        one_by_one=draw.random() < 0.5,
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(60))
def test_the_schedule_is_the_best_of_all(seed):
    found = random_problem(seed)
    result = solve_schedule(found, LIMITS)
    assert result.status is Status.OPTIMAL
    assert result.placement.makespan == exhaustive(found)
    assert least_makespan(found) <= result.placement.makespan


def test_larger_problems_are_lawful_and_repeat():
    draw = random.Random(1)
    tasks = tuple(
        task(draw.randint(2, 40), lead=1, demand=(draw.randint(1, 8), draw.randint(0, 8)),
             after=tuple(sorted({draw.randrange(i) for _ in range(draw.randint(0, 2))})) if i else ())
        for i in range(16)
    )  # fmt: skip
    many = problem(*tasks, streams=3, capacity=(10, 12), across=1, one_by_one=True)
    limits = Limits(time_s=None, work=0.05)
    first = solve_schedule(many, limits)
    assert not faults_of_schedule(many, first.placement)
    assert first.bound <= first.placement.makespan <= place_by_tails(many).makespan
    assert first == solve_schedule(many, limits)
