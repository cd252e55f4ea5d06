"""`xla`: library epilogues and normalisations first, then producers by priority, then siblings."""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

from fusesolve.ops.definition import OpKind
from fusesolve.strategies.context import Context, Members
from fusesolve.strategies.xla_model import LAUNCH_S, Estimate

OPERAND_LIMIT = 96  # operands and results of a fusion
REDUCTION_LIMIT = 8  # reductions in one fusion
INSTRUCTION_LIMIT = 10_000

_FOLDS = frozenset({OpKind.REDUCE, OpKind.WINDOW})
_ALONE = frozenset({OpKind.CONTRACTION, OpKind.OPAQUE})


def fuse_by_priority(context: Context) -> list[Members]:
    """XLA's GPU fusion: a producer goes into all its users or into none, the one that saves most first.

    First the rewriters: contractions that read one left operand become one library call; any other contraction takes
    an addition of a row or of a matrix; a reduction over the innermost axis and the elementwise operator that reads
    both its result and its operand become one kernel (normalisations, and chains of them). Then priority fusion: a
    producer's priority is T(apart) - T(in all its users) by XLA's own model (`Estimate`); the greatest is fused, copied
    into every user, until none is positive. If one user cannot take it, it stays. Limits: OPERAND_LIMIT operands and
    results, REDUCTION_LIMIT reductions, INSTRUCTION_LIMIT instructions; a reduction is a producer only of elementwise
    work over its own result. Then siblings: fusions over one space that walk the same tensor become one with several
    results. Rules read in XLA fd2bea06, `priority_fusion.cc`, `gpu_fusible.cc`, and in fork d89fd87d,
    `multi_output_fusion.cc`; the rewriters are those that recorded partitions of XLA show. Left out: Triton's
    contractions and tile limits, and horizontal fusion (gone in the later fork).
    """
    fusion = _Fusion(context)
    fusion.merge_contractions()
    fusion.add_epilogues()
    fusion.join_normalisations()
    fusion.run()
    fusion.join_siblings()
    return [tuple(sorted(item.members)) for item in fusion.items.values()]


@dataclass(slots=True)
class _Item:
    """A fusion: its operators, the one whose result it writes (several after sibling fusion), and its kind."""

    members: frozenset[int]
    root: int
    sealed: bool = False  # a library call or an opaque kernel: neither producer nor consumer
    roots: tuple[int, ...] = ()


class _Fusion:
    """Items under fusion, and the queue of producers by what they save."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.estimate = Estimate(context)
        self.items = {
            i: _Item(frozenset({i}), i, sealed=context.kind(i) in _ALONE) for i in range(len(context.operators))
        }
        self.heap: list[tuple[float, int, int]] = []
        self.version: dict[int, int] = {}

    def merge_contractions(self) -> None:
        """Contractions of one shape of left operand become one item, if none needs another."""
        shared: dict[tuple[int, int], list[int]] = {}
        for index in self.items:
            operator = self.context.operators[index]
            if self.context.op(index) == "matmul" and operator.reads:
                shared.setdefault((operator.reads[0].storage, operator.reduced), []).append(index)
        ancestors, _ = self.context.reach
        for names in shared.values():
            first, *rest = names
            if any(ancestors[later] >> earlier & 1 for later in names for earlier in names):
                continue
            for other in rest:
                gone = self.items.pop(other)
                item = self.items[first]
                item.members |= gone.members
                item.roots = (*(item.roots or (item.root,)), gone.root)

    def add_epilogues(self) -> None:
        """Contractions take an elementwise addition that alone reads them."""
        for index, item in list(self.items.items()):
            if self.context.kind(index) is OpKind.CONTRACTION and len(item.members) == 1:
                root = index
                while (reader := self._only_reader(root)) is not None and self._is_added(root, reader):
                    self._absorb(index, reader)
                    root = reader

    def _is_added(self, index: int, reader: int) -> bool:
        operators = self.context.operators
        free = reader in self.items and self.context.op(reader) == "add"
        return free and operators[index].points == operators[reader].points

    def _only_reader(self, index: int) -> int | None:
        readers = self.context.succs[index]
        return readers[0] if len(readers) == 1 and not self.context.required(index) else None

    def _absorb(self, kept: int, reader: int) -> None:
        """The item `kept` takes the operator that reads it."""
        item = self.items[kept]
        del self.items[reader]
        item.members |= {reader}
        item.root = reader

    def join_normalisations(self) -> None:
        """Reductions and the full-size operators that read them become one item, chains of these too."""
        found: list[set[int]] = []
        for index in range(len(self.context.operators)):
            members = self._diamond(index)
            if members is None or any(m not in self.items or self.items[m].sealed for m in members):
                continue
            for other in [group for group in found if group & members]:
                members |= other
                found.remove(other)
            found.append(members)
        for members in found:
            root = max(members)
            if self._writes(members) == {root} and self.context.is_convex(members):
                for member in members:
                    del self.items[member]
                self.items[root] = _Item(frozenset(members), root)

    def _diamond(self, index: int) -> set[int] | None:
        """The reduction `index`, the operators of its size that follow, and the full-size one that ends them."""
        context = self.context
        operator = context.operators[index]
        if operator.kind is not OpKind.REDUCE or not operator.reads or not operator.reads[0].axes:
            return None
        if operator.reads[0].axes[-1].red < 0:
            return None
        members, last = {index}, index
        while (reader := self._only_reader(last)) is not None and context.is_pointwise(reader):
            members.add(reader)
            last = reader
            if context.operators[reader].points == operator.points * operator.reduced:
                return self._with_producers(members)
        return None

    def _with_producers(self, members: set[int]) -> set[int]:
        """And the pointwise operators whose readers are all in it."""
        context = self.context
        stack = sorted(members)
        while stack:
            for maker in context.preds[stack.pop()]:
                inside = members.issuperset(context.succs[maker]) and not context.required(maker)
                if maker not in members and inside and context.is_pointwise(maker):
                    members.add(maker)
                    stack.append(maker)
        return members

    def _writes(self, members: set[int]) -> set[int]:
        context = self.context
        return {m for m in members if context.required(m) or not members.issuperset(context.succs[m])}

    def run(self) -> None:
        """Priority fusion."""
        for name in self.items:
            self._push(name)
        while self.heap:
            _, name, version = heapq.heappop(self.heap)
            if self.version.get(name) != version or name not in self.items:
                continue
            near = self._fuse(name)
            for other in sorted(near):
                self._push(other)

    def users(self, name: int) -> list[int]:
        """Items that read the result of the item."""
        readers = set(self.context.succs[self.items[name].root])
        return [other for other, item in self.items.items() if other != name and not readers.isdisjoint(item.members)]

    def _push(self, name: int) -> None:
        self.version[name] = self.version.get(name, 0) + 1
        priority = self._priority(name)
        if priority is not None and priority > 0.0:
            heapq.heappush(self.heap, (-priority, name, self.version[name]))

    def _priority(self, name: int) -> float | None:
        """Seconds saved by fusing the producer into all its users; None where it may not be."""
        users = self.users(name)
        producer = self.items[name]
        if not users or self.context.required(producer.root) or not all(self._fusible(name, user) for user in users):
            return None
        apart = LAUNCH_S * (len(users) + 1) + self.estimate.seconds(producer.members, producer.root)
        fused = LAUNCH_S * len(users)
        for user in users:
            item = self.items[user]
            apart += self.estimate.seconds(item.members, item.root)
            fused += self.estimate.seconds(item.members | producer.members, item.root)
        return apart - fused

    def _fusible(self, name: int, user: int) -> bool:
        producer, consumer = self.items[name], self.items[user]
        if producer.sealed or consumer.sealed:
            return False
        members = producer.members | consumer.members
        kinds = [self.context.kind(m) for m in members]
        if any(self.context.kind(m) in _FOLDS for m in producer.members) and not self._is_epilogue(producer, consumer):
            return False
        reads, _ = self.context.touched(members)
        instructions = sum(self.context.operators[m].work.instructions for m in members)
        return (
            len(reads) + 1 <= OPERAND_LIMIT
            and sum(kind is OpKind.REDUCE for kind in kinds) <= REDUCTION_LIMIT
            and instructions <= INSTRUCTION_LIMIT
        )

    def _is_epilogue(self, producer: _Item, consumer: _Item) -> bool:
        """Elementwise work over the very result of a reduction (or a normalisation)."""
        context = self.context
        points = context.operators[producer.root].points
        return all(
            context.kind(m) is OpKind.ELEMENTWISE and context.operators[m].points == points for m in consumer.members
        )

    def _fuse(self, name: int) -> set[int]:
        """Copy the producer into its users; items whose priority may have changed are returned."""
        users = self.users(name)
        producer = self.items.pop(name)
        near = set(users)
        for user in users:
            item = self.items[user]
            item.members |= producer.members
        makers = {p for m in producer.members for p in self.context.preds[m]}
        makers |= {p for user in users for m in self.items[user].members for p in self.context.preds[m]}
        near |= {other for other, item in self.items.items() if item.root in makers}
        return near

    def join_siblings(self) -> None:
        """Fusions over one space that read the same tensor become one with several results."""
        for first, second in list(self._sibling_pairs()):
            if first in self.items and second in self.items and self._joinable(first, second):
                gone = self.items.pop(second)
                item = self.items[first]
                item.roots = (*(item.roots or (item.root,)), *(gone.roots or (gone.root,)))
                item.members |= gone.members

    def _sibling_pairs(self) -> Iterator[tuple[int, int]]:
        readers: dict[int, list[int]] = {}
        for name in sorted(self.items):
            if not self.items[name].sealed:
                item = self.items[name]
                reads = self.context.touched(item.members)[0]
                for storage in sorted(s for s in reads if self._is_large(s, item)):
                    readers.setdefault(storage, []).append(name)
        for names in readers.values():
            for place, first in enumerate(names):
                yield from ((first, second) for second in names[place + 1 :])

    def _is_large(self, storage: int, item: _Item) -> bool:
        """Whether the fusion walks the whole tensor once: a smaller one, read again and again, is no reason to join."""
        return self.context.program.storage[storage].type.size >= self._space(item)[0]

    def _joinable(self, first: int, second: int) -> bool:
        a, b = self.items[first], self.items[second]
        if self._space(a) != self._space(b) or len(self.context.touched(a.members | b.members)[0]) > OPERAND_LIMIT:
            return False
        return not self._depends(first, second) and not self._depends(second, first)

    def _space(self, item: _Item) -> tuple[int, int]:
        """Points and folded points of what the fusion computes."""
        operators = [self.context.operators[m] for m in item.members]
        folded = max((o.reduced for o in operators if o.kind is OpKind.REDUCE), default=1)
        root = self.context.operators[item.root]
        return root.points * folded if root.kind is OpKind.REDUCE else root.points, folded

    def _depends(self, first: int, second: int) -> bool:
        """Whether `second` needs what `first` writes, directly or through others."""
        maker = {root: name for name, item in self.items.items() for root in (item.roots or (item.root,))}
        stack, seen = [second], {second}
        while stack:
            item = self.items[stack.pop()]
            for member in item.members:
                for pred in self.context.preds[member]:
                    name = maker.get(pred)
                    if pred in item.members or name is None or name in seen:
                        continue
                    if name == first:
                        return True
                    seen.add(name)
                    stack.append(name)
        return False
