"""Kernels of a large program as arrays: what the memo's entries give at each place, without one object for each."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fusesolve.candidates.encoding import Place
from fusesolve.candidates.program import Program
from fusesolve.ragged import Ints, Lazy, Ragged, ragged, stack


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


def table_of(kernels: Sequence[Kernel]) -> KernelTable:
    """The kernels as a table; a table is returned as it is."""
    if isinstance(kernels, KernelTable):
        return kernels
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


Externals: TypeAlias = dict[int, int]


@dataclass(slots=True)
class Placements:
    """Where each list of shapes stands: (first operator of the stretch, external storage by number of first use)."""

    program: Program
    shapes: list[tuple[Shape, ...]] = field(default_factory=list)
    places: list[list[tuple[int, Externals]]] = field(default_factory=list)
    count: int = 0

    def open(self, shapes: tuple[Shape, ...]) -> int:
        """Keep a list of shapes; returns its number."""
        self.shapes.append(shapes)
        self.places.append([])
        return len(self.shapes) - 1

    def put(self, number: int, low: int, external: Externals) -> None:
        """The shapes `number` stand at `low`, too."""
        self.places[number].append((low, external))
        self.count += len(self.shapes[number])

    def kernels(self) -> Sequence[Kernel]:
        """All kernels, each (members, writes) once: the first of its kind."""
        placed = [self._spread(shapes, places) for shapes, places in zip(self.shapes, self.places, strict=True)]
        parts = [part for part in placed if len(part)]
        table = KernelTable(
            stack([p.members for p in parts]), stack([p.reads for p in parts]).sorted_rows(),
            stack([p.writes for p in parts]).sorted_rows(), np.concatenate([p.full for p in parts]),
            np.concatenate([p.unique for p in parts]),
        ) if parts else table_of(())  # fmt: skip
        return table.take(_first_of_kind(table, self.program))

    def _spread(self, shapes: tuple[Shape, ...], places: list[tuple[int, Externals]]) -> KernelTable:
        """All shapes at all places, shape by shape within a place."""
        times = len(places)
        low = np.array([place[0] for place in places], dtype=np.int64)
        members = ragged([shape.members for shape in shapes])
        return KernelTable(
            _tile(members, members.items[None, :] + low[:, None]),
            self._resolve([shape.reads for shape in shapes], places, low),
            self._resolve([shape.writes for shape in shapes], places, low),
            np.tile(np.array([shape.full for shape in shapes], dtype=np.bool_), times),
            np.tile(np.array([shape.unique for shape in shapes], dtype=np.int64), times),
        )

    def _resolve(self, rows: list[tuple[Place, ...]], places: list[tuple[int, Externals]], low: Ints) -> Ragged:
        """Storage numbers of relative places, at each of `places`."""
        first = np.array([op.writes[0] if op.writes else 0 for op in self.program.operators], dtype=np.int64)
        slots = ragged([[place.slot for place in row] for row in rows])
        offsets = np.array([-1 if p.offset is None else p.offset for row in rows for p in row], dtype=np.int64)
        inside = offsets >= 0
        width = max((slot for _, external in places for slot in external), default=-1) + 1
        outside = np.zeros((len(places), max(width, 1)), dtype=np.int64)
        for spot, (_, external) in enumerate(places):
            for slot, storage in external.items():
                outside[spot, slot] = storage
        found = np.zeros((len(places), len(slots.items)), dtype=np.int64)
        found[:, inside] = first[low[:, None] + offsets[inside][None, :]] + slots.items[inside][None, :]
        found[:, ~inside] = outside[:, slots.items[~inside]]
        return _tile(slots, found)


def _tile(rows: Ragged, items: NDArray[np.int64]) -> Ragged:
    """`rows` repeated for each line of `items`, with the items of that line."""
    lengths = np.tile(rows.lengths, len(items))
    starts = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(lengths)))
    return Ragged(starts, items.reshape(-1).astype(np.int32))


def _first_of_kind(table: KernelTable, program: Program) -> Ints:
    """Ascending positions of the kernels whose (members, writes) no earlier one has (compared by a 64-bit hash)."""
    key = table.members.hashes(len(program.operators), 1) + table.writes.hashes(len(program.storage), 2)
    _, first = np.unique(key, return_index=True)
    return np.sort(first).astype(np.int64)
