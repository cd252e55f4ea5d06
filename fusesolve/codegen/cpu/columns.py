"""Column kernels on a CPU: the innermost loop in memory is kept, the reduced loops run outside it.

A task takes a strip of the innermost kept run; each fold has an array of one partial result a column, and the reduced
loops add whole strips. Reductions over outer axes and contractions are written like this.
"""

from contextlib import ExitStack
from math import prod

from fusesolve.codegen.cpu.folds import Stages, take
from fusesolve.codegen.cpu.source import CpuSource, Run, merged_runs
from fusesolve.codegen.cpu.tasks import CpuKernel, counted_loop, finished, unflatten
from fusesolve.codegen.kernel import Task, ceil_div, kernel_order
from fusesolve.codegen.lanes import Partial

STRIP = 512  # columns of a task: its partial results stay in the first-level cache


class _Columns:
    """Writes the column kernel; the first of two runs finds out which loops merge."""

    def __init__(self, task: Task, seen: CpuSource | None) -> None:
        self.task = task
        self.stages = Stages(task)
        nest = task.nest
        order = kernel_order(task.program, nest)
        if nest.heads:
            order = (*nest.out[nest.heads[0]], *nest.red[nest.heads[0]])
        self.kept = tuple(loop for loop in order if loop not in self.stages.reduced)
        self.inner = tuple(loop for loop in order if loop in self.stages.reduced)
        self.source = CpuSource(task)
        if seen is None:
            self.runs, self.reduced = self._single(self.kept), self._single(self.inner)
        else:
            self.runs, self.reduced = merged_runs(seen, self.kept, "p"), merged_runs(seen, self.inner, "g")
            self.source.runs = (*self.runs, *self.reduced)

    def _single(self, order: tuple[int, ...]) -> tuple[Run, ...]:
        extent, names = self.task.nest.extent, self.source.vars
        return tuple(Run(loops=(k,), extents=(extent[k],), name=names[k].name) for k in order if extent[k] > 1)

    def emit(self) -> CpuKernel:
        """The whole kernel."""
        source = self.source
        outer, last = self.runs[:-1], self.runs[-1] if self.runs else None
        width = last.extent if last is not None else 1
        self.strip = min(STRIP, width)
        strips = ceil_div(width, self.strip)
        source.line(f"q = t // {strips}")
        unflatten(source, "q", outer)
        place = len(source.lines)
        source.line(f"low = t % {strips} * {self.strip}")
        source.line(f"width = min({self.strip}, {width} - low)" if width % self.strip else f"width = {self.strip}")
        loops = frozenset((*self.kept, *self.inner))
        for _, folds, stores in self.stages.passes():
            self._pass(folds, stores, loops)
        writes = self.stages.early_writes()
        if writes:
            with ExitStack() as open_:
                self._columns(open_)
                for storage in writes:
                    source.write_at(storage, frozenset(self.kept))
        source.unravel_runs(place, 1, outer)
        return finished(source, prod(run.extent for run in outer) * strips)

    def _columns(self, open_: ExitStack) -> None:
        """The vector loop over the columns of the task."""
        source = self.source
        open_.enter_context(source.block("for c in range(width):"))
        if self.runs:
            last = self.runs[-1]
            source.line(f"{last.name} = u32(low) + u32(c)")
            open_.callback(source.unravel_runs, len(source.lines), source.depth, [last])

    def _pass(self, folds: list[int], stores: list[int], loops: frozenset[int]) -> None:
        source = self.source
        parts = [self._start(i) for i in folds]
        with ExitStack() as open_:
            for run in self.reduced:
                open_.enter_context(counted_loop(source, run))
            self._columns(open_)
            for i, part in zip(folds, parts, strict=True):
                take(source, self.task, i, part)
            for storage in stores:
                source.write_at(storage, loops)
        for i, part in zip(folds, parts, strict=True):
            self._finish(i, part)

    def _start(self, i: int) -> Partial:
        fold = self.stages.fold(i)
        name = self._array(fold.kind, fold.start())
        return Partial(fold, f"{name}[c]", f"{self._array('i64', 'i64(0)')}[c]" if fold.indexed else "")

    def _array(self, kind: str, start: str) -> str:
        name = self.source.fresh("s")
        self.source.line(f"{name} = np.empty({self.strip}, {kind})")
        with self.source.block("for c in range(width):"):
            self.source.line(f"{name}[c] = {start}")
        return name

    def _finish(self, i: int, part: Partial) -> None:
        source, fold = self.source, part.fold
        name = self.task.node_outputs(i)[0]
        if fold.indexed:
            source.known[name] = (source.coords(i), part.place)
            return
        text = fold.finish(part.total)
        held = part.total
        if text != part.total:
            held = f"{source.fresh('s')}[c]"
            source.line(f"{held.removesuffix('[c]')} = np.empty({self.strip}, {fold.result})")
            with source.block("for c in range(width):"):
                source.line(f"{held} = {text}")
        source.known[name] = (source.coords(i), held)


def emit_columns(task: Task) -> tuple[CpuKernel, ...]:
    """The one kernel of a reduction over outer axes, or of a contraction with what is fused to it."""
    first = _Columns(task, None)
    first.emit()
    return (_Columns(task, first.source).emit(),)
