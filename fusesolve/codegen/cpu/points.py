"""Pointwise and movement groups on a CPU: rows of points are tasks, the innermost run is one vector loop."""

from collections.abc import Callable
from math import prod

from fusesolve.codegen.cpu.source import CpuSource, merged_runs
from fusesolve.codegen.cpu.tasks import CpuKernel, each_row, finished, unflatten, vector_loop
from fusesolve.codegen.kernel import Task, ceil_div, kernel_order
from fusesolve.cost.cpu import TASK_POINTS as POINTS


def emit_points(task: Task) -> tuple[CpuKernel, ...]:
    """The one kernel of a pointwise or movement group."""
    order = kernel_order(task.program, task.nest)
    dry = CpuSource(task)
    _stores(dry, task, order)
    source = CpuSource(task)
    source.runs = merged_runs(dry, order, "p")
    return (over_points(source, lambda: _stores(source, task, order)),)


def _stores(source: CpuSource, task: Task, order: tuple[int, ...]) -> None:
    for storage in task.kernel.writes:
        source.write_at(storage, frozenset(order))


def over_points(source: CpuSource, body: Callable[[], None]) -> CpuKernel:
    """A kernel that runs `body` at every point of the runs of `source`; the last run is the vector loop."""
    outer, vector = source.runs[:-1], source.runs[-1] if source.runs else None
    if vector is None or vector.extent < POINTS:
        with each_row(source, outer, vector.extent if vector else 1) as tasks, vector_loop(source, vector, stores=True):
            body()
        return finished(source, tasks)
    blocks = ceil_div(vector.extent, POINTS)
    source.line(f"q = t // {blocks}")
    unflatten(source, "q", outer)
    place, depth = len(source.lines), source.depth
    source.line(f"low = t % {blocks} * {POINTS}")
    with vector_loop(source, vector, "low", f"min(low + {POINTS}, {vector.extent})", stores=True):
        body()
    source.unravel_runs(place, depth, outer)
    return finished(source, prod(run.extent for run in outer) * blocks)
