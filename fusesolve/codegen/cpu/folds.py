"""What row and column kernels share: reductions in stages, and the writes that each pass can make."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from fusesolve.codegen.cpu.source import CpuSource
from fusesolve.codegen.folds import Fold, make_fold
from fusesolve.codegen.kernel import Task
from fusesolve.codegen.lanes import Partial
from fusesolve.codegen.rows import accumulate
from fusesolve.codegen.scalars import UnsupportedError, compute_type
from fusesolve.codegen.windows import enter, product, sum_type
from fusesolve.ops import operand_types
from fusesolve.ops.definition import OpKind


class AnyOrder(Fold):
    """A fold of floats whose order is free, so that its loop becomes one of vectors with several partial results."""

    __slots__ = ()

    def join(self, left: str, right: str) -> str:
        """Two accumulators in one (values only)."""
        name = _ANY_ORDER.get(self.op)
        return super().join(left, right) if name is None else f"{name}({left}, {right})"


_ANY_ORDER: Mapping[str, str] = {
    "reduce_sum": "sum_any", "reduce_mean": "sum_any", "reduce_prod": "product_any", "reduce_max": "most",
    "reduce_min": "least",
}  # fmt: skip


class Stages:
    """The reductions of a task by how many come before them, and what each pass over the elements writes."""

    def __init__(self, task: Task) -> None:
        self.task = task
        nest, operators = task.nest, task.program.operators
        self.reduced = nest.reduced | {loop for head in nest.heads for loop in nest.red[head]}
        self.folds: dict[int, list[int]] = {}
        kinds = (OpKind.REDUCE, OpKind.CONTRACTION)
        for i, member in enumerate(nest.members):
            if operators[member].kind in kinds and i not in nest.inlined:
                self.folds.setdefault(nest.stage[i], []).append(i)
        for i, member in enumerate(nest.members):
            if operators[member].kind in kinds and nest.loops(i) & self.reduced and i not in nest.inlined:
                raise UnsupportedError("a reduction has elements along another one's reduced axes")

    def is_late(self, storage: int) -> bool:
        """Whether a write has elements along the reduced axes."""
        return bool(self.task.nest.loops(self.task.writer(storage)) & self.reduced)

    def stage_of(self, storage: int) -> int:
        """Reductions that come before a write."""
        return self.task.nest.stage[self.task.writer(storage)]

    def passes(self) -> list[tuple[int, list[int], list[int]]]:
        """(stage, positions of its folds, late writes that have all they need) of each pass over the elements."""
        found = []
        written: set[int] = set()
        last = max(self.folds, default=-1)
        for stage in range(last + 2):
            stores = [
                s for s in self.task.kernel.writes
                if s not in written and self.is_late(s) and (self.stage_of(s) <= stage or stage > last)
            ]  # fmt: skip
            written.update(stores)
            folds = self.folds.get(stage, [])
            if folds or stores:
                found.append((stage, folds, stores))
        return found

    def early_writes(self) -> list[int]:
        """Writes without elements along the reduced axes."""
        return [s for s in self.task.kernel.writes if not self.is_late(s)]

    def fold(self, i: int) -> Fold:
        """The fold of the reduction or contraction at a position."""
        graph, op = self.task.program.graph, self.task.program.operators[self.task.nest.members[i]]
        node = graph.nodes[op.node]
        result = graph.type_of(node.outputs[0])
        if op.kind is OpKind.REDUCE:
            made = make_fold(node.op, graph.type_of(node.reads[0]), result, op.reduced)
            floating = made.kind in ("f32", "f64")
            return AnyOrder(made.op, made.kind, made.count, made.result) if floating else made
        return Fold("reduce_sum", sum_type(operand_types(graph, node)), op.reduced, compute_type(result.dtype))


def take(source: CpuSource, task: Task, i: int, part: Partial) -> None:
    """Take one element into the fold of a reduction or contraction, at the current point of all loops."""
    if task.program.operators[task.nest.members[i]].kind is OpKind.CONTRACTION:
        _multiply(source, task, i, part)
    else:
        accumulate(source, task, i, part)


def _multiply(source: CpuSource, task: Task, i: int, part: Partial) -> None:
    """Add one product of a contraction."""
    graph = source.graph
    node = graph.nodes[task.program.operators[task.nest.members[i]].node]
    types = operand_types(graph, node)
    extents: Sequence[int] = types[1].shape[1:]
    if node.op == "matmul":
        extents = [types[0].shape[-2 if node.attr("transpose_a") else -1]]
    with ExitStack() as open_:
        found = product(source, node, source.coords(i), source.folded(i, extents))
        left = enter(source, open_, found.left, found.lead, types[0].shape)
        kind = part.fold.kind
        a = source.cast(source.operand(node.inputs[0], types[0], left), types[0], kind)
        b = source.cast(source.operand(node.inputs[1], types[1], found.right), types[1], kind)
        source.line(f"{part.total} = {part.total} + {a} * {b}")
