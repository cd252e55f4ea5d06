"""The errors of the simulator as a person reads them: a line an operator, then hosts, worst rows, what is left out."""

from collections.abc import Sequence

from fusesolve.report.text import Column, fold, render_table
from fusesolve.study.accuracy import Accuracy, AccuracyRow, Part
from fusesolve.study.gains.cases import Gain
from fusesolve.units import format_seconds

COLUMNS = (
    Column(head="file", flexible=True),
    Column(head="device", flexible=True),
    Column(head="profile", flexible=True),
    Column(head="operator", flexible=True),
    Column(head="timing"),
    Column(head="rows", right=True),
    Column(head="mean", right=True),
    Column(head="median", right=True),
    Column(head="p90", right=True),
    Column(head="bias", right=True),
    Column(head="rank", right=True),
    Column(head="bound", right=True),  # the last: it is left out where no row has one
)
GAIN_COLUMNS = (
    Column(head="file", flexible=True),
    Column(head="device", flexible=True),
    Column(head="host", flexible=True),
    Column(head="split", flexible=True),
    Column(head="rows", right=True),
    Column(head="rank", right=True),
    Column(head="gain", right=True),
    Column(head="predicted", right=True),
    Column(head="planned", right=True),
    Column(head="unfused", right=True),
    Column(head="fused", right=True),
    Column(head="winner", right=True),
)
_PARTS = {
    Part.ALL: "all rows",
    Part.FIT: "the rows that calibration may fit on",
    Part.HELD_OUT: "the rows that calibration never sees",
}


def accuracy_table(found: Accuracy, *, width: int, colour: bool, verbose: bool = False) -> str:
    """The report at most `width` columns wide; `verbose` adds the worst rows of every operator."""
    head = fold(f"Errors of predicted against measured times on {_PARTS[found.part]}", width)
    bounded = any(row.reachable is not None for row in found.rows)
    shown = len(COLUMNS) if bounded else len(COLUMNS) - 1
    rows = [_cells(row)[:shown] for row in found.rows]
    parts = [head, "\n", render_table(COLUMNS[:shown], rows, width=width, colour=colour)] if found.rows else [head]
    parts += [fold(BOUND, width)] if bounded else []
    if found.gains:
        parts += ["\n", fold(GAINS, width), "\n"]
        parts.append(
            render_table(GAIN_COLUMNS, [_gain_cells(gain) for gain in found.gains], width=width, colour=colour)
        )
    parts += ["\n", *(fold(line, width) for line in _host_lines(found))] if found.hosts else []
    if verbose:
        parts += ["\n", *(fold(line, width) for row in found.rows for line in _worst_lines(row))]
        parts += [fold(line, width) for gain in found.gains for line in _worst_gains(gain)]
    if found.excluded:
        parts.append("\n")
        parts += [fold(f"not counted: {item.n} rows of {item.file}"
                       + (f", {item.device}" if item.device else "") + f": {item.why}", width)
                  for item in found.excluded]  # fmt: skip
    return "".join(parts)


BOUND = "bound: the rank that exact kernel times would reach, given one floor for the host that hides the short ones"


def _cells(row: AccuracyRow) -> Sequence[str]:
    errors = row.errors
    rank, bound = ("-" if value is None else f"{value:.4f}" for value in (errors.spearman, row.reachable))
    ratios = (errors.mape, errors.median_ape, errors.p90_ape)
    return (
        row.file, row.device, row.profile, row.op, row.timing, str(errors.n), *(f"{100 * r:.1f}%" for r in ratios),
        f"{100 * errors.bias:+.1f}%", rank, bound,
    )  # fmt: skip


GAINS = (
    "Gains of fusion (unfused over fused time): rank correlation with the measured gain, its median as measured, as "
    "predicted and of fusesolve's own plan, median errors of the unfused and the fused time, and how often the winner "
    "is right where the measured gain is above 10 %"
)


def _gain_cells(gain: Gain) -> Sequence[str]:
    rank = "-" if gain.spearman is None else f"{gain.spearman:.3f}"
    planned = "-" if gain.planned_gain is None else f"{gain.planned_gain:.2f}"
    winner = "-" if gain.winner_right is None else f"{100 * gain.winner_right:.0f}% of {gain.clear}"
    return (
        gain.file, gain.device, gain.host or "-", gain.split, str(gain.n), rank, f"{gain.gain:.2f}",
        f"{gain.predicted_gain:.2f}", planned, f"{100 * gain.unfused_median_ape:.1f}%",
        f"{100 * gain.median_ape:.1f}%", winner,
    )  # fmt: skip


def _worst_gains(gain: Gain) -> list[str]:
    lines = [f"{gain.file}, {gain.device}, {gain.split}: worst gains"]
    lines += [
        f"  {case.label}: measured {case.gain:.2f}, predicted {case.predicted_gain:.2f}; unfused "
        f"{format_seconds(case.unfused)}, predicted {format_seconds(case.predicted_unfused)}; fused "
        f"{format_seconds(case.fused)}, predicted {format_seconds(case.predicted_fused)}"
        for case in gain.worst
    ]
    return lines


def _host_lines(found: Accuracy) -> list[str]:
    lines = ["The host's share of eager calls, estimated from the rows of each file (no part of a profile):"]
    for item in found.hosts:
        host = item.host
        lines.append(
            f"{item.file}, {host.device}, {host.family}: at least {format_seconds(host.floor)}, "
            f"{format_seconds(host.offset)} before a long kernel, from {host.rows} rows"
        )
    return lines


def _worst_lines(row: AccuracyRow) -> list[str]:
    lines = [f"{row.file}, {row.device}, {row.op}: worst rows"]
    lines += [
        f"  {item.label}: measured {format_seconds(item.measured)}, predicted {format_seconds(item.predicted)}"
        for item in row.worst
    ]
    return lines
