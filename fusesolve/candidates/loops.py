"""Loops: which dimensions of a set of operators are one loop, and what kernel shape that makes.

Every operator brings a loop per result atom and per reduction atom. An edge inside the set makes the producer's
result loops and the loops by which the consumer reads them one (`SAME`, `REDUCED`); a window or a shift keeps them
apart, and the producer is then computed in place, at the consumer's points. What remains decides everything: two
loops of one operator made equal (a diagonal) is a conflict; an operator with a loop that the spanning operator
lacks is a stray; reductions must share their reduced loops.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod

from fusesolve.access import AccessKind
from fusesolve.candidates.links import joins_many
from fusesolve.candidates.one_block import fits_block
from fusesolve.candidates.program import Operator, Program, Read
from fusesolve.candidates.siblings import heads_below, heads_served, shared_position
from fusesolve.group import GroupFacts, Template
from fusesolve.ops.definition import OpKind

# Kinds by names of their own: members of an enumeration take long to look up in inner loops.
_CONTRACTION = OpKind.CONTRACTION
_OPAQUE = OpKind.OPAQUE
_REDUCE = OpKind.REDUCE
_WINDOW = OpKind.WINDOW

_INDEX_ONLY = frozenset({OpKind.MOVEMENT, OpKind.GATHER, OpKind.GENERATE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Nest:
    """The loop nest of a set of operators.

    `out[i]`, `red[i]` are loop numbers of operator i (by position in `members`); `extent` the length of each
    loop. `inlined` are positions computed only at other operators' points; `span` is the position whose loops
    are the kernel's. `reduced` are the loops folded away. `stage[i]` counts reductions before operator i.
    `upstream` are positions that feed a contraction (its prologue). `edges` are (producer, consumer) inside the set.
    `returning`: storage whose readers outside lead back into the set, so that it must be written by others.
    """

    members: tuple[int, ...]
    position: Mapping[int, int]
    out: tuple[tuple[int, ...], ...]
    red: tuple[tuple[int, ...], ...]
    extent: Mapping[int, int]
    inlined: frozenset[int]
    span: int
    reduced: frozenset[int]
    stage: tuple[int, ...]
    upstream: frozenset[int]
    heads: tuple[int, ...]
    edges: tuple[tuple[int, int], ...]
    template: Template
    facts: GroupFacts
    returning: frozenset[int] = frozenset()

    def loops(self, position: int) -> frozenset[int]:
        """Result loops of the operator at `position`."""
        return frozenset(self.out[position])

    def indices(self, position: int, read: Read) -> list[int]:
        """The loop that each atom of an operand of the operator at `position` follows, -1 where it follows none."""
        own = (*self.out[position], *self.red[position])
        return [own[walk] if walk >= 0 else -1 for walk in read.walks]


def build_nest(program: Program, members: Sequence[int]) -> Nest:
    """The loop nest of `members` (operator numbers, ascending), with the facts that the rules judge."""
    return _NestBuilder(program, members).build()


class _NestBuilder:
    def __init__(self, program: Program, members: Sequence[int]) -> None:
        self.program = program
        self.members = tuple(members)
        self.ops: list[Operator] = [program.operators[m] for m in members]
        self.position = {m: i for i, m in enumerate(members)}
        self.base: list[int] = []
        self.lengths: list[int] = []  # extent of each loop
        for op in self.ops:
            self.base.append(len(self.lengths))
            self.lengths += op.out
            self.lengths += op.red
        self.ends = [*self.base[1:], len(self.lengths)]
        self.parent = list(range(len(self.lengths)))  # union-find over loops; the smallest of a class stands for it
        self.blocked = 0
        self.cut = 0  # of `blocked`: edges that one block does not carry either
        self.edges: list[tuple[int, int]] = []  # producer, consumer
        self.in_place: list[bool] = []  # whether the consumer of each edge computes the producer in place
        self.outside: dict[int, list[tuple[int, Read]]] = {}  # readers of storage made elsewhere
        self._connect()
        for readers in self.outside.values():
            for earlier, later in pairwise(readers):
                self._share(earlier, later)
        self.inlined = self._inlined()
        if all(op.kind is not _CONTRACTION for op in self.ops):
            self._adopt()

    def _connect(self) -> None:
        """Make loops one along the edges inside; note who reads what is made outside."""
        links, position, base = self.program.links, self.position, self.base
        for consumer, member in enumerate(self.members):
            target = base[consumer]
            for link in links[member]:
                producer = position.get(link.producer)
                if producer is None:
                    self.outside.setdefault(link.read.storage, []).append((consumer, link.read))
                    continue
                self.edges.append((producer, consumer))
                self.in_place.append(link.in_place)
                self.blocked += link.blocked
                self.cut += link.cut
                source = base[producer]
                for atom, walk in link.pairs:
                    self._join(source + atom, target + walk)

    def _find(self, loop: int) -> int:
        """The loop that stands for all that are one with this one."""
        parent = self.parent
        while parent[loop] != loop:
            parent[loop] = parent[parent[loop]]
            loop = parent[loop]
        return loop

    def _join(self, left: int, right: int) -> None:
        parent = self.parent
        while parent[left] != left:
            left = parent[left]
        while parent[right] != right:
            right = parent[right]
        if left < right:
            parent[right] = left
        else:
            parent[left] = right

    def _flatten(self) -> None:
        """Point every loop at the one that stands for it: a loop never points at a later one."""
        parent = self.parent
        for loop, above in enumerate(parent):
            parent[loop] = parent[above]

    def _share(self, left: tuple[int, Read], right: tuple[int, Read]) -> None:
        """Let two readers of one tensor walk it in one loop nest, unless an operator would then need a diagonal."""
        if left[1].barrier or right[1].barrier:
            return
        first, second = self.base[left[0]], self.base[right[0]]
        find = self._find
        pairs = [
            (first + a, second + b)
            for a, b in zip(left[1].walks, right[1].walks, strict=True)
            if a >= 0 and b >= 0 and find(first + a) != find(second + b)
        ]
        if pairs:
            self._join_unless_diagonal(pairs)

    def _adopt(self) -> None:
        """Give loops that nothing relates to the largest nest a loop of it, where one of that length is free.

        An explicit broadcast, or a second cast of one tensor, brings a loop of its own. Values flow by storage, so
        any pairing of loops of equal length is a kernel; the innermost are paired first.
        """
        free = [i for i in range(len(self.ops)) if i not in self.inlined]
        nests = {i: self._own_loops(i) for i in free}
        span = max(free, key=lambda i: (len(nests[i]), self.ops[i].points, i))
        if all(nest.keys() <= nests[span].keys() for nest in nests.values()):
            return
        for i in free:
            mine = self._own_loops(i)
            theirs = self._own_loops(span)
            for loop in [loop for loop in reversed(mine) if loop not in theirs]:
                spare = [o for o in reversed(theirs) if o not in mine and mine[loop] == theirs[o]]
                if spare:
                    self._join_unless_diagonal([(loop, spare[0])])
                    mine, theirs = self._own_loops(i), self._own_loops(span)

    def _own_loops(self, i: int) -> dict[int, int]:
        """Loops of an operator with their lengths, outer to inner; a window's own loops are left out."""
        op, base = self.ops[i], self.base[i]
        extents = op.out if op.kind is _WINDOW else (*op.out, *op.red)
        return {self._find(base + k): extent for k, extent in enumerate(extents)}

    def _join_unless_diagonal(self, pairs: list[tuple[int, int]]) -> None:
        before = list(self.parent)
        for a, b in pairs:
            self._join(a, b)
        if self._has_diagonal():
            self.parent = before

    def _has_diagonal(self) -> bool:
        """Whether an operator has two loops that have become one; all loops then point at the one that stands."""
        self._flatten()
        parent = self.parent
        return any(len(set(parent[base:end])) < end - base for base, end in zip(self.base, self.ends, strict=True))

    def build(self) -> Nest:
        self._flatten()
        loops = self.parent
        conflicts = 0
        out: list[tuple[int, ...]] = []
        red: list[tuple[int, ...]] = []
        own: list[frozenset[int]] = []
        for op, base, end in zip(self.ops, self.base, self.ends, strict=True):
            middle = base + len(op.out)
            out.append(tuple(loops[base:middle]))
            red.append(tuple(loops[middle:end]))
            every = frozenset(loops[base:end])
            conflicts += len(every) < end - base
            own.append(frozenset(out[-1]) if op.kind is _WINDOW else every)
        extent = dict(zip(loops, self.lengths, strict=True))
        self.out, self.red, self.extent, self.own = out, red, extent, own
        kinds = [op.kind for op in self.ops]
        heads = tuple(i for i, kind in enumerate(kinds) if kind is _CONTRACTION)
        folds = tuple(i for i, kind in enumerate(kinds) if kind is _REDUCE)
        reduced_sets = {frozenset(red[i]) for i in folds}
        upstream = self._upstream(heads)
        attention = len(heads) == 2 and self._is_attention(heads, folds, upstream)
        together = 0 if attention else self._side_by_side(heads)
        span = self._span(heads, attention)
        stray = 0 if attention else self._strays(heads, span, upstream)
        apart = self.blocked > 0 or len(reduced_sets) > 1 or stray > 0
        one_block = apart and not self.cut and not self.program.overwrites and fits_block(self.ops)
        template = Template.BLOCK if one_block else self._template(kinds, heads, folds, attention)
        branches = len(self.inlined) if joins_many(self.ops[span]) else 0  # all alike: they count as nothing
        facts = GroupFacts(
            size=len(self.ops) - branches,
            opaque=kinds.count(_OPAQUE),
            contractions=len(heads), reductions=len(folds), blocked=self.blocked,
            conflicts=conflicts, stray=stray, reduction_sets=len(reduced_sets),
            late_reductions=len(folds) if heads and not attention else 0,
            in_place=len(self.inlined) - branches, hazards=self._hazards() if self.program.overwrites else 0,
            side_by_side=together, attention=attention, one_block=one_block,
        )  # fmt: skip
        reduced = frozenset().union(*reduced_sets) if reduced_sets else frozenset()
        return Nest(
            members=self.members, position=self.position, out=tuple(out), red=tuple(red), extent=extent,
            inlined=self.inlined, span=span, reduced=reduced, stage=self._stages(folds), upstream=upstream,
            heads=heads, edges=tuple(self.edges),
            template=template, facts=facts,
        )  # fmt: skip

    def _hazards(self) -> int:
        """Reads of a value that the kernel overwrites, in other loops than those it is written in."""
        hazards = 0
        for i, op in enumerate(self.ops):
            for consumer, read in self.outside.get(self.program.overwrites.get(op.index, -1), ()):
                own = (*self.out[consumer], *self.red[consumer])
                walked = tuple(own[walk] if walk >= 0 else -1 for walk in read.walks)
                same = walked == self.out[i] and consumer not in self.inlined and not op.in_place
                hazards += not same and not (consumer == i and op.in_place)
        return hazards

    def _inlined(self) -> frozenset[int]:
        """Operators all of whose readers in the set compute them in place."""
        if not any(self.in_place):
            return frozenset()
        readers: list[list[tuple[int, bool]]] = [[] for _ in self.ops]
        for (producer, consumer), apart in zip(self.edges, self.in_place, strict=True):
            readers[producer].append((consumer, apart))
        found: set[int] = set()
        for i in reversed(range(len(self.ops))):
            if readers[i] and all(apart or consumer in found for consumer, apart in readers[i]):
                found.add(i)
        return frozenset(found)

    def _upstream(self, heads: tuple[int, ...]) -> frozenset[int]:
        """Operators that feed a contraction; between two contractions they are not a prologue."""
        if not heads:
            return frozenset()
        found: set[int] = set()
        below: set[int] = set()
        for producer, consumer in self.edges:
            if producer in heads or producer in below:
                below.add(consumer)
        for producer, consumer in reversed(self.edges):
            if (consumer in heads or consumer in found) and producer not in heads and producer not in below:
                found.add(producer)
        return frozenset(found)

    def _span(self, heads: tuple[int, ...], attention: bool) -> int:
        """The operator whose loops are the kernel's: the contraction, or the largest loop nest."""
        if heads:
            return heads[-1] if attention else heads[0]
        free = [i for i in range(len(self.ops)) if i not in self.inlined]
        return max(free, key=lambda i: (len(self.own[i]), prod(self.extent[loop] for loop in self.own[i]), i))

    def _strays(self, heads: tuple[int, ...], span: int, upstream: frozenset[int]) -> int:
        served = self._served(heads)
        strays = 0
        for i in range(len(self.ops)):
            if i == span or i in self.inlined or i in heads:
                continue
            whole = not heads or i in upstream
            for owner in served[i] or (span,):
                if not self.own[i].issubset(self.own[owner] if whole else self.out[owner]):
                    strays += 1
                    break
        return strays

    def _served(self, heads: tuple[int, ...]) -> Sequence[frozenset[int]]:
        """The contractions that each operator belongs to where there are several; nothing is said of a single one."""
        if len(heads) < 2:
            return [frozenset()] * len(self.ops)
        return heads_served(heads_below(len(self.ops), heads, self.edges), self.edges)

    def _side_by_side(self, heads: tuple[int, ...]) -> int:
        """How many contractions the kernel computes side by side: all of them, or 0 where they are not of one operand.

        They walk the shared operand in the same loops, fold the same loops, and none uses another's result; those that
        meet in an epilogue have the same result loops.
        """
        position = shared_position(self.ops, heads) if len(heads) > 1 else None
        if position is None:
            return 0
        own = {head: (*self.out[head], *self.red[head]) for head in heads}
        walks = {head: self.ops[head].reads[position].walks for head in heads}
        walked = {tuple(own[head][walk] if walk >= 0 else -1 for walk in walks[head]) for head in heads}
        below = heads_below(len(self.ops), heads, self.edges)
        meeting = [found for found in below if len(found) > 1]
        same = len(walked) == 1 and len({frozenset(self.red[head]) for head in heads}) == 1
        apart = all(len(below[head]) == 1 for head in heads)
        level = all(len({frozenset(self.out[head]) for head in found}) == 1 for found in meeting)
        return len(heads) if same and apart and level else 0

    def _is_attention(self, heads: tuple[int, ...], folds: tuple[int, ...], upstream: frozenset[int]) -> bool:
        """Two contractions with only pointwise work and reductions over the keys in between."""
        first, second = heads
        keys = frozenset(self.red[second])
        score = frozenset(self.out[first])
        if not keys or not keys < score or not folds:
            return False
        if not score - keys <= frozenset(self.out[second]):
            return False
        if any(frozenset(self.red[i]) != keys for i in folds):
            return False
        tail = frozenset(self.out[second])
        for i in range(len(self.ops)):
            loops = self.own[i]
            if i in heads or i in self.inlined:
                continue
            if i in upstream and (loops <= self.own[first] or loops <= self.own[second]):
                continue
            if not (loops <= score or loops <= tail):
                return False
        return self._reaches(first, second)

    def _reaches(self, first: int, second: int) -> bool:
        below = {first}
        for producer, consumer in self.edges:
            if producer in below:
                below.add(consumer)
        return second in below

    def _template(
        self, kinds: Sequence[OpKind], heads: tuple[int, ...], folds: tuple[int, ...], attention: bool
    ) -> Template:
        if _OPAQUE in kinds:
            return Template.OPAQUE
        if heads:
            return Template.ATTENTION if attention else Template.CONTRACTION
        if folds:
            return Template.ROW if self._rows_contiguous(folds) else Template.REDUCTION
        if _INDEX_ONLY.issuperset(kinds):
            return Template.MOVEMENT
        return Template.POINTWISE

    def _rows_contiguous(self, folds: tuple[int, ...]) -> bool:
        """True where a reduction's operand has a reduced atom innermost."""
        for i in folds:
            for read in self.ops[i].reads:
                if read.axes and read.axes[-1].kind is AccessKind.REDUCED:
                    return True
        return False

    def _stages(self, folds: tuple[int, ...]) -> tuple[int, ...]:
        stage = [0] * len(self.ops)
        folding = set(folds)
        for producer, consumer in self.edges if folds else ():
            stage[consumer] = max(stage[consumer], stage[producer] + (producer in folding))
        return tuple(stage)
