"""Pages of what-if studies: a sweep's curves and phases, thresholds as a map of phases, sensitivities as a tornado."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log
from typing import Any

from fusesolve.hardware_yaml import number_at
from fusesolve.report.pictures.drawn import HUES
from fusesolve.report.pictures.page import (
    LAYOUT,
    Cell,
    Number,
    Page,
    Picture,
    Table,
    escape_hover,
    need_plots,
    time_cell,
)
from fusesolve.report.text import short_names
from fusesolve.units import Dimension, format_bytes, format_quantity

MOST_LINES = 24  # lines of a sweep's curves; more are one picture's end
MOST_BARS = 30  # numbers of a tornado; the others are in the table
MOST_NAMED = 60  # plans in the legend of a map; the others are named under the pointer
MAP_HEIGHT = 1200  # pixels that the rows of a map share, if they can
WIDE = 20  # from this ratio of the greatest value to the least on an axis is logarithmic
NO_PLAN = "#8b949e"
ROOM_FOR_LABEL = 0.05  # share of the range from which on a phase has its number written in it
NAMES = 90  # columns for the operators of a change
_SCALES: Mapping[Dimension, tuple[float, str]] = {
    Dimension.BYTES: (1 / 1024, "KiB"), Dimension.BANDWIDTH: (1e-9, "GB/s"), Dimension.SECONDS: (1e6, "us"),
    Dimension.HERTZ: (1e-9, "GHz"), Dimension.FLOPS: (1e-12, "TFLOP/s"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Axis:
    """How the values of a path are drawn: times `scale`, under `title`."""

    scale: float
    title: str


def axis_of(path: str) -> Axis:
    """Bytes in KiB, bandwidths in GB/s, times in us, clocks in GHz; all else as it is."""
    scale, unit = _SCALES.get(number_at(path).dimension, (1.0, ""))
    return Axis(scale, f"{path} ({unit})" if unit else path)


def shown_value(path: str, value: float | None) -> str:
    """`4.8 TB/s`: a value of a path for people."""
    return "-" if value is None else format_quantity(value, number_at(path).dimension)


class Phases:
    """Different plans, numbered from 1 as they come, each with a colour (the same again after twelve)."""

    def __init__(self, hashes: Sequence[str | None]) -> None:
        self.number = {found: place + 1 for place, found in enumerate(dict.fromkeys(h for h in hashes if h))}

    def colour(self, plan: str | None) -> str:
        """The colour of a plan, grey for none."""
        return NO_PLAN if plan is None else HUES[(self.number[plan] - 1) % len(HUES)]

    def name(self, plan: str | None, kernels: int | None) -> str:
        """`plan 3: 7 kernels, 14970bb1`."""
        if plan is None:
            return "no plan"
        return f"plan {self.number[plan]}: {kernels} kernels, {plan[:8]}"


def sweep_page(document: Mapping[str, Any]) -> str:
    """The page of a `fusesolve-whatif/1` document: curves along the first path, a phase map of two paths, the rows."""
    need_plots()
    paths, rows = list(document["paths"]), list(document["rows"])
    phases = Phases([row["plan_sha256"] for row in rows])
    parts: list[Picture | Table] = []
    if paths and rows:
        parts.append(_curves(paths, rows, phases))
    if len(paths) == 2:
        parts += _sweep_maps(paths, rows, phases)
    parts.append(_sweep_rows(paths, rows, phases))
    line = f"{len(rows)} points, {len(phases.number)} different plans"
    return Page(title="What if", line=line, facts=(), parts=parts).html()


def _series(paths: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Rows by everything but the first path."""
    several = {name: len({row[name] for row in rows}) > 1 for name in ("graph", "hardware")}
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        names = [str(row[name]) for name, more in several.items() if more]
        names += [f"{path} = {shown_value(path, row[path])}" for path in paths[1:] if row[path] is not None]
        found.setdefault(", ".join(names) or "time", []).append(row)
    return found


def _curves(paths: Sequence[str], rows: Sequence[Mapping[str, Any]], phases: Phases) -> Picture:
    import plotly.graph_objects as go

    figure, axis, first = go.Figure(), axis_of(paths[0]), paths[0]
    series = _series(paths, rows)
    for n, (name, part) in enumerate(list(series.items())[:MOST_LINES]):
        there = sorted((r for r in part if r["objective_ns"] and r[first] is not None), key=lambda r: r[first])
        figure.add_scatter(
            x=[r[first] * axis.scale for r in there], y=[r["objective_ns"] / 1e3 for r in there], mode="lines+markers",
            name=escape_hover(name), line={"color": HUES[n % len(HUES)], "width": 1.5}, hoverinfo="text",
            marker={"size": 9, "color": [phases.colour(r["plan_sha256"]) for r in there]},
            hovertext=[
                f"{escape_hover(name)}<br>{shown_value(first, r[first])}: {time_cell(r['objective_ns']).text}<br>"
                f"{phases.name(r['plan_sha256'], r['kernels'])}"
                for r in there
            ],
        )  # fmt: skip
    figure.update_layout(**LAYOUT, legend={"orientation": "h", "y": -0.25, "yanchor": "top"})
    figure.update_xaxes(title=axis.title, **_scale([r[first] for r in rows if r[first] is not None]))
    times = [r["objective_ns"] for r in rows if r["objective_ns"]]
    figure.update_yaxes(title="us", rangemode="tozero", **_scale(times))
    left = max(0, len(series) - MOST_LINES)
    return Picture(
        heading="Time", figure=figure, height=460 + 12 * min(len(series), MOST_LINES),
        note="The colour of a dot is the plan: where it changes, the best fusion changes."
        + (f" {left} more lines are in the table only." if left else ""),
    )  # fmt: skip


def _sweep_maps(paths: Sequence[str], rows: Sequence[Mapping[str, Any]], phases: Phases) -> list[Picture]:
    """A map per graph and device: the plan at each pair of values, the second path as rows."""
    by_subject: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        if None not in (row[paths[0]], row[paths[1]]):
            by_subject.setdefault((row["graph"], row["hardware"]), []).append(row)
    found = []
    for (graph, hardware), part in by_subject.items():
        bars: list[_Bar] = []
        for value in sorted({row[paths[1]] for row in part}):
            line = sorted((row for row in part if row[paths[1]] == value), key=lambda row: row[paths[0]])
            cuts = _cuts([row[paths[0]] for row in line])
            for row, (low, high) in zip(line, pairwise(cuts), strict=True):
                hover = f"{shown_value(paths[0], row[paths[0]])}: {time_cell(row['objective_ns']).text}"
                bars.append(_Bar(
                    row=shown_value(paths[1], value), low=low, high=high, plan=row["plan_sha256"],
                    kernels=row["kernels"], hover=hover,
                ))  # fmt: skip
        found.append(_map(f"Phases of {graph} on {hardware}", bars, phases, paths[0], paths[1]))
    return found


def _is_wide(values: Sequence[float]) -> bool:
    """Whether values are far apart, all above 0: their axis is logarithmic."""
    return bool(values) and 0 < WIDE * min(values) < max(values)


def _scale(values: Sequence[float]) -> dict[str, str]:
    """The type of an axis; a logarithmic one with ticks at 1, 2 and 5."""
    return {"type": "log", "dtick": "D2"} if _is_wide(values) else {"type": "linear"}


def _cuts(values: Sequence[float]) -> list[float]:
    """Borders around ascending values: half-way between neighbours (on their axis), the outer ones as far outside."""
    if len(values) == 1:
        return [values[0] * 0.99, values[0] * 1.01]
    if _is_wide(values):
        middle = [(a * b) ** 0.5 for a, b in pairwise(values)]
        return [values[0] ** 2 / middle[0], *middle, values[-1] ** 2 / middle[-1]]
    middle = [(a + b) / 2 for a, b in pairwise(values)]
    return [2 * values[0] - middle[0], *middle, 2 * values[-1] - middle[-1]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bar:
    """A stretch from `low` to `high` (base units) in a row of a map, on which one plan holds; `hover` has HTML."""

    row: str
    low: float
    high: float
    plan: str | None
    kernels: int | None
    hover: str


def _map(heading: str, bars: Sequence[_Bar], phases: Phases, path: str, rows: str | None) -> Picture:
    """Rows of stretches, a colour, a number and a line of the legend for each plan."""
    import plotly.graph_objects as go

    figure, axis = go.Figure(), axis_of(path)
    ends = [end for bar in bars for end in (bar.low, bar.high)]
    on_axis: Callable[[float], float] = log if _is_wide(ends) else float
    width = on_axis(max(ends)) - on_axis(min(ends))
    order = list(dict.fromkeys(bar.row for bar in bars))
    tall = max(12, min(46, MAP_HEIGHT // max(1, len(order))))
    plans = dict.fromkeys(sorted((bar.plan for bar in bars), key=lambda plan: phases.number.get(plan or "", 0)))
    for place, plan in enumerate(plans):
        mine = [bar for bar in bars if bar.plan == plan]
        wide = [on_axis(bar.high) - on_axis(bar.low) >= ROOM_FOR_LABEL * width for bar in mine]
        name = phases.name(plan, mine[0].kernels)
        figure.add_bar(
            orientation="h", name=name, y=[bar.row for bar in mine], base=[bar.low * axis.scale for bar in mine],
            x=[(bar.high - bar.low) * axis.scale for bar in mine], hoverinfo="text",
            hovertext=[f"<b>{name}</b><br>{bar.hover}" for bar in mine], showlegend=place < MOST_NAMED,
            text=[str(phases.number[plan]) if plan and fits else "" for fits in wide], textposition="inside",
            insidetextanchor="middle", textangle=0, insidetextfont={"color": "#fff", "size": min(13, tall - 2)},
            marker={"color": phases.colour(plan), "line": {"width": 0.5, "color": "rgba(255,255,255,.7)"}},
        )  # fmt: skip
    figure.update_layout(
        **{**LAYOUT, "margin": {**LAYOUT["margin"], "l": 30 + 7 * max(map(len, order), default=0)}}, barmode="overlay",
        bargap=0.06, showlegend=True, legend={"orientation": "h", "y": -60 / (tall * len(order)), "yanchor": "top"},
    )  # fmt: skip
    figure.update_xaxes(title=axis.title, **_scale(ends))
    figure.update_yaxes(
        title=None if rows is None else {"text": rows, "standoff": 14}, type="category", categoryorder="array",
        categoryarray=order, automargin=True,
    )  # fmt: skip
    return Picture(
        heading=heading, figure=figure, height=150 + tall * len(order) + 11 * min(len(plans), MOST_NAMED),
        note=f"{len(plans)} plans, a number and a colour each (colours again after twelve). Hover for kernels, time "
        "and what changes.",
    )  # fmt: skip


def thresholds_page(document: Mapping[str, Any]) -> str:
    """The page of a `fusesolve-thresholds/1` document: a map of phases per graph and device, and what changes where.

    A row of a map is a line: a value of the second number, or of whatever else was set.
    """
    need_plots()
    path, lines = document["path"], list(document["lines"])
    phases = Phases([segment["plan_sha256"] for line in lines for segment in line["segments"]])
    by_subject: dict[tuple[str, str], list[_Bar]] = {}
    for line in lines:
        row = ", ".join(
            shown_value(p, v) if len(line["set"]) == 1 else f"{p} = {shown_value(p, v)}" for p, v in line["set"].items()
        )
        by_subject.setdefault((line["graph"], line["hardware"]), []).extend(_stretches(line, path, row or "best plan"))
    rows = document["set"][0] if len(document["set"]) == 1 else None
    parts: list[Picture | Table] = [
        _map(f"Phases of {graph} on {hardware}", bars, phases, path, rows)
        for (graph, hardware), bars in by_subject.items()
    ]
    parts.append(_changes(document, phases))
    changes = sum(len(line["changes"]) for line in lines)
    said = f"{len(phases.number)} plans, {changes} thresholds along {path}"
    return Page(title="Where the plan changes", line=said, facts=(), parts=parts).html()


def _stretches(line: Mapping[str, Any], path: str, row: str) -> list[_Bar]:
    """The stretches of one line, each up to half-way into the uncertainty of its threshold."""
    segments, changes = line["segments"], line["changes"]
    cuts = [segments[0]["low"], *((c["below"] + c["above"]) / 2 for c in changes), segments[-1]["high"]]
    found = []
    for place, (segment, (low, high)) in enumerate(zip(segments, pairwise(cuts), strict=True)):
        span = f"{shown_value(path, segment['low'])} .. {shown_value(path, segment['high'])}"
        times = " .. ".join(dict.fromkeys(time_cell(segment[end]).text or "-" for end in ("low_ns", "high_ns")))
        hover = [span, f"time {times}"]
        if place:
            hover += [f"from here on: {escape_hover(text)}" for text in _said(changes[place - 1])]
        if place < len(changes):
            hover += [f"above it: {escape_hover(text)}" for text in _said(changes[place])]
        found.append(_Bar(
            row=row, low=low, high=high, plan=segment["plan_sha256"], kernels=segment["kernels"],
            hover="<br>".join(hover),
        ))  # fmt: skip
    return found


def _said(change: Mapping[str, Any], most: int = 3) -> list[str]:
    """What a change does to the kernels, a line each."""
    groups = change["groups"]
    lines = [f"{g['kind']} {g['from']} > {g['to']}: {short_names(g['nodes'], NAMES)}" for g in groups[:most]]
    return [*lines, *([f"{len(groups) - most} more"] if len(groups) > most else [])]


def _changes(document: Mapping[str, Any], phases: Phases) -> Table:
    path, paths = document["path"], document["set"]
    cells: list[Sequence[Cell]] = []
    for line in document["lines"]:
        for change in line["changes"]:
            plans = [
                str(phases.number[found]) if (found := change[side]) else "none"
                for side in ("below_sha256", "above_sha256")
            ]
            gain = change["gain_at_end_ns"]
            cells.append((
                line["graph"], "; ".join(_said(change, 9)) or "-", line["hardware"],
                *(Number(line["set"][p], shown_value(p, line["set"][p])) for p in paths),
                Number(change["below"], f"{change['below']:.7g}"), Number(change["above"], f"{change['above']:.7g}"),
                " > ".join(plans), "it must" if gain is None else time_cell(gain),
            ))  # fmt: skip
    columns = ("graph", "what changes", "hardware", *paths, "below", "above", "plans", "gains at the end")
    return Table(
        heading="Thresholds", note=f"Values of {path} in base units (s, B, B/s, Hz).", columns=columns, rows=cells
    )


def sensitivity_page(document: Mapping[str, Any]) -> str:
    """The page of a `fusesolve-sensitivity/1` document: a tornado and a table for each point."""
    need_plots()
    parts: list[Picture | Table] = []
    for line in document["lines"]:
        point = ", ".join(f"{path} = {shown_value(path, value)}" for path, value in line["set"].items())
        heading = f"{line['graph']} on {line['hardware']}" + (f", {point}" if point else "")
        parts += [_tornado(heading, line), _numbers(line)]
    said = f"{len(document['lines'])} point(s), 1 % more of one number at a time"
    return Page(title="What 1 % more buys", line=said, facts=(), parts=parts).html()


def _tornado(heading: str, line: Mapping[str, Any]) -> Picture:
    import plotly.graph_objects as go

    shown = [n for n in line["numbers"] if n["elasticity"] or n["could_flip"]][:MOST_BARS]
    figure = go.Figure()
    for flips, name in ((False, "holds within its stated accuracy"), (True, "could flip the plan")):
        part = [n for n in shown if n["could_flip"] is flips]
        figure.add_bar(
            orientation="h", name=name, y=[n["path"] for n in part], x=[n["elasticity"] or 0.0 for n in part],
            marker={"color": HUES[1] if flips else HUES[0]}, hoverinfo="text",
            hovertext=[
                f"{n['path']} = {shown_value(n['path'], n['value'])}<br>elasticity {n['elasticity'] or 0.0:+.4f}"
                for n in part
            ],
        )  # fmt: skip
    figure.update_layout(
        **{**LAYOUT, "margin": {**LAYOUT["margin"], "l": 30 + 7 * max((len(n["path"]) for n in shown), default=0)}},
        barmode="overlay", legend={"orientation": "h", "y": 1.0, "yanchor": "bottom"},
    )  # fmt: skip
    figure.update_xaxes(title="relative change of the time over that of the number")
    figure.update_yaxes(autorange="reversed", type="category", categoryarray=[n["path"] for n in shown])
    return Picture(
        heading=heading, figure=figure, height=130 + 22 * len(shown),
        note=f"Best plan {time_cell(line['objective_ns']).text}, {line['kernels']} kernels. A bar to the left: more of "
        "this number makes it faster.",
    )  # fmt: skip


def _numbers(line: Mapping[str, Any]) -> Table:
    def percent(value: float | None) -> Number:
        return Number(value, "" if value is None else f"{100 * value:.3g} %")

    cells: list[Sequence[Cell]] = [
        (
            n["path"], Number(n["value"], shown_value(n["path"], n["value"])),
            Number(n["elasticity"], "" if n["elasticity"] is None else f"{n['elasticity']:+.4f}"),
            percent(n["accuracy"]), "yes" if n["could_flip"] else "no", n["stuck"] or "",
        )
        for n in line["numbers"]
    ]  # fmt: skip
    columns = ("number", "value", "elasticity", "stated to", "could flip the plan", "cannot move alone")
    return Table(heading="Numbers", note="Click a heading to sort.", columns=columns, rows=cells)


def _sweep_rows(paths: Sequence[str], rows: Sequence[Mapping[str, Any]], phases: Phases) -> Table:
    columns = ("graph", "hardware", *paths, "plan", "status", "time", "unfused", "kernels", "traffic")
    cells: list[Sequence[Cell]] = [
        (
            row["graph"], row["hardware"], *(Number(row[path], shown_value(path, row[path])) for path in paths),
            "" if not row["plan_sha256"] else f"{phases.number[row['plan_sha256']]}: {row['plan_sha256'][:8]}",
            row["status"], time_cell(row["objective_ns"]), time_cell(row["unfused_ns"]),
            Number(row["kernels"], str(row["kernels"])),
            Number(row["dram_bytes"], "" if row["dram_bytes"] is None else format_bytes(row["dram_bytes"])),
        )
        for row in rows
    ]  # fmt: skip
    return Table(heading="Points", note="Click a heading to sort.", columns=columns, rows=cells)
