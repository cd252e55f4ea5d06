"""`tinygrad`: every producer is computed inside its readers unless a rule keeps its buffer."""

from fusesolve.ops.definition import OpKind
from fusesolve.strategies.context import Context, Members

BUFFER_LIMIT = 3  # buffers that an inlined body may read

_FOLDS = frozenset({OpKind.REDUCE, OpKind.CONTRACTION, OpKind.WINDOW})


def inline_by_default(context: Context) -> list[Members]:
    """The schedule of tinygrad: a kernel for each buffer that is kept, with all that is computed inside it.

    A producer whose readers all run in the same loops is part of them. Where they run in different loops, the
    producer is computed again in each of them, unless its body reads more than BUFFER_LIMIT buffers or a reduction in
    it reads a buffer: then the buffer is kept. Outputs and opaque operators are kept. A contraction is a product and a
    sum, so both sides of it take pointwise work. Rules read in tinygrad a9069c17, `schedule/rangeify.py`. Left out:
    reductions split over the grid above a ratio of 32768, and devices' buffer limits.
    """
    inlining = _Inlining(context)
    return [inlining.body(index) for index in range(len(context.operators)) if index in inlining.kept]


class _Inlining:
    """`kept`: operators whose result has a buffer. `bodies`: what is computed for one element of each operator.

    `range`: the operator whose loops an operator runs in, itself where its readers run in different ones.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self.range = list(range(len(context.operators)))
        for index in reversed(range(len(context.operators))):
            self.range[index] = self._range(index)
        self.kept: set[int] = set()
        self.bodies: list[frozenset[int]] = []
        for index in range(len(context.operators)):
            inlined = (self.bodies[p] for p in context.preds[index] if p not in self.kept)
            self.bodies.append(frozenset({index}).union(*inlined))
            if self._keep(index):
                self.kept.add(index)

    def body(self, index: int) -> Members:
        """Operators of the kernel that makes the buffer of `index`."""
        return tuple(sorted(self.bodies[index]))

    def _range(self, index: int) -> int:
        readers = self.context.succs[index]
        if self.context.required(index) or not readers:
            return index
        found = {self._range_in(index, reader) for reader in readers}
        return found.pop() if len(found) == 1 else index

    def _range_in(self, index: int, reader: int) -> int:
        """The loops in which the reader walks this operand: its own, a reduction's over the operand, or new ones."""
        producer, consumer = self.context.operators[index], self.context.operators[reader]
        if self.context.is_pointwise(reader) and producer.points == consumer.points:
            return self.range[reader]
        folds = consumer.kind is OpKind.REDUCE and producer.points == consumer.points * consumer.reduced
        return reader if folds else index

    def _keep(self, index: int) -> bool:
        context = self.context
        readers = context.succs[index]
        if context.required(index) or not readers or context.kind(index) is OpKind.OPAQUE:
            return True
        if any(context.kind(reader) is OpKind.OPAQUE for reader in readers):
            return True
        folded = any(context.kind(m) in _FOLDS for m in self.bodies[index])
        if self.range[index] != index and not (folded and any(context.kind(r) in _FOLDS for r in readers)):
            return False
        return folded or len(context.touched(self.bodies[index])[0]) > BUFFER_LIMIT
