"""Two contractions with whole rows of the first held in shared memory: for what no online softmax can stream.

A block has a tile of query rows. It computes all keys of them, folds and changes them in place (`lanes` threads a row,
one walk for each level of reductions that depend on each other), and multiplies them with the second operand. A thread
has one column of a product and `ROWS` of its rows: one load of the right operand serves all of them.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial

from fusesolve.codegen.attention import Chain
from fusesolve.codegen.kernel import UNROLL_LIMIT, EmittedKernel, Task, TaskSource
from fusesolve.codegen.lanes import Partial, Team, join_lanes
from fusesolve.codegen.rows import FOLDS_SHARED, accumulate, finish_fold, start_fold
from fusesolve.codegen.scalars import UnsupportedError
from fusesolve.cost.gpu.layout import HELD_ROWS, STATIC_SHARED, held_bytes
from fusesolve.ops.definition import OpKind


class HeldRows(Chain):
    """Writes one chain of two contractions on the FMA pipe."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.team = Team(lanes=self.threads // self.queries, rows=self.queries, neighbours=True)
        self.each = min(self.queries, HELD_ROWS)
        self.start = self.queries * self.inner  # first element of the held rows
        self.between = self._between()

    def _between(self) -> list[int]:
        """Positions behind the first contraction and in front of the second.

        UnsupportedError where something else than the second's left operand needs them.
        """
        nest, operators = self.nest, self.task.program.operators
        found, behind = {self.first}, {self.second}
        for producer, consumer in sorted(nest.edges, key=lambda edge: edge[1]):
            if producer in behind:
                behind.add(consumer)
            elif producer in found and consumer != self.second:
                found.add(consumer)
        right = self.task.program.storage[operators[nest.members[self.second]].reads[1].storage].producer
        if right is not None and nest.position.get(right) in found:
            raise UnsupportedError("the right operand of the second contraction depends on the first")
        if found & behind or any(a in found and b in behind - {self.second} for a, b in nest.edges):
            raise UnsupportedError("what lies between two contractions is needed behind the second")
        return sorted(found - {self.first})

    def emit(self) -> tuple[EmittedKernel, ...]:
        """The one kernel."""
        source = self.task.source()
        shared = held_bytes(self.queries, self.inner, self.n)
        dynamic = shared > STATIC_SHARED - FOLDS_SHARED
        self.begin(source)
        source.line(f"lane = u32(tid % u32({self.team.lanes}))")
        source.line(f"local = u32(tid // u32({self.team.lanes}))")
        source.line(f"sh = cuda.shared.array({0 if dynamic else shared // 4}, {'d_f32' if dynamic else 'f32'})")
        source.line(f"acc = cuda.local.array({self.each}, f32)")
        with source.scope():
            self.strip(source, "q", self.queries, 0)
        source.line("cuda.syncthreads()")
        self._products(source)
        source.line("cuda.syncthreads()")
        with source.scope():
            self._rows(source)
        source.line("cuda.syncthreads()")
        self._results(source)
        return (source.emitted(self.tiles * self.batch, self.threads, shared if dynamic else 0),)

    def _columns(
        self, source: TaskSource, which: str, start: int, stride: int, write: Callable[[], None]
    ) -> None:  # fmt: skip
        """Sums of products of held rows with the columns of an operand; `write` takes a thread's sums from `acc`."""
        side = self.side(which)
        rows, columns = (side.loops, side.inner) if which == "v" else (side.inner, side.loops)
        depth, width = ("ni", "ci") if which == "v" else ("ci", "ni")
        count = self.head if which == "v" else self.n
        source.line("f = tid")
        with source.block(f"while f < u32({count * (self.queries // self.each)}):"):
            source.line(f"{width} = u32(f % u32({count}))")
            source.line(f"row = u32(f // u32({count}) * u32({self.each}))")
            place, outer = len(source.lines), source.depth
            with source.block(f"for r in range({self.each}):"):
                source.line("acc[r] = f32(0)")
            source.line(f"{depth} = u32(0)")
            with source.block(f"while {depth} < u32({stride}):"):
                here, inner = len(source.lines), source.depth
                with ExitStack() as open_:
                    source.line(f"y = {self.element(source, open_, which)}")
                with source.block(f"for r in range({self.each}):"):
                    source.line(f"acc[r] += sh[u32({start}) + (row + u32(r)) * u32({stride}) + {depth}] * y")
                source.line(f"{depth} = u32({depth} + u32(1))")
                source.unravel(depth, rows, here, inner)
            write()
            source.unravel(width, columns, place, outer)
            source.line(f"f = u32(f + u32({self.threads}))")

    def _products(self, source: TaskSource) -> None:
        """The first contraction: all keys of the tile's rows."""

        def write() -> None:
            with source.block(f"for r in range({self.each}):"):
                source.line(f"sh[{self._held('row + u32(r)', 'ni')}] = acc[r]")

        self._columns(source, "k", 0, self.inner, write)

    def _held(self, row: str, column: str) -> str:
        return f"u32({self.start}) + ({row}) * u32({self.n}) + {column}"

    def _rows(self, source: TaskSource) -> None:
        """What lies between: folds level by level, then the second contraction's left operand in place."""
        nest, operators = self.nest, self.task.program.operators
        source.line(f"mi = min(u32(m_base + local), u32({self.m - 1}))")
        place, depth = len(source.lines), source.depth
        source.known[self.nodes[0].outputs[0]] = (source.coords(self.first), "x")
        folds = [i for i in self.between if operators[nest.members[i]].kind is OpKind.REDUCE]
        for stage in sorted({nest.stage[i] for i in folds}):
            here = [i for i in folds if nest.stage[i] == stage]
            parts = [start_fold(source, self.task, i) for i in here]
            self._walk(source, partial(self._take, source, here, parts))
            join_lanes(source, self.team, parts)
            for i, part in zip(here, parts, strict=True):
                finish_fold(source, self.task, i, part)
            self._hoist(source, stage + 1)

        def change() -> None:
            with ExitStack() as open_:
                text = self.operand(source, open_, self.nodes[1], left=True)
                source.line(f"sh[{self._held('local', 'ni')}] = {text}")

        self._walk(source, change)
        source.unravel("mi", self.score.m, place, depth)
        for i in (self.first, *folds):
            source.known.pop(self.task.node_outputs(i)[0])

    def _take(self, source: TaskSource, folds: Sequence[int], parts: Sequence[Partial]) -> None:
        for i, part in zip(folds, parts, strict=True):
            accumulate(source, self.task, i, part)

    def _walk(self, source: TaskSource, body: Callable[[], None]) -> None:
        """The loop over this thread's keys of its row; `x` is the first contraction's result."""
        source.line("ni = lane")
        with source.block(f"while ni < u32({self.n}):"):
            place, depth = len(source.lines), source.depth
            source.line(f"x = sh[{self._held('local', 'ni')}]")
            body()
            source.unravel("ni", self.score.n, place, depth)
            source.line(f"ni = u32(ni + u32({self.team.lanes}))")

    def _hoist(self, source: TaskSource, stage: int) -> None:
        """Compute what a row needs once: operators without a loop along the keys."""
        nest, keys = self.nest, frozenset(self.score.n)
        for i in self.between:
            op = self.task.program.operators[nest.members[i]]
            if nest.stage[i] == stage and op.kind is OpKind.ELEMENTWISE and not nest.loops(i) & keys:
                source.at(self.task.node_outputs(i)[0], source.coords(i))

    def _results(self, source: TaskSource) -> None:
        """The second contraction, what is behind it, and the stores."""
        operators = self.task.program.operators
        each = sum(operators[m].work.instructions for m in self.nest.members[self.second + 1 :])

        def point(row: str) -> None:
            source.line(f"mi = u32(m_base + row + u32({row}))")
            with source.block(f"if mi < u32({self.m}):"):
                place, depth = len(source.lines), source.depth
                self.store(source, f"acc[{row}]")
                source.unravel("mi", self.score.m, place, depth)

        def write() -> None:
            if each * self.each <= UNROLL_LIMIT:
                with source.block(f"for r in range({self.each}):"):
                    point("r")
                return
            for row in range(self.each):  # the compiler would keep the sums in local memory
                with source.scope():
                    point(str(row))

        self._columns(source, "v", self.start, self.n, write)
