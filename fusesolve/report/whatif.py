"""What-if studies as a person reads them: sweeps, thresholds, sensitivities, searches."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fusesolve.report.text import Column, fold, render_table, short_names
from fusesolve.units import Dimension, format_quantity, format_seconds

SMALL_BYTES = 8192

COMMON = frozenset({"graph", "hardware", "status", "gap", "plan", "kernels"})
NAMES = 60  # columns for the operators of a change
FLAT = 5e-5  # an elasticity below this is shown as none
_DIMENSIONS = {dimension.value: dimension for dimension in Dimension}


def sweep_table(document: Mapping[str, Any], dimensions: Sequence[Dimension], *, width: int, colour: bool) -> str:
    """A `fusesolve-whatif/1` document as one line a point; `dimensions` are those of its paths.

    What all points have in common (a device, say) is said once, above.
    """
    paths = document["paths"]
    columns = [
        *(Column(head=path, right=True) for path in paths), Column(head="graph", flexible=True),
        Column(head="hardware"), Column(head="plan"), Column(head="status"), Column(head="time", right=True),
        Column(head="gap", right=True), Column(head="speedup", right=True), Column(head="kernels", right=True),
        Column(head="mostly bound by"),
    ]  # fmt: skip
    rows = [_sweep_row(row, paths, dimensions) for row in document["rows"]]
    alike = [len({row[place] for row in rows}) == 1 for place in range(len(columns))]
    same = [place for place, column in enumerate(columns) if column.head in COMMON and alike[place]]
    kept = [place for place in range(len(columns)) if place not in same or len(rows) < 2]
    said = [f"{columns[place].head} {rows[0][place]}" for place in same if place not in kept]
    table = render_table(
        [columns[place] for place in kept], [[row[place] for place in kept] for row in rows], width=width, colour=colour
    )
    return (fold(f"all: {', '.join(said)}", width) if said else "") + table


def _sweep_row(row: Mapping[str, Any], paths: Sequence[str], dimensions: Sequence[Dimension]) -> list[str]:
    time, unfused = row["objective_ns"], row["unfused_ns"]
    shares = {name.removeprefix("bound_by_"): row[name] for name in row if name.startswith("bound_by_") and row[name]}
    most = max(shares, key=lambda name: shares[name], default=None)
    return [
        *("-" if row[p] is None else format_quantity(row[p], d) for p, d in zip(paths, dimensions, strict=True)),
        row["graph"], row["hardware"], _short(row["plan_sha256"]), row["status"], _time(time),
        "-" if row["gap"] is None else f"{100 * row['gap']:.2g} %",
        f"{unfused / time:.2f} x" if time and unfused else "-",
        "-" if row["kernels"] is None else str(row["kernels"]),
        "-" if most is None else f"{most} {100 * shares[most]:.0f} %",
    ]  # fmt: skip


def thresholds_table(document: Mapping[str, Any], *, width: int, colour: bool) -> str:
    """A `fusesolve-thresholds/1` document: per line the stretches with one plan, and what changes between them."""
    dimension = _DIMENSIONS[document["dimension"]]
    columns = [
        Column(head=document["path"], right=True), Column(head="plan"), Column(head="kernels", right=True),
        Column(head="time", right=True), Column(head="gains", right=True), Column(head="what changes", flexible=True),
    ]  # fmt: skip
    parts = []
    for line in document["lines"]:
        rows = list(_threshold_rows(line, dimension))
        parts.append(_title(line) + render_table(columns, rows, width=width, colour=colour))
    return "\n".join(parts)


def _threshold_rows(line: Mapping[str, Any], dimension: Dimension) -> Iterator[list[str]]:
    changes = [None, *line["changes"]]
    for change, segment in zip(changes, line["segments"], strict=True):
        if change is not None:
            between = f"{_exact(change['below'], dimension)} .. {_exact(change['above'], dimension)}"
            yield [between, "", "", "", _gain(change), "; ".join(map(_regrouped, change["groups"]))]
        kernels = "-" if segment["kernels"] is None else str(segment["kernels"])
        span = f"{_exact(segment['low'], dimension)} .. {_exact(segment['high'], dimension)}"
        times = f"{_time(segment['low_ns'])} .. {_time(segment['high_ns'])}"
        yield [span, _short(segment["plan_sha256"]), kernels, times, "", ""]


def _gain(change: Mapping[str, Any]) -> str:
    """What the new plan saves at the end of its stretch; `it must` where the old one does not exist there."""
    gain = change["gain_at_end_ns"]
    return "it must" if gain is None else _time(gain)


def _regrouped(group: Mapping[str, Any]) -> str:
    return f"{group['kind']} {group['from']} > {group['to']}: {short_names(group['nodes'], NAMES)}"


def search_table(document: Mapping[str, Any], *, width: int, colour: bool) -> str:
    """A `fusesolve-search/1` document: the value of each line that meets the target, and the one beside it."""
    dimension = _DIMENSIONS[document["dimension"]]
    columns = [
        *(Column(head=path, right=True) for path in document["set"]), Column(head="graph", flexible=True),
        Column(head="hardware"), Column(head="target", right=True),
        Column(head=document["path"], right=True), Column(head="time", right=True), Column(head="kernels", right=True),
        Column(head="misses at", right=True),
    ]  # fmt: skip
    rows = [
        [
            *(f"{value:g}" for value in line["set"].values()), line["graph"], line["hardware"],
            _time(line["target_ns"]), f"{line['wanted']} {_exact(line['value'], dimension)}",
            _time(line["objective_ns"]), str(line["kernels"]),
            "-" if line["misses"] is None else f"{_exact(line['misses'], dimension)} ({_time(line['misses_ns'])})",
        ]
        for line in document["lines"]
    ]  # fmt: skip
    return render_table(columns, rows, width=width, colour=colour)


def sensitivity_table(document: Mapping[str, Any], *, width: int, colour: bool) -> str:
    """A `fusesolve-sensitivity/1` document: numbers with an effect by its size, then what cannot move alone."""
    columns = [
        Column(head="number"), Column(head="value", right=True), Column(head="elasticity", right=True),
        Column(head="1 % more", right=True), Column(head="stated to", right=True), Column(head="could flip the plan"),
        Column(head=""),
    ]  # fmt: skip
    parts = []
    for line in document["lines"]:
        numbers = line["numbers"]
        top = max((abs(n["elasticity"] or 0.0) for n in numbers), default=0.0)
        shown = [n for n in numbers if abs(n["elasticity"] or 0.0) >= FLAT or n["could_flip"]]
        text = _title(line) + render_table(
            columns, [_number_row(n, top, line["objective_ns"]) for n in shown], width=width, colour=colour
        )
        flips = [n["path"] for n in numbers if n["could_flip"]]
        text += f"\nthe plan hangs on: {', '.join(flips) or 'no number within its stated accuracy'}\n"
        stuck = [n["path"] for n in numbers if n["stuck"]]
        text += f"cannot move alone: {', '.join(stuck)}\n" if stuck else ""
        parts.append(text + f"no effect: {len(numbers) - len(shown) - len(stuck)} other numbers\n")
    return "\n".join(parts)


def _number_row(number: Mapping[str, Any], top: float, objective_ns: int) -> list[str]:
    elasticity, accuracy = number["elasticity"], number["accuracy"]
    bar = "" if elasticity is None or not top else "#" * round(20 * abs(elasticity) / top)
    saved = None if elasticity is None else elasticity * objective_ns / 100
    return [
        number["path"], format_quantity(number["value"], _DIMENSIONS[number["dimension"]]),
        "-" if elasticity is None else f"{elasticity:+.3f}",
        "-" if saved is None else f"{saved:+.0f} ns",
        "-" if accuracy is None else f"{100 * accuracy:.3g} %",
        "yes" if number["could_flip"] else "", bar,
    ]  # fmt: skip


def _title(line: Mapping[str, Any]) -> str:
    numbers = "".join(f", {path} = {value:g}" for path, value in line["set"].items() if value is not None)
    return f"{line['graph']} on {line['hardware']}{numbers}\n"


def _exact(value: float, dimension: Dimension) -> str:
    """Six significant digits: thresholds are finer than what people are shown elsewhere."""
    if dimension is Dimension.BYTES:
        return f"{value:.0f} B" if value < SMALL_BYTES else f"{value / 1024:.6g} KiB"
    scales = {Dimension.SECONDS: (1e6, "us"), Dimension.BANDWIDTH: (1e-9, "GB/s"), Dimension.HERTZ: (1e-9, "GHz")}
    scale, unit = scales.get(dimension, (1.0, ""))
    return f"{value * scale:.6g} {unit}".strip()


def _short(sha256: str | None) -> str:
    return "-" if sha256 is None else sha256[:8]


def _time(ns: int | None) -> str:
    return "-" if ns is None else format_seconds(ns / 1e9)
