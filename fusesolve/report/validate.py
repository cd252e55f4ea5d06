"""A validation as a person reads it: one line a kernel, then the verdict."""

from fusesolve.report.text import Column, fold, render_table
from fusesolve.validate.result import KernelResult, Validation

_NUMBER = Column(head="group", right=True)
_NAMES = Column(head="operators", flexible=True)
_VERDICT = Column(head="verdict")
CHECKED = (
    _NUMBER, _NAMES, _VERDICT, Column(head="error", right=True), Column(head="tolerated", right=True),
    Column(head="kernel"), Column(head="note", flexible=True),
)  # fmt: skip


def validation_table(found: Validation, *, width: int, colour: bool) -> str:
    """The report at most `width` columns wide."""
    head = fold(f"{found.plan} on {found.on}, at {found.extents} extents", width)
    body = render_table(CHECKED, [_checked(item) for item in found.groups], width=width, colour=colour)
    return head + "\n" + body + "\n" + fold(_verdict_line(found), width)


def _checked(item: KernelResult) -> tuple[str, ...]:
    return (
        str(item.id), ", ".join(item.nodes), verdict(item.ok), _error(item.error), _error(item.tolerance),
        "generated" if item.generated else "reference", item.note or "",
    )  # fmt: skip


def verdict(ok: bool | None) -> str:
    """One word for a kernel."""
    return {True: "ok", False: "FAILS", None: "-"}[ok]


def _error(number: float | None) -> str:
    return "-" if number is None else f"{number:.2g}"


def _verdict_line(found: Validation) -> str:
    good = sum(item.ok is True for item in found.groups)
    skipped = sum(item.ok is None for item in found.groups)
    text = f"{good} of {len(found.groups)} groups hold"
    if skipped:
        text += f", {skipped} not judged"
    failure = found.failure()
    return text if failure is None else f"{text}; {failure}"
