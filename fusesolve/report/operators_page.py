"""The page docs/OPERATORS.md, from the operator tables.

`python -m fusesolve.report.operators_page FILE` writes it (`make docs`).
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from fusesolve.decompose import COMPOSITES
from fusesolve.ops import OPS, OpKind

HEAD = """# Operators of the native format

Generated from the tables in `fusesolve/ops` and `fusesolve/decompose` by `make docs`; edit the tables, not this page.
How operators are written is in [GRAPHS.md](GRAPHS.md). An attribute with a * must be given.

## Composites

Taken apart into primitives when a graph is read, so that the planner can find the best grouping itself. f16, bf16 and
8-bit floats compute in f32 between casts.
"""
PRIMITIVES = """
## Primitives

What a graph holds after import, by what the planner may do with it.
"""
KINDS: Mapping[OpKind, str] = {
    OpKind.ELEMENTWISE: "Elementwise: one result element from one element of each operand; operands broadcast",
    OpKind.REDUCE: "Reductions: fold axes",
    OpKind.CONTRACTION: "Contractions: multiply and add over reduction axes",
    OpKind.VIEW: "Views: the same bytes under another shape; they cost nothing",
    OpKind.MOVEMENT: "Movement: other places for the same elements",
    OpKind.GATHER: "Gather: indices from data",
    OpKind.WINDOW: "Windows: a small neighbourhood for each result element",
    OpKind.GENERATE: "Generated: no tensor operand",
    OpKind.OPAQUE: "Opaque: a kernel of its own",
}
TABLE_HEAD = "\n| operator | operands | meaning | attributes |\n|---|---|---|---|\n"


def operators_page() -> str:
    """The whole page as Markdown that ends with a newline."""
    composites = "".join(_row(item.name, item.operands, item.doc, item.attrs) for item in COMPOSITES.values())
    return HEAD + TABLE_HEAD + composites + PRIMITIVES + "".join(_kind(kind, title) for kind, title in KINDS.items())


def _kind(kind: OpKind, title: str) -> str:
    found = (item for item in OPS.values() if item.kind is kind)
    rows = "".join(_row(item.name, item.operands, item.doc, item.attrs) for item in found)
    return f"\n### {title}\n{TABLE_HEAD}{rows}" if rows else ""


def _row(name: str, operands: tuple[int, int | None], doc: str, attrs: Mapping[str, tuple[bool, str]]) -> str:
    listed = "; ".join(f"`{key}`{'*' * needed} {meaning}" for key, (needed, meaning) in attrs.items())
    cells = (f"`{name}`", _count(*operands), doc, listed)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _count(least: int, most: int | None) -> str:
    if most is None:
        return f"{least} or more"
    return str(least) if least == most else f"{least} to {most}"


def write_page(arguments: Sequence[str]) -> None:
    """Write the page to the one file named in `arguments`."""
    (target,) = arguments
    Path(target).write_text(operators_page(), encoding="utf-8")


if __name__ == "__main__":
    write_page(sys.argv[1:])
