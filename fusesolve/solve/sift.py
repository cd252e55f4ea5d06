"""Large problems: prices that prove most columns useless before any model of the whole problem is built.

A deep model repeats its layers, so its columns repeat, too. Operators that like columns hold (by cost, size and place
within the column) are given one price in common, and so are values. The relaxation over *kinds* of columns is then
small, whatever the depth: maximise the sum over rows of their price, such that no kind of column is worth more than it
costs. Its prices are prices of the whole problem. How well the kinds were told apart decides how good the bound is, not
whether it holds: bound and reduced costs are computed afresh, in integers, over every row and every column (once
for all columns that meet the same prices in the same places, see `sample`).

Rows: each operator that every plan computes is covered; each required value is written; and, with recomputation, the
pair rows of an operator and a value that it reads (see `rows`).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fusesolve.ragged import Ints, Ragged, Repeated
from fusesolve.solve.control import Control
from fusesolve.solve.linear import SparseRows, solve_sparse
from fusesolve.solve.problem import PartitionProblem
from fusesolve.solve.sample import Look, Sample, anchors, number_rows, surround, take_sample
from fusesolve.solve.table import ColumnBlock, ColumnBlocks, ColumnTable, blocks_of

REFINEMENTS = 2
CHUNK = 250_000  # columns that are looked at together: bounds the memory
Codes = NDArray[np.uint64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sieve:
    """For every plan: cost * `scale` >= `bound` + sum of max(0, reduced cost) over its columns.

    `reduced` and `usable` (may be in a plan) are those of the columns of `sample`. `rounding`: ns by which rounding the
    prices may have lowered the bound.
    """

    bound: int
    scale: int
    rounding: int
    sample: Sample
    reduced: Ints
    usable: NDArray[np.bool_]

    @property
    def lower(self) -> int:
        """The bound in whole ns."""
        return -(-self.bound // self.scale)

    @property
    def total(self) -> int:
        """How many columns are usable."""
        return int(self.sample.counts()[self.usable].sum())

    def keep(self, limit: int) -> Ints:
        """Columns of plans of at most `limit` ns, ascending."""
        return self.sample.spread(self.usable & (self.reduced <= limit * self.scale - self.bound))

    def limit_of(self, count: int) -> int:
        """The least limit (ns) under which at least `count` columns, or all that are usable, are kept."""
        order = np.argsort(np.where(self.usable, self.reduced, np.iinfo(np.int64).max), kind="stable")
        reached = np.cumsum(np.where(self.usable, self.sample.counts(), 0)[order])
        place = int(np.searchsorted(reached, min(count, int(reached[-1]))))
        return max(self.lower, -(-(self.bound + int(self.reduced[order[place]])) // self.scale))


def make_sieve(problem: PartitionProblem, control: Control) -> Sieve | None:
    """Prices for `problem` and what they prove; None where the small relaxation has no solution."""
    blocks = blocks_of(problem)
    pairs = find_pairs(problem, blocks) if problem.recompute else Pairs.none(problem.n_ops, problem.n_values)
    rows = _list_rows(problem, find_necessary(problem, blocks, pairs), pairs)
    ops, values = _tell_apart(problem, blocks)
    row_kind, row_first, row_count = _group(rows.codes(ops, values))
    exact = row_first < (0 if problem.recompute else problem.n_ops)
    table = take_sample(blocks, _look_of(ops, values)).table
    usable = _usable(problem, table)
    _, column_first, _ = _group(_column_codes(table, ops, values, usable))
    chosen = np.sort(column_first[usable[column_first]])
    prices = _price_kinds(rows, table.take(chosen), _Kinds(of=row_kind, count=row_count, exact=exact), control)
    if prices is None:
        return None
    total = max(1, sum(int(b.cost[_usable(problem, b)].sum()) * b.places for b in blocks.blocks))
    scale = 1 << max(0, min(16, 60 - total.bit_length()))
    whole = np.floor(np.where(exact, prices, np.maximum(prices, 0.0)) * scale).astype(np.int64)[row_kind]
    sample = take_sample(blocks, surround(problem, *rows.patterns(whole)).look)
    usable = _usable(problem, sample.table)
    reduced = sample.table.cost * scale - rows.worth(sample.table, whole)
    bound = int(whole.sum()) + int((np.minimum(reduced, 0) * sample.counts())[usable].sum())
    return Sieve(
        bound=bound, scale=scale, rounding=len(whole) // scale + 1, sample=sample, reduced=reduced, usable=usable
    )


def _usable(problem: PartitionProblem, columns: ColumnTable | ColumnBlock) -> NDArray[np.bool_]:
    """Whether each column may be in a plan."""
    return np.ones(len(columns.cost), dtype=np.bool_) if problem.recompute else columns.full


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """Pair i: operator `op[i]` reads `value[i]` in its smallest column; `by_op`, `by_value` list the pairs of each."""

    op: Ints
    value: Ints
    by_op: Ragged
    by_value: Ragged

    @staticmethod
    def none(n_ops: int, n_values: int) -> "Pairs":
        """No pairs."""
        empty, zero = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int32)
        return Pairs(
            op=empty, value=empty, by_op=Ragged(np.zeros(n_ops + 1, dtype=np.int64), zero),
            by_value=Ragged(np.zeros(n_values + 1, dtype=np.int64), zero),
        )  # fmt: skip

    def patterns(self, producer: Ints, price: Ints) -> Ints:
        """A number for each operator, equal only where its pairs, their values' makers and their prices are alike."""
        anchor = anchors(producer, len(self.by_op))
        lie = np.stack((self.value - anchor[self.op], producer[self.value] - self.op, price), axis=1)
        return number_rows(self.by_op.starts, lie)

    def reader_patterns(self, producer: Ints, price: Ints) -> Ints:
        """A number for each value, equal only where the operators of its pairs and their prices are alike."""
        pair = self.by_value.items.astype(np.int64)
        lie = np.stack((self.op[pair] - producer[self.value[pair]], price[pair]), axis=1)
        return number_rows(self.by_value.starts, lie)


def find_pairs(problem: PartitionProblem, blocks: ColumnBlocks) -> Pairs:
    """The reads of each operator's smallest column: its edges in the graph, where it has a column of its own."""
    size = np.full(problem.n_ops, np.iinfo(np.int64).max, dtype=np.int64)
    smallest = np.full(problem.n_ops, -1, dtype=np.int64)
    for start, block in zip(blocks.starts.tolist(), blocks.blocks, strict=False):
        lengths = block.members.rows.lengths
        order = np.argsort(-lengths, kind="stable")
        ranked = block.members.rows.take(order)
        least = np.full(block.members.items.shape[1], -1, dtype=np.int64)
        least[ranked.items] = order[ranked.owners()]  # the last assignment of each operator is that of its smallest
        local = np.nonzero(least >= 0)[0]
        local = local[np.argsort(-lengths[least[local]], kind="stable")]
        ops = block.members.items[:, local].T
        row = np.broadcast_to(least[local][:, None], ops.shape)
        column = start + np.arange(block.places, dtype=np.int64)[None, :] * len(lengths) + row
        better = lengths[row] < size[ops]
        smallest[ops[better]] = column[better]  # and so here
        size[ops[better]] = lengths[row][better]
    held = np.nonzero(smallest >= 0)[0]
    reads = blocks.take(smallest[held]).reads
    op, value = held[reads.owners()], reads.items.astype(np.int64)
    return Pairs(
        op=op, value=value, by_op=Ragged(np.searchsorted(op, np.arange(problem.n_ops + 1)), _range(len(op))),
        by_value=Ragged(np.arange(len(value) + 1, dtype=np.int64), reads.items).invert(problem.n_values),
    )  # fmt: skip


def _range(count: int) -> NDArray[np.int32]:
    return np.arange(count, dtype=np.int32)


def find_necessary(problem: PartitionProblem, blocks: ColumnBlocks, pairs: Pairs) -> NDArray[np.bool_]:
    """Operators that every plan computes: makers of required values, and of what all columns of one hold or read.

    Sound; of the conditions in `instance.find_necessary` it looks at the edges in `pairs` alone.
    """
    if not problem.recompute:
        return np.ones(problem.n_ops, dtype=np.bool_)
    producer = np.array(problem.producer, dtype=np.int64)
    free, nothing = np.zeros(len(pairs.op), dtype=np.int64), np.zeros(problem.n_values, dtype=np.int64)
    sample = take_sample(blocks, surround(problem, pairs.patterns(producer, free), nothing).look)
    sure = np.ones(len(pairs.op), dtype=np.bool_)
    for number in range(len(blocks.blocks)):
        _strike(sure, sample, number, pairs, producer)
    needed = np.zeros(problem.n_ops, dtype=np.bool_)
    needed[producer[sorted(problem.required)]] = True
    for place in reversed(range(len(pairs.op))):
        if sure[place] and needed[pairs.op[place]]:
            needed[producer[pairs.value[place]]] = True
    return needed


def _strike(sure: NDArray[np.bool_], sample: Sample, number: int, pairs: Pairs, producer: Ints) -> None:
    """Clear the pairs of a block whose operator some column there holds without their value or its maker."""
    block, own = sample.blocks.blocks[number], sample.shares(number)
    for first in range(own.start, own.stop, CHUNK):
        rows = np.arange(first, min(first + CHUNK, own.stop), dtype=np.int64)
        part = sample.table.take(rows)
        entry = _expand(part.members, pairs.by_op)
        value = pairs.value[entry.pair]
        fed = _holds(part.members, entry.column, producer[value], len(pairs.by_op))
        fed |= _holds(part.reads, entry.column, value, len(pairs.by_value))
        kind = (rows[entry.column[~fed]] - own.start) // max(len(block), 1)
        bad = np.unique(np.stack((kind, entry.pair[~fed])), axis=1)
        for this in np.unique(bad[0]).tolist():
            pair = bad[1][bad[0] == this]
            local = np.searchsorted(block.members.items[sample.first[number][this]], pairs.op[pair])
            ops = block.members.items[np.ix_(sample.kinds[number] == this, local)]
            sure[pairs.by_op.starts[ops] + (pair - pairs.by_op.starts[pairs.op[pair]])] = False


@dataclass(frozen=True, slots=True)
class _Entries:
    """Pairs of the items of a ragged array: the row of the item, and the pair."""

    column: Ints
    pair: Ints


def _expand(rows: Ragged, pairs_of: Ragged) -> _Entries:
    """All pairs of all items of all rows."""
    found = pairs_of.take(rows.items.astype(np.int64))
    return _Entries(rows.owners()[found.owners()], found.items.astype(np.int64))


def _holds(rows: Ragged, row: Ints, item: Ints, size: int) -> NDArray[np.bool_]:
    """Whether `item[i]` (below `size`) is in row `row[i]`; rows ascend."""
    codes = rows.owners() * size + rows.items
    asked = row * size + item
    if not len(codes):
        return np.zeros(len(asked), dtype=np.bool_)
    spot = np.minimum(np.searchsorted(codes, asked), len(codes) - 1)
    found: NDArray[np.bool_] = codes[spot] == asked
    return found


def _chunks(table: ColumnTable) -> Iterator[ColumnTable]:
    for start in range(0, len(table), CHUNK):
        yield table.take(np.arange(start, min(start + CHUNK, len(table)), dtype=np.int64))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """The rows of the whole problem: covers of `covered`, writers of `required`, and the pair rows `of_pairs`.

    `cover[i]`, `write[v]`, `pair[p]`: row of an operator, a required value, a pair; -1 where there is none.
    """

    problem: PartitionProblem
    pairs: Pairs
    covered: Ints
    required: Ints
    of_pairs: Ints
    cover: Ints
    write: Ints
    pair: Ints

    def codes(self, ops: Codes, values: Codes) -> Codes:
        """A code for each row out of those of its operator and value."""
        op, value = self.pairs.op[self.of_pairs], self.pairs.value[self.of_pairs]
        return np.concatenate((
            _mix(ops[self.covered]), _mix(values[self.required] + np.uint64(7)),
            _mix(_mix(ops[op] + np.uint64(9)) + values[value]),
        ))  # fmt: skip

    def entries(self, table: ColumnTable) -> tuple[Ints, Ints]:
        """(column, row) of every entry, each a 1."""
        held, made = _expand(table.members, self.pairs.by_op), _expand(table.writes, self.pairs.by_value)
        unread = ~_holds(table.reads, held.column, self.pairs.value[held.pair], self.problem.n_values)
        away = ~_holds(table.members, made.column, self.pairs.op[made.pair], self.problem.n_ops)
        column = np.concatenate((
            table.members.owners(), table.writes.owners(), held.column[unread], made.column[away],
        ))  # fmt: skip
        row = np.concatenate((
            self.cover[table.members.items], self.write[table.writes.items], self.pair[held.pair[unread]],
            self.pair[made.pair[away]],
        ))  # fmt: skip
        return column[row >= 0], row[row >= 0]

    def worth(self, table: ColumnTable, price: Ints) -> Ints:
        """What each column's entries are worth at these prices."""
        parts = []
        for part in _chunks(table):
            column, row = self.entries(part)
            found = np.zeros(len(part), dtype=np.int64)
            np.add.at(found, column, price[row])
            parts.append(found)
        return np.concatenate((np.zeros(0, dtype=np.int64), *parts))


    def patterns(self, price: Ints) -> tuple[Ints, Ints]:
        """Numbers for operators and for values, equal only where all rows at them are alike at these prices."""
        padded = np.append(price, 0)  # the last is that of rows that do not exist
        producer = np.array(self.problem.producer, dtype=np.int64)
        pair = padded[self.pair]
        ops = np.stack((self.pairs.patterns(producer, pair), padded[self.cover]), axis=1)
        values = np.stack((self.pairs.reader_patterns(producer, pair), padded[self.write]), axis=1)
        return number_rows(_steps(len(ops)), ops), number_rows(_steps(len(values)), values)


def _steps(count: int) -> Ints:
    return np.arange(count + 1, dtype=np.int64)


def _list_rows(problem: PartitionProblem, necessary: NDArray[np.bool_], pairs: Pairs) -> _Rows:
    covered = np.nonzero(necessary)[0]
    required = np.array(sorted(problem.required), dtype=np.int64)
    of_pairs = np.nonzero(necessary[pairs.op])[0]

    def number(size: int, items: Ints, first: int) -> Ints:
        found = np.full(size, -1, dtype=np.int64)
        found[items] = first + np.arange(len(items))
        return found

    return _Rows(
        problem=problem, pairs=pairs, covered=covered, required=required, of_pairs=of_pairs,
        cover=number(problem.n_ops, covered, 0), write=number(problem.n_values, required, len(covered)),
        pair=number(len(pairs.op), of_pairs, len(covered) + len(required)),
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kinds:
    """The kind of each row; of each kind how many rows it has, and whether they are equalities."""

    of: Ints
    count: Ints
    exact: NDArray[np.bool_]


def _price_kinds(rows: _Rows, table: ColumnTable, kinds: _Kinds, control: Control) -> NDArray[np.float64] | None:
    """A price for each kind of row: the duals of the relaxation over one column of each kind, those of `table`."""
    column, row = rows.entries(table)
    codes, weight = np.unique(kinds.of[row] * len(table) + column, return_counts=True)
    matrix = SparseRows(
        row=codes // len(table), column=codes % len(table), factor=weight.astype(np.float64),
        low=kinds.count.astype(np.float64), exact=kinds.exact,
    )  # fmt: skip
    return solve_sparse(table.cost.astype(np.float64), matrix, control)


def _tell_apart(problem: PartitionProblem, blocks: ColumnBlocks) -> tuple[Codes, Codes]:
    """A code for each operator and each value, equal where the columns around them look alike."""
    producer = np.array(problem.producer, dtype=np.int64)
    ops = np.zeros(problem.n_ops, dtype=np.uint64)
    required = np.zeros(problem.n_values, dtype=np.uint64)
    required[sorted(problem.required)] = 1
    values = required.copy()
    for turn in range(REFINEMENTS + 1):
        sample = take_sample(blocks, _look_of(ops, values))
        usable = _usable(problem, sample.table)
        looks = _mix(_column_codes(sample.table, ops, values, usable) + np.uint64(turn))
        looks[~usable] = 0
        touching = np.zeros(problem.n_values, dtype=np.uint64)
        spread = np.zeros(problem.n_ops, dtype=np.uint64)
        for number, block in enumerate(blocks.blocks):
            own = looks[sample.shares(number)].reshape(sample.shape(number))
            kinds = sample.kinds[number]
            _scatter(spread, block.members, kinds, own, _rank_in_row(block.members.rows))
            for salt, rows in ((3, block.reads), (5, block.writes)):
                _scatter(touching, rows, kinds, own, np.full(len(rows.rows.items), salt, dtype=np.uint64))
        ops = _mix(ops + spread)
        values = _mix(required + ops[producer] + touching) if problem.n_values else required
    return ops, values


def _look_of(ops: Codes, values: Codes) -> Look:
    """Places look alike where the codes of their operators and values are equal."""
    return lambda block: np.hstack((ops[block.members.items], values[block.reads.items], values[block.writes.items]))


def _scatter(total: Codes, rows: Repeated, kinds: Ints, looks: Codes, salt: Codes) -> None:
    """Add to each item of `total` the scrambled looks of the columns that name it; `looks` by kind and column."""
    local = np.zeros((rows.items.shape[1], len(looks)), dtype=np.uint64)
    np.add.at(local, rows.rows.items, _mix(looks[:, rows.rows.owners()] + salt).T)
    named = np.unique(rows.rows.items)
    np.add.at(total, rows.items[:, named], local[named].T[kinds])


def _column_codes(table: ColumnTable, ops: Codes, values: Codes, usable: NDArray[np.bool_]) -> Codes:
    """A code for each column: cost, operators in order, values read and written."""
    found = _mix(table.cost.astype(np.uint64) + usable.astype(np.uint64))
    for rows, codes, salt in ((table.members, ops, 1), (table.reads, values, 2), (table.writes, values, 3)):
        found = found + _sum_rows(rows, _mix(codes[rows.items] + _rank_in_row(rows) + np.uint64(salt << 20)))
    return _mix(found)


def _mix(x: Codes) -> Codes:
    """A bijective scramble of 64-bit codes (the finaliser of splitmix64)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    found: Codes = x ^ (x >> np.uint64(31))
    return found


def _rank_in_row(rows: Ragged) -> Codes:
    return (np.arange(len(rows.items), dtype=np.int64) - np.repeat(rows.starts[:-1], rows.lengths)).astype(np.uint64)


def _sum_rows(rows: Ragged, items: Codes) -> Codes:
    totals = np.concatenate((np.zeros(1, dtype=np.uint64), np.cumsum(items, dtype=np.uint64)))
    found: Codes = totals[rows.starts[1:]] - totals[rows.starts[:-1]]
    return found


def _group(codes: Codes) -> tuple[Ints, Ints, Ints]:
    """Number of the kind of each item, first item of each kind, items of each kind."""
    _, first, inverse, counts = np.unique(codes, return_index=True, return_inverse=True, return_counts=True)
    return inverse.astype(np.int64), first.astype(np.int64), counts.astype(np.int64)
