"""Groups that merge: who is with whom, who reads whom, and whether a merge would close a cycle."""

from collections.abc import Iterable

from fusesolve.strategies.context import Context, Members


class Grouping:
    """A partition of the operators, one group each at first. A group is named by its smallest operator."""

    def __init__(self, context: Context) -> None:
        count = len(context.operators)
        self.name = list(range(count))
        self.members: dict[int, Members] = {i: (i,) for i in range(count)}
        self.succs = [set(readers) for readers in context.succs]
        self.preds = [set(makers) for makers in context.preds]

    def of(self, operator: int) -> int:
        """The group that the operator is in."""
        return self.name[operator]

    def union(self, first: int, second: int) -> Members:
        """The members of both groups."""
        return tuple(sorted((*self.members[first], *self.members[second])))

    def neighbours(self, group: int) -> list[int]:
        """Groups that read from it or that it reads from, ascending."""
        return sorted(self.succs[group] | self.preds[group])

    def closes_cycle(self, first: int, second: int) -> bool:
        """Whether a path through a third group joins the two, in either direction: merged they would wait for it."""
        return self._leads(first, second) or self._leads(second, first)

    def _leads(self, first: int, second: int) -> bool:
        """Whether `second` can be reached from `first` through other groups."""
        stack = [g for g in self.succs[first] if g != second]
        seen = set(stack)
        while stack:
            group = stack.pop()
            if group == second:
                return True
            for reader in self.succs[group]:
                if reader not in seen and reader != first:
                    seen.add(reader)
                    stack.append(reader)
        return False

    def merge(self, first: int, second: int) -> int:
        """Make two groups one; its name is returned."""
        kept, gone = min(first, second), max(first, second)
        self.members[kept] = self.union(first, second)
        for member in self.members.pop(gone):
            self.name[member] = kept
        for side, other in ((self.succs, self.preds), (self.preds, self.succs)):
            side[kept] = (side[first] | side[second]) - {first, second}
            for near in side[kept]:
                other[near] = other[near] - {first, second} | {kept}
            side[gone] = set()
        return kept

    def merge_all(self, groups: Iterable[int]) -> int:
        """Make several groups one."""
        first, *rest = sorted(set(groups))
        for other in rest:
            first = self.merge(first, other)
        return first

    def groups(self) -> list[Members]:
        """All groups, by their smallest operator."""
        return [self.members[name] for name in sorted(self.members)]
