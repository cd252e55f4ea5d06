"""Predicted against measured as one picture: a panel per family of operators, a colour per device.

    python -m tests.docs.accuracy_picture PICTURE.svg TABLE.csv...

Rows that no constant was fitted on. Both axes are logarithmic, the line is where prediction and measurement agree; a
mark is a cell of the panel with at least one row in it, so that the picture stays small whatever the table.
"""

import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from fusesolve.metrics import measure_errors
from fusesolve.study.accuracy import Part, by_profile, chosen, predict
from fusesolve.study.readers import read_table
from fusesolve.units import format_seconds
from tests.docs.pictures import SETTINGS, svg_bytes

Points: TypeAlias = dict[str, list[tuple[float, float]]]

CELLS = 40  # of a panel's side for a factor of ten, so that rows in one place are one mark
COLUMNS = 4  # panels in a row
MOST_OPERATORS = 4  # a table of more operators is one panel


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One family: (measured, predicted) seconds of each device."""

    title: str
    points: Mapping[str, Sequence[tuple[float, float]]]


def read_panels(paths: Sequence[Path]) -> tuple[Panel, ...]:
    """The families of the tables in their order; InputError where a table cannot be read."""
    return tuple(panel for path in paths for panel in _panels(path))


def _panels(path: Path) -> list[Panel]:
    table = read_table(path)
    found: dict[str, Points] = defaultdict(lambda: defaultdict(list))
    for (device, name), samples in by_profile(table).items():
        if name is None:
            continue
        rows = predict(table.file, device, chosen(samples, Part.HELD_OUT), name)
        for sample, predicted in zip(rows.samples, rows.predicted.tolist(), strict=True):
            if np.isfinite(predicted):
                found[sample.op][device].append((sample.latency, predicted))
    if len(found) <= MOST_OPERATORS:
        source = table.file.split("_")[0]
        return [Panel(title=f"{op} ({source})", points=points) for op, points in sorted(found.items())]
    merged: Points = defaultdict(list)
    for points in found.values():
        for device, pairs in points.items():
            merged[device] += pairs
    return [Panel(title=f"{table.file.removesuffix('.csv')}: {len(found)} operators", points=merged)]


def draw_panels(panels: Sequence[Panel]) -> Any:
    """The figure; every panel has at least one row."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    devices = sorted({device for panel in panels for device in panel.points})
    colours = {device: colormaps["tab10"](number % 10) for number, device in enumerate(devices)}
    rows = ceil(len(panels) / COLUMNS)
    figure = Figure(figsize=(2.6 * COLUMNS, 3.0 * rows + 0.6), facecolor="white", layout="constrained")
    grid = list(figure.subplots(rows, COLUMNS, squeeze=False).flat)
    for axes, panel in zip(grid, panels, strict=False):
        _draw(axes, panel, colours)
    for axes in grid[len(panels) :]:
        axes.remove()
    handles = {name: mark for axes in figure.axes for mark, name in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend([handles[name] for name in devices], devices, loc="outside lower center", ncols=5, frameon=False,
                  markerscale=4.0)  # fmt: skip
    return figure


def _draw(axes: Any, panel: Panel, colours: Mapping[str, Any]) -> None:
    pairs = np.array([pair for points in panel.points.values() for pair in points])
    errors = measure_errors(pairs[:, 1], pairs[:, 0])
    axes.set_title(f"{panel.title}\n{errors.n} rows, mean error {100 * errors.mape:.1f} %", fontsize=9)
    limits = (pairs.min() / 1.2, pairs.max() * 1.2)
    axes.set(xscale="log", yscale="log", xlim=limits, ylim=limits, aspect="equal", xlabel="measured")
    axes.plot(limits, limits, color="#bbb", linewidth=0.8)
    axes.minorticks_off()
    axes.set_rasterization_zorder(0.0)  # the marks of a panel are one image
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda seconds, _: format_seconds(seconds))
    for device, points in sorted(panel.points.items()):
        cells = 10.0 ** (np.unique(np.round(np.log10(points) * CELLS), axis=0) / CELLS)
        axes.scatter(*cells.T, s=2.0, color=colours[device], alpha=0.7, linewidths=0, label=device, zorder=-1.0)


def write_picture(arguments: Sequence[str]) -> None:
    """Write the picture of the tables named after it."""
    import matplotlib as mpl

    target, *tables = arguments
    with mpl.rc_context(dict(SETTINGS)):
        figure = draw_panels(read_panels([Path(table) for table in tables]))
        Path(target).write_bytes(svg_bytes(figure, "rows that no constant was fitted on"))


if __name__ == "__main__":
    write_picture(sys.argv[1:])
