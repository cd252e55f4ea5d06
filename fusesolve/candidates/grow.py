"""Growth: all convex, connected groups of the kernel space, one unit at a time.

A *unit* is a chain or diamond of elementwise operators that the space keeps whole (see `chain_units`), or a single
operator. Every connected convex set of two or more units has at least two units whose removal leaves it connected and
convex, so growing by one neighbour and keeping convex sets only, with the smallest operator fixed, reaches every set
whose smaller sets are legal too. Attention is not reachable through legal sets; it is seeded with the convex hull of
its two contractions and grown from there.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import NamedTuple

from fusesolve.candidates.links import joins_many
from fusesolve.candidates.loops import Nest, build_nest
from fusesolve.candidates.program import Operator, Program
from fusesolve.candidates.siblings import share_operand
from fusesolve.legality import SIDE_BY_SIDE_LIMIT, may_grow
from fusesolve.ops.definition import OpKind

# Kinds by names of their own: members of an enumeration take long to look up in inner loops.
_CONTRACTION = OpKind.CONTRACTION
_ELEMENTWISE = OpKind.ELEMENTWISE
_MOVEMENT = OpKind.MOVEMENT
_OPAQUE = OpKind.OPAQUE
_REDUCE = OpKind.REDUCE

SETS_PER_ROOT = 3000  # groups tried from one operator before the space is cut, and says so
SETS_PER_ATTENTION = 6000  # the same from one pair of contractions: rotary embeddings of queries and keys multiply
_HEAVY = frozenset({OpKind.CONTRACTION, OpKind.WINDOW})
UNIT_LIMIT = 16  # operators of a unit
RETURN_LIMIT = 20  # operators of a set that is not convex and of all that lies on paths between its members
FEW_ROWS = 1024  # rows below which a kernel that needs whole rows may leave the device idle
HULL_LIMIT = 40  # operators between the two contractions of an attention


@dataclass(frozen=True, slots=True)
class Grown:
    """The groups grown from one start: nests, and the stretch of operators that was looked at."""

    nests: tuple[Nest, ...]
    low: int
    high: int
    cut: bool


class _Region(NamedTuple):
    """A set of operators as bit masks: itself, all that its members need, all that need them."""

    mask: int
    above: int
    below: int

    @property
    def reach(self) -> int:
        """Operators on data paths between members, the members included."""
        return self.above & self.below | self.mask

    def joined(self, other: "_Region") -> "_Region":
        """The union of two sets."""
        return _Region(self.mask | other.mask, self.above | other.above, self.below | other.below)


def chain_units(program: Program, separable: frozenset[int]) -> list[tuple[int, ...]]:
    """The unit of each operator: chains and diamonds of elementwise operators that are never separated.

    Operator v joins the units that make its large operands (of its own number of points) where these are elementwise
    over the same points, nothing but v reads what leaves them, v's result has no more bytes than any of them, and
    there is one such value (a chain) or one large value enters all of them (a diamond). A plan that separates such a
    region can let the kernel of an early part do the rest as well: it then writes, and later kernels read, no more
    bytes than before, and arithmetic only changes kernels. That is exact while these kernels are bound by bytes; a
    contraction's epilogue is not, so regions beside a contraction or window are taken apart again. Operators in
    `separable` stay single; a unit has at most UNIT_LIMIT operators.

    A reduction joins the chain that makes its operand where nobody else reads that and one large value enters it that
    has no more bytes than any value in it: the kernel of the reduction can do that chain, from the value that enters.
    """
    unit: list[tuple[int, ...]] = [(op.index,) for op in program.operators]
    for op in program.operators:
        if op.index not in separable:
            _join_operand(program, op, unit, separable)
            _join_producers(program, op, unit, separable)
    for members in [members for members in dict.fromkeys(unit) if _touches_contraction(program, members)]:
        for member in members:
            unit[member] = (member,)
    return unit


def _touches_contraction(program: Program, members: tuple[int, ...]) -> bool:
    """Whether a contraction or window feeds the operators or reads what they make."""
    near = {item for m in members for item in (*program.preds[m], *program.succs[m])}
    return len(members) > 1 and any(program.operators[item].kind in _HEAVY for item in near.difference(members))


def join_branches(program: Program, unit: list[tuple[int, ...]], separable: frozenset[int]) -> frozenset[int]:
    """Make a concat of many sources one unit with the branches that only it reads; returns the operators of such units.

    The branches are alike, so all of them or none are computed in place. Nothing else joins such a unit: its result is
    written, because each element of it tests every boundary.
    """
    alone: set[int] = set()
    for op in program.operators:
        if joins_many(op) and op.index not in separable:
            members = _branches(program, op, unit) - separable
            whole = tuple(sorted(members))
            for member in whole:
                unit[member] = whole
            alone |= members
    return frozenset(alone)


def _branches(program: Program, op: Operator, unit: list[tuple[int, ...]]) -> frozenset[int]:
    """The operator with all that it alone reads, upwards through elementwise operators and slices."""
    found = {op.index}
    stack = [op.index]
    while stack:
        for pred in program.preds[stack.pop()]:
            movable = program.operators[pred].kind in (_ELEMENTWISE, _MOVEMENT)
            kept = any(program.storage[value].required for value in program.operators[pred].writes)
            if pred not in found and movable and not kept and found.issuperset(program.succs[pred]):
                found.update(unit[pred])
                stack.extend(unit[pred])
    return frozenset(found)


def _join_producers(program: Program, op: Operator, unit: list[tuple[int, ...]], separable: frozenset[int]) -> None:
    """Grow the unit of `op` upwards, unit by unit."""
    while True:
        region = frozenset(unit[op.index])
        made = _region_above(program, region, op)
        if made is None or made & separable:
            return
        merged = region.union(*(unit[m] for m in made))
        single = len(_entries(program, region, op.points)) == 1 or len(_entries(program, merged, op.points)) == 1
        if len(merged) > UNIT_LIMIT or not single or not _is_closed(program, merged, op):
            return
        members = tuple(sorted(merged))
        for member in members:
            unit[member] = members


def _join_operand(program: Program, op: Operator, unit: list[tuple[int, ...]], separable: frozenset[int]) -> None:
    """Make a reduction one unit with the chain that makes its operand."""
    if op.kind is not _REDUCE or len(op.reads) != 1 or op.reads[0].barrier or op.reads[0].apart:
        return
    producer = program.storage[op.reads[0].storage].producer
    points = op.points * op.reduced
    if producer is None or producer in separable:
        return
    chain = frozenset(unit[producer])
    merged = chain | {op.index}
    made = [program.operators[m] for m in chain]
    if len(merged) > UNIT_LIMIT or any(m.kind is not _ELEMENTWISE or m.points != points for m in made):
        return
    entries = _entries(program, merged, points)
    least = min(program.storage[value].type.nbytes for m in made for value in m.writes)
    single = len(entries) == 1 and all(program.storage[value].type.nbytes <= least for value, _ in entries)
    if single and _is_closed(program, merged, op):
        members = tuple(sorted(merged))
        for member in members:
            unit[member] = members


def _region_above(program: Program, region: frozenset[int], op: Operator) -> frozenset[int] | None:
    """Producers of the large values that enter the region, None where they are not elementwise over its points."""
    if op.kind is not _ELEMENTWISE or op.points <= 1:
        return None
    result = program.storage[op.writes[0]].type.nbytes
    found: set[int] = set()
    for value, barrier in _entries(program, region, op.points):
        storage = program.storage[value]
        producer = storage.producer
        if producer is None or barrier or storage.required or storage.type.nbytes < result:
            return None
        above = program.operators[producer]
        if above.kind is not _ELEMENTWISE or above.points != op.points:
            return None
        found.add(producer)
    return frozenset(found) or None


def _entries(program: Program, region: frozenset[int], points: int) -> set[tuple[int, bool]]:
    """Large values read in the region and made outside, with whether a view in between is a barrier."""
    return {
        (read.storage, read.barrier)
        for member in region
        for read in program.operators[member].reads
        if program.storage[read.storage].type.size >= points and program.storage[read.storage].producer not in region
    }


def _is_closed(program: Program, region: frozenset[int], last: Operator) -> bool:
    """Whether only the result of `last` leaves the region."""
    return all(
        not program.storage[value].required and region.issuperset(program.storage[value].readers)
        for member in region
        if member != last.index
        for value in program.operators[member].writes
    )


class Grower:
    """Grows groups over a program; operators in `separable` are never kept in a chain.

    `left_out`: values that a set may leave to others because their readers outside lead back into it (0: all convex).
    """

    def __init__(self, program: Program, separable: frozenset[int] = frozenset(), left_out: int = 0) -> None:
        self.program = program
        self.left_out = left_out
        self._hulls: dict[int, bool] = {}
        self.ancestors, self.descendants = closure(program)
        self.unit = chain_units(program, separable)
        self.alone = join_branches(program, self.unit, separable)

    def from_root(self, root: int) -> Grown:
        """Groups whose smallest operator is `root`, the first of its unit; attention left out."""
        return self._grow(build_nest(self.program, self.unit[root]), floor=root)

    def exactly(self, members: Sequence[int]) -> Grown:
        """The one group of these operators, none where they are not convex or may not share a kernel."""
        region = self._region(members)
        nest = None if region.reach != region.mask else build_nest(self.program, tuple(members))
        nests = () if nest is None or not may_grow(nest.facts) else (nest,)
        return Grown(nests, members[0], members[-1], cut=False)

    def from_attention(self, first: int, second: int) -> Grown:
        """Groups that contain the attention of two contractions, none where they are no attention."""
        hull = self.hull(first, second)
        nest = None if hull is None else build_nest(self.program, hull)
        if nest is not None and nest.facts.attention and may_grow(nest.facts):
            return self._grow(nest, floor=0)
        looked = [m for item in range(first, second + 1) for m in self.unit[item]]
        return Grown((), min(looked), max(looked), cut=False)

    def hull(self, first: int, second: int) -> tuple[int, ...] | None:
        """The convex hull of two contractions in whole units, or None if it is too large or holds a third."""
        mask = self.descendants[first] & self.ancestors[second] | 1 << first | 1 << second
        if mask.bit_count() > HULL_LIMIT:
            return None
        members = sorted({part for item in _bits(mask) for part in self.unit[item]})
        operators = self.program.operators
        region = self._region(members)
        if len(members) > HULL_LIMIT or region.reach != region.mask:
            return None
        if sum(operators[m].kind is _CONTRACTION for m in members) != 2:
            return None
        return None if any(operators[m].kind is _OPAQUE for m in members) else tuple(members)

    def attention_pairs(self) -> Iterator[tuple[int, int]]:
        """Pairs of contractions, the second reachable from the first through a reduction."""
        for second, op in enumerate(self.program.operators):
            if op.kind is _CONTRACTION:
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
            if kind is _CONTRACTION:
                found.add(item)
            elif kind is not _OPAQUE:
                folded |= kind is _REDUCE
                stack.extend(preds[item])
        return sorted(found) if folded else []

    def _grow(self, seed: Nest, floor: int) -> Grown:
        attention = seed.facts.attention
        low, high = seed.members[0], seed.members[-1]
        start = self._region(seed.members)
        seen = {start.mask}
        queue = [(seed, start)]
        found: list[Nest] = []
        most = SETS_PER_ATTENTION if attention else SETS_PER_ROOT
        while queue and len(seen) <= most:
            nest, region = queue.pop()
            found.append(nest)
            for part in self._neighbours(nest.members):
                if part[0] < floor:
                    continue
                low, high = min(low, part[0]), max(high, part[-1])
                if nest.heads and not self._may_join(nest, part[0]):
                    continue  # `one-contraction`, before any work is done
                wider = region.joined(self._region(part))
                grown = None if wider.mask in seen else self._extended(nest, part, wider, seen)
                if grown is not None and grown.facts.attention == attention and may_grow(grown.facts):
                    queue.append((grown, wider))
        found.sort(key=lambda nest: (len(nest.members), nest.members))
        return Grown(tuple(found), low, high, bool(queue))

    def _extended(self, nest: Nest, part: tuple[int, ...], wider: "_Region", seen: set[int]) -> Nest | None:
        members = tuple(sorted((*nest.members, *part)))
        returning: frozenset[int] = frozenset()
        if wider.reach != wider.mask:
            returning = self._returning(wider.mask, members) if self.left_out and not nest.heads else returning
            if not 0 < len(returning) <= self.left_out or self._hull_wins(wider):
                return None
        seen.add(wider.mask)
        if self._reduces_beside(nest, part):
            return None
        found = build_nest(self.program, members)
        return replace(found, returning=returning) if returning else found

    def _hull_wins(self, region: "_Region") -> bool:
        """Whether the set and all that lies on paths between its members share a kernel, or are too many to say.

        That kernel reads no more than the set, computes what lies on the paths from values that it has, and leaves
        nothing to others; so the set alone is no candidate. Where it needs whole rows and has few of them it keeps few
        blocks busy, while the set, without the reduction on the path, does not: then the set stays.
        """
        hull = region.reach
        if hull.bit_count() > RETURN_LIMIT:
            return True
        if hull not in self._hulls:
            nest = build_nest(self.program, tuple(_bits(hull)))
            rows = prod(nest.extent[loop] for loop in set(nest.out[nest.span]) - nest.reduced)
            self._hulls[hull] = may_grow(nest.facts) and (not nest.reduced or rows >= FEW_ROWS)
        return self._hulls[hull]

    def _returning(self, mask: int, members: Iterable[int]) -> frozenset[int]:
        """Storage made in the set that someone outside reads whose results lead back into the set."""
        storage = self.program.storage
        return frozenset(
            value
            for member in members
            for value in self.program.operators[member].writes
            if any(not mask >> r & 1 and self.descendants[r] & mask for r in storage[value].readers)
        )

    def _reduces_beside(self, nest: Nest, part: tuple[int, ...]) -> bool:
        """Whether a set with this unit breaks `reduction-beside-contraction`; attention is not grown from less."""
        kinds = [self.program.operators[member].kind for member in part]
        contracts = bool(nest.heads) or _CONTRACTION in kinds
        return contracts and not nest.facts.attention and (nest.facts.reductions > 0 or _REDUCE in kinds)

    def _may_join(self, nest: Nest, item: int) -> bool:
        """Whether an operator may join a set with contractions: a further contraction shares an operand with one."""
        if self.program.operators[item].kind is not _CONTRACTION:
            return True
        return not nest.facts.attention and len(nest.heads) < SIDE_BY_SIDE_LIMIT and any(
            share_operand(self.program, nest.members[head], item) for head in nest.heads
        )

    def _region(self, members: Iterable[int]) -> "_Region":
        """The set as masks."""
        mask = above = below = 0
        for member in members:
            mask |= 1 << member
            above |= self.ancestors[member]
            below |= self.descendants[member]
        return _Region(mask, above, below)

    def _neighbours(self, members: Iterable[int]) -> list[tuple[int, ...]]:
        inside = set(members)
        if not self.alone.isdisjoint(inside):
            return []
        near: set[int] = set()
        for member in inside:
            near.update(self.program.preds[member])
            near.update(self.program.succs[member])
            near.update(self.program.siblings[member])
        return sorted({self.unit[item] for item in near - inside - self.alone})


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


def _bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
