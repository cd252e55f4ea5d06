"""Row and reduction kernels: `lanes` threads walk one row, in as many passes as its reductions depend on each other.

Pass n computes the reductions behind n others; what is written of the row's elements is written in the first pass
that has all it needs, else in a last pass. Elements that several passes read are held in registers, held in shared
memory or read again, as the tiling says.
"""

from contextlib import nullcontext
from dataclasses import dataclass, field
from math import prod

from fusesolve.codegen.affine import Affine, Var, flatten, variable
from fusesolve.codegen.folds import Fold, make_fold
from fusesolve.codegen.kernel import (
    EmittedKernel,
    Task,
    TaskSource,
    ceil_div,
    kernel_order,
    shared_type,
)
from fusesolve.codegen.lanes import Partial, Team, join_lanes
from fusesolve.codegen.scalars import UnsupportedError, compute_type
from fusesolve.codegen.values import KernelSource, reduced_index
from fusesolve.cost.gpu.layout import STATIC_SHARED
from fusesolve.graph import DType
from fusesolve.group import Template
from fusesolve.ops.definition import OpKind

HELD_IN_REGISTERS, HELD_IN_SHARED = 0, 1  # as in the cost model's tilings; 2 reads again
FOLDS_SHARED = 8192  # bytes of static shared memory left to folds


@dataclass(frozen=True, slots=True, kw_only=True)
class RowShape:
    """The loops of a row kernel and how blocks share them."""

    row_order: tuple[int, ...]
    inner_order: tuple[int, ...]
    rows: int
    length: int
    team: Team
    mode: int
    split: int

    @property
    def chunk(self) -> int:
        """Elements of a row that one block walks."""
        return ceil_div(self.length, self.split)


@dataclass(slots=True)
class Held:
    """Loads that passes share: where each is held, and which passes have asked for it."""

    asked: dict[tuple[int, Affine], set[int]] = field(default_factory=dict)
    names: dict[tuple[int, Affine], str] = field(default_factory=dict)  # the element as text
    filled: set[tuple[int, Affine]] = field(default_factory=set)

    def shared_by_passes(self) -> list[tuple[int, Affine]]:
        """Loads of two passes or more."""
        return [key for key, passes in self.asked.items() if len(passes) > 1]


def row_shape(task: Task) -> RowShape:
    """The loops of a row or reduction group; UnsupportedError where an operator does not fit them."""
    nest = task.nest
    order = kernel_order(task.program, nest)
    whole = frozenset(order)
    if not nest.reduced <= whole or any(
        not nest.loops(i) <= whole for i in range(len(nest.members)) if i not in nest.inlined
    ):
        raise UnsupportedError("an operator has loops that the row kernel has not")
    rows = tuple(loop for loop in order if loop not in nest.reduced)
    inner = tuple(loop for loop in order if loop in nest.reduced)
    team = Team(
        lanes=task.tile("lanes", 32), rows=task.tile("rows", 1),
        neighbours=nest.template is Template.ROW,
    )  # fmt: skip
    shape = RowShape(
        row_order=rows, inner_order=inner, rows=prod(nest.extent[loop] for loop in rows),
        length=prod(nest.extent[loop] for loop in inner), team=team, mode=task.tile("mode"),
        split=task.tile("split", 1),
    )  # fmt: skip
    task.check_range(shape.rows * max(1, shape.length) + team.threads * team.rows)
    return shape


class RowKernel:
    """Writes one row kernel. A first run (`planned` False) only finds out which loads passes share."""

    def __init__(self, task: Task, shape: RowShape, held: Held, *, planned: bool) -> None:
        self.task = task
        self.shape = shape
        self.held = held
        self.planned = planned
        self.source = RowSource(task, {s: f"a{n}" for n, s in enumerate((*task.kernel.reads, *task.kernel.writes))})
        self.source.rows = self
        self.walk = -1  # number of the pass being written, -1 outside passes
        self.shared_bytes = 0

    def emit(self) -> EmittedKernel:
        """The whole kernel."""
        source, shape = self.source, self.shape
        place = self.begin()
        if self.planned:
            self._declare()
        stages = self.stages()
        written: set[int] = set()
        for stage in sorted(stages):
            self._pass(stage, stages[stage], written)
            self._hoist(stage + 1)
        if any(self.is_late(s) for s in self.task.kernel.writes if s not in written):
            self._pass(max(stages, default=-1) + 1, [], written)
        rest = [s for s in self.task.kernel.writes if s not in written]
        if rest:
            with source.block(f"if {self.owner()}:"):
                for storage in rest:
                    source.write_at(storage, frozenset(shape.row_order))
        source.unravel("row", shape.row_order, place, source.depth)
        return source.emitted(ceil_div(shape.rows, shape.team.rows), shape.team.threads, self.shared_bytes)

    def begin(self) -> int:
        """Thread, lane, chunk of a split row, and row; returns the line before which the row's loop variables go."""
        source, team, shape = self.source, self.shape.team, self.shape
        source.line("tid = u32(cuda.threadIdx.x)")
        lane, local = ("%", "//") if team.neighbours else ("//", "%")
        divisor = team.lanes if team.neighbours else team.rows
        source.line(f"lane = u32(tid {lane} u32({divisor}))")
        source.line(f"local = u32(tid {local} u32({divisor}))")
        block = source.block_number
        if shape.split > 1:
            blocks = ceil_div(shape.rows, team.rows)
            source.line(f"part = u32({block} // u32({blocks}))")
            block = f"u32({block} % u32({blocks}))"
        source.line(f"row = u32({block} * u32({team.rows}) + local)")
        if shape.rows % team.rows:
            source.line(f"live = row < u32({shape.rows})")
            source.line(f"row = min(row, u32({shape.rows - 1}))")  # rows behind the last repeat it and write nothing
        source.flat_alias("row", shape.row_order)
        return len(source.lines)

    def owner(self) -> str:
        """The test that a thread stores what a row has once."""
        return "lane == u32(0)" + (" and live" if self._tail else "")

    @property
    def _tail(self) -> bool:
        return self.shape.rows % self.shape.team.rows != 0

    def stages(self) -> dict[int, list[int]]:
        """Positions of the reductions by how many reductions come before them."""
        nest, operators = self.task.nest, self.task.program.operators
        found: dict[int, list[int]] = {}
        for i, member in enumerate(nest.members):
            if operators[member].kind is OpKind.REDUCE and i not in nest.inlined:
                found.setdefault(nest.stage[i], []).append(i)
        return found

    def is_late(self, storage: int) -> bool:
        """Whether a write has elements along the row."""
        return bool(self.task.nest.loops(self.task.writer(storage)) & self.task.nest.reduced)

    # passes

    def _pass(self, stage: int, folds: list[int], written: set[int]) -> None:
        """One walk over the row: the folds of this stage and the writes that it has all operands of."""
        nest, source = self.task.nest, self.source
        stores = [
            s for s in self.task.kernel.writes
            if s not in written and self.is_late(s) and nest.stage[self.task.writer(s)] <= stage
        ]  # fmt: skip
        written.update(stores)
        self.walk += 1
        parts = [start_fold(self.source, self.task, i) for i in folds]
        self._walk(folds, parts, stores)
        join_lanes(source, self.shape.team, parts)
        for i, part in zip(folds, parts, strict=True):
            finish_fold(self.source, self.task, i, part)

    def _walk(self, folds: list[int], parts: list[Partial], stores: list[int]) -> None:
        """The loop over the row's elements of this thread."""
        source, shape = self.source, self.shape
        lanes, length = shape.team.lanes, shape.length
        if shape.mode == HELD_IN_REGISTERS and self.held.shared_by_passes():
            count = ceil_div(length, lanes)
            with source.block(f"for k in range({count}):"):
                source.line(f"j = u32(lane + u32(k) * u32({lanes}))")
                inside = nullcontext() if length % lanes == 0 else source.block(f"if j < u32({length}):")
                with inside:
                    self.element(folds, parts, stores)
            return
        source.line("j = lane")
        with source.block(f"while j < u32({length}):"):
            self.element(folds, parts, stores)
            source.line(f"j = u32(j + u32({lanes}))")

    def element(self, folds: list[int], parts: list[Partial], stores: list[int]) -> None:
        """The body of the loop over a row's elements: folds and stores at one element."""
        source, shape = self.source, self.shape
        place, depth = len(source.lines), source.depth
        source.aliases.append((flat_position(source, shape.inner_order), Var("j", shape.length)))
        for i, part in zip(folds, parts, strict=True):
            accumulate(source, self.task, i, part)
        if stores:
            with source.block("if live:") if self._tail else nullcontext():
                for storage in stores:
                    source.write_at(storage, frozenset((*shape.row_order, *shape.inner_order)))
        source.aliases.pop()
        source.unravel("j", shape.inner_order, place, depth)

    def _hoist(self, stage: int) -> None:
        """Compute what a row needs once, before the next pass: operators without a loop along the row."""
        nest, operators = self.task.nest, self.task.program.operators
        for i, member in enumerate(nest.members):
            op = operators[member]
            if nest.stage[i] != stage or i in nest.inlined or op.kind is not OpKind.ELEMENTWISE:
                continue
            if not nest.loops(i) & nest.reduced:
                self.source.at(self.task.node_outputs(i)[0], self.source.coords(i))

    # held rows

    def _declare(self) -> None:
        """Arrays for the loads that passes share."""
        shape, storage = self.shape, self.task.program.storage
        keys = self.held.shared_by_passes()
        if shape.mode == HELD_IN_REGISTERS:
            count = ceil_div(shape.length, shape.team.lanes)
            for key in keys:
                name = self.source.fresh("h")
                self.source.line(f"{name} = cuda.local.array({count}, {compute_type(storage[key[0]].type.dtype)})")
                self.held.names[key] = f"{name}[k]"
        elif shape.mode == HELD_IN_SHARED:
            self._declare_shared(keys)

    def _declare_shared(self, keys: list[tuple[int, Affine]]) -> None:
        """One array a load, or where they are too large one array for all, asked for at launch."""
        shape, storage = self.shape, self.task.program.storage
        types = [storage[s].type.dtype for s, _ in keys]
        elements = shape.length * shape.team.rows
        slot = f"local * u32({shape.length}) + j"
        if sum(item.itemsize for item in types) * elements <= STATIC_SHARED - FOLDS_SHARED:
            for key, dtype in zip(keys, types, strict=True):
                name = self.source.fresh("h")
                self.source.declare_shared(name, elements, shared_type(dtype))
                self.held.names[key] = self.source.slot(name, slot)
            return
        if len(set(types)) > 1:
            raise UnsupportedError("held rows of several types are too large for static shared memory")
        name = self.source.fresh("h")
        self.source.line(f"{name} = cuda.shared.array(0, d_{shared_type(types[0])})")
        self.shared_bytes = self.source.arena = len(keys) * elements * types[0].itemsize
        for n, key in enumerate(keys):
            self.held.names[key] = f"{name}[u32({n * elements}) + {slot}]"

    def fetch(self, storage: int, offset: Affine) -> str | None:
        """A load through the held rows; None where it is not one that passes share."""
        inner = {self.source.vars[loop].name for loop in self.shape.inner_order}
        loops = inner | {self.source.vars[loop].name for loop in self.shape.row_order}
        walked = prod(var.extent for var, _ in offset.terms)
        if self.walk < 0 or not offset.names & inner or not offset.names <= loops:
            return None
        if 2 * walked <= self.shape.rows * self.shape.length:  # small beside the rows: it stays in the caches
            return None
        key = (storage, offset)
        if not self.planned:
            self.held.asked.setdefault(key, set()).add(self.walk)
            return None
        name = self.held.names.get(key)
        if name is None:
            return None
        if key in self.held.filled:
            return self.source.value(self.source.widen(storage, name, self.shape.mode))
        loaded = self.source.direct(storage, offset)
        self.source.line(f"{name} = {self.source.narrow(storage, loaded, self.shape.mode)}")
        self.held.filled.add(key)
        return loaded


def fold_of(task: Task, i: int) -> Fold:
    """The fold of the reduction at a position."""
    graph, op = task.program.graph, task.program.operators[task.nest.members[i]]
    node = graph.nodes[op.node]
    return make_fold(node.op, graph.type_of(node.reads[0]), graph.type_of(node.outputs[0]), op.reduced)


def start_fold(source: KernelSource, task: Task, i: int) -> Partial:
    """Begin the fold of the reduction at a position."""
    fold = fold_of(task, i)
    total = source.value(fold.start(), "r")
    return Partial(fold, total, source.value("i64(0)", "r") if fold.indexed else "")


def finish_fold(source: KernelSource, task: Task, i: int, part: Partial) -> None:
    """Let the result of a complete fold be known."""
    text = part.place if part.fold.indexed else source.value(part.fold.finish(part.total))
    source.known[task.node_outputs(i)[0]] = (source.coords(i), text)


def accumulate(source: KernelSource, task: Task, i: int, part: Partial) -> None:
    """Take one element into a fold, at the current point of the row."""
    graph, op = task.program.graph, task.program.operators[task.nest.members[i]]
    node = graph.nodes[op.node]
    operand = graph.type_of(node.reads[0])
    axes = node.attr("axis")
    assert isinstance(axes, tuple)
    inner = source.folded(i, [operand.shape[axis] for axis in axes])
    element = source.at(node.reads[0], reduced_index(node, operand.shape, source.coords(i), inner))
    if not part.fold.indexed:
        source.line(f"{part.total} = {part.fold.join(part.total, source.cast(element, operand, part.fold.kind))}")
        return
    element = source.rounded(node.reads[0], operand, element)
    place = source.value(f"i64({source.index(inner[0])})")
    with source.block(f"if {part.fold.wins(element, place, part.total, part.place)}:"):
        source.line(f"{part.total} = {element}")
        source.line(f"{part.place} = {place}")


def flat_position(source: TaskSource, order: tuple[int, ...]) -> Affine:
    """The position that loops, outer to inner, stand for together."""
    extents = [source.nest.extent[loop] for loop in order]
    return flatten([variable(source.vars[loop]) for loop in order], extents)


class RowSource(TaskSource):
    """A body whose loads go through the held rows."""

    rows: RowKernel | None = None

    def __init__(self, task: Task, arrays: dict[int, str], *, workspace: bool = False) -> None:
        super().__init__(task, arrays, workspace=workspace)

    def fetch(self, storage: int, offset: Affine) -> str:
        """A load, held where passes share it; loads repeated within one scope are one."""
        found = self.recall((storage, offset))
        if found is None:
            held = None if self.rows is None else self.rows.fetch(storage, offset)
            found = self.keep((storage, offset), held if held is not None else self.direct(storage, offset))
        return found

    def direct(self, storage: int, offset: Affine) -> str:
        """A load from memory."""
        return super().fetch(storage, offset)

    def narrow(self, storage: int, text: str, mode: int) -> str:
        """A loaded element as it is held: in its stored type in shared memory, in its register type else."""
        dtype = self.program.storage[storage].type.dtype
        if mode != HELD_IN_SHARED:
            return text
        return f"u16(u32(float_bits({text})) >> u32(16))" if dtype is DType.BF16 else self.stored(storage, text)

    def widen(self, storage: int, text: str, mode: int) -> str:
        """A held element in its register type."""
        dtype = self.program.storage[storage].type.dtype
        kind = compute_type(dtype)
        if mode == HELD_IN_SHARED and dtype is DType.BF16:
            return f"bits_float(i32(u32({text}) << u32(16)))"
        return text if kind == "b1" else f"{kind}({text})"
