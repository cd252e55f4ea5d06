"""Row kernels on a CPU: the innermost loop in memory is reduced. A task takes rows, in passes over their elements.

A fold of floats is free in its order, so that its loop becomes vectors with several partial results. What one pass
computes at a price and a later one needs again is held for the row where the row is short enough for the second-level
cache.
"""

from contextlib import ExitStack
from dataclasses import dataclass, field
from math import prod

from fusesolve.codegen.affine import Affine, flatten, variable
from fusesolve.codegen.cpu.folds import Stages, take
from fusesolve.codegen.cpu.points import over_points
from fusesolve.codegen.cpu.source import CpuSource, Run, merged_runs
from fusesolve.codegen.cpu.tasks import CpuKernel, counted_loop, each_row, finished, unflatten, vector_loop
from fusesolve.codegen.folds import Fold
from fusesolve.codegen.kernel import Task, ceil_div, kernel_order
from fusesolve.codegen.lanes import Partial
from fusesolve.codegen.scalars import UnsupportedError, compute_type
from fusesolve.codegen.values import Index
from fusesolve.ops import OPS
from fusesolve.ops.definition import OpKind

CHUNK = 32_768  # elements of a row that one task folds where few long rows are split
HELD = 32_768  # elements of a row that may be held
SPLIT = 65_536  # elements of a row from which few rows are split over tasks
FEW = 16  # rows
COSTLY = frozenset({
    "exp", "expm1", "log", "log1p", "tanh", "sigmoid", "erf", "sin", "cos", "tan", "asin", "acos", "atan", "sinh",
    "cosh", "asinh", "acosh", "atanh", "atan2", "pow", "fmod", "mod",
})  # fmt: skip

Key = tuple[str, Index]


@dataclass(slots=True)
class Shared:
    """Costly values along the row: the passes that ask for each, and the arrays that hold those of several passes."""

    asked: dict[Key, set[int]] = field(default_factory=dict)
    names: dict[Key, str] = field(default_factory=dict)
    filled: set[Key] = field(default_factory=set)


class RowSource(CpuSource):
    """A body that holds costly values of a row from pass to pass."""

    def __init__(self, task: Task, shared: Shared) -> None:
        super().__init__(task)
        self.shared = shared
        self.walk = -1
        self.element_depth = 0
        self.place = Affine()
        self.loads: dict[int, Affine] = {}

    def _load(self, storage: int, offset: Affine) -> str:
        if self.walk == 0 and self.depth == self.element_depth:
            self.loads.setdefault(storage, offset)
        return super()._load(storage, offset)

    def next_row(self, rows: Run, run: Run) -> list[tuple[int, Affine]]:
        """(storage, position) of what the first pass over the row behind this one will load element by element."""
        found = []
        for storage, offset in self.loads.items():
            steps = self.steps(offset) or {}
            if steps.get(run.name) == 1 and rows.name in steps:
                found.append((storage, offset.shifted(steps[rows.name])))
        return found

    def _compute(self, name: str, index: Index) -> str:
        node = self._maker(name)
        costly = node is not None and node.op in COSTLY and OPS[node.op].kind is OpKind.ELEMENTWISE
        if not costly or self.walk < 0 or self.depth != self.element_depth:
            return super()._compute(name, index)
        key = (name, index)
        self.shared.asked.setdefault(key, set()).add(self.walk)
        held = self.shared.names.get(key)
        if held is None:
            return super()._compute(name, index)
        if key in self.shared.filled:
            return self.value(f"{held}[{self.index(self.place)}]")
        text = super()._compute(name, index)
        self.line(f"{held}[{self.index(self.place)}] = {text}")
        self.shared.filled.add(key)
        return text


class _Rows:
    """Writes the row kernel; the first of two runs finds out which loops merge and which values passes share."""

    def __init__(self, task: Task, shared: Shared, seen: CpuSource | None) -> None:
        self.task = task
        self.stages = Stages(task)
        order = kernel_order(task.program, task.nest)
        self.rows = tuple(loop for loop in order if loop not in self.stages.reduced)
        self.inner = tuple(loop for loop in order if loop in self.stages.reduced)
        self.source = RowSource(task, shared)
        basis = seen or self.source
        self.row_runs = merged_runs(basis, self.rows, "p") if seen else _single(self.source, self.rows)
        self.runs = merged_runs(basis, self.inner, "g") if seen else _single(self.source, self.inner)
        if seen:
            self.source.runs = (*self.row_runs, *self.runs)
        self.count = prod(run.extent for run in self.runs)
        self.source.place = _flat(self.source, self.inner)

    def emit(self) -> CpuKernel:
        """The whole kernel."""
        source = self.source
        with ExitStack() as open_:
            head = len(source.lines)
            tasks = open_.enter_context(each_row(source, self.row_runs, self.count))
            arrays = self._body()
        source.lines[head:head] = arrays
        return finished(source, tasks)

    def _body(self) -> list[str]:
        """The passes over one row; returns the lines that make the arrays of a task."""
        source, arrays = self.source, self._holds()
        loops = frozenset((*self.rows, *self.inner))
        for walk, (stage, folds, stores) in enumerate(self.stages.passes()):
            source.walk = walk
            self._pass(folds, stores, loops)
            source.walk = -1
            self._hoist(stage + 1)
        for storage in self.stages.early_writes():
            source.write_at(storage, frozenset(self.rows))
        return arrays

    def _holds(self) -> list[str]:
        """Arrays for the costly values that several passes ask for."""
        source, lines = self.source, []
        if self.count <= HELD:
            for key, passes in source.shared.asked.items():
                if len(passes) > 1:
                    name = source.fresh("h")
                    kind = compute_type(source.graph.type_of(key[0]).dtype)
                    lines.append(f"    {name} = np.empty({self.count}, {kind})")
                    source.shared.names[key] = name
        return lines

    def _pass(self, folds: list[int], stores: list[int], loops: frozenset[int]) -> None:
        source = self.source
        parts = [_started(source, self.stages.fold(i)) for i in folds]
        with ExitStack() as open_:
            for run in self.runs[:-1]:
                open_.enter_context(counted_loop(source, run))
            if self.runs:
                run, ahead = self.runs[-1], self._ahead(stores)
                end = f"hidden(i64({run.extent}))" if folds and not ahead else None
                open_.enter_context(vector_loop(source, run, high=end, stores=bool(stores), ahead=ahead))
            else:
                open_.enter_context(source.block("for c in range(1):"))
            source.element_depth = source.depth
            for i, part in zip(folds, parts, strict=True):
                take(source, self.task, i, part)
            for storage in stores:
                source.write_at(storage, loops)
        for i, part in zip(folds, parts, strict=True):
            made = part.place if part.fold.indexed else source.value(part.fold.finish(part.total))
            source.known[self.task.node_outputs(i)[0]] = (source.coords(i), made)

    def _ahead(self, stores: list[int]) -> list[tuple[int, Affine]]:
        """What the second pass asks for where memory serves the rows: the next row comes while costly values are made.

        A pass that stores leaves memory no time for that, a cheap one is over before.
        """
        source = self.source
        idle = source.walk == 1 and source.streams and source.shared.names and not stores
        if not idle or not self.row_runs or len(self.runs) != 1:
            return []
        return source.next_row(self.row_runs[-1], self.runs[0])

    def _hoist(self, stage: int) -> None:
        """Compute what a row needs once before its next pass: operators without elements along the row."""
        nest, operators = self.task.nest, self.task.program.operators
        for i, member in enumerate(nest.members):
            if nest.stage[i] != stage or i in nest.inlined or operators[member].kind is not OpKind.ELEMENTWISE:
                continue
            if not nest.loops(i) & self.stages.reduced:
                self.source.at(self.task.node_outputs(i)[0], self.source.coords(i))


def _started(source: CpuSource, fold: Fold) -> Partial:
    """A fold before its first element."""
    total = source.value(fold.start(), "r")
    return Partial(fold, total, source.value("i64(0)", "r") if fold.indexed else "")


def emit_rows(task: Task) -> tuple[CpuKernel, ...]:
    """The kernels of a row group: one, or two where few long rows are split over tasks."""
    nest = task.nest
    if any(not nest.loops(i) <= frozenset(kernel_order(task.program, nest)) for i in _placed(task)):
        raise UnsupportedError("an operator has loops that the row kernel has not")
    first = _Rows(task, Shared(), None)
    first.emit()
    asked = Shared(asked=first.source.shared.asked)
    rows = _Rows(task, asked, first.source)
    passes = rows.stages.passes()
    few = prod(run.extent for run in rows.row_runs) < FEW and rows.count >= SPLIT
    if few and len(passes) == 1 and not any(rows.stages.fold(i).indexed for i in passes[0][1]):
        return _split(task, rows)
    return (rows.emit(),)


def _placed(task: Task) -> list[int]:
    return [i for i in range(len(task.nest.members)) if i not in task.nest.inlined]


def _split(task: Task, rows: _Rows) -> tuple[CpuKernel, ...]:
    """Two kernels: chunks of rows leave partial results in a workspace, then one task joins them."""
    source = rows.source
    _, folds, stores = rows.stages.passes()[0]
    kinds = {rows.stages.fold(i).kind for i in folds}
    if len(rows.runs) != 1 or len(kinds) != 1:
        return (rows.emit(),)
    run, count = rows.runs[0], prod(item.extent for item in rows.row_runs)
    chunks = ceil_div(run.extent, CHUNK)
    space = (len(folds) * chunks * count, kinds.pop())
    source.line(f"q = t // {chunks}")
    unflatten(source, "q", rows.row_runs)
    place = len(source.lines)
    source.line(f"low = t % {chunks} * {CHUNK}")
    parts = [_started(source, rows.stages.fold(i)) for i in folds]
    with vector_loop(source, run, "low", f"min(low + {CHUNK}, {run.extent})", stores=bool(stores)):
        for i, part in zip(folds, parts, strict=True):
            take(source, task, i, part)
        for storage in stores:
            source.write_at(storage, frozenset((*rows.rows, *rows.inner)))
    for n, part in enumerate(parts):
        source.line(f"w0[({n} * {count} + q) * {chunks} + t % {chunks}] = {part.total}")
    source.unravel_runs(place, 1, rows.row_runs)
    first = finished(source, count * chunks, space)
    return first, _joined(task, rows, folds, chunks, space)


def _joined(task: Task, rows: _Rows, folds: list[int], chunks: int, space: tuple[int, str]) -> CpuKernel:
    source = CpuSource(task)
    source.runs = tuple(Run(loops=run.loops, extents=run.extents, name=run.name) for run in rows.row_runs)
    flat = _flat(source, rows.rows)
    writes = rows.stages.early_writes()

    def body() -> None:
        place = source.value(f"i64({source.index(flat)})", "t")
        for n, i in enumerate(folds):
            fold = rows.stages.fold(i)
            total = source.value(fold.start(), "r")
            with source.block(f"for k in range({chunks}):"):
                count = prod(run.extent for run in rows.row_runs)
                source.line(f"{total} = {fold.join(total, f'w0[({n} * {count} + {place}) * {chunks} + k]')}")
            source.known[task.node_outputs(i)[0]] = (source.coords(i), source.value(fold.finish(total)))
        for storage in writes:
            source.write_at(storage, frozenset(rows.rows))

    made = over_points(source, body)
    return CpuKernel(
        names=(*made.names, "w0"), arguments=(*made.arguments, -1), body=made.body, tasks=made.tasks, workspace=space
    )


def _single(source: CpuSource, order: tuple[int, ...]) -> tuple[Run, ...]:
    """One run a loop, for the run that only looks."""
    extent = source.nest.extent
    return tuple(
        Run(loops=(loop,), extents=(extent[loop],), name=source.vars[loop].name) for loop in order if extent[loop] > 1
    )


def _flat(source: CpuSource, order: tuple[int, ...]) -> Affine:
    """The flat position in loops, outer to inner."""
    return flatten([variable(source.vars[loop]) for loop in order], [source.nest.extent[loop] for loop in order])
