"""CPU kernels of a group: which template writes it, and what every template makes.

A kernel is a function of a task number and the arrays; tasks are independent and run on all cores.
"""

from collections.abc import Callable, Mapping

from fusesolve.candidates.program import Program
from fusesolve.codegen.cpu.columns import emit_columns
from fusesolve.codegen.cpu.points import emit_points
from fusesolve.codegen.cpu.rows import emit_rows
from fusesolve.codegen.cpu.tasks import CpuKernel
from fusesolve.codegen.kernel import Task, emit_by, kernel_order
from fusesolve.codegen.planned import PlannedKernel
from fusesolve.codegen.scalars import UnsupportedError
from fusesolve.group import Template


def _emit_reduction(task: Task) -> tuple[CpuKernel, ...]:
    """Rows where the innermost loop in memory is reduced, else columns: the innermost loop is what vectorises."""
    nest = task.nest
    order = [loop for loop in kernel_order(task.program, nest) if nest.extent[loop] > 1]
    return emit_rows(task) if not order or order[-1] in nest.reduced else emit_columns(task)


def _emit_contraction(task: Task) -> tuple[CpuKernel, ...]:
    if task.nest.facts.side_by_side:
        raise UnsupportedError("contractions side by side have no CPU source")
    return emit_columns(task)


EMITTERS: Mapping[Template, Callable[[Task], tuple[CpuKernel, ...]]] = {
    Template.POINTWISE: emit_points,
    Template.MOVEMENT: emit_points,
    Template.ROW: _emit_reduction,
    Template.REDUCTION: _emit_reduction,
    Template.CONTRACTION: _emit_contraction,
}


def emit_cpu(program: Program, kernel: PlannedKernel) -> tuple[CpuKernel, ...]:
    """The CPU kernels of a group, to run one after the other; UnsupportedError with the reason where there is none."""
    if any(program.operators[m].in_place for m in kernel.members):
        raise UnsupportedError("an update in place has no CPU source")
    nodes = [program.graph.nodes[program.operators[m].node] for m in kernel.members]
    if any(program.graph.type_of(name).size == 0 for node in nodes for name in (*node.reads, *node.outputs)):
        raise UnsupportedError("a tensor of it is empty")
    return emit_by(EMITTERS, program, kernel)
