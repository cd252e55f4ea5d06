"""A problem made ready for the solver: columns in canonical order, the useless ones dropped, conflicts named."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fusesolve.solve.memory import own_bytes
from fusesolve.solve.order import close_available
from fusesolve.solve.problem import Column, PartitionProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """Columns that can stand in a plan, sorted by content, with their inverse tables.

    `origin[j]`: index in `problem.columns` of column j. `writers[v]`, `readers[v]`, `covers[i]`: ascending columns that
    write value v, read it, hold operator i. `necessary`: operators that every plan computes. `cost`: int64 ns.
    """

    problem: PartitionProblem
    columns: tuple[Column, ...]
    origin: tuple[int, ...]
    cost: NDArray[np.int64]
    tie: NDArray[np.int64]
    writers: tuple[NDArray[np.int64], ...]
    readers: tuple[NDArray[np.int64], ...]
    covers: tuple[NDArray[np.int64], ...]
    necessary: tuple[int, ...]


def prepare_instance(problem: PartitionProblem, *, drop_equals: bool = True) -> Instance:
    """Canonical columns without those that no optimal plan can use; `drop_equals` False keeps equal reads and writes.

    Dropped, with the reason that it is exact: columns that are not `full` (exact partition only, by definition);
    columns that can never run, whatever else is selected; columns whose own values exceed the memory limit; of columns
    with equal reads and writes (and, in an exact partition, equal members) all but the first by (cost, tie, members),
    since it can run wherever the others can.
    """
    usable = [(c, i) for i, c in enumerate(problem.columns) if (problem.recompute or c.full) and _fits(problem, c)]
    usable.sort(key=lambda pair: _content(pair[0]))
    usable = _drop_equals(usable, problem.recompute) if drop_equals else usable
    never = set(close_available([column for column, _ in usable]).stuck)
    kept = [pair for place, pair in enumerate(usable) if place not in never]
    columns = tuple(column for column, _ in kept)
    covers = invert([column.members for column in columns], problem.n_ops)
    writers = invert([column.writes for column in columns], problem.n_values)
    return Instance(
        problem=problem,
        columns=columns,
        origin=tuple(index for _, index in kept),
        cost=np.array([column.cost for column in columns], dtype=np.int64),
        tie=np.array([column.tie for column in columns], dtype=np.int64),
        writers=writers,
        readers=invert([column.reads for column in columns], problem.n_values),
        covers=covers,
        necessary=find_necessary(problem, columns, covers),
    )


def _fits(problem: PartitionProblem, column: Column) -> bool:
    return problem.max_live is None or own_bytes(column, problem.live_bytes) <= problem.max_live


def _content(column: Column) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], int, int]:
    return column.members, column.reads, column.writes, column.cost, column.tie


def _drop_equals(usable: list[tuple[Column, int]], recompute: bool) -> list[tuple[Column, int]]:
    best: dict[tuple[tuple[int, ...], ...], tuple[int, int, int]] = {}
    for place, (column, _) in enumerate(usable):
        key = (column.reads, column.writes, () if recompute else column.members)
        rank = (column.cost, column.tie, place)
        best[key] = min(best.get(key, rank), rank)
    return [usable[place] for place in sorted(rank[2] for rank in best.values())]


def invert(lists: Sequence[tuple[int, ...]], size: int) -> tuple[NDArray[np.int64], ...]:
    """For each of `size` items the ascending positions in `lists` that hold it."""
    lengths = np.array([len(items) for items in lists], dtype=np.int64)
    owners = np.repeat(np.arange(len(lists), dtype=np.int64), lengths)
    items = np.fromiter((item for row in lists for item in row), dtype=np.int64, count=int(lengths.sum()))
    order = np.argsort(items, kind="stable")
    held = owners[order]
    cuts = np.cumsum([0, *np.bincount(items, minlength=size).tolist()]).tolist()
    return tuple(held[first:last] for first, last in pairwise(cuts))


def find_necessary(
    problem: PartitionProblem, columns: Sequence[Column], covers: Sequence[NDArray[np.int64]]
) -> tuple[int, ...]:
    """Operators that every plan computes, ascending.

    All of them in an exact partition. With recomputation: the producers of required values, and, for a necessary
    operator, every operator that each of its columns holds or reads from. Sound; misses none in practice, where a
    column reads or holds the producers of all its operands.
    """
    if not problem.recompute:
        return tuple(range(problem.n_ops))
    needed = {problem.producer[value] for value in problem.required}
    sources = [{*column.members, *(problem.producer[value] for value in column.reads)} for column in columns]
    for op in reversed(range(problem.n_ops)):
        if op in needed and len(covers[op]):
            needed |= set.intersection(*(sources[index] for index in covers[op].tolist()))
    return tuple(sorted(needed))


def find_conflicts(instance: Instance) -> tuple[str, ...]:
    """Reasons, one line each, why no selection is a plan; empty where the columns alone exclude nothing."""
    problem = instance.problem
    lines = []
    if not problem.recompute:
        for op in range(problem.n_ops):
            if not len(instance.covers[op]):
                lines.append(f"operator {op} is in no column that can run; add a column that holds it")
    for value in sorted(problem.required):
        if not len(instance.writers[value]):
            roots = _find_roots(problem, value)
            why = f"value {value}" if roots == (value,) else "values " + ", ".join(map(str, roots[:4])) + " before it"
            lines.append(
                f"required value {value} (operator {problem.producer[value]}) is written by no column that can run: "
                f"{why} cannot be written; operators {[problem.producer[root] for root in roots[:4]]} have no column"
            )
    return tuple(lines)


def _find_roots(problem: PartitionProblem, value: int) -> tuple[int, ...]:
    """The unwritable values that keep `value` unwritable, followed through reads to those that no column writes."""
    usable = [c for c in problem.columns if (problem.recompute or c.full) and _fits(problem, c)]
    available = close_available(usable).available
    writers: dict[int, list[Column]] = {}
    for column in usable:
        for written in column.writes:
            writers.setdefault(written, []).append(column)
    seen, roots, stack = {value}, set(), [value]
    while stack:
        top = stack.pop()
        if top not in writers:
            roots.add(top)
        for column in writers.get(top, ()):
            for read in column.reads:
                if read not in available and read not in seen:
                    seen.add(read)
                    stack.append(read)
    return tuple(sorted(roots or seen))
