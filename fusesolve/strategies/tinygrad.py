"""`tinygrad`: every producer is computed inside its readers unless a rule keeps its buffer."""

from fusesolve.ops.definition import OpKind
from fusesolve.strategies.context import Context, Members

BUFFER_LIMIT = 3  # buffers that an inlined body may read

_FOLDS = frozenset({OpKind.REDUCE, OpKind.CONTRACTION, OpKind.WINDOW})


def inline_by_default(context: Context) -> list[Members]:
    """The schedule of tinygrad: a kernel for each buffer that is kept, with all that is computed inside it.

    A producer whose one reader walks the same range is part of that reader. Where readers walk other ranges, the
    producer is computed again in each of them, unless its body reads more than BUFFER_LIMIT buffers or a reduction in
    it reads a buffer: then the buffer is kept. Outputs and opaque operators are kept. A contraction is a product and a
    sum, so both sides of it take pointwise work. Rules read in tinygrad a9069c17, `schedule/rangeify.py`. Left out:
    reductions split over the grid above a ratio of 32768, and devices' buffer limits.
    """
    inlining = _Inlining(context)
    return [inlining.body(index) for index in range(len(context.operators)) if index in inlining.kept]


class _Inlining:
    """`kept`: operators whose result has a buffer. `bodies`: what is computed for one element of each operator."""

    def __init__(self, context: Context) -> None:
        self.context = context
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

    def _keep(self, index: int) -> bool:
        context = self.context
        readers = context.succs[index]
        if context.required(index) or not readers or context.kind(index) is OpKind.OPAQUE:
            return True
        if any(context.kind(reader) is OpKind.OPAQUE for reader in readers):
            return True
        if len(readers) == 1 and self._same_range(index, readers[0]):
            return False
        reads, _ = context.touched(self.bodies[index])
        return len(reads) > BUFFER_LIMIT or any(context.kind(m) in _FOLDS for m in self.bodies[index])

    def _same_range(self, index: int, reader: int) -> bool:
        """Whether the reader needs each element once: same points, or it folds over them."""
        producer, consumer = self.context.operators[index], self.context.operators[reader]
        if consumer.kind is OpKind.REDUCE:
            folded = any(self.context.kind(m) in _FOLDS for m in self.bodies[index])
            return producer.points == consumer.points * consumer.reduced and not folded
        return self.context.is_pointwise(reader) and producer.points == consumer.points
