"""A validation as a person reads it: one line a kernel, then the verdict."""

from fusesolve.report.text import Column, fold, render_table
from fusesolve.units import format_seconds
from fusesolve.validate.result import KernelResult, Validation

_NUMBER = Column(head="group", right=True)
_NAMES = Column(head="operators", flexible=True)
_VERDICT = Column(head="verdict")
CHECKED = (
    _NUMBER, _NAMES, _VERDICT, Column(head="error", right=True), Column(head="tolerated", right=True),
    Column(head="kernel"), Column(head="note", flexible=True),
)  # fmt: skip

COMPILED = (
    _NUMBER, _NAMES, _VERDICT,
    *(Column(head=head, right=True) for head in ("registers", "shared", "code", "occupancy", "spill")),
    Column(head="note", flexible=True),
)  # fmt: skip
TIMED = (
    _NUMBER, _NAMES, _VERDICT,
    *(Column(head=head, right=True) for head in ("predicted", "measured", "ratio", "20-80 %", "apart", "gain")),
    Column(head="note", flexible=True),
)  # fmt: skip
_PAIRS = ("registers_per_thread", "shared_bytes", "code_bytes", "occupancy", "spill_bytes")


def validation_table(found: Validation, *, width: int, colour: bool) -> str:
    """The report at most `width` columns wide."""
    head = fold(f"{found.plan} on {found.on}, at {found.extents} extents", width)
    if found.on == "compile":
        head += fold(f"each number: predicted / compiled for {found.target}", width)
        body = render_table(COMPILED, [_compiled(item) for item in found.groups], width=width, colour=colour)
    elif any(item.measured is not None for item in found.groups):
        head += fold(f"times on {found.target}: fused as planned, and the operators apart", width)
        body = render_table(TIMED, [_timed(item) for item in found.groups], width=width, colour=colour)
    else:
        body = render_table(CHECKED, [_checked(item) for item in found.groups], width=width, colour=colour)
    return (
        head
        + "\n"
        + body
        + "\n"
        + fold(_verdict_line(found), width)
        + _agreement_line(found, width)
        + _times_line(found, width)
    )


def _checked(item: KernelResult) -> tuple[str, ...]:
    return (
        str(item.id), ", ".join(item.nodes), verdict(item.ok), _error(item.error), _error(item.tolerance),
        "generated" if item.generated else "reference", item.note or "",
    )  # fmt: skip


def _compiled(item: KernelResult) -> tuple[str, ...]:
    pairs = [_pair(item, name) for name in _PAIRS]
    return str(item.id), ", ".join(item.nodes), verdict(item.ok), *pairs, item.note or ""


def _timed(item: KernelResult) -> tuple[str, ...]:
    names = str(item.id), ", ".join(item.nodes), verdict(item.ok)
    if item.measured is None:
        return *names, "-", "-", "-", "-", "-", "-", item.note or ""
    measured, ratio = item.measured, item.ratio
    apart = measured["unfused_latency_ns"]
    return (
        *names, "-" if ratio is None else format_seconds(measured["latency_ns"] / ratio / 1e9),
        format_seconds(measured["latency_ns"] / 1e9), "-" if ratio is None else f"{ratio:.2f}",
        f"{format_seconds(measured['p20_ns'] / 1e9)} - {format_seconds(measured['p80_ns'] / 1e9)}",
        "-" if apart is None else format_seconds(apart / 1e9),
        "-" if apart is None else f"{apart / measured['latency_ns']:.2f} x", item.note or "",
    )  # fmt: skip


def _times_line(found: Validation, width: int) -> str:
    """How predicted and measured times agree, where both are of one device."""
    parts = []
    if found.median_ape is not None:
        parts.append(f"median error of the predicted times {100 * found.median_ape:.0f} %")
    if found.spearman is not None:
        parts.append(f"rank correlation {found.spearman:.3f}")
    if found.winner is not None:
        gain = found.winner
        parts.append(
            f"fused against apart: {gain['predicted_gain']:.2f} x predicted, {gain['measured_gain']:.2f} x measured, "
            + ("the winner is the predicted one" if gain["right"] else "the winner is not the predicted one")
        )
    return fold("; ".join(parts), width) if parts else ""


def _pair(item: KernelResult, name: str) -> str:
    predicted = (item.predicted or {}).get(name)
    if item.compiled is None:
        return "-"
    return f"{'-' if predicted is None else f'{predicted:g}'} / {item.compiled[name]:g}"


def _agreement_line(found: Validation, width: int) -> str:
    if found.agreement is None:
        return ""
    shares = [
        f"{name} {100 * share:.0f} %"
        for name, share in found.agreement.items()
        if name != "kernels" and share is not None
    ]
    return fold(f"predicted right in {found.agreement['kernels']} compiled kernels: {', '.join(shares)}", width)


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
