"""One place of each kind: what holds for the columns there holds for those of all places that look alike.

A block of columns stands at many places. Whatever is computed for a column out of numbers around it (prices of its
operators, codes of its values) comes out the same at two places with equal numbers, so it is computed at one of them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fusesolve.errors import InternalError
from fusesolve.ragged import Ints
from fusesolve.solve.problem import PartitionProblem
from fusesolve.solve.table import ColumnBlock, ColumnBlocks, ColumnTable, check_table, stack_tables

Look: TypeAlias = Callable[[ColumnBlock], NDArray[np.int64] | NDArray[np.uint64]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Columns of one place of each kind.

    `kinds[b]`: the kind of each place of block b; `first[b]`: a place of each kind. The columns of block b begin at row
    `starts[b]` of `table`, those of a kind together.
    """

    blocks: ColumnBlocks
    kinds: tuple[Ints, ...]
    first: tuple[Ints, ...]
    starts: Ints
    table: ColumnTable

    def shares(self, block: int) -> slice:
        """Rows of `table` that stand for the columns of a block."""
        return slice(int(self.starts[block]), int(self.starts[block + 1]))

    def shape(self, block: int) -> tuple[int, int]:
        """Kinds of places, and columns at each place, of a block."""
        return len(self.first[block]), len(self.blocks.blocks[block].cost)

    def counts(self) -> Ints:
        """How many columns each row of `table` stands for."""
        parts = [
            np.repeat(np.bincount(kinds, minlength=len(first)), len(block))
            for kinds, first, block in zip(self.kinds, self.first, self.blocks.blocks, strict=True)
        ]
        return np.concatenate([np.zeros(0, dtype=np.int64), *parts])

    def spread(self, chosen: NDArray[np.bool_]) -> Ints:
        """Positions, ascending, of all columns that the chosen rows of `table` stand for."""
        parts = []
        for number, kinds in enumerate(self.kinds):
            there = chosen[self.shares(number)].reshape(self.shape(number))[kinds]
            parts.append(np.nonzero(there.reshape(-1))[0] + self.blocks.starts[number])
        return np.concatenate([np.zeros(0, dtype=np.int64), *parts])


def take_sample(blocks: ColumnBlocks, look: Look) -> Sample:
    """A sample in which places of a block with equal rows of `look(block)` are of one kind."""
    kinds: list[Ints] = []
    first: list[Ints] = []
    tables = []
    for number, block in enumerate(blocks.blocks):
        found, chosen = _kinds(block, look)
        kinds.append(found)
        first.append(chosen)
        tables.append(blocks.at_places(number, chosen))
    starts = np.cumsum([0, *(len(table) for table in tables)], dtype=np.int64)
    return Sample(
        blocks=blocks, kinds=tuple(kinds), first=tuple(first), starts=starts, table=stack_tables(tables)
    )


def _kinds(block: ColumnBlock, look: Look) -> tuple[Ints, Ints]:
    """The kind of each place and the first place of each kind."""
    if block.places == 1:
        return np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
    kinds = number_rows(np.arange(block.places + 1, dtype=np.int64), look(block))
    return kinds, np.unique(kinds, return_index=True)[1].astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Looks of places by what lies around them, in numbers relative to their first operator.

    `anchor[i]`: the first value that operator i, or a later one, makes; values are counted from there. `of_op`: a
    number for each operator, `of_written`: for each value, which matters where a column writes it.
    """

    producer: Ints
    anchor: Ints
    of_op: Ints
    of_written: Ints

    def look(self, block: ColumnBlock) -> Ints:
        """All numbers that decide what a column of the block meets at each place."""
        ops, read, written = block.members.items, block.reads.items, block.writes.items
        base, low = self.anchor[ops[:, :1]], ops[:, :1].astype(np.int64)
        made = written[:, np.unique(block.writes.rows.items)]
        return np.hstack((
            ops - low, self.anchor[ops] - base, self.of_op[ops], read - base, written - base,
            self.producer[made] - low, self.of_written[made],
        ))  # fmt: skip


def surround(problem: PartitionProblem, of_op: Ints, of_written: Ints) -> Surroundings:
    """Surroundings of the problem's operators and values with these numbers."""
    producer = np.array(problem.producer, dtype=np.int64)
    return Surroundings(
        producer=producer, anchor=anchors(producer, problem.n_ops), of_op=of_op, of_written=of_written
    )


def anchors(producer: Ints, n_ops: int) -> Ints:
    """For each operator a value to count from: the first that it or a later one makes, where makers rise."""
    ops = np.arange(n_ops, dtype=np.int64)
    return np.searchsorted(producer, ops).astype(np.int64) if (np.diff(producer) >= 0).all() else ops


def number_rows(starts: Ints, items: NDArray[np.int64] | NDArray[np.uint64]) -> Ints:
    """A number for each stretch `items[starts[i] : starts[i + 1]]` of a matrix, equal for equal stretches only.

    Numbers count from 0 in the order in which stretches are first seen.
    """
    numbers: dict[bytes, int] = {}
    whole, width = np.ascontiguousarray(items).tobytes(), items.itemsize * items.shape[1]
    cuts = (starts * width).tolist()
    found = [numbers.setdefault(whole[a:b], len(numbers)) for a, b in pairwise(cuts)]
    return np.array(found, dtype=np.int64)


def check_blocks(problem: PartitionProblem, blocks: ColumnBlocks) -> None:
    """Raise InternalError where columns break the promises of `Column`: at one place of each kind."""
    for block in blocks.blocks:
        sizes = (problem.n_ops, problem.n_values, problem.n_values)
        for rows, size in zip((block.members, block.reads, block.writes), sizes, strict=True):
            named = rows.items[:, np.unique(rows.rows.items)]
            if named.size and not 0 <= named.min() <= named.max() < size:
                raise InternalError(f"a block of {len(block)} columns names an item outside 0..{size - 1}")
    check_table(problem, take_sample(blocks, _look_of_makers(np.array(problem.producer, dtype=np.int64))).table)


def _look_of_makers(producer: Ints) -> Look:
    """Places look alike where the makers of all values lie alike among the operators, or outside these."""

    def look(block: ColumnBlock) -> Ints:
        ops = block.members.items.astype(np.int64)
        low, high = ops[:, :1], ops[:, -1:]
        makers = [np.clip(producer[rows.items], low - 1, high + 1) - low for rows in (block.reads, block.writes)]
        return np.hstack((ops - low, *makers))

    return look
