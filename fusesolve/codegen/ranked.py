"""Sorting along one axis by counting: a point's place in its row is how many elements come before it.

A thread reads the whole row for each of its points, so a row of n elements costs n * n compares: meant for the short
rows of a router. Equal elements keep their order; NaN is the greatest.
"""

from fusesolve.codegen.affine import Affine, Var, variable
from fusesolve.codegen.kernel import EmittedKernel, Task, TaskSource, ceil_div
from fusesolve.codegen.moves import axis_of
from fusesolve.codegen.scalars import UnsupportedError, compute_type
from fusesolve.codegen.values import Index
from fusesolve.graph import Node

RANKED = frozenset({"topk", "argsort"})


def emit_ranked(task: Task) -> tuple[EmittedKernel, ...]:
    """The kernel of one `topk` or `argsort`; UnsupportedError for every other opaque operator."""
    graph = task.program.graph
    nodes = [graph.nodes[task.program.operators[member].node] for member in task.nest.members]
    if len(nodes) != 1 or nodes[0].op not in RANKED:
        raise UnsupportedError("opaque groups have no source")
    return (_Ranked(task, nodes[0]).emit(),)


class _Ranked:
    """Writes the kernel of one operator that orders the elements of rows."""

    def __init__(self, task: Task, node: Node) -> None:
        self.node = node
        self.kind = task.program.graph.type_of(node.reads[0])
        self.axis = axis_of(node)
        self.source: TaskSource = task.source()
        self.threads, self.per_thread = task.tile("threads", 128), task.tile("per_thread", 1)
        descending = node.attr("largest") if node.op == "topk" else node.attr("descending")
        self.sign = ">" if descending else "<"

    def emit(self) -> EmittedKernel:
        """Every point of the operand counts its place and stores itself there."""
        source, points, block = self.source, self.kind.size, self.threads * self.per_thread
        source.task.check_range(points + block)
        source.line(f"p0 = u32({source.block_number} * u32({block}) + u32(cuda.threadIdx.x))")
        with source.block(f"for e in range({self.per_thread}):"):
            source.line(f"p = u32(p0 + u32(e) * u32({self.threads}))")
            with source.block(f"if p < u32({points}):"):
                self._point(self._index("p"))
        return source.emitted(ceil_div(points, block), self.threads)

    def _index(self, flat: str) -> Index:
        """The operand's index at a flat position."""
        found: list[Affine] = []
        step = self.kind.size
        for extent in self.kind.shape:
            step //= extent
            whole = flat if step == 1 else f"{flat} // u32({step})"
            name = self.source.value(f"u32({whole} % u32({extent}))", "t")
            found.append(variable(Var(name, extent)))
        return tuple(found)

    def _point(self, index: Index) -> None:
        source, node, extent = self.source, self.node, self.kind.shape[self.axis]
        mine = source.at(node.reads[0], index)
        place = source.index(index[self.axis])
        rank = source.value("u32(0)", "r")
        with source.loops((extent,)) as (other,):
            where = (*index[: self.axis], other, *index[self.axis + 1 :])
            theirs = source.at(node.reads[0], where)
            with source.block(f"if {self._before(theirs, source.index(other), mine, place)}:"):
                source.line(f"{rank} = u32({rank} + u32(1))")
        kept = source.graph.type_of(node.outputs[0]).shape[self.axis]
        target = (*index[: self.axis], variable(Var(rank, kept)), *index[self.axis + 1 :])
        with source.block(f"if {rank} < u32({kept}):"):
            for name, text in zip(node.outputs[::-1], (f"i64({place})", mine), strict=False):
                if source.where[name] in source.arrays:
                    source.store(source.where[name], target, text)

    def _before(self, theirs: str, their_place: str, mine: str, place: str) -> str:
        """Whether another element comes before this one."""
        earlier = f"{their_place} < {place}"
        better, equal = f"{theirs} {self.sign} {mine}", f"{theirs} == {mine}"
        if compute_type(self.kind.dtype) in ("f32", "f64"):
            a, b = (theirs, mine) if self.sign == ">" else (mine, theirs)
            better = f"({better} or ({a} != {a} and {b} == {b}))"
            equal = f"({equal} or ({theirs} != {theirs} and {mine} != {mine}))"
        return f"{better} or ({equal} and {earlier})"
