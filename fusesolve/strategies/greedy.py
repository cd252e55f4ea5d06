"""`greedy`: merge the pair of neighbours that saves most, while one saves."""

import heapq

from fusesolve.strategies.context import Context, Members
from fusesolve.strategies.grouping import Grouping


def fuse_edges(context: Context) -> list[Members]:
    """Edge by edge, by the simulator: of all groups that exchange data, merge the two whose kernel saves most.

    A merge must be a kernel, save time and close no cycle. No lookahead, nothing computed twice. Source: the classic
    heuristic of loop fusion (Kennedy and McKinley, "Maximizing loop parallelism and improving data locality via loop
    fusion and distribution", LCPC 1993), with the simulator's prices for its weights.
    """
    greedy = _Greedy(context)
    return greedy.run()


class _Greedy:
    """Groups, and a queue of merges by what they save; an entry is stale once one of its groups has changed."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.grouping = Grouping(context)
        self.heap: list[tuple[int, Members, Members]] = []

    def run(self) -> list[Members]:
        grouping = self.grouping
        self._consider([(group, near) for group in grouping.members for near in sorted(grouping.succs[group])])
        while self.heap:
            _, left, right = heapq.heappop(self.heap)
            first, second = grouping.of(left[0]), grouping.of(right[0])
            fresh = grouping.members[first] == left and grouping.members[second] == right
            if fresh and not grouping.closes_cycle(first, second):
                merged = grouping.merge(first, second)
                self._consider([(merged, near) for near in grouping.neighbours(merged)])
        return grouping.groups()

    def _consider(self, pairs: list[tuple[int, int]]) -> None:
        """Queue the merges that save."""
        grouping, context = self.grouping, self.context
        unions = context.costs([grouping.union(*pair) for pair in pairs])
        for (first, second), together in zip(pairs, unions, strict=True):
            left, right = grouping.members[first], grouping.members[second]
            apart = context.costs((left, right))
            if together is None or None in apart:
                continue
            loss = together - sum(cost for cost in apart if cost is not None)
            if loss < 0:
                heapq.heappush(self.heap, (loss, left, right))
