"""What code generation wrote, as a person reads it: one line a group."""

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
    left = len(made.refused)
    text = f"{len(made.kernels)} of {len(planned.kernels)} groups have kernels"
    return body + "\n" + fold(f"{text}, {left} are left to the host" if left else text, width)


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
