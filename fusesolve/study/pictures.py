"""Predicted against measured as one picture: a panel per family of operators, a colour per device.

    python -m fusesolve.study.pictures PICTURE.svg TABLE.csv...

Rows that no constant was fitted on. Both axes are logarithmic, the line is where prediction and measurement agree; a
mark is a cell of the panel with at least one row in it, so that the picture stays small whatever the table.
"""

import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, log10
from pathlib import Path
from typing import TypeAlias

import numpy as np

from fusesolve.metrics import measure_errors
from fusesolve.study.accuracy import Part, by_profile, chosen, predict
from fusesolve.study.predict import Array
from fusesolve.study.readers import read_table
from fusesolve.units import format_seconds

Points: TypeAlias = dict[str, list[tuple[float, float]]]

SIDE, CELL, GAP, HEAD, COLUMNS = 180, 2, 26, 34, 4  # pixels: panel, mark, distance, title; panels in a row
MOST_OPERATORS = 4  # a table of more operators is one panel
COLOURS = (
    "#3b6fb6", "#c8553d", "#3f8f5a", "#8a5fb0", "#b58a1b", "#4aa3a8", "#777777", "#a8487a", "#1f2a44", "#7aa61c",
)  # fmt: skip


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


def draw_panels(panels: Sequence[Panel]) -> str:
    """The picture as SVG text that ends with a newline; every panel has at least one row."""
    devices = sorted({device for panel in panels for device in panel.points})
    colours = {device: COLOURS[i % len(COLOURS)] for i, device in enumerate(devices)}
    rows = ceil(len(panels) / COLUMNS)
    width, height = COLUMNS * (SIDE + GAP) + GAP, rows * (SIDE + GAP + HEAD) + GAP + 14 * ceil(len(devices) / COLUMNS)
    body = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        'font-size="9" fill="#333"><rect width="100%" height="100%" fill="#fff"/>'
    ]
    for position, panel in enumerate(panels):
        down, across = divmod(position, COLUMNS)
        body.append(_panel(panel, GAP + across * (SIDE + GAP), HEAD + down * (SIDE + GAP + HEAD), colours))
    for i, device in enumerate(devices):
        x, y = GAP + i % COLUMNS * (SIDE + GAP), rows * (SIDE + GAP + HEAD) + 20 + 14 * (i // COLUMNS)
        body.append(f'<rect x="{x}" y="{y - 7}" width="8" height="8" fill="{colours[device]}"/>'
                    f'<text x="{x + 12}" y="{y}">{escape(device)}</text>')  # fmt: skip
    return "\n".join([*body, "</svg>"]) + "\n"


def _panel(panel: Panel, x: int, y: int, colours: Mapping[str, str]) -> str:
    pairs = np.array([pair for points in panel.points.values() for pair in points])
    low, high = log10(pairs.min()), log10(pairs.max())
    scale = (SIDE - CELL) / max(high - low, 1e-3)
    errors = measure_errors(pairs[:, 1], pairs[:, 0])
    parts = [
        f'<g transform="translate({x} {y})"><text y="-17" font-weight="bold">{escape(panel.title)}</text>',
        f'<text y="-5">{errors.n} rows, mean error {100 * errors.mape:.1f} %</text>',
        f'<rect width="{SIDE}" height="{SIDE}" fill="none" stroke="#bbb"/>',
        f'<path d="M0 {SIDE}L{SIDE} 0" stroke="#bbb"/>',
        f'<text y="{SIDE + 10}">{format_seconds(float(pairs.min()))}</text>',
        f'<text x="{SIDE}" y="{SIDE + 10}" text-anchor="end">{format_seconds(float(pairs.max()))} measured</text>',
    ]
    for device, points in sorted(panel.points.items()):
        cells = _cells(np.log10(np.array(points)), low, scale)
        marks = "".join(f"M{column} {SIDE - CELL - row}h{CELL}v{CELL}h-{CELL}z" for column, row in cells)
        parts.append(f'<path fill="{colours[device]}" fill-opacity="0.7" d="{marks}"/>')
    return "".join([*parts, "</g>"])


def _cells(logs: Array, low: float, scale: float) -> list[tuple[int, int]]:
    """Columns and rows (pixels) of the cells that have a point."""
    grid = np.floor((logs - low) * scale / CELL).astype(np.int64) * CELL
    return [(int(column), int(row)) for column, row in np.unique(grid, axis=0)]


def write_picture(arguments: Sequence[str]) -> None:
    """Write the picture of the tables named after it."""
    target, *tables = arguments
    Path(target).write_text(draw_panels(read_panels([Path(table) for table in tables])), encoding="utf-8")


if __name__ == "__main__":
    write_picture(sys.argv[1:])
