"""Zero-half cuts: what three cover rows say together about whole selections but not about fractional ones.

Add three rows sum x >= 1, halve, and round up both sides: a column in one or two of the rows counts once, a column in
all three twice, and the sum is at least 2. (The {0, 1/2} Chvatal-Gomory cuts of Caprara and Fischetti, 1996.) An odd
cycle of rows whose columns sit at one half meets each row with equality and gives only 1.5.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fusesolve.solve.instance import Instance
from fusesolve.solve.rows import VIOLATION, Row, make_pair_row

Floats: TypeAlias = NDArray[np.float64]
Pair: TypeAlias = tuple[int, int]

MIN_VIOLATION = 0.02
NEARLY_TIGHT = 1.3
MAX_ROWS = 1500
TRIPLES_PER_ROW = 100
USES_PER_ROW = 3


def find_half_cuts(instance: Instance, point: Floats, rows: Sequence[Row], limit: int) -> list[Row]:
    """Cuts from triples of cover rows (of `rows`, and pair rows of fractional columns) that `point` violates.

    The worst first, each row in at most USES_PER_ROW of them, at most `limit`.
    """
    support = np.nonzero(point > VIOLATION)[0]
    sources, inside = _gather(instance, point, rows, support.tolist())
    found = sorted(_scan(inside, point[support]))
    uses: Counter[int] = Counter()
    cuts: list[Row] = []
    for _, triple in found:
        if len(cuts) < limit and all(uses[row] < USES_PER_ROW for row in triple):
            uses.update(triple)
            first, second, third = (_build(instance, sources[row]) for row in triple)
            cuts.append(combine_half(first, second, third))
    return cuts


def _build(instance: Instance, source: Row | Pair) -> Row:
    return source if isinstance(source, Row) else make_pair_row(instance, source[0], (source[1],))


def combine_half(first: Row, second: Row, third: Row) -> Row:
    """The zero-half cut of three cover rows (each sum of `plus` >= 1)."""
    times = Counter((*first.plus, *second.plus, *third.plus))
    once = tuple(sorted(column for column, count in times.items() if count < 3))
    twice = tuple(sorted(column for column, count in times.items() if count == 3))
    return Row(plus=once, twice=twice, need=2)


def _gather(
    instance: Instance, point: Floats, rows: Sequence[Row], support: list[int]
) -> tuple[list[Row | Pair], Floats]:
    """Nearly tight cover rows over a fractional column, one for each pattern on the support, and those patterns.

    A pair row stays the (operator, value) that names it: only its pattern is needed here.
    """
    fractional = {column for column in support if point[column] < 1.0 - VIOLATION}
    on = set(support)
    best: dict[tuple[int, ...], Row | Pair] = {}
    for row in rows:
        if row.minus is None and row.need == 1:
            best.setdefault(tuple(sorted(on.intersection(row.plus))), row)
    for pattern, pair in _pair_patterns(instance, support, fractional):
        best.setdefault(pattern, pair)
    patterns = [
        pattern
        for pattern in sorted(best)
        if not fractional.isdisjoint(pattern) and sum(float(point[column]) for column in pattern) <= NEARLY_TIGHT
    ][:MAX_ROWS]
    place = {column: spot for spot, column in enumerate(support)}
    inside = np.zeros((len(patterns), len(support)), dtype=np.float64)
    for spot, pattern in enumerate(patterns):
        inside[spot, [place[column] for column in pattern]] = 1.0
    return [best[pattern] for pattern in patterns], inside


def _pair_patterns(
    instance: Instance, support: list[int], fractional: set[int]
) -> Iterator[tuple[tuple[int, ...], Pair]]:
    """The pair rows of each fractional column's operators and reads, as ascending columns of the support."""
    columns, necessary = instance.columns, set(instance.necessary)
    holders: dict[int, list[int]] = {}
    writers: dict[int, list[int]] = {}
    for index in support:
        for op in columns[index].members:
            holders.setdefault(op, []).append(index)
        for value in columns[index].writes:
            writers.setdefault(value, []).append(index)
    pairs = {(op, value) for index in fractional for op in columns[index].members for value in columns[index].reads}
    for op, value in sorted(pairs):
        if op in necessary:
            either = {*holders[op], *writers.get(value, ())}
            yield tuple(sorted(index for index in either if value not in columns[index].reads)), (op, value)


def _scan(inside: Floats, weight: Floats) -> Iterator[tuple[float, tuple[int, int, int]]]:
    """Violated triples: (left side, rows).

    Of rows i, j, l with activities r and overlaps w the left side is r_i + r_j + r_l - w_ij - w_il - w_jl + 2 x_ijl,
    x_ijl the weight in all three. Only triples with two overlapping pairs can be violated: l and j are sought
    among the rows that overlap with i.
    """
    overlap = (inside * weight) @ inside.T
    active = np.diag(overlap).copy()
    seen: set[tuple[int, int, int]] = set()
    for middle in range(len(active)):
        near = np.nonzero(overlap[middle] > MIN_VIOLATION)[0]
        near = near[near != middle]
        alone = active[near] - overlap[middle, near]
        left = active[middle] + alone[:, None] + alone[None, :] - overlap[np.ix_(near, near)]
        first, second = np.nonzero(np.triu(left < 2.0 - MIN_VIOLATION, 1))
        if len(first) > TRIPLES_PER_ROW:
            worst = np.argsort(left[first, second], kind="stable")[:TRIPLES_PER_ROW]
            first, second = first[worst], second[worst]
        shared = (inside[near[first]] * inside[near[second]]) @ (inside[middle] * weight)
        totals = left[first, second] + 2.0 * shared
        for spot in np.nonzero(totals < 2.0 - MIN_VIOLATION)[0]:
            low, mid, high = sorted((middle, int(near[first[spot]]), int(near[second[spot]])))
            if (low, mid, high) not in seen:
                seen.add((low, mid, high))
                yield round(float(totals[spot]), 6), (low, mid, high)
