"""Row and reduction groups: one kernel, or two where a reduction of one pass is split over blocks.

In a split each block walks a chunk of a row; partial results go to a workspace, and a second kernel joins them and
computes what follows.
"""

from fusesolve.codegen.kernel import EmittedKernel, Task, Workspace, ceil_div
from fusesolve.codegen.lanes import join_lanes
from fusesolve.codegen.pointwise import over_points
from fusesolve.codegen.rows import Held, RowKernel, RowShape, fold_of, row_shape, start_fold
from fusesolve.codegen.scalars import UnsupportedError


def emit_rows(task: Task) -> tuple[EmittedKernel, ...]:
    """The kernels of a row or reduction group: one, or two where it is split."""
    shape = row_shape(task)
    if shape.split > 1:
        return _SplitRows(task, shape).emit()
    record = RowKernel(task, shape, Held(), planned=False)
    record.emit()
    return (RowKernel(task, shape, record.held, planned=True).emit(),)


class _SplitRows:
    """A reduction of one pass, each row cut into chunks: partial results, then one thread per row joins them."""

    def __init__(self, task: Task, shape: RowShape) -> None:
        self.task = task
        self.shape = shape
        self.inner = RowKernel(task, shape, Held(), planned=False)
        self.source = self.inner.source
        self.source.workspace = "w0"

    def emit(self) -> tuple[EmittedKernel, ...]:
        """The kernel of the partial results, and the one that joins them."""
        stages = self.inner.stages()
        folds = stages.get(0, [])
        kinds = {fold_of(self.task, i).kind for i in folds}
        if set(stages) != {0} or len(kinds) != 1 or any(fold_of(self.task, i).indexed for i in folds):
            raise UnsupportedError("only sums and extrema of one type and one pass can be split over blocks")
        stores = [s for s in self.task.kernel.writes if self.inner.is_late(s)]
        if any(self.task.nest.stage[self.task.writer(s)] for s in stores):
            raise UnsupportedError("a split reduction is followed by elements of its row")
        space = Workspace(size=len(folds) * self.shape.split * self.shape.rows, kind=kinds.pop())
        return self._partials(folds, stores, space), self._joined(folds, stores)

    def _partials(self, folds: list[int], stores: list[int], space: Workspace) -> EmittedKernel:
        source, shape, team = self.source, self.shape, self.shape.team
        place = self.inner.begin()
        blocks = ceil_div(shape.rows, team.rows)
        parts = [start_fold(self.source, self.task, i) for i in folds]
        source.line(f"j = u32(part * u32({shape.chunk}) + lane)")
        source.line(f"end = min(u32((part + u32(1)) * u32({shape.chunk})), u32({shape.length}))")
        with source.block("while j < end:"):
            self.inner.element(folds, parts, stores)
            source.line(f"j = u32(j + u32({team.lanes}))")
        join_lanes(source, team, parts)
        with source.block(f"if {self.inner.owner()}:"):
            for n, part in enumerate(parts):
                start = n * shape.split
                source.line(f"w0[(u32({start}) + part) * u32({shape.rows}) + row] = {part.total}")
        source.unravel("row", shape.row_order, place, source.depth)
        return source.emitted(blocks * shape.split, team.threads, workspace=space)

    def _joined(self, folds: list[int], stores: list[int]) -> EmittedKernel:
        task, shape = self.task, self.shape
        source = task.source(workspace=True)
        rest = [s for s in task.kernel.writes if s not in stores]

        def body() -> None:
            for n, i in enumerate(folds):
                fold = fold_of(task, i)
                total = source.value(fold.start(), "r")
                with source.block(f"for c in range({shape.split}):"):
                    other = f"w0[(u32({n * shape.split}) + u32(c)) * u32({shape.rows}) + p]"
                    source.line(f"{total} = {fold.join(total, other)}")
                source.known[task.node_outputs(i)[0]] = (source.coords(i), source.value(fold.finish(total)))
            for storage in rest:
                source.write_at(storage, frozenset(shape.row_order))

        return over_points(source, shape.row_order, 128, 1, body)
