"""The static pictures of the studies: each is drawn from the first table of its page, so that both say the same.

`python -m tests.docs.pages docs/studies/*.md` writes the tables and then the pictures anew; the same table gives the
same bytes. A page asks for its picture by showing it: `![...](launch.svg)`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any

from fusesolve.units import Dimension, parse_quantity

PICTURE = re.compile(r"!\[[^\]]*\]\(([\w-]+\.svg)\)")
CELLS = re.compile(r"\s{2,}")
SETTINGS: Mapping[str, Any] = {
    "svg.hashsalt": "fusesolve", "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 9,
    "axes.grid": True, "grid.color": "#d1d9e0", "axes.edgecolor": "#59636e", "axes.axisbelow": True,
}  # fmt: skip
COLOURS = ("#4e79a7", "#e15759", "#59a14f", "#b07aa1")
MARKERS = "osD^v<>p"
TICKS = {Dimension.BYTES: ("KiB", 1024.0), Dimension.SECONDS: ("us", 1e-6)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row of a table: where it stands on the x axis (a number in base units, or a name), and what it says there."""

    x: float | str
    graph: str
    plan: str
    seconds: float
    speedup: float
    kernels: int


def picture_of(text: str) -> str | None:
    """The name of the picture that a page shows, None where it shows none."""
    found = PICTURE.search(text)
    return None if found is None else found[1]


def parse_table(shown: str) -> tuple[str, list[Row]]:
    """What the x axis is called, and the rows of a sweep's table as people see it (all lines, `all: ...` first)."""
    lines = [line.strip() for line in shown.splitlines() if line.strip() and not line.startswith("all: ")]
    heads = CELLS.split(lines[0])
    axis = "hardware" if heads[0] == "graph" else heads[0]
    rows = []
    for line in lines[1:]:
        row = dict(zip(heads, CELLS.split(line), strict=True))
        rows.append(Row(
            x=row[axis] if axis == "hardware" else _quantity(row[axis]), graph=row["graph"], plan=row["plan"],
            seconds=parse_quantity(row["time"], Dimension.SECONDS), speedup=float(row["speedup"].removesuffix(" x")),
            kernels=int(row["kernels"]),
        ))  # fmt: skip
    return axis, rows


def _dimension(text: str) -> Dimension:
    return Dimension.BYTES if text.endswith("B") else Dimension.SECONDS


def _quantity(text: str) -> float:
    return parse_quantity(text, _dimension(text))


def draw_table(shown: str) -> bytes:
    """The SVG of a table: time, and what fusion gains; a marker for each plan, the number of its kernels beside it."""
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis, rows = parse_table(shown)
    with mpl.rc_context(dict(SETTINGS)):
        figure = Figure(figsize=(9.6, 4.0), facecolor="white", layout="constrained")
        left, right = figure.subplots(1, 2)
        for colour, graph in zip(COLOURS, dict.fromkeys(row.graph for row in rows), strict=False):
            mine = [row for row in rows if row.graph == graph]
            _series(left, mine, [1e6 * row.seconds for row in mine], colour, graph)
            _series(right, mine, [row.speedup for row in mine], colour, None)
        left.set(ylabel="time of the best plan (us)", yscale="log", ymargin=0.12)
        left.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        left.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        left.yaxis.set_minor_formatter(NullFormatter())
        right.set(ylabel="times faster than unfused", ylim=(0, 1.1 * max(row.speedup for row in rows)))
        for panel in (left, right):
            _label_axis(panel, axis, rows)
        handles, names = left.get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=len(names), frameon=False)
        return svg_bytes(figure, f"drawn from the table with SHA-256 {sha256(shown.encode()).hexdigest()}")


def svg_bytes(figure: Any, source: str) -> bytes:
    """The SVG of a figure that says what it was drawn from; the same figure gives the same bytes."""
    stream = BytesIO()
    metadata = {"Date": None, "Creator": None, "Description": source}
    figure.savefig(stream, format="svg", dpi=110, metadata=metadata)
    return stream.getvalue()


def _series(panel: Any, rows: Sequence[Row], values: Sequence[float], colour: str, graph: str | None) -> None:
    """A line, a marker that changes where the plan does, and (with a name) the number of kernels there."""
    xs = [row.x for row in rows]
    panel.plot(xs, values, color=colour, label=graph, linewidth=1.4, marker="o", markersize=0)
    plans = list(dict.fromkeys(row.plan for row in rows))
    before = None
    for x, value, row in zip(xs, values, rows, strict=True):
        marker = MARKERS[plans.index(row.plan) % len(MARKERS)]
        panel.plot([x], [value], color=colour, marker=marker, markersize=6, markeredgecolor="white")
        if graph is not None and row.plan != before:
            panel.annotate(
                f"{row.kernels}", (x, value), textcoords="offset points", xytext=(0, 7), ha="center", color=colour
            )
        before = row.plan


def _label_axis(panel: Any, axis: str, rows: Sequence[Row]) -> None:
    xs = sorted({row.x for row in rows if not isinstance(row.x, str)})
    if not xs:
        panel.set_xlim(-0.4, len({row.x for row in rows}) - 0.6)
        return
    unit, size = TICKS[Dimension.BYTES if xs[-1] >= 1 else Dimension.SECONDS]
    panel.set_xscale("log")
    panel.set_xticks(xs, [f"{x / size:g}" for x in xs], rotation=45 if len(xs) > 6 else 0)
    panel.minorticks_off()
    panel.set_xlabel(f"{axis} ({unit})")


def draw_picture(page: Path, shown: str) -> None:
    """Write the picture that a page shows, if it does, from a table of it."""
    name = picture_of(page.read_text())
    if name is not None:
        (page.parent / name).write_bytes(draw_table(shown))
