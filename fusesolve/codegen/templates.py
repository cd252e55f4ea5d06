"""Which template writes which group: one row per template, and the nest that they all start from."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from fusesolve.candidates.program import Program
from fusesolve.codegen.contraction import Gemm, head_at
from fusesolve.codegen.kernel import EmittedKernel, Task, emit_by, filled
from fusesolve.codegen.one_block import emit_block
from fusesolve.codegen.packed import pack_parts
from fusesolve.codegen.planned import PlannedKernel
from fusesolve.codegen.pointwise import emit_pointwise
from fusesolve.codegen.ranked import emit_ranked
from fusesolve.codegen.reductions import emit_rows
from fusesolve.codegen.scalars import UnsupportedError
from fusesolve.codegen.siblings import emit_siblings
from fusesolve.codegen.tensor_attention import emit_attention
from fusesolve.codegen.tensor_contraction import KINDS, TensorGemm
from fusesolve.codegen.transposed import emit_transposed
from fusesolve.codegen.windows import TRANSPOSED
from fusesolve.cost.gpu.layout import FMA_STEP
from fusesolve.group import Template


def emit_contraction(task: Task) -> tuple[EmittedKernel, ...]:
    """The kernel of a contraction group, or the two of a split one; several contractions side by side."""
    return emit_siblings(task, _emit_tiles) if task.nest.facts.side_by_side else _emit_tiles(task)


def _emit_tiles(task: Task) -> tuple[EmittedKernel, ...]:
    """Contractions that share tiles, on the pipe that was priced.

    Types other than f16 and bf16 have no source on the tensor pipe: they take the FMA pipe, whatever was priced.
    """
    head = head_at(task, task.nest.heads[0])
    tensor = task.tile("tile_k", FMA_STEP) > FMA_STEP and {kind.dtype for kind in head.types[:2]} <= set(KINDS)
    if head.node.op in TRANSPOSED:
        return emit_transposed(task, tensor=tensor)
    return (TensorGemm if tensor else Gemm)(task).emit()


EMITTERS: Mapping[Template, Callable[[Task], tuple[EmittedKernel, ...]]] = {
    Template.POINTWISE: emit_pointwise,
    Template.MOVEMENT: emit_pointwise,
    Template.ROW: emit_rows,
    Template.CONTRACTION: emit_contraction,
    Template.ATTENTION: emit_attention,
    Template.REDUCTION: emit_rows,
    Template.BLOCK: emit_block,
    Template.OPAQUE: emit_ranked,
}


def emit_group(program: Program, kernel: PlannedKernel) -> tuple[EmittedKernel, ...]:
    """The kernels of a group (two where it is split); UnsupportedError with the reason where none is written.

    The first one is compiled for the registers that it was priced with, where it is the kernel that was priced.
    """
    main, *rest = _emit_whole(program, kernel)
    limit = kernel.tiling.get("max_registers", 0) if _as_priced(kernel, main) else 0
    return (replace(main, registers=limit), *rest)


def _as_priced(kernel: PlannedKernel, main: EmittedKernel) -> bool:
    """Whether no contraction that was priced on the tensor pipe is on the FMA pipe, as types without source are."""
    tensor = sum(part.tiling.get("tile_k", 0) > FMA_STEP for part in (kernel, *kernel.parts))
    return not tensor or sum(bool(part.tensor_tiles) for part in main.parts or (main,)) >= tensor


def _emit_whole(program: Program, kernel: PlannedKernel) -> tuple[EmittedKernel, ...]:
    if kernel.template != Template.PACKED:
        return emit_by(EMITTERS, program, kernel)
    if not kernel.parts:
        raise UnsupportedError("the plan gives no tilings of its parts; write it again with fusesolve plan -o")
    threads = kernel.tiling["threads"]
    made = [emit_by(EMITTERS, program, part, threads) for part in kernel.parts if filled(program, part)]
    if any(len(found) > 1 for found in made):
        raise UnsupportedError("a part of the launch is split over blocks")
    parts = [part for whole, in made for part in whole.parts or (whole,)]
    return (pack_parts(kernel, parts, threads=threads),)
