"""Laying out text: tables that fit a width, labels that are cut where they must be."""

import io
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

ELLIPSIS = "…"
FEWEST_COLUMNS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column: its head, whether numbers stand to the right, and whether it gives way where space is short."""

    head: str
    right: bool = False
    flexible: bool = False


def render_table(columns: Sequence[Column], rows: Sequence[Sequence[str]], *, width: int, colour: bool) -> str:
    """A table of at most `width` columns, each row on one line; flexible columns are cut with an ellipsis."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", collapse_padding=True)
    for index, column in enumerate(columns):
        cells = [column.head, *(row[index] for row in rows)]
        table.add_column(
            column.head,
            justify="right" if column.right else "left",
            no_wrap=True,
            overflow="ellipsis",
            min_width=None if column.flexible else max(map(len, cells)),
            ratio=None,
        )
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return render(table, width=width, colour=colour)


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
        console.print(item)
    return "".join(line.rstrip() + "\n" for line in stream.getvalue().splitlines())


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
