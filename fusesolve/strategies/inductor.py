"""`inductor`: inline at lowering, then fuse pairs of buffers by the bytes they share."""

from dataclasses import dataclass

from fusesolve.access import AccessKind
from fusesolve.ops.definition import OpKind
from fusesolve.strategies.context import Context, Members

REALIZE_READS = 4  # reads of a value with several users above which it gets a buffer
REALIZE_OPS = 30  # operators of its body above which it does
ACCUMULATED_READS = 8  # reads of a body above which it gets a buffer whoever uses it
FUSION_SIZE = 64  # operators of a fused node
WINDOW = 64  # nodes that may lie between two that are fused, and that are tried for a buffer
ROUNDS = 10
SAVING = 10  # bytes that a pair without a producer must share

_EXTERN = frozenset({OpKind.CONTRACTION, OpKind.OPAQUE, OpKind.WINDOW})


def fuse_pairs(context: Context) -> list[Members]:
    """Inductor's lowering and scheduler in default settings (no max-autotune, no benchmarking).

    Lowering: pointwise results are computed inside their readers; a buffer is made for outputs, reductions, operands
    and results of library calls (contractions, windows, opaque operators), for a value with several users that reads
    more than REALIZE_READS buffers or has more than REALIZE_OPS operators, and above ACCUMULATED_READS reads.
    Scheduler: up to ROUNDS rounds; pairs of nodes that share a buffer, at most WINDOW apart, in order of (same kind,
    bytes shared, nearness), fused where sizes agree, no cycle arises and the result has at most FUSION_SIZE operators.
    Rules read in torch 2.13.0, `_inductor/scheduler.py`, `choices.py`, `ir.py`, `config.py`. Left out: templates and
    their epilogue rule (off by default), mix-order reductions, combo kernels (off), the reorder round after the last.
    """
    nodes = _Lowering(context).nodes()
    return _Scheduler(context, nodes).run()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Node:
    """A scheduler node: its operators, size (`numel`, `rnumel`), buffers, and place in the original order.

    `order`: which axes of its operand a reduction keeps and folds, in order; `()` for pointwise nodes.
    """

    members: frozenset[int]
    numel: int
    rnumel: int
    order: tuple[AccessKind, ...]
    reads: frozenset[int]
    writes: frozenset[int]
    moved: frozenset[int]  # buffers that it reads by another index than the loop's
    extern: bool
    first: int
    last: int


class _Lowering:
    """`bodies[i]`: the operators computed for one element of operator i; `real`: operators with a buffer."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.real: set[int] = set()
        self.bodies: list[frozenset[int]] = []
        for index in range(len(context.operators)):
            inlined = (self.bodies[p] for p in context.preds[index] if p not in self.real)
            self.bodies.append(frozenset({index}).union(*inlined))
            if self._realize(index):
                self.real.add(index)

    def _realize(self, index: int) -> bool:
        context, readers = self.context, self.context.succs[index]
        if context.required(index) or not readers or not context.is_pointwise(index):
            return True
        if context.op(index) == "concat" or any(context.kind(r) in _EXTERN for r in readers):
            return True
        reads = len(context.touched(self.bodies[index])[0])
        shared = len(readers) > 1 and (reads > REALIZE_READS or len(self.bodies[index]) > REALIZE_OPS)
        return shared or reads > ACCUMULATED_READS

    def nodes(self) -> list[_Node]:
        """One node a buffer, in order."""
        return [self._node(place, index) for place, index in enumerate(sorted(self.real))]

    def _node(self, place: int, index: int) -> _Node:
        context = self.context
        operator, body = context.operators[index], self.bodies[index]
        extern = operator.kind in _EXTERN
        reads = {r.storage for m in body for r in context.operators[m].reads if context.made_in(r) not in body}
        moved = {
            r.storage for m in body for r in context.operators[m].reads
            if not (context.kind(m) is OpKind.ELEMENTWISE or context.kind(m) is OpKind.REDUCE)
        }  # fmt: skip
        return _Node(
            members=body, numel=operator.points, rnumel=operator.reduced if operator.kind is OpKind.REDUCE else 1,
            order=tuple(axis.kind for axis in operator.reads[0].axes) if operator.kind is OpKind.REDUCE else (),
            reads=frozenset(reads), writes=frozenset(operator.writes), moved=frozenset(moved), extern=extern,
            first=place, last=place,
        )  # fmt: skip


class _Scheduler:
    def __init__(self, context: Context, nodes: list[_Node]) -> None:
        self.context = context
        self.nodes = dict(enumerate(nodes))

    def run(self) -> list[Members]:
        """Groups after at most ROUNDS rounds."""
        for _ in range(ROUNDS):
            if not self._round():
                break
        return [tuple(sorted(node.members)) for node in self.nodes.values()]

    def _round(self) -> bool:
        """Fuse pairs by score; a node that was fused in this round goes on under its new name."""
        renamed: dict[int, int] = {}
        fused = False
        for first, second in self._pairs():
            a, b = _follow(renamed, first), _follow(renamed, second)
            if a == b or not self._may_fuse(self.nodes[a], self.nodes[b]) or self._cycle(a, b):
                continue
            self.nodes[a] = _fuse(self.nodes[a], self.nodes.pop(b))
            renamed[b] = a
            fused = True
        return fused

    def _pairs(self) -> list[tuple[int, int]]:
        """Pairs that share a buffer and may fuse, best score first."""
        users: dict[int, list[int]] = {}
        for name, node in self.nodes.items():
            for buffer in sorted(node.reads | node.writes):
                users.setdefault(buffer, []).append(name)
        found: set[tuple[int, int]] = set()
        for names in users.values():
            for place, first in enumerate(names):
                found.update((first, second) for second in names[place + 1 : place + 1 + WINDOW])
        legal = [pair for pair in found if self._may_fuse(self.nodes[pair[0]], self.nodes[pair[1]])]
        return sorted(legal, key=lambda pair: (*(-part for part in self._score(*pair)), pair))

    def _score(self, first: int, second: int) -> tuple[int, int, int]:
        a, b = self.nodes[first], self.nodes[second]
        return int((a.rnumel > 1) == (b.rnumel > 1)), self._shared(a, b), -_distance(a, b)

    def _shared(self, a: _Node, b: _Node) -> int:
        common = (a.reads | a.writes) & (b.reads | b.writes)
        return sum(self.context.bytes_of(buffer) for buffer in common)

    def _may_fuse(self, a: _Node, b: _Node) -> bool:
        if a.extern or b.extern or len(a.members | b.members) > FUSION_SIZE or not _sizes_agree(a, b):
            return False
        if a.writes & b.reads or b.writes & a.reads:
            return not (a.writes & b.moved or b.writes & a.moved)
        return self._shared(a, b) >= SAVING and _distance(a, b) <= WINDOW

    def _cycle(self, first: int, second: int) -> bool:
        """Whether another node lies on a path between the two."""
        return self._leads(first, second) or self._leads(second, first)

    def _leads(self, first: int, second: int) -> bool:
        maker = {buffer: name for name, node in self.nodes.items() for buffer in node.writes}
        stack = [n for b in self.nodes[second].reads if (n := maker.get(b)) is not None and n not in (first, second)]
        seen = set(stack)
        while stack:
            node = self.nodes[stack.pop()]
            for buffer in node.reads:
                name = maker.get(buffer)
                if name == first:
                    return True
                if name is not None and name not in seen and name != second:
                    seen.add(name)
                    stack.append(name)
        return False


def _follow(renamed: dict[int, int], name: int) -> int:
    while name in renamed:
        name = renamed[name]
    return name


def _distance(a: _Node, b: _Node) -> int:
    return max(a.first - b.last, b.first - a.last, 0)


def _sizes_agree(a: _Node, b: _Node) -> bool:
    if (a.rnumel > 1) == (b.rnumel > 1):
        return (a.numel, a.rnumel, a.order) == (b.numel, b.rnumel, b.order)
    reduction, pointwise = (a, b) if a.rnumel > 1 else (b, a)
    return pointwise.numel in (reduction.numel, reduction.numel * reduction.rnumel)


def _fuse(a: _Node, b: _Node) -> _Node:
    reduction = a if a.rnumel > 1 else b
    written = a.writes | b.writes
    return _Node(
        members=a.members | b.members, numel=reduction.numel, rnumel=reduction.rnumel,
        order=reduction.order, reads=(a.reads | b.reads) - written, writes=written, moved=a.moved | b.moved,
        extern=False, first=min(a.first, b.first), last=max(a.last, b.last),
    )  # fmt: skip
