"""Which template writes which group: one row per template, and the nest that they all start from."""

from collections.abc import Callable, Mapping

from fusesolve.candidates.program import Program
from fusesolve.codegen.attention import emit_attention
from fusesolve.codegen.kernel import EmittedKernel, Task, emit_by
from fusesolve.codegen.packed import pack_parts
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
    if kernel.template != Template.PACKED:
        return emit_by(EMITTERS, program, kernel)
    if not kernel.parts:
        raise UnsupportedError("the plan gives no tilings of its parts; write it again with fusesolve plan -o")
    threads = kernel.tiling["threads"]
    made = [emit_by(EMITTERS, program, part, threads) for part in kernel.parts]
    if any(len(found) > 1 for found in made):
        raise UnsupportedError("a part of the launch is split over blocks")
    parts = [part for whole, in made for part in whole.parts or (whole,)]
    return (pack_parts(kernel, parts, threads=threads),)
