"""Pointwise and movement kernels: a thread computes `per_thread` points.

They are neighbours where whole vectors can be moved, points of a tile in shared memory where arrays lie two ways, else
one block of threads apart.
"""

from collections.abc import Callable
from math import prod

from fusesolve.codegen.kernel import EmittedKernel, Task, TaskSource, ceil_div, kernel_order
from fusesolve.codegen.staged import staged_kernel
from fusesolve.codegen.vectors import vector_kernel


def emit_pointwise(task: Task) -> tuple[EmittedKernel, ...]:
    """The one kernel of a pointwise or movement group."""
    order = kernel_order(task.program, task.nest)
    threads, per_thread = task.tile("threads", 128), task.tile("per_thread", 1)

    def body(source: TaskSource) -> None:
        for storage in task.kernel.writes:
            source.write_at(storage, frozenset(order))

    found = vector_kernel(task, order, threads, per_thread, body)
    found = found or staged_kernel(task, order, threads, per_thread, body)
    if found is None:
        source = task.source()
        found = over_points(source, order, threads, per_thread, lambda: body(source))
    return (found,)


def over_points(
    source: TaskSource, order: tuple[int, ...], threads: int, per_thread: int, body: Callable[[], None]
) -> EmittedKernel:
    """A kernel that runs `body` at every point of the loops `order`."""
    points = prod(source.nest.extent[loop] for loop in order)
    source.task.check_range(points + threads * per_thread)
    blocks = ceil_div(points, threads * per_thread)
    source.flat_alias("p", order)
    source.line(f"p0 = u32({source.block_number} * u32({threads * per_thread}) + u32(cuda.threadIdx.x))")
    if per_thread == 1:
        source.line("p = p0")
        _guarded(source, order, points, points % threads == 0, body)
    else:
        with source.block(f"for e in range({per_thread}):"):
            source.line(f"p = u32(p0 + u32(e) * u32({threads}))")
            _guarded(source, order, points, points % (threads * per_thread) == 0, body)
    return source.emitted(blocks, threads)


def _guarded(
    source: TaskSource, order: tuple[int, ...], points: int, exact: bool, body: Callable[[], None]
) -> None:
    if exact:
        place = len(source.lines)
        with source.scope():
            body()
        source.unravel("p", order, place, source.depth)
        return
    with source.block(f"if p < u32({points}):"):
        place = len(source.lines)
        body()
        source.unravel("p", order, place, source.depth)
