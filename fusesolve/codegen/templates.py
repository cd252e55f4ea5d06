"""Which template writes which group: one row per template, and the nest that they all start from."""

from collections.abc import Callable, Mapping

from fusesolve.candidates.loops import build_nest
from fusesolve.candidates.program import Program
from fusesolve.codegen.attention import emit_attention
from fusesolve.codegen.kernel import EmittedKernel, Task
from fusesolve.codegen.planned import PlannedKernel
from fusesolve.codegen.pointwise import emit_pointwise
from fusesolve.codegen.reductions import emit_rows
from fusesolve.codegen.scalars import UnsupportedError
from fusesolve.codegen.tensor_contraction import emit_contraction
from fusesolve.group import Template

EMITTERS: Mapping[Template, Callable[[Task], tuple[EmittedKernel, ...]]] = {
    Template.POINTWISE: emit_pointwise,
    Template.MOVEMENT: emit_pointwise,
    Template.ROW: emit_rows,
    Template.CONTRACTION: emit_contraction,
    Template.ATTENTION: emit_attention,
    Template.REDUCTION: emit_rows,
}


def emit_group(program: Program, kernel: PlannedKernel) -> tuple[EmittedKernel, ...]:
    """The kernels of a group (two where it is split); UnsupportedError with the reason where none is written."""
    if kernel.implementation == "library":
        raise UnsupportedError("a library kernel is taken")
    if kernel.template == Template.PACKED:
        raise UnsupportedError("kernels packed in one launch have no source")
    nest = build_nest(program, kernel.members)
    if any(program.storage[s].type.size == 0 for s in (*kernel.reads, *kernel.writes)):
        raise UnsupportedError("a tensor of it is empty")
    if any(program.operators[m].in_place for m in kernel.members):
        raise UnsupportedError("an update in place has no source")
    if nest.facts.side_by_side:
        raise UnsupportedError("contractions side by side have no source")
    emitter = EMITTERS.get(nest.template)
    if emitter is None:
        raise UnsupportedError(f"{nest.template.value} groups have no source")
    return emitter(Task(program=program, nest=nest, kernel=kernel))
