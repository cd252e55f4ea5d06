"""Growth: all convex, connected groups of the kernel space, one unit at a time.

A *unit* is a chain of elementwise operators that the space keeps whole (see `chain_units`), or a single operator.
Every connected convex set of two or more units has at least two units whose removal leaves it connected and convex, so
growing by one neighbour and keeping convex sets only, with the smallest operator fixed, reaches every set whose
smaller sets are legal too. Attention is not reachable through legal sets; it is seeded with the convex hull of its two
contractions and grown from there.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from fusesolve.candidates.loops import Nest, build_nest
from fusesolve.candidates.program import Operator, Program
from fusesolve.legality import may_grow
from fusesolve.ops.definition import OpKind

SETS_PER_ROOT = 2000  # groups tried from one operator before the space is cut, and says so
SETS_PER_ATTENTION = 6000  # the same from one pair of contractions: rotary embeddings of queries and keys multiply
HULL_LIMIT = 40  # operators between the two contractions of an attention


@dataclass(frozen=True, slots=True)
class Grown:
    """The groups grown from one start: nests, and the stretch of operators that was looked at."""

    nests: tuple[Nest, ...]
    low: int
    high: int
    cut: bool


def chain_units(program: Program, separable: frozenset[int]) -> list[tuple[int, ...]]:
    """The unit of each operator: chains of elementwise operators that are never separated.

    Operator v joins its producer u where u is elementwise and read by v alone, u's result is not an output, and v is
    elementwise with no other operand of that size, over the same points, with a result of no more bytes. A plan that
    separates u and v can let u's kernel do v as well: it then writes, and v's kernel reads, no more bytes than before,
    and v's arithmetic only changes kernels. (Exact while these kernels are bound by bytes; where v's arithmetic is
    exposed behind a contraction, the loss is at most that arithmetic.) Operators in `separable` stay single.
    """
    unit: list[tuple[int, ...]] = [(op.index,) for op in program.operators]
    for op in program.operators:
        joined = None if op.index in separable else _chain_producer(program, op)
        if joined is not None and joined not in separable:
            merged = (*unit[joined], op.index)
            for member in merged:
                unit[member] = merged
    return unit


def _chain_producer(program: Program, op: Operator) -> int | None:
    if op.kind is not OpKind.ELEMENTWISE:
        return None
    large = [read for read in op.reads if program.storage[read.storage].type.size >= op.points > 1]
    if len({read.storage for read in large}) != 1 or large[0].barrier:
        return None
    storage = program.storage[large[0].storage]
    if storage.producer is None or storage.required or len(storage.readers) != 1:
        return None
    producer = program.operators[storage.producer]
    result = program.storage[op.writes[0]].type
    same = producer.kind is OpKind.ELEMENTWISE and producer.points == op.points
    return producer.index if same and result.nbytes <= storage.type.nbytes else None


class Grower:
    """Grows groups over a program; operators in `separable` are never kept in a chain."""

    def __init__(self, program: Program, separable: frozenset[int] = frozenset()) -> None:
        self.program = program
        self.ancestors, self.descendants = closure(program)
        self.unit = chain_units(program, separable)

    def from_root(self, root: int) -> Grown:
        """Groups whose smallest operator is `root`, the first of its unit; attention left out."""
        return self._grow(build_nest(self.program, self.unit[root]), floor=root)

    def exactly(self, members: Sequence[int]) -> Grown | None:
        """The one group of these operators, or None where they are not convex or may not share a kernel."""
        mask = _mask(members)
        if self._reach(mask, members) & ~mask:
            return None
        nest = build_nest(self.program, tuple(members))
        if not may_grow(nest.facts):
            return None
        return Grown((nest,), members[0], members[-1], cut=False)

    def from_attention(self, first: int, second: int) -> Grown | None:
        """Groups that contain the attention of two contractions, or None where they are no attention."""
        hull = self.hull(first, second)
        if hull is None:
            return None
        nest = build_nest(self.program, hull)
        if not nest.facts.attention or not may_grow(nest.facts):
            return None
        return self._grow(nest, floor=0)

    def hull(self, first: int, second: int) -> tuple[int, ...] | None:
        """The convex hull of two contractions in whole units, or None if it is too large or holds a third."""
        mask = self.descendants[first] & self.ancestors[second] | 1 << first | 1 << second
        members = sorted({part for item in _bits(mask) for part in self.unit[item]})
        operators = self.program.operators
        if len(members) > HULL_LIMIT or self._reach(_mask(members), members) & ~_mask(members):
            return None
        if sum(operators[m].kind is OpKind.CONTRACTION for m in members) != 2:
            return None
        return None if any(operators[m].kind is OpKind.OPAQUE for m in members) else tuple(members)

    def attention_pairs(self) -> Iterator[tuple[int, int]]:
        """Pairs of contractions, the second reachable from the first through a reduction."""
        for second, op in enumerate(self.program.operators):
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

    def _grow(self, seed: Nest, floor: int) -> Grown:
        attention = seed.facts.attention
        low, high = seed.members[0], seed.members[-1]
        seen = {_mask(seed.members)}
        queue = [seed]
        found: list[Nest] = []
        most = SETS_PER_ATTENTION if attention else SETS_PER_ROOT
        while queue and len(seen) <= most:
            nest = queue.pop()
            found.append(nest)
            for part in self._neighbours(nest.members):
                if part[0] < floor:
                    continue
                low, high = min(low, part[0]), max(high, part[-1])
                grown = self._extended(nest, part, seen)
                if grown is not None and grown.facts.attention == attention and may_grow(grown.facts):
                    queue.append(grown)
        found.sort(key=lambda nest: (len(nest.members), nest.members))
        return Grown(tuple(found), low, high, bool(queue))

    def _extended(self, nest: Nest, part: tuple[int, ...], seen: set[int]) -> Nest | None:
        if nest.heads and not nest.facts.attention and self.program.operators[part[0]].kind is OpKind.CONTRACTION:
            return None  # `one-contraction`, before any work is done
        members = tuple(sorted((*nest.members, *part)))
        mask = _mask(members)
        if mask in seen or self._reach(mask, members) & ~mask:
            return None
        seen.add(mask)
        return build_nest(self.program, members)

    def _reach(self, mask: int, members: Iterable[int]) -> int:
        """Operators on data paths between members, the members included."""
        above = below = 0
        for member in members:
            above |= self.ancestors[member]
            below |= self.descendants[member]
        return above & below | mask

    def _neighbours(self, members: Iterable[int]) -> list[tuple[int, ...]]:
        inside = set(members)
        near: set[int] = set()
        for member in inside:
            near.update(self.program.preds[member])
            near.update(self.program.succs[member])
        return sorted({self.unit[item] for item in near - inside})


def closure(program: Program) -> tuple[list[int], list[int]]:
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


