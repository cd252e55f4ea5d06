"""Kernels of a large program as arrays: what the memo's entries give at each place, without one object for each.

A table has a row for every kernel. Blocks keep what repeats once: the kernels that were grown from one start, and the
places where they stand. No kernel is in two rows or at two places.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fusesolve.candidates.encoding import Encoder, Place
from fusesolve.ragged import Ints, Lazy, Ragged, Repeated, ragged, stack, starts_of, take_across


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One candidate: operators, storage read and written, `full` if it writes all that others could need.

    `unique` is the row of its workload in `Space.workloads`.
    """

    members: tuple[int, ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    full: bool
    unique: int


@dataclass(frozen=True, slots=True, eq=False)
class KernelTable(Lazy[Kernel]):
    """Kernels as arrays; the columns of the table are public."""

    members: Ragged
    reads: Ragged
    writes: Ragged
    full: NDArray[np.bool_]
    unique: Ints

    def __len__(self) -> int:
        return len(self.unique)

    def item(self, place: int) -> Kernel:
        """The kernel in row `place`."""
        return Kernel(
            members=self.members.row(place), reads=self.reads.row(place), writes=self.writes.row(place),
            full=bool(self.full[place]), unique=int(self.unique[place]),
        )  # fmt: skip

    def __iter__(self) -> Iterator[Kernel]:
        columns = (self.members.rows(), self.reads.rows(), self.writes.rows(), self.full.tolist(), self.unique.tolist())
        return (
            Kernel(members=members, reads=reads, writes=writes, full=full, unique=unique)
            for members, reads, writes, full, unique in zip(*columns, strict=True)
        )

    def take(self, rows: Ints) -> "KernelTable":
        """The kernels at these positions."""
        return KernelTable(
            self.members.take(rows), self.reads.take(rows), self.writes.take(rows), self.full[rows], self.unique[rows]
        )

    def within(self, group: Sequence[int]) -> "KernelTable":
        """The kernels whose members all have the same number in `group` (one number for each operator)."""
        numbers = np.array(group, dtype=np.int64)[self.members.items]
        first, last = self.members.starts[:-1], self.members.starts[1:]
        same = np.concatenate(
            (np.zeros(1, dtype=np.int64), np.cumsum(numbers != numbers[first][self.members.owners()]))
        )
        return self.take(np.nonzero(same[last] == same[first])[0])

    def spans(self, priced: Sequence[bool]) -> list[tuple[int, int]]:
        """(first, last) operator of the kernels whose workload is priced, each pair once, ascending."""
        rows = np.nonzero(np.array(priced, dtype=np.bool_)[self.unique])[0]
        first = self.members.items[self.members.starts[:-1][rows]].astype(np.int64)
        last = self.members.items[self.members.starts[1:][rows] - 1].astype(np.int64)
        base = int(last.max(initial=0)) + 1
        return [divmod(code, base) for code in np.unique(first * base + last).tolist()]

    def priced_count(self, priced: Sequence[bool]) -> int:
        """How many kernels have a priced workload."""
        return int(np.array(priced, dtype=np.bool_)[self.unique].sum())

    def singles(self) -> "KernelTable":
        """The kernels of one operator."""
        return self.take(np.nonzero(self.members.lengths == 1)[0])


@dataclass(frozen=True, slots=True, eq=False)
class KernelBlock:
    """The same kernels at many places: `full` and `unique` of each of them, and where its operators and storage are."""

    members: Repeated
    reads: Repeated
    writes: Repeated
    full: NDArray[np.bool_]
    unique: Ints

    def __len__(self) -> int:
        return len(self.full)

    @property
    def places(self) -> int:
        """Number of places."""
        return len(self.members.items)

    def pick(self, rows: Ints) -> "KernelBlock":
        """Only these kernels, at all places."""
        return KernelBlock(
            self.members.pick(rows), self.reads.pick(rows), self.writes.pick(rows), self.full[rows], self.unique[rows]
        )

    def take(self, place: Ints, row: Ints) -> KernelTable:
        """Kernels `row[i]` at places `place[i]`."""
        return KernelTable(
            self.members.take(place, row), self.reads.take(place, row).sorted_rows(),
            self.writes.take(place, row).sorted_rows(), self.full[row], self.unique[row],
        )  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class KernelBlocks(Lazy[Kernel]):
    """Kernels as blocks: `starts[b]` is the position of the first kernel of block b, kernels of a place together."""

    blocks: tuple[KernelBlock, ...]
    starts: Ints

    def __len__(self) -> int:
        return int(self.starts[-1])

    def __iter__(self) -> Iterator[Kernel]:
        return iter(self.whole())

    def item(self, place: int) -> Kernel:
        """The kernel at position `place`."""
        return self.take(np.array([place], dtype=np.int64)).item(0)

    def take(self, rows: Ints) -> KernelTable:
        """The kernels at these positions, as a table."""
        return take_across(self.blocks, self.starts, rows, stack_tables)

    def whole(self) -> KernelTable:
        """All kernels as a table."""
        return self.take(np.arange(len(self), dtype=np.int64))

    def pick(self, wanted: Sequence[bool]) -> "KernelBlocks":
        """Only kernels whose workload is wanted."""
        keep = np.array(wanted, dtype=np.bool_)
        return make_blocks([block.pick(np.nonzero(keep[block.unique])[0]) for block in self.blocks])

    def within(self, group: Sequence[int]) -> KernelTable:
        """The kernels whose members all have the same number in `group` (one number for each operator)."""
        numbers = np.array(group, dtype=np.int64)
        return stack_tables([part for block in self.blocks for part in _parts_within(block, numbers)])

    def spans(self, priced: Sequence[bool]) -> list[tuple[int, int]]:
        """(first, last) operator of the kernels whose workload is priced, each pair once, ascending."""
        keep = np.array(priced, dtype=np.bool_)
        base = 1 + max((int(block.members.items.max(initial=0)) for block in self.blocks), default=0)
        codes = [np.zeros(0, dtype=np.int64)]
        for block in self.blocks:
            rows, items = block.members.rows, block.members.items.astype(np.int64)
            kept = np.nonzero(keep[block.unique])[0]
            first, last = rows.items[rows.starts[kept]], rows.items[rows.starts[kept + 1] - 1]
            low, high = np.divmod(np.unique(first.astype(np.int64) * items.shape[1] + last), items.shape[1])
            codes.append((items[:, low] * base + items[:, high]).ravel())
        return [divmod(code, base) for code in np.unique(np.concatenate(codes)).tolist()]

    def priced_count(self, priced: Sequence[bool]) -> int:
        """How many kernels have a priced workload."""
        keep = np.array(priced, dtype=np.bool_)
        return sum(int(keep[block.unique].sum()) * block.places for block in self.blocks)

    def singles(self) -> KernelTable:
        """The kernels of one operator."""
        parts = [block.pick(np.nonzero(block.members.rows.lengths == 1)[0]) for block in self.blocks]
        return make_blocks(parts).whole()


def _parts_within(block: KernelBlock, group: Ints) -> Iterator[KernelTable]:
    """Kernels of a block with all members in one group, for each way in which groups lie around a place."""
    alike: dict[bytes, list[int]] = {}
    numbers = group[block.members.items]
    for place, row in enumerate(numbers - numbers[:, :1]):
        alike.setdefault(row.tobytes(), []).append(place)
    rows = block.members.rows
    for places in alike.values():
        own = numbers[places[0]][rows.items]
        split = np.add.reduceat(own != own[rows.starts[:-1]][rows.owners()], rows.starts[:-1]) if len(rows) else own
        kept = np.nonzero(split == 0)[0]
        if len(kept):
            yield block.take(np.repeat(np.array(places, dtype=np.int64), len(kept)), np.tile(kept, len(places)))


def make_blocks(blocks: Sequence[KernelBlock]) -> KernelBlocks:
    """Blocks in this order, those without kernels left out."""
    kept = tuple(block for block in blocks if len(block))
    return KernelBlocks(kept, starts_of(kept))


def block_of(table: KernelTable) -> KernelBlock:
    """The kernels of a table as a block with one place."""
    rows = table.members, table.reads, table.writes
    members, reads, writes = (
        Repeated(part, np.arange(int(part.items.max(initial=-1)) + 1, dtype=np.int32)[None, :]) for part in rows
    )
    return KernelBlock(members, reads, writes, table.full, table.unique)


def stack_tables(parts: Sequence[KernelTable]) -> KernelTable:
    """Tables one under the other."""
    if not parts:
        return table_of(())
    return KernelTable(
        stack([p.members for p in parts]), stack([p.reads for p in parts]), stack([p.writes for p in parts]),
        np.concatenate([p.full for p in parts]), np.concatenate([p.unique for p in parts]),
    )  # fmt: skip


def arrays_of(kernels: Sequence[Kernel]) -> KernelTable | KernelBlocks:
    """The kernels as arrays; tables and blocks are returned as they are."""
    return kernels if isinstance(kernels, KernelBlocks) else table_of(kernels)


def table_of(kernels: Sequence[Kernel]) -> KernelTable:
    """The kernels as a table; a table is returned as it is."""
    if isinstance(kernels, KernelTable):
        return kernels
    if isinstance(kernels, KernelBlocks):
        return kernels.whole()
    return KernelTable(
        ragged([k.members for k in kernels]), ragged([k.reads for k in kernels]), ragged([k.writes for k in kernels]),
        np.array([k.full for k in kernels], dtype=np.bool_), np.array([k.unique for k in kernels], dtype=np.int64),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Shape:
    """A candidate in relative terms."""

    members: tuple[int, ...]
    reads: tuple[Place, ...]
    writes: tuple[Place, ...]
    full: bool
    unique: int


@dataclass(slots=True)
class Placements:
    """Lists of shapes, the external reads of the stretch that each was grown in, and the operators where they begin."""

    encoder: Encoder
    shapes: list[tuple[Shape, ...]] = field(default_factory=list)
    externals: list[Ints] = field(default_factory=list)
    lows: list[list[int]] = field(default_factory=list)

    def open(self, shapes: tuple[Shape, ...], externals: Ints) -> int:
        """Keep a list of shapes; returns its number."""
        self.shapes.append(shapes)
        self.externals.append(externals)
        self.lows.append([])
        return len(self.shapes) - 1

    def put(self, number: int, low: int) -> None:
        """The shapes `number` stand at `low`, too."""
        self.lows[number].append(low)

    def kernels(self) -> KernelBlocks:
        """All kernels."""
        return make_blocks([self._block(number) for number, shapes in enumerate(self.shapes) if shapes])

    def _block(self, number: int) -> KernelBlock:
        shapes = self.shapes[number]
        lows = np.array(self.lows[number], dtype=np.int64)
        spots = dict.fromkeys(place for shape in shapes for place in (*shape.reads, *shape.writes))
        index = {place: local for local, place in enumerate(spots)}
        members = ragged([shape.members for shape in shapes])
        width = int(members.items.max(initial=0)) + 1
        operators = lows[:, None] + np.arange(width, dtype=np.int64)[None, :]
        storage = self._storage(list(spots), lows, self.externals[number])
        return KernelBlock(
            Repeated(members, operators.astype(np.int32)),
            Repeated(ragged([[index[place] for place in shape.reads] for shape in shapes]), storage),
            Repeated(ragged([[index[place] for place in shape.writes] for shape in shapes]), storage),
            np.array([shape.full for shape in shapes], dtype=np.bool_),
            np.array([shape.unique for shape in shapes], dtype=np.int64),
        )

    def _storage(self, spots: Sequence[Place], lows: Ints, externals: Ints) -> NDArray[np.int32]:
        """Storage numbers of relative places (columns) at each of the stretches that begin at `lows` (rows)."""
        first = self.encoder.first_write
        outside = self.encoder.external_storage(lows, externals)
        found = np.zeros((len(lows), len(spots)), dtype=np.int32)
        for local, place in enumerate(spots):
            found[:, local] = (
                outside[:, place.slot] if place.offset is None else first[lows + place.offset] + place.slot
            )
        return found
