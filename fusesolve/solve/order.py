"""Execution orders of a selection of columns, and why there is none."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from fusesolve.solve.problem import Column


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """`done`: columns in the order they can run; `stuck`: those that cannot; `available`: values then in memory."""

    done: tuple[int, ...]
    stuck: tuple[int, ...]
    available: frozenset[int]


def order_columns(columns: Sequence[Column], selected: Sequence[int]) -> Order:
    """Run the selected columns as soon as their reads are written, the smallest content first.

    The order depends on the content of the columns alone, never on their position. A column is `stuck` if it waits
    for a value that only stuck columns write, or none.
    """
    waiting: dict[int, list[int]] = {}
    missing: dict[int, int] = {}
    ready: list[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], int]] = []
    for index in selected:
        column = columns[index]
        missing[index] = len(column.reads)
        for value in column.reads:
            waiting.setdefault(value, []).append(index)
        if not column.reads:
            heapq.heappush(ready, (column.members, column.writes, column.reads, index))
    done: list[int] = []
    available: set[int] = set()
    while ready:
        index = heapq.heappop(ready)[3]
        done.append(index)
        for value in columns[index].writes:
            if value in available:
                continue
            available.add(value)
            for reader in waiting.get(value, ()):
                missing[reader] -= 1
                if not missing[reader]:
                    freed = columns[reader]
                    heapq.heappush(ready, (freed.members, freed.writes, freed.reads, reader))
    ran = set(done)
    stuck = tuple(sorted(index for index in missing if index not in ran))
    return Order(done=tuple(done), stuck=stuck, available=frozenset(available))


def find_unfounded(columns: Sequence[Column], order: Order, start: int) -> frozenset[int]:
    """A small unfounded set: values that are only written, in this selection, by columns that read one of them.

    Grown from the stuck column `start`: one of its unavailable reads, then for every stuck writer of the set one of
    its unavailable reads, until nothing new enters. `start` reads the set.
    """
    writers: dict[int, list[int]] = {}
    for index in order.stuck:
        for value in columns[index].writes:
            writers.setdefault(value, []).append(index)
    found = {_lacking(columns[start], order.available)[0]}
    queue = sorted(found)
    while queue:
        for writer in writers.get(queue.pop(), ()):
            if found.isdisjoint(columns[writer].reads):
                value = _lacking(columns[writer], order.available)[0]
                found.add(value)
                queue.append(value)
    return frozenset(found)


def _lacking(column: Column, available: frozenset[int]) -> tuple[int, ...]:
    return tuple(value for value in column.reads if value not in available)


def close_available(columns: Sequence[Column]) -> Order:
    """What can run at all if every column is selected: `stuck` columns can never run, in any plan."""
    return order_columns(columns, range(len(columns)))
