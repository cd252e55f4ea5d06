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
MARK = "*"  # at the end of a name; kept where names are cut short
GAP, NARROW_GAP, NARROW = 2, 1, 100  # blanks between columns; fewer of them below 100 columns
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
    gap = " " * _gap(width)
    head = Text(gap.join(_cells(columns, [column.head for column in columns], widths)), style="bold")
    lines = [Text(gap.join(_cells(columns, row, widths))) for row in rows]
    return render(head, *lines, width=width, colour=colour)


def room_for_flexible(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> int:
    """Columns of text that are left for the flexible columns of a table of `width`, at least 0."""
    fixed = [_natural(columns, rows, index) for index, column in enumerate(columns) if not column.flexible]
    return max(width - sum(fixed) - _gap(width) * (len(columns) - 1), 0)


def _gap(width: int) -> int:
    return GAP if width >= NARROW else NARROW_GAP


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


def _cells(columns: Sequence[Column], cells: Sequence[str], widths: Sequence[int]) -> list[str]:
    shown = []
    for column, cell, width in zip(columns, cells, widths, strict=True):
        fitting = cell if cell_len(cell) <= width else set_cell_size(cell, max(width - 1, 0)) + ELLIPSIS
        blank = " " * (width - cell_len(fitting))
        shown.append(blank + fitting if column.right else fitting + blank)
    return shown


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
    """Names of operators in at most `width` columns, the fullest form that fits.

    `["/layer.0/att/MatMul", "/layer.0/att/Add"]` is `/layer.0/att/(MatMul+Add)`, then `att/(MatMul+Add)`, then
    `att/…2`; where even that is too long for all, the last ones are counted as `…+N`.
    """
    families = _families(names)
    shown = ["+".join(_family(parent, parts) for parent, parts in families)]
    shown.append("+".join(_family(_last(parent), parts) for parent, parts in families))
    brief = [_brief(_last(parent), parts) for parent, parts in families]
    shown.append("+".join(brief))
    fitting = (text for text in shown if cell_len(text) <= width)
    return next(fitting, None) or _cut_parts(brief, width)


def _families(names: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Neighbouring names of one path together: (path, last parts); names without a path have the path ``."""
    families: list[tuple[str, list[str]]] = []
    for name in names:
        parent, _, last = name.rpartition("/")
        if families and families[-1][0] == parent and parent:
            families[-1][1].append(last or name)
        else:
            families.append((parent, [last or name]))
    return families


def _family(parent: str, parts: Sequence[str]) -> str:
    path = f"{parent}/" if parent else ""
    return f"{path}{parts[0]}" if len(parts) == 1 else f"{path}({'+'.join(parts)})"


def _brief(parent: str, parts: Sequence[str]) -> str:
    if len(parts) == 1:
        return _family(parent, parts)
    return f"{parent}/{ELLIPSIS}{len(parts)}" + (MARK if any(part.endswith(MARK) for part in parts) else "")


def _last(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def _cut_parts(parts: Sequence[str], width: int) -> str:
    """As many parts from the front as fit, then `…+N` for the N left out; one part alone is cut at its end."""
    for kept in range(len(parts) - 1, 0, -1):
        shown = f"{'+'.join(parts[:kept])}+{ELLIPSIS}{len(parts) - kept}"
        if cell_len(shown) <= width:
            return shown
    whole = "+".join(parts)
    return whole if cell_len(whole) <= width else set_cell_size(whole, max(width - 1, 1)) + ELLIPSIS
