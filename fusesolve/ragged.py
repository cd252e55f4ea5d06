"""Ragged arrays: many short lists of integers as two flat arrays, for what would be millions of tuples."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Protocol, Self, TypeAlias, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int64]
Item = TypeVar("Item")
Table = TypeVar("Table", bound="Taken", covariant=True)
_SEED = 20_240_229


@dataclass(frozen=True, slots=True, eq=False)
class Ragged:
    """Row i is `items[starts[i] : starts[i + 1]]`; `starts` has one entry more than there are rows."""

    starts: Ints
    items: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.starts) - 1

    def row(self, index: int) -> tuple[int, ...]:
        """Row `index` as a tuple."""
        return tuple(self.items[self.starts[index] : self.starts[index + 1]].tolist())

    @property
    def lengths(self) -> Ints:
        """Number of items of each row."""
        return np.diff(self.starts)

    def owners(self) -> Ints:
        """The row of each item."""
        return np.repeat(np.arange(len(self), dtype=np.int64), self.lengths)

    def rows(self) -> list[tuple[int, ...]]:
        """All rows as tuples."""
        items = self.items.tolist()
        return [tuple(items[first:last]) for first, last in pairwise(self.starts.tolist())]

    def take(self, rows: Ints) -> "Ragged":
        """The rows at these positions, in this order."""
        lengths = self.lengths[rows]
        starts = _starts(lengths)
        places = np.repeat(self.starts[:-1][rows] - starts[:-1], lengths) + np.arange(starts[-1], dtype=np.int64)
        return Ragged(starts, self.items[places])

    def invert(self, size: int) -> "Ragged":
        """For each of `size` items the ascending rows that hold it."""
        order = np.argsort(self.items, kind="stable")
        counts = np.bincount(self.items, minlength=size) if len(self.items) else np.zeros(size, dtype=np.int64)
        return Ragged(_starts(counts), self.owners()[order].astype(np.int32))

    def sums(self, weight: Ints) -> Ints:
        """Sum of `weight[item]` over each row, modulo 2**64."""
        totals = np.concatenate((np.zeros(1, dtype=weight.dtype), np.cumsum(weight[self.items])))
        found: Ints = totals[self.starts[1:]] - totals[self.starts[:-1]]
        return found

    def hashes(self, size: int, salt: int = 0) -> NDArray[np.uint64]:
        """A 64-bit hash of each row as a set of items below `size`; that of a disjoint union is the sum of hashes."""
        keys = random_keys(size, salt)
        totals = np.concatenate((np.zeros(1, dtype=np.uint64), np.cumsum(keys[self.items], dtype=np.uint64)))
        found: NDArray[np.uint64] = totals[self.starts[1:]] - totals[self.starts[:-1]]
        return found

    def sorted_rows(self) -> "Ragged":
        """The same rows, each ascending."""
        return Ragged(self.starts, self.items[np.lexsort((self.items, self.owners()))])


@dataclass(frozen=True, slots=True, eq=False)
class Repeated:
    """Rows that stand at many places: row r at place p holds `items[p, i]` for each i of `rows.row(r)`.

    Columns of `items` of shape (places, locals) that no row names may hold anything.
    """

    rows: Ragged
    items: NDArray[np.int32]

    def take(self, places: Ints, rows: Ints) -> Ragged:
        """Rows `rows[i]` at places `places[i]`, in the order of `rows`, not sorted within."""
        found = self.rows.take(rows)
        return Ragged(found.starts, self.items[places[found.owners()], found.items])

    def pick(self, rows: Ints) -> "Repeated":
        """Only these rows, at all places."""
        return Repeated(self.rows.take(rows), self.items)


class Lazy(Sequence[Item], ABC):
    """A sequence kept as columns of arrays, which makes an item when it is asked for; a slice is of the same kind."""

    __slots__ = ()

    @abstractmethod
    def item(self, place: int) -> Item:
        """The item at `place`, from 0 to the length less one."""

    @abstractmethod
    def take(self, rows: Ints) -> Sequence[Item]:
        """The items at these positions."""

    @overload
    def __getitem__(self, index: int) -> Item: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Item]: ...

    def __getitem__(self, index: int | slice) -> Item | Sequence[Item]:
        if isinstance(index, slice):
            return self.take(np.arange(len(self), dtype=np.int64)[index])
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        return self.item(index % len(self))

    def __iter__(self) -> Iterator[Item]:
        return (self.item(place) for place in range(len(self)))


def choose(items: Sequence[Item], places: Sequence[int]) -> tuple[Item, ...]:
    """The items at these positions; those of a `Lazy` sequence are made all at once."""
    if isinstance(items, Lazy):
        return tuple(items.take(np.array(places, dtype=np.int64)))
    return tuple(items[place] for place in places)


class Taken(Protocol):
    """A table of rows."""

    def take(self, rows: Ints) -> Self:
        """The rows at these positions."""


class Block(Protocol[Table]):
    """The same rows at many places."""

    @property
    def places(self) -> int:
        """Number of places."""

    def __len__(self) -> int:
        """Number of rows at each place."""

    def take(self, place: Ints, row: Ints) -> Table:
        """Rows `row[i]` at places `place[i]`."""


def starts_of(blocks: Sequence[Block[Taken]]) -> Ints:
    """Position of the first row of each block, rows of a place together; last, the number of rows of all blocks."""
    return np.cumsum([0, *(block.places * len(block) for block in blocks)], dtype=np.int64)


def take_across(
    blocks: Sequence[Block[Table]], starts: Ints, positions: Ints, stacked: Callable[[Sequence[Table]], Table]
) -> Table:
    """Rows at positions over all blocks, in this order; `starts` from `starts_of`, `stacked` puts tables together."""
    number = np.searchsorted(starts, positions, side="right") - 1
    parts, asked = [], []
    for index in np.unique(number).tolist():
        asked.append(np.nonzero(number == index)[0])
        place, row = np.divmod(positions[asked[-1]] - starts[index], max(len(blocks[index]), 1))
        parts.append(blocks[index].take(place, row))
    table = stacked(parts)
    return table if len(parts) < 2 else table.take(np.argsort(np.concatenate(asked)))


def random_keys(size: int, salt: int = 0) -> NDArray[np.uint64]:
    """`size` fixed pseudo-random 64-bit keys (splitmix64 of position and `salt`), the same on every machine."""
    return _keys_of(1 << max(size - 1, 0).bit_length(), salt)[:size]


@lru_cache(maxsize=8)
def _keys_of(size: int, salt: int) -> NDArray[np.uint64]:
    x = np.arange(1, size + 1, dtype=np.uint64) + np.uint64(_SEED) * np.uint64(salt + 1)
    with np.errstate(over="ignore"):
        x = x * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    found: NDArray[np.uint64] = x ^ (x >> np.uint64(31))
    return found


def ragged(rows: Sequence[Iterable[int]]) -> Ragged:
    """Rows given as iterables of ints in [0, 2**31)."""
    lists = [tuple(row) for row in rows]
    lengths = np.array([len(row) for row in lists], dtype=np.int64)
    items = np.fromiter((item for row in lists for item in row), dtype=np.int32, count=int(lengths.sum()))
    return Ragged(_starts(lengths), items)


def stack(parts: Sequence[Ragged]) -> Ragged:
    """Rows of all parts, one part after the other."""
    lengths = np.concatenate([np.zeros(0, dtype=np.int64), *(part.lengths for part in parts)])
    items = np.concatenate([np.zeros(0, dtype=np.int32), *(part.items for part in parts)])
    return Ragged(_starts(lengths), items)


def _starts(lengths: Ints) -> Ints:
    found: Ints = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(lengths, dtype=np.int64)))
    return found
