"""Columns of a large problem as arrays, with the promises of `Column` checked at once.

A table has a row for every column. Blocks keep what repeats once: a list of columns, and the places where they stand.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fusesolve.errors import InternalError
from fusesolve.ragged import Ints, Lazy, Ragged, Repeated, ragged, stack, starts_of, take_across
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

    def __iter__(self) -> Iterator[Column]:
        lists = (self.members.rows(), self.reads.rows(), self.writes.rows())
        columns = zip(*lists, self.cost.tolist(), self.tie.tolist(), self.full.tolist(), strict=True)
        return (
            Column(members=members, reads=reads, writes=writes, cost=cost, tie=tie, full=full)
            for members, reads, writes, cost, tie, full in columns
        )

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
    kept, written = members.take(rows), renumber(writes.take(rows), value)
    table = ColumnTable(
        kept, renumber(reads.take(rows), value), written, price[rows], _hash_ties(kept, written), full[rows]
    )
    return Selection(table=table, rows=rows)


def renumber(rows: Ragged, number: Ints) -> Ragged:
    """The rows with `number[item]` for each item, those below 0 left out, ascending."""
    found = number[rows.items]
    kept = found >= 0
    lengths = np.bincount(rows.owners()[kept], minlength=len(rows))
    starts = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(lengths)))
    return Ragged(starts, found[kept].astype(np.int32)).sorted_rows()


@dataclass(frozen=True, slots=True, eq=False)
class ColumnBlock:
    """The same columns at many places.

    `cost` (ns) and `full` of each; `tie` likewise, or None where it is a hash of members and writes.
    """

    members: Repeated
    reads: Repeated
    writes: Repeated
    cost: Ints
    full: NDArray[np.bool_]
    tie: Ints | None = None

    def __len__(self) -> int:
        return len(self.cost)

    @property
    def places(self) -> int:
        """Number of places."""
        return len(self.members.items)

    def take(self, place: Ints, row: Ints) -> ColumnTable:
        """Columns `row[i]` at places `place[i]`."""
        members = self.members.take(place, row)
        writes = self.writes.take(place, row).sorted_rows()
        tie = _hash_ties(members, writes) if self.tie is None else self.tie[row]
        return ColumnTable(
            members, self.reads.take(place, row).sorted_rows(), writes, self.cost[row], tie, self.full[row]
        )


@dataclass(frozen=True, slots=True, eq=False)
class ColumnBlocks(Lazy[Column]):
    """Columns as blocks: `starts[b]` is the position of the first column of block b, columns of a place together."""

    blocks: tuple[ColumnBlock, ...]
    starts: Ints
    _seen: dict[tuple[int, bytes], ColumnTable] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return int(self.starts[-1])

    def __iter__(self) -> Iterator[Column]:
        return iter(table_of(self))

    def item(self, place: int) -> Column:
        """The column at position `place`."""
        return self.take(np.array([place], dtype=np.int64)).item(0)

    def at_places(self, number: int, places: Ints) -> ColumnTable:
        """All columns of block `number` at these places, those of a place together; remembered."""
        key = number, places.tobytes()
        found = self._seen.get(key)
        if found is None:
            block = self.blocks[number]
            row = np.tile(np.arange(len(block), dtype=np.int64), len(places))
            found = self._seen[key] = block.take(np.repeat(places, len(block)), row)
        return found

    def take(self, rows: Ints) -> ColumnTable:
        """The columns at these positions, as a table."""
        return take_across(self.blocks, self.starts, rows, stack_tables)


def as_arrays(cost: Sequence[int | None], number: Sequence[int]) -> tuple[Ints, NDArray[np.int32]]:
    """Costs (ns; 0 for None) and numbers of values as `repeat_columns` takes them for every block."""
    return np.array([item or 0 for item in cost], dtype=np.int64), np.array(number, dtype=np.int32)


def repeat_columns(
    members: Repeated, reads: Repeated, writes: Repeated, full: NDArray[np.bool_], cost: Ints,
    number: NDArray[np.int32],
) -> ColumnBlock:  # fmt: skip
    """A block of columns with the costs `cost[row]` (ns, > 0); `number` as in `make_columns`."""
    return ColumnBlock(members, _made_here(reads, number), _made_here(writes, number), cost, full)


def _made_here(rows: Repeated, value: NDArray[np.int32]) -> Repeated:
    """The rows with values for storage, without what is not made here."""
    made = value[rows.items] >= 0
    kept = np.nonzero(made.any(axis=0))[0]
    if not made[:, kept].all():
        raise InternalError("storage of a block of columns is made here at some places and not at others")
    local = np.full(rows.items.shape[1], -1, dtype=np.int64)
    local[kept] = np.arange(len(kept))
    return Repeated(renumber(rows.rows, local), value[rows.items[:, kept]])


def make_blocks(blocks: Sequence[ColumnBlock]) -> ColumnBlocks:
    """Blocks in this order."""
    return ColumnBlocks(tuple(blocks), starts_of(blocks))


def blocks_of(problem: PartitionProblem) -> ColumnBlocks:
    """The problem's columns as blocks; what is none becomes one block with one place."""
    if isinstance(problem.columns, ColumnBlocks):
        return problem.columns
    table = table_of(problem.columns)
    ops, values = (np.arange(size, dtype=np.int32)[None, :] for size in (problem.n_ops, problem.n_values))
    block = ColumnBlock(
        Repeated(table.members, ops), Repeated(table.reads, values), Repeated(table.writes, values), table.cost,
        table.full, table.tie,
    )  # fmt: skip
    return make_blocks([block])


def _hash_ties(members: Ragged, writes: Ragged) -> Ints:
    """Ties of columns from their content."""
    sizes = (int(rows.items.max(initial=-1)) + 1 for rows in (members, writes))
    key = members.hashes(next(sizes), 1) + writes.hashes(next(sizes), 2)
    return (key >> np.uint64(33)).astype(np.int64)


def stack_tables(parts: Sequence[ColumnTable]) -> ColumnTable:
    """Tables one under the other."""
    if not parts:
        return table_of(())
    return ColumnTable(
        stack([p.members for p in parts]), stack([p.reads for p in parts]), stack([p.writes for p in parts]),
        np.concatenate([p.cost for p in parts]), np.concatenate([p.tie for p in parts]),
        np.concatenate([p.full for p in parts]),
    )  # fmt: skip


def table_of(columns: Sequence[Column]) -> ColumnTable:
    """The columns as a table; a table is returned as it is."""
    if isinstance(columns, ColumnTable):
        return columns
    if isinstance(columns, ColumnBlocks):
        return columns.take(np.arange(len(columns), dtype=np.int64))
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
