"""Growth: all convex, connected groups of the kernel space, one operator at a time.

Every connected convex set of two or more operators has at least two operators whose removal leaves it connected and
convex, so growing by one neighbour and keeping convex sets only, with the smallest operator fixed, reaches every set
whose smaller sets are legal too. Attention is not reachable through legal sets; it is seeded with the convex hull of
its two contractions and grown from there.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fusesolve.candidates.loops import Nest, build_nest
from fusesolve.candidates.program import Program
from fusesolve.legality import may_grow
from fusesolve.ops.definition import OpKind

SETS_PER_ROOT = 4000  # groups grown from one operator before the space is cut, and says so
HULL_LIMIT = 40  # operators between the two contractions of an attention


@dataclass(frozen=True, slots=True)
class Grown:
    """The groups grown from one start: nests, and the stretch of operators that was looked at."""

    nests: tuple[Nest, ...]
    low: int
    high: int
    cut: bool


class Grower:
    """Grows groups over a program; `siblings` joins nothing beyond data edges (the stated space)."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.ancestors, self.descendants = _closure(program)

    def from_root(self, root: int) -> Grown:
        """Groups whose smallest operator is `root`, attention left out."""
        nest = build_nest(self.program, (root,))
        return self._grow([nest], floor=root)

    def from_attention(self, first: int, second: int) -> Grown | None:
        """Groups that contain the attention of two contractions, or None where they are no attention."""
        hull = self.hull(first, second)
        if hull is None:
            return None
        nest = build_nest(self.program, hull)
        if not nest.facts.attention or not may_grow(nest.facts):
            return None
        return self._grow([nest], floor=0)

    def hull(self, first: int, second: int) -> tuple[int, ...] | None:
        """The convex hull of two contractions, or None where it holds another contraction or is too large."""
        mask = self.descendants[first] & self.ancestors[second] | 1 << first | 1 << second
        members = tuple(_bits(mask))
        operators = self.program.operators
        if len(members) > HULL_LIMIT:
            return None
        if sum(operators[m].kind is OpKind.CONTRACTION for m in members) != 2:
            return None
        return None if any(operators[m].kind is OpKind.OPAQUE for m in members) else members

    def attention_pairs(self) -> Iterator[tuple[int, int]]:
        """Pairs of contractions, the second reachable from the first through a reduction."""
        operators = self.program.operators
        for second, op in enumerate(operators):
            if op.kind is OpKind.CONTRACTION:
                yield from ((first, second) for first in self._contractions_above(second))

    def _contractions_above(self, second: int) -> list[int]:
        operators, preds = self.program.operators, self.program.preds
        seen: set[int] = set()
        found: set[int] = set()
        stack = list(preds[second])
        folded = False
        while stack and len(seen) < HULL_LIMIT:
            item = stack.pop()
            if item in seen:
                continue
            seen.add(item)
            kind = operators[item].kind
            if kind is OpKind.CONTRACTION:
                found.add(item)
            elif kind is not OpKind.OPAQUE:
                folded |= kind is OpKind.REDUCE
                stack.extend(preds[item])
        return sorted(found) if folded else []

    def _grow(self, seeds: list[Nest], floor: int) -> Grown:
        attention = seeds[0].facts.attention
        low = high = seeds[0].members[0]
        seen = {_mask(nest.members) for nest in seeds}
        queue = list(seeds)
        found: list[Nest] = []
        while queue and len(seen) <= SETS_PER_ROOT:
            nest = queue.pop()
            found.append(nest)
            high = max(high, nest.members[-1])
            low = min(low, nest.members[0])
            for item in self._neighbours(nest.members):
                if item < floor:
                    continue
                high, low = max(high, item), min(low, item)
                grown = self._extended(nest, item, seen)
                if grown is not None and grown.facts.attention == attention and may_grow(grown.facts):
                    queue.append(grown)
        found.sort(key=lambda nest: (len(nest.members), nest.members))
        return Grown(tuple(found), low, high, bool(queue))

    def _extended(self, nest: Nest, item: int, seen: set[int]) -> Nest | None:
        if nest.heads and not nest.facts.attention and self.program.operators[item].kind is OpKind.CONTRACTION:
            return None  # `one-contraction`, before any work is done
        mask = _mask(nest.members) | 1 << item
        if mask in seen:
            return None
        members = tuple(sorted((*nest.members, item)))
        above = below = 0
        for member in members:
            above |= self.ancestors[member]
            below |= self.descendants[member]
        if above & below & ~mask:
            return None
        seen.add(mask)
        return build_nest(self.program, members)

    def _neighbours(self, members: Iterable[int]) -> list[int]:
        inside = set(members)
        near: set[int] = set()
        for member in inside:
            near.update(self.program.preds[member])
            near.update(self.program.succs[member])
        return sorted(near - inside)


def _closure(program: Program) -> tuple[list[int], list[int]]:
    """Ancestors and descendants of every operator as bit masks."""
    count = len(program.operators)
    ancestors, descendants = [0] * count, [0] * count
    for index in range(count):
        for pred in program.preds[index]:
            ancestors[index] |= ancestors[pred] | 1 << pred
    for index in reversed(range(count)):
        for succ in program.succs[index]:
            descendants[index] |= descendants[succ] | 1 << succ
    return ancestors, descendants


def _mask(members: Iterable[int]) -> int:
    mask = 0
    for member in members:
        mask |= 1 << member
    return mask


def _bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
