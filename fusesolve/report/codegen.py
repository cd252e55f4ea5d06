"""What code generation wrote, as a person reads it: one line a group."""

from fusesolve.codegen.library import REASON
from fusesolve.codegen.module import GeneratedPlan
from fusesolve.codegen.planned import PlannedKernel, PlannedProgram
from fusesolve.report.text import Column, fold, render_table

COLUMNS = (
    Column(head="group", right=True), Column(head="operators", flexible=True), Column(head="template"),
    Column(head="kernels"), Column(head="blocks", right=True), Column(head="threads", right=True),
    Column(head="note", flexible=True),
)  # fmt: skip


def codegen_table(planned: PlannedProgram, made: GeneratedPlan, *, width: int, colour: bool) -> str:
    """The report at most `width` columns wide."""
    rows = [_cells(kernel, made) for kernel in planned.kernels]
    body = render_table(COLUMNS, rows, width=width, colour=colour)
    return body + "\n" + fold(_summary(planned, made), width)


def _summary(planned: PlannedProgram, made: GeneratedPlan) -> str:
    """How many groups have kernels, are calls of cuBLAS, and are the host's in any case."""
    called = sum(why == REASON for why in made.refused.values())
    left = len(made.refused) - called
    parts = [f"{len(made.kernels)} of {len(planned.kernels)} groups have kernels"]
    if called:
        words = "is one call" if called == 1 else "are calls"
        parts.append(f"{called} {words} of cuBLAS (of the host where CuPy is missing)")
    if left:
        parts.append(f"{left} {'is' if left == 1 else 'are'} left to the host")
    return ", ".join(parts)


def _cells(kernel: PlannedKernel, made: GeneratedPlan) -> tuple[str, ...]:
    items = made.kernels.get(kernel.id, ())
    blocks, threads = (
        ", ".join(str(getattr(item.emitted, name)) for item in items) or "-" for name in ("blocks", "threads")
    )
    names = ", ".join(item.name for item in items) or "-"
    return (
        str(kernel.id), ", ".join(kernel.nodes), kernel.template, names, blocks, threads,
        made.refused.get(kernel.id, ""),
    )  # fmt: skip
