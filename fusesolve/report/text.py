"""Laying out text: tables that fit a width, labels that are cut where they must be."""

import io
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.table import Table
from rich.text import Text

ELLIPSIS = "…"
GAP = 2
FEWEST_COLUMNS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column: its head, whether numbers stand to the right, and whether it gives way where space is short."""

    head: str
    right: bool = False
    flexible: bool = False


def render_table(columns: Sequence[Column], rows: Sequence[Sequence[str]], *, width: int, colour: bool) -> str:
    """A table of at most `width` columns, each row on one line; flexible columns are cut with an ellipsis.

    Where the other columns alone are wider than `width`, lines are cut at their end.
    """
    widths = _column_widths(columns, rows, width)
    head = Text(_line(columns, [column.head for column in columns], widths), style="bold")
    lines = [Text(_line(columns, row, widths)) for row in rows]
    return render(head, *lines, width=width, colour=colour)


def room_for_flexible(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> int:
    """Columns of text that are left for the flexible columns of a table of `width`, at least 0."""
    fixed = [_natural(columns, rows, index) for index, column in enumerate(columns) if not column.flexible]
    return max(width - sum(fixed) - GAP * (len(columns) - 1), 0)


def _natural(columns: Sequence[Column], rows: Sequence[Sequence[str]], index: int) -> int:
    return max(cell_len(cell) for cell in (columns[index].head, *(row[index] for row in rows)))


def _column_widths(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """What each column gets: the fixed ones all they want, the flexible ones fair shares of the rest."""
    widths = [_natural(columns, rows, index) for index in range(len(columns))]
    room = room_for_flexible(columns, rows, width)
    hungry = sorted((index for index, column in enumerate(columns) if column.flexible), key=lambda index: widths[index])
    for served, index in enumerate(hungry):
        widths[index] = min(widths[index], max(room // (len(hungry) - served), len(columns[index].head)))
        room -= widths[index]
    return widths


def _line(columns: Sequence[Column], cells: Sequence[str], widths: Sequence[int]) -> str:
    shown = []
    for column, cell, width in zip(columns, cells, widths, strict=True):
        fitting = cell if cell_len(cell) <= width else set_cell_size(cell, max(width - 1, 0)) + ELLIPSIS
        blank = " " * (width - cell_len(fitting))
        shown.append(blank + fitting if column.right else fitting + blank)
    return (" " * GAP).join(shown).rstrip()


def render(*items: Table | Text | str, width: int, colour: bool) -> str:
    """Rich renderables as text of at most `width` columns, without trailing blanks; escapes only with `colour`."""
    stream = io.StringIO()
    console = Console(
        file=stream,
        width=max(width, FEWEST_COLUMNS),
        force_terminal=colour,
        no_color=not colour,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )
    for item in items:
        console.print(item, no_wrap=isinstance(item, Text), overflow="ellipsis" if isinstance(item, Text) else "fold")
    return "".join(line.rstrip() + "\n" for line in stream.getvalue().splitlines())


def fold(text: str, width: int) -> str:
    """A paragraph as lines of at most `width` columns."""
    return textwrap.fill(text, max(width, FEWEST_COLUMNS)) + "\n"


def render_facts(facts: Sequence[tuple[str, str]], *, width: int) -> str:
    """Pairs as `name   text`, the texts aligned and wrapped under themselves."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, min_width=max((len(name) for name, _ in facts), default=0))
    table.add_column(overflow="fold")
    for name, text in facts:
        table.add_row(Text(name), Text(text))
    return render(table, width=width, colour=False)


def short_names(names: Sequence[str], width: int) -> str:
    """Names of operators in at most `width` columns: the shared path once, then the parts, then `…+N` for the rest.

    `["/layer.0/att/MatMul", "/layer.0/att/Add"]` becomes `/layer.0/att/(MatMul+Add)`; where that is too long the path
    gives way first, then the parts in the middle.
    """
    for shown in (_with_path(names), "+".join(names), "+".join(_last(name) for name in names)):
        if len(shown) <= width:
            return shown
    return _cut_parts([_last(name) for name in names], width)


def _with_path(names: Sequence[str]) -> str:
    path = _shared_path(names)
    parts = [name[len(path) :] for name in names]
    if not path:
        return "+".join(names)
    return f"{path}{parts[0]}" if len(parts) == 1 else f"{path}({'+'.join(parts)})"


def _shared_path(names: Sequence[str]) -> str:
    pieces = [name.split("/")[:-1] for name in names]
    shared: list[str] = []
    for column in zip(*pieces, strict=False):
        if len(set(column)) > 1:
            break
        shared.append(column[0])
    return "".join(f"{piece}/" for piece in shared)


def _last(name: str) -> str:
    return name.rstrip("/").rpartition("/")[2] or name


def _cut_parts(parts: Sequence[str], width: int) -> str:
    """As many parts from the front as fit, then `…+N` for the N left out."""
    for kept in range(len(parts) - 1, 0, -1):
        shown = f"{'+'.join(parts[:kept])}+{ELLIPSIS}{len(parts) - kept}"
        if len(shown) <= width:
            return shown
    whole = "+".join(parts)
    return whole if len(whole) <= width else whole[: max(width - 1, 1)] + ELLIPSIS
