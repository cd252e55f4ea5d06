"""The rows of a sweep: one a point, in columns that are the same for every sweep, the swept numbers before them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from fusesolve.cost.table import TERMS
from fusesolve.errors import InputError

Cell: TypeAlias = str | int | float | None

# What can bound a kernel: every term of the cost models; `floor` counts as launch (as in a plan's `bound_by`).
BOUND_TERMS: tuple[str, ...] = tuple(name for name in TERMS if name != "floor")
FIXED_COLUMNS: tuple[str, ...] = (
    "graph", "hardware", "plan_sha256", "status", "objective_ns", "bound_ns", "gap", "unfused_ns", "kernels",
    "dram_bytes", *(f"bound_by_{name}" for name in BOUND_TERMS),
)  # fmt: skip
WHOLE_COLUMNS = frozenset({"objective_ns", "bound_ns", "unfused_ns", "kernels", "dram_bytes"})
TEXT_COLUMNS = frozenset({"graph", "hardware", "plan_sha256", "status"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one point came to: times in whole ns, the gap a ratio, `shares` of the time by BOUND_TERMS (0 to 1).

    None where there is none: no plan, no bound.
    """

    plan_sha256: str | None
    status: str
    objective_ns: int | None
    bound_ns: int | None
    gap: float | None
    unfused_ns: int | None
    kernels: int | None
    dram_bytes: int | None
    shares: tuple[float | None, ...]

    def cells(self) -> tuple[Cell, ...]:
        """The columns from `plan_sha256` on."""
        return (
            self.plan_sha256, self.status, self.objective_ns, self.bound_ns, self.gap, self.unfused_ns, self.kernels,
            self.dram_bytes, *self.shares,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A finished sweep: `paths` of the swept numbers (base units), all column names, and the rows in order."""

    paths: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def records(self) -> list[dict[str, Cell]]:
        """The rows as one mapping each."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]

    def to_dict(self) -> dict[str, Any]:
        """The table as a document for programs and pages."""
        return {"format": "fusesolve-whatif/1", "paths": list(self.paths), "rows": self.records()}


def make_table(paths: Sequence[str], rows: Iterable[Sequence[Cell]]) -> Table:
    """The table of a sweep over `paths`; each row starts with the swept numbers."""
    clash = sorted(set(paths) & set(FIXED_COLUMNS))
    if clash:
        raise InputError(f"a swept path has the name of a column: {clash[0]}")
    return Table(paths=tuple(paths), columns=(*paths, *FIXED_COLUMNS), rows=tuple(map(tuple, rows)))


def column_types(table: Table) -> Mapping[str, type]:
    """The type of every column: str, int or float; a swept number is int where all of its values are."""
    found: dict[str, type] = {}
    for place, name in enumerate(table.columns):
        if name in TEXT_COLUMNS:
            found[name] = str
        elif place >= len(table.paths):
            found[name] = int if name in WHOLE_COLUMNS else float
        else:
            found[name] = int if all(isinstance(row[place], int) for row in table.rows) else float
    return found
