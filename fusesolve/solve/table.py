"""Columns of a large problem as arrays, with the promises of `Column` checked at once."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fusesolve.errors import InternalError
from fusesolve.ragged import Ints, Lazy, Ragged, ragged
from fusesolve.solve.problem import COST_LIMIT, TIE_LIMIT, Column, PartitionProblem, column_fault


@dataclass(frozen=True, slots=True, eq=False)
class ColumnTable(Lazy[Column]):
    """Columns as arrays; the arrays are public."""

    members: Ragged
    reads: Ragged
    writes: Ragged
    cost: Ints
    tie: Ints
    full: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.cost)

    def item(self, place: int) -> Column:
        """The column in row `place`."""
        return Column(
            members=self.members.row(place), reads=self.reads.row(place), writes=self.writes.row(place),
            cost=int(self.cost[place]), tie=int(self.tie[place]), full=bool(self.full[place]),
        )  # fmt: skip

    def take(self, rows: Ints) -> "ColumnTable":
        """The columns at these positions."""
        return ColumnTable(
            self.members.take(rows), self.reads.take(rows), self.writes.take(rows), self.cost[rows], self.tie[rows],
            self.full[rows],
        )  # fmt: skip


def check_table(problem: PartitionProblem, table: ColumnTable) -> None:
    """Raise InternalError at the first column that breaks the promises of `Column`."""
    producer = np.array(problem.producer, dtype=np.int64)
    bad = (table.cost < 1) | (table.cost >= COST_LIMIT) | (table.tie < 0) | (table.tie >= TIE_LIMIT)
    bad |= (table.members.lengths == 0) | (table.writes.lengths == 0)
    bad |= _disordered(table.members, problem.n_ops)
    bad |= _disordered(table.reads, problem.n_values) | _disordered(table.writes, problem.n_values)
    if not bad.any():
        inside = np.sort(table.members.owners() * problem.n_ops + table.members.items)
        bad[table.writes.owners()[~_among(inside, table.writes, producer, problem.n_ops)]] = True
        bad[table.reads.owners()[_among(inside, table.reads, producer, problem.n_ops)]] = True
    for place in np.nonzero(bad)[0][:1].tolist():
        raise InternalError(f"column {place}: {column_fault(problem, table[place])}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Columns, and which rows of the lists they came from."""

    table: ColumnTable
    rows: Ints


def make_columns(
    members: Ragged, reads: Ragged, writes: Ragged, full: NDArray[np.bool_], cost: Sequence[int | None],
    unique: Ints, number: Sequence[int],
) -> Selection:  # fmt: skip
    """Columns of those rows whose cost (`cost[unique[row]]`, ns) is not None.

    `number[s]`: the value of storage s, or -1 where it is not made here (such reads are left out). Ties are hashes of
    members and writes.
    """
    price = np.array([-1 if item is None else item for item in cost], dtype=np.int64)[unique]
    rows = np.nonzero(price >= 0)[0]
    value = np.array(number, dtype=np.int64)
    kept = members.take(rows)
    size = int(kept.items.max(initial=-1)) + 1
    key = kept.hashes(size, 1) + writes.take(rows).hashes(len(value), 2)
    table = ColumnTable(
        kept, renumber(reads.take(rows), value), renumber(writes.take(rows), value), price[rows],
        (key >> np.uint64(33)).astype(np.int64), full[rows],
    )  # fmt: skip
    return Selection(table=table, rows=rows)


def renumber(rows: Ragged, number: Ints) -> Ragged:
    """The rows with `number[item]` for each item, those below 0 left out, ascending."""
    found = number[rows.items]
    kept = found >= 0
    lengths = np.bincount(rows.owners()[kept], minlength=len(rows))
    starts = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(lengths)))
    return Ragged(starts, found[kept].astype(np.int32)).sorted_rows()


def table_of(columns: Sequence[Column]) -> ColumnTable:
    """The columns as a table; a table is returned as it is."""
    if isinstance(columns, ColumnTable):
        return columns
    return ColumnTable(
        ragged([c.members for c in columns]), ragged([c.reads for c in columns]), ragged([c.writes for c in columns]),
        np.array([c.cost for c in columns], dtype=np.int64), np.array([c.tie for c in columns], dtype=np.int64),
        np.array([c.full for c in columns], dtype=np.bool_),
    )  # fmt: skip


def _disordered(rows: Ragged, limit: int) -> NDArray[np.bool_]:
    """Rows that do not rise strictly or leave [0, limit)."""
    found = np.zeros(len(rows), dtype=np.bool_)
    owners = rows.owners()
    found[owners[(rows.items < 0) | (rows.items >= limit)]] = True
    falls = (np.diff(rows.items) <= 0) & (owners[1:] == owners[:-1])
    found[owners[1:][falls]] = True
    return found


def _among(inside: Ints, values: Ragged, producer: Ints, n_ops: int) -> NDArray[np.bool_]:
    """For each item of `values`: whether its producer is a member of its column (`inside`: sorted pair codes)."""
    codes = values.owners() * n_ops + producer[values.items]
    places = np.minimum(np.searchsorted(inside, codes), max(len(inside) - 1, 0))
    found: NDArray[np.bool_] = inside[places] == codes if len(inside) else np.zeros(len(codes), dtype=np.bool_)
    return found
