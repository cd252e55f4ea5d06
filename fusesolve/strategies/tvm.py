"""`tvm`: operators join their post-dominator where the classes of the operators between them allow it."""

from collections.abc import Callable
from enum import IntEnum

from fusesolve.access import AccessKind
from fusesolve.ops.definition import OpKind
from fusesolve.strategies.context import Context, Members

DEPTH_LIMIT = 256  # relax.FuseOps.max_depth


class Pattern(IntEnum):
    """Classes of operators, from the easiest to fuse to the hardest."""

    ELEMENTWISE = 0
    BROADCAST = 1
    INJECTIVE = 2
    REDUCE = 3
    OUT_ELEMENTWISE = 4  # heavy, but elementwise work may follow in the same kernel
    OPAQUE = 8


_BY_KIND = {
    OpKind.MOVEMENT: Pattern.INJECTIVE, OpKind.GATHER: Pattern.INJECTIVE, OpKind.GENERATE: Pattern.BROADCAST,
    OpKind.REDUCE: Pattern.REDUCE, OpKind.CONTRACTION: Pattern.OUT_ELEMENTWISE, OpKind.WINDOW: Pattern.OUT_ELEMENTWISE,
}  # fmt: skip


def fuse_dominated(context: Context) -> list[Members]:
    """TVM's FuseOps: merge each operator with its immediate post-dominator and all that lies between.

    Three phases: heavy operators take elementwise followers first, then injective ones merge, then what is left. The
    classes of all paths must be in order (elementwise < broadcast < injective < reduce < heavy < opaque); never two
    heavy operators; a reduction is never a producer; graph outputs are never inside; at most DEPTH_LIMIT operators.
    No costs, no operator twice. Rules read in TVM 5d4dc872, `src/relax/transform/fuse_ops.cc`; that a mean takes
    followers, broadcasts among them, is what partitions recorded from TVM 0.27 show.
    """
    return _FuseOps(context).run()


class _FuseOps:
    def __init__(self, context: Context) -> None:
        self.context = context
        count = len(context.operators)
        self.pattern = [_pattern(context, i) for i in range(count)]
        self.leader = list(range(count))
        self.size = [1] * count
        self.parent: list[int | None] = [None] * count
        self.path = [Pattern.OPAQUE] * count  # hardest class on the way to the post-dominator
        self.depth = [0] * count
        for index in reversed(range(count)):
            self._dominate(index)

    def run(self) -> list[Members]:
        """Groups after three phases, nodes visited in the order of the graph."""
        order = sorted(range(len(self.leader)), key=lambda index: self.context.operators[index].node)
        for phase in range(3):
            for index in order:
                self._visit(index, phase)
        found: dict[int, list[int]] = {}
        for index in range(len(self.leader)):
            found.setdefault(self._find(index), []).append(index)
        return [tuple(members) for members in found.values()]

    def _dominate(self, index: int) -> None:
        """Immediate post-dominator: the lowest common one of all readers, none for outputs."""
        readers = self.context.succs[index]
        if self.context.required(index) or not readers:
            return
        found: int | None = readers[0]
        hardest = self._edge(index, readers[0])
        for reader in readers[1:]:
            hardest = max(hardest, self._edge(index, reader))
            found, hardest = self._common(found, reader, hardest)
        self.parent[index], self.path[index] = found, hardest
        self.depth[index] = 0 if found is None else self.depth[found] + 1

    def _common(self, left: int | None, right: int | None, hardest: Pattern) -> tuple[int | None, Pattern]:
        while left != right:
            if left is None or right is None:
                return None, Pattern.OPAQUE
            if self.depth[left] >= self.depth[right]:
                hardest = max(hardest, self.path[left])
                left = self.parent[left]
            else:
                hardest = max(hardest, self.path[right])
                right = self.parent[right]
        return left, hardest

    def _edge(self, producer: int, reader: int) -> Pattern:
        """The reader's class; a broadcast operator is elementwise in operands of its own shape."""
        if self.pattern[reader] is not Pattern.BROADCAST:
            return self.pattern[reader]
        same = self.context.operators[producer].points == self.context.operators[reader].points
        return Pattern.ELEMENTWISE if same else Pattern.BROADCAST

    def _find(self, index: int) -> int:
        while self.leader[index] != index:
            self.leader[index] = self.leader[self.leader[index]]
            index = self.leader[index]
        return index

    def _visit(self, index: int, phase: int) -> None:
        sink, root = self.parent[index], self._find(index)
        own = self.pattern[root]
        if sink is None or own is Pattern.OPAQUE or self._find(sink) == root:
            return
        if self.size[root] + self.size[self._find(sink)] > DEPTH_LIMIT:
            return
        path = self.path[index]
        if own is Pattern.OUT_ELEMENTWISE:
            if phase == 0 and path <= Pattern.BROADCAST:
                self._try(index, sink, lambda kind, last: kind <= Pattern.BROADCAST)
        elif own <= Pattern.BROADCAST:
            if path <= Pattern.REDUCE:
                self._try(index, sink, _light_path)
        elif own is Pattern.INJECTIVE and phase == 1:
            self._try(index, sink, lambda kind, last: kind <= Pattern.INJECTIVE)

    def _try(self, source: int, sink: int, fits: Callable[[Pattern, bool], bool]) -> None:
        between, stack = {source}, list(self.context.succs[source])
        while stack:
            item = stack.pop()
            if item in between:
                continue
            if not fits(self.pattern[self._find(item)], item == sink):
                return
            between.add(item)
            if item != sink:
                stack.extend(self.context.succs[item])
        for item in sorted(between - {sink}):
            self._join(item, sink)

    def _join(self, item: int, sink: int) -> None:
        child, kept = self._find(item), self._find(sink)
        if child == kept:
            return
        self.leader[child] = kept
        self.size[kept] += self.size[child]
        self.pattern[kept] = max(self.pattern[kept], self.pattern[child])


def _light_path(kind: Pattern, last: bool) -> bool:
    return kind is not Pattern.OPAQUE if last else kind <= Pattern.INJECTIVE


def _pattern(context: Context, index: int) -> Pattern:
    """The class of an operator; a mean is a sum and a division in one function, so work may follow it."""
    operator = context.operators[index]
    if context.op(index) == "reduce_mean":
        return Pattern.OUT_ELEMENTWISE
    if operator.kind is not OpKind.ELEMENTWISE:
        return _BY_KIND.get(operator.kind, Pattern.OPAQUE)
    kinds = {axis.kind for read in operator.reads for axis in read.axes}
    whole = all(read.elements == operator.points for read in operator.reads)
    return Pattern.ELEMENTWISE if whole and AccessKind.BROADCAST not in kinds else Pattern.BROADCAST
