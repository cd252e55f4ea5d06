"""The strategies that compilers use: no fusion, and greedy fusion edge by edge."""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from fusesolve.solve.control import Control, Finding, Incumbent
from fusesolve.solve.instance import Instance
from fusesolve.solve.memory import Fit, order_within
from fusesolve.solve.order import order_columns
from fusesolve.solve.problem import Column, PartitionProblem

Members: TypeAlias = tuple[int, ...]


def solve_unfused(instance: Instance, control: Control) -> Finding:
    """Every operator alone, in its cheapest column that keeps nothing back."""
    problem = instance.problem
    with control.stage("unfused"):
        singles = _best_by_members(problem)
        lacking = [op for op in range(problem.n_ops) if (op,) not in singles]
        if lacking:
            return Finding(conflicts=(f"operators {lacking[:6]} have no column of their own",))
        return offer_columns(problem, control, [singles[op,] for op in range(problem.n_ops)])


def solve_greedy(instance: Instance, control: Control) -> Finding:
    """Merge, one edge at a time, the pair of groups with the greatest saving, while one saves.

    A pair may merge if one reads the other, a column of exactly the union exists, and no path through a third group
    joins them (else the quotient would have a cycle). Above `max_kernels` it goes on with the smallest losses.
    """
    problem = instance.problem
    with control.stage("greedy"):
        singles = _best_by_members(problem)
        lacking = [op for op in range(problem.n_ops) if (op,) not in singles]
        if lacking:
            return Finding(conflicts=(f"operators {lacking[:6]} have no column of their own",))
        merger = _Merger(problem=problem, best=singles)
        return offer_columns(problem, control, merger.run(control))


def offer_columns(problem: PartitionProblem, control: Control, selected: Iterable[int]) -> Finding:
    """Offer the plan of these columns to the control, or say why it is none (cover is the caller's promise)."""
    chosen = sorted(selected)
    order = order_columns(problem.columns, chosen)
    if order.stuck or not problem.required <= order.available:
        return Finding(conflicts=(f"{len(order.stuck)} of {len(chosen)} groups wait for each other",))
    if problem.max_kernels is not None and len(chosen) > problem.max_kernels:
        return Finding(conflicts=(f"the plan has {len(chosen)} kernels, the limit is {problem.max_kernels}",))
    order, fit = order_within(problem, order, problem.columns)
    if fit is not Fit.FITS:
        return Finding(conflicts=(f"the plan needs more than {problem.max_live} bytes of live values at some step",))
    control.offer(
        Incumbent(
            cost=sum(problem.columns[index].cost for index in chosen),
            tie=sum(problem.columns[index].tie for index in chosen),
            selected=order.done,
        )
    )
    return Finding()


def _best_by_members(problem: PartitionProblem) -> dict[Members, int]:
    """For each member set its cheapest `full` column, by (cost, tie), then content."""
    best: dict[Members, int] = {}
    for index, column in enumerate(problem.columns):
        if column.full:
            held = best.get(column.members)
            if held is None or _rank(column) < _rank(problem.columns[held]):
                best[column.members] = index
    return best


def _rank(column: Column) -> tuple[int, int, Members, Members]:
    return column.cost, column.tie, column.reads, column.writes


@dataclass(slots=True)
class _Merger:
    """Groups under greedy merging, each named by its smallest operator; `rank` orders them topologically."""

    problem: PartitionProblem
    best: dict[Members, int]
    column: dict[int, int] = field(default_factory=dict)
    after: dict[int, set[int]] = field(default_factory=dict)
    before: dict[int, set[int]] = field(default_factory=dict)
    line: list[int | None] = field(default_factory=list)
    rank: dict[int, int] = field(default_factory=dict)
    heap: list[tuple[int, int, int, int, int, int]] = field(default_factory=list)

    def run(self, control: Control) -> list[int]:
        """Columns of the groups that are left."""
        self._start()
        limit = self.problem.max_kernels
        while self.heap and not control.must_stop():
            loss, _, first, second, seen_first, seen_second = heapq.heappop(self.heap)
            if loss >= 0 and (limit is None or len(self.column) <= limit):
                break
            if self.column.get(first) != seen_first or self.column.get(second) != seen_second:
                continue
            descendants = self._descend(first, second)
            if descendants is not None:
                self._merge(first, second, descendants)
        return list(self.column.values())

    def _start(self) -> None:
        problem = self.problem
        for op in range(problem.n_ops):
            self.column[op] = self.best[op,]
            self.after[op], self.before[op], self.rank[op] = set(), set(), op
            self.line.append(op)
            for value in self.problem.columns[self.column[op]].reads:
                self.after[problem.producer[value]].add(op)
                self.before[op].add(problem.producer[value])
        for op in range(problem.n_ops):
            for reader in sorted(self.after[op]):
                self._consider(op, reader)

    def _consider(self, first: int, second: int) -> None:
        """Queue the merge of two groups, of which `second` reads `first`, if a column of the union exists."""
        columns = self.problem.columns
        one, two = self.column[first], self.column[second]
        union = self.best.get(tuple(sorted({*columns[one].members, *columns[two].members})))
        if union is not None:
            loss = columns[union].cost - columns[one].cost - columns[two].cost
            heapq.heappush(self.heap, (loss, columns[union].tie, first, second, one, two))

    def _descend(self, first: int, second: int) -> set[int] | None:
        """Groups after `first` that rank below `second`; None if one of them leads to `second`."""
        limit, seen, stack = self.rank[second], {first}, [first]
        while stack:
            group = stack.pop()
            for reader in self.after[group]:
                if reader == second and group != first:
                    return None
                if reader not in seen and self.rank[reader] < limit:
                    seen.add(reader)
                    stack.append(reader)
        seen.discard(first)
        return seen

    def _merge(self, first: int, second: int, descendants: set[int]) -> None:
        low, high = self.rank[first], self.rank[second]
        name, gone = min(first, second), max(first, second)
        window = [group for group in self.line[low : high + 1] if group not in (first, second, None)]
        window = [group for group in window if group not in descendants]
        placed = [*window, name, *(g for g in self.line[low:high] if g in descendants)]
        self.line[low : high + 1] = placed + [None] * (high + 1 - low - len(placed))
        for offset, group in enumerate(placed):
            if group is not None:
                self.rank[group] = low + offset
        columns = self.problem.columns
        members = {*columns[self.column[first]].members, *columns[self.column[second]].members}
        after = (self.after[first] | self.after[second]) - {first, second}
        before = (self.before[first] | self.before[second]) - {first, second}
        del self.column[gone], self.after[gone], self.before[gone], self.rank[gone]
        self.column[name] = self.best[tuple(sorted(members))]
        self.after[name], self.before[name] = after, before
        for group in sorted(after):
            self.before[group] = self.before[group] - {gone} | {name}
            self._consider(name, group)
        for group in sorted(before):
            self.after[group] = self.after[group] - {gone} | {name}
            self._consider(group, name)
