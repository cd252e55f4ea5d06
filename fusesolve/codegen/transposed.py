"""Transposed convolutions: one dense convolution for each residue of the result's position by the stride.

Positions `y` of one residue `(y + pad) % stride` use the same taps of the kernel. The residues are a batch, the rows of
a tile are positions of one residue, `stride` apart.

Where residues differ in their taps (groups, dilation, taps or extents that are no multiple of the stride) a thread has
a point and tests every tap.
"""

from collections.abc import Mapping
from dataclasses import replace

from fusesolve.codegen.contraction import Gemm, GemmLoops, Head, head_at
from fusesolve.codegen.kernel import EmittedKernel, Task
from fusesolve.codegen.pointwise import over_points
from fusesolve.codegen.scalars import UnsupportedError
from fusesolve.codegen.tensor_contraction import TensorGemm
from fusesolve.codegen.windows import is_regular

POINT_THREADS = 128  # threads of a block where each has a point


def strided_task(task: Task, head: Head) -> Task:
    """The task with every spatial loop of the contraction walked as `outer * stride + residue`.

    UnsupportedError where an axis is no single loop. Extents are multiples of the stride.
    """
    node, stride = head.node, head.node.attr("stride")
    assert isinstance(stride, tuple)
    shape = task.program.graph.type_of(node.outputs[0]).shape
    extent = dict(task.nest.extent)
    strided: dict[int, tuple[int, int, int]] = {}
    for loop, size, step in zip(_spatial_loops(task, shape, head.position), shape[2:], stride, strict=True):
        outer = max(extent) + 1
        extent |= {outer: size // step, outer + 1: step}
        strided[loop] = (outer, step, outer + 1)
    return replace(task, nest=replace(task.nest, extent=extent), strided=strided)


def _spatial_loops(task: Task, shape: tuple[int, ...], position: int) -> list[int]:
    op = task.program.operators[task.nest.members[position]]
    if len(op.out) < len(shape) - 2 or tuple(op.out[2 - len(shape) :]) != shape[2:]:
        raise UnsupportedError("a transposed convolution whose result is cut into parts has no source")
    return list(task.nest.out[position][2 - len(shape) :])


def emit_transposed(task: Task, *, tensor: bool) -> tuple[EmittedKernel, ...]:
    """The kernel of a transposed convolution: tiles, or a thread a point where residues do not share their taps."""
    head = head_at(task, task.nest.heads[0])
    shape = task.program.graph.type_of(head.node.outputs[0]).shape
    stride = head.node.attr("stride")
    assert isinstance(stride, tuple)
    whole = not any(extent % step for extent, step in zip(shape[2:], stride, strict=True))
    if whole and is_regular(head.node, head.types[1].shape):
        return (TransposedTensorGemm if tensor else TransposedGemm)(task).emit()
    source = task.source()
    order = task.nest.out[head.position]

    def body() -> None:
        for storage in task.kernel.writes:
            source.write_at(storage, frozenset(order))

    return (over_points(source, order, POINT_THREADS, 1, body),)


class TransposedGemm(Gemm):
    """Writes one transposed convolution on the FMA pipe: a contraction whose loops have other roles."""

    def __init__(self, task: Task) -> None:
        super().__init__(strided_task(task, head_at(task, task.nest.heads[0])))
        if self.split > 1:
            raise UnsupportedError("a split transposed convolution has no source")

    def roles(self) -> GemmLoops:
        """Residues are the batch; images and positions of one residue the rows; channels the columns."""
        strided: Mapping[int, tuple[int, int, int]] = self.task.strided
        op = self.task.program.operators[self.nest.members[self.head]]
        images = {loop for loop in self.nest.indices(self.head, op.reads[0]) if loop >= 0}
        out = self.nest.out[self.head]
        rows = [strided[loop][0] if loop in strided else loop for loop in out if loop in strided or loop in images]
        return GemmLoops(
            batch=tuple(inner for _, _, inner in strided.values()), m=tuple(rows),
            n=tuple(loop for loop in out if loop not in strided and loop not in images),
            k=self.nest.red[self.head],
        )  # fmt: skip


class TransposedTensorGemm(TransposedGemm, TensorGemm):
    """Writes one transposed convolution on the tensor pipe."""
