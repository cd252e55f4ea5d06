"""Contractions on the FMA pipe: a block owns a tile of the result and walks the reduced axes in steps.

Both operand strips of a step go to shared memory, in two buffers so that one barrier a step is enough; whatever the
group computes in front of an operand is computed while its strip is loaded, whatever it computes behind the sum is
computed when a thread writes its points. A convolution is the same kernel: its reduced axes are channels and taps,
and the padding is the test at the load. With a split of the reduced axes partial sums go to a workspace, and a second
kernel sums them and computes what is behind.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import prod

from fusesolve.access import AccessKind
from fusesolve.candidates.loops import Nest
from fusesolve.candidates.program import Operator
from fusesolve.codegen.affine import Affine, flatten, variable
from fusesolve.codegen.kernel import (
    UNROLL_LIMIT,
    EmittedKernel,
    Task,
    TaskSource,
    Workspace,
    ceil_div,
)
from fusesolve.codegen.pointwise import over_points
from fusesolve.codegen.scalars import UnsupportedError, compute_type
from fusesolve.codegen.tiles import choose_tile
from fusesolve.codegen.windows import TRANSPOSED, enter, inner_extents, product, sum_type
from fusesolve.cost.gpu.layout import FMA_BUFFERS, STATIC_SHARED, gemm_bytes
from fusesolve.cost.gpu.layout import FMA_STEP as STEP
from fusesolve.graph import Node, TensorType
from fusesolve.ops import operand_types

KNOWN = frozenset({"matmul", "conv1d", "conv2d", "conv3d"}) | TRANSPOSED
MANY_POINTS = 96  # points of a thread above which index arithmetic alone passes the next limit
_WINDOWED = frozenset({AccessKind.WINDOW, AccessKind.SHIFTED})


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmLoops:
    """The loops of a contraction's result by role, each outer to inner, and its reduced loops."""

    batch: tuple[int, ...]
    m: tuple[int, ...]
    n: tuple[int, ...]
    k: tuple[int, ...]


def gemm_loops(nest: Nest, position: int, op: Operator) -> GemmLoops:
    """Which result loops both operands have (batch), only the left one (m), or only the right one or none (n)."""
    sides = []
    for read in op.reads[:2]:
        loops = {loop for loop in nest.indices(position, read) if loop >= 0}
        loops |= {nest.out[position][axis.out] for axis in read.axes if axis.kind in _WINDOWED and axis.out >= 0}
        sides.append(loops)
    left, right = sides if len(sides) == 2 else (sides[0], set())
    out = nest.out[position]
    return GemmLoops(
        batch=tuple(loop for loop in out if loop in left and loop in right),
        m=tuple(loop for loop in out if loop in left and loop not in right),
        n=tuple(loop for loop in out if loop not in left), k=nest.red[position],
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Side:
    """The free axes of an operand: its flat index, the tile's first one, how many there are, loops, and the tile's.

    `place` is the place in the tile of the strip's element `w`.
    """

    flat: str
    base: str
    extent: int
    loops: tuple[int, ...]
    width: int
    place: str = "w"


@dataclass(frozen=True, slots=True)
class Head:
    """One contraction of the kernel: its position, its node and the types of its operands."""

    position: int
    node: Node
    types: tuple[TensorType, ...]


def head_at(task: Task, position: int) -> Head:
    """The contraction at a position of the task's group."""
    node = task.program.graph.nodes[task.program.operators[task.nest.members[position]].node]
    return Head(position, node, tuple(operand_types(task.program.graph, node)))


class Gemm:
    """Writes one contraction on the FMA pipe.

    A thread has `high` x `wide` points of the tile; other pipes say where they are and how strips and products are
    written.
    """

    step = STEP

    def __init__(self, task: Task) -> None:
        self.task = task
        self.nest = task.nest
        self.heads = [head_at(task, position) for position in task.nest.heads]
        self.head, self.node, self.types = self.heads[0].position, self.heads[0].node, self.heads[0].types
        self.kind = sum_type(self.types)
        self.loops = self.roles()
        self.tile = choose_tile(task.tile("tile_m", 64), task.tile("tile_n", 64), len(self.heads))
        self.own = self.tile.n // len(self.heads)  # columns of the tile that are of one contraction
        self.high, self.wide = self.tile.high, self.tile.wide
        self.split = task.tile("split", 1)
        self.batch, self.m, self.n, self.k = (
            self._size(part) for part in (self.loops.batch, self.loops.m, self.loops.n, self.loops.k)
        )
        self._check()

    def roles(self) -> GemmLoops:
        """The loops of the result by role."""
        return gemm_loops(self.nest, self.head, self.task.program.operators[self.nest.members[self.head]])

    def _check(self) -> None:
        if self.node.op not in KNOWN:
            raise UnsupportedError(f"{self.node.op} is not supported in generated kernels")
        if any(task_writes_upstream(self.task, s) for s in self.task.kernel.writes):
            raise UnsupportedError("an operand that the contraction makes for itself is also written")
        self.task.check_range(max(self.batch * self.m * self.n * self.split, 2 * self.k))
        per = -(-self._steps() // self.split) if self.split > 1 else self._steps()
        self.chunk = per * self.step

    def _size(self, loops: Sequence[int]) -> int:
        return prod(self.nest.extent[loop] for loop in loops)

    def _steps(self) -> int:
        return ceil_div(self.k, self.step)

    def emit(self) -> tuple[EmittedKernel, ...]:
        """All kernels of the group."""
        if self.split == 1:
            return (self._main(None),)
        space = Workspace(size=self.split * self._sums, kind=self.kind)
        return self._main(space), self._joined()

    @property
    def _sums(self) -> int:
        """Partial sums of one part of a split: a result of each contraction."""
        return len(self.heads) * self.batch * self.m * self.n

    # the main kernel

    def _main(self, space: Workspace | None) -> EmittedKernel:
        source, tile = self.task.source(workspace=space is not None), self.tile
        tiles_m, tiles_n = ceil_div(self.m, tile.m), ceil_div(self.n, self.own)
        self._begin(source, tiles_m, tiles_n)
        self.declare(source)
        self.walk(source)
        self.finish(source, space)
        blocks = tiles_m * tiles_n * self.batch * self.split
        return source.emitted(blocks, tile.threads, self.shared_bytes(), space)

    def shared_bytes(self) -> int:
        """Bytes of shared memory asked for at launch: none, strips are declared; UnsupportedError where too large."""
        item = 8 if self.kind in ("f64", "i64") else 4
        shared = gemm_bytes(self.tile.m, self.tile.n, STEP, FMA_BUFFERS, item)
        if shared > STATIC_SHARED:
            raise UnsupportedError(f"the tile needs {shared} bytes of shared memory, {STATIC_SHARED} are static")
        return 0

    def _begin(self, source: TaskSource, tiles_m: int, tiles_n: int) -> None:
        """Thread, tile, batch and chunk of the block."""
        tile = self.tile
        source.line("tid = u32(cuda.threadIdx.x)")
        if not self.task.launch:
            source.line(f"block = {source.block_number}")
        source.line(f"n_base = u32(block % u32({tiles_n}) * u32({self.own}))")
        source.line(f"m_base = u32(block // u32({tiles_n}) % u32({tiles_m}) * u32({tile.m}))")
        source.line(f"rest = u32(block // u32({tiles_n * tiles_m}))")
        source.line(f"batch = u32(rest % u32({self.batch}))")
        source.line(f"part = u32(rest // u32({self.batch}))")
        place = len(source.lines)
        source.used.update(source.vars[loop].name for loop in self.loops.batch)
        source.unravel("batch", self.loops.batch, place, source.depth)

    def declare(self, source: TaskSource) -> None:
        """Where the thread is in the tile, strips, accumulators and a fragment."""
        tile = self.tile
        source.line(f"tx = u32(tid % u32({tile.across}))")
        source.line(f"ty = u32(tid // u32({tile.across}))")
        source.declare_shared("sa", FMA_BUFFERS * STEP * tile.m, self.kind)
        source.declare_shared("sb", FMA_BUFFERS * STEP * tile.n, self.kind)
        source.line(f"fa = cuda.local.array({tile.high}, {self.kind})")
        self.accumulators(source)

    def accumulators(self, source: TaskSource) -> None:
        """The thread's points, zero."""
        source.line(f"acc = cuda.local.array({self.high * self.wide}, {self.kind})")
        with source.block(f"for q in range({self.high * self.wide}):"):
            source.line(f"acc[q] = {self.kind}(0)")

    def bounds(self, source: TaskSource) -> None:
        """First and last element of the reduced axes of this block: `first`, `end`."""
        if self.split == 1:
            source.line("first = u32(0)")
            source.line(f"end = u32({self.k})")
        else:
            source.line(f"first = u32(part * u32({self.chunk}))")
            source.line(f"end = min(u32((part + u32(1)) * u32({self.chunk})), u32({self.k}))")

    def walk(self, source: TaskSource) -> None:
        """The loop over steps of the reduced axes."""
        self.bounds(source)
        source.line("k_base = first")
        source.line("buf = u32(0)")
        with source.block("while k_base < end:"):
            self._load(source, "sa", self.tile.m, left=True)
            self._load(source, "sb", self.tile.n, left=False)
            source.line("cuda.syncthreads()")
            self._multiply(source)
            source.line(f"k_base = u32(k_base + u32({STEP}))")
            source.line("buf = u32(u32(1) - buf)")

    def along_k(self, *, left: bool) -> bool:
        """Whether the innermost axis of an operand is a reduced one."""
        reads = self.task.program.operators[self.nest.members[self.head]].reads[:2]
        axes = reads[0 if left else len(reads) - 1].axes
        return bool(axes) and axes[-1].kind is AccessKind.REDUCED

    def _load(self, source: TaskSource, shared: str, width: int, *, left: bool) -> None:
        """Fill one operand strip: element by element, neighbours in memory by neighbouring threads."""
        threads, count = self.tile.threads, width * STEP
        with source.block(f"for q in range({ceil_div(count, threads)}):"):
            source.line(f"f = u32(tid + u32(q) * u32({threads}))")
            guard = source.block(f"if f < u32({count}):") if count % threads else source.scope()
            with guard:
                if self.along_k(left=left):
                    source.line(f"kk = u32(f % u32({STEP}))")
                    source.line(f"w = u32(f // u32({STEP}))")
                else:
                    source.line(f"kk = u32(f // u32({width}))")
                    source.line(f"w = u32(f % u32({width}))")
                self.element(source, left=left)
                where = source.slot(shared, f"(buf * u32({STEP}) + kk) * u32({width}) + w")
                source.line(f"{where} = x")

    def side(self, *, left: bool) -> Side:
        """The free axes of an operand."""
        if left:
            return Side("mi", "m_base", self.m, self.loops.m, self.tile.m)
        place = "w" if len(self.heads) == 1 else f"w % u32({self.own})"
        return Side("ni", "n_base", self.n, self.loops.n, self.tile.n, place)

    def element(self, source: TaskSource, *, left: bool) -> None:
        """`x`: the operand element `w`, `kk` of the strip, zero outside the matrix."""
        side = self.side(left=left)
        flat, start, extent, order = side.flat, side.base, side.extent, side.loops
        source.line("ki = u32(k_base + kk)")
        source.line(f"{flat} = u32({start} + {side.place})")
        source.line(f"x = {self.kind}(0)")
        with source.block(f"if {flat} < u32({extent}) and ki < end:"):
            place = len(source.lines)
            depth = source.depth
            for head in self.strips_of(source, left=left):
                with ExitStack() as open_:
                    source.line(f"x = {self.operand(source, open_, head, left=left)}")
            source.unravel(flat, order, place, depth)
            source.unravel("ki", self.loops.k, place, depth)

    def strips_of(self, source: TaskSource, *, left: bool) -> Iterator[Head]:
        """The contractions whose operands share a strip, each in the branch that the strip's element `w` chooses."""
        if left or len(self.heads) == 1:
            yield self.heads[0]
            return
        for n, head in enumerate(self.heads):
            last = n == len(self.heads) - 1
            with source.block("else:" if last else f"{'el' if n else ''}if w < u32({(n + 1) * self.own}):"):
                yield head

    def operand(self, source: TaskSource, open_: ExitStack, head: Head, *, left: bool) -> str:
        """The text of an operand element at the current loop variables."""
        index = source.coords(head.position)
        inner = source.folded(head.position, inner_extents(head.node, head.types))
        found = product(source, head.node, index, inner)
        side = 0 if left else 1
        where = enter(source, open_, found.left, found.lead, head.types[0].shape) if left else found.right
        text = source.operand(head.node.inputs[side], head.types[side], where)
        return source.cast(text, head.types[side], self.kind)

    def _multiply(self, source: TaskSource) -> None:
        """The products of one step."""
        tile = self.tile
        with source.block(f"for kk in range({STEP}):"):
            source.line(f"pa = u32((buf * u32({STEP}) + u32(kk)) * u32({tile.m}) + ty)")
            source.line(f"pb = u32((buf * u32({STEP}) + u32(kk)) * u32({tile.n}) + tx)")
            with source.block(f"for r in range({tile.high}):"):
                source.line(f"fa[r] = {source.slot('sa', f'pa + u32(r) * u32({tile.down})')}")
            with source.block(f"for c in range({tile.wide}):"):
                source.line(f"y = {source.slot('sb', f'pb + u32(c) * u32({tile.across})')}")
                with source.block(f"for r in range({tile.high}):"):
                    source.line(f"acc[r * {tile.wide} + c] += fa[r] * y")

    # behind the sum

    def finish(self, source: TaskSource, space: Workspace | None) -> None:
        """Every point of the thread: what is behind the sum, and the stores."""
        points = self.high * self.wide
        heavy = points > MANY_POINTS or self._instructions_behind() * points > UNROLL_LIMIT
        if not heavy or self.high == 1:
            with source.block(f"for r in range({self.high}):"):
                self._row(source, space, "r")
            return
        for row in range(self.high):  # the compiler would keep the accumulators in local memory
            with source.scope():
                self._row(source, space, str(row))

    def _instructions_behind(self) -> float:
        """Machine instructions of what is behind the sum, per point."""
        operators = self.task.program.operators
        front = {*self.nest.heads, *self.nest.upstream}
        behind = [m for i, m in enumerate(self.nest.members) if i not in front]
        return sum(operators[m].work.instructions for m in behind)

    def row_of(self, row: str) -> str:
        """The line that defines the outer index of the thread's row `row` of points."""
        return f"mi = u32(m_base + ty + u32({row}) * u32({self.tile.down}))"

    def column_of(self) -> str:
        """The line that defines the inner index of the thread's point `c` of a row."""
        return f"ni = u32(n_base + tx + u32(c) * u32({self.tile.across}))"

    def point_of(self, row: str) -> list[str]:
        """The accumulators of point `c` of a row, one of each contraction."""
        each = self.wide // len(self.heads)
        return [f"acc[{row} * {self.wide} + {f'{n * each} + ' if n else ''}c]" for n in range(len(self.heads))]

    def _row(self, source: TaskSource, space: Workspace | None, row: str) -> None:
        source.line(self.row_of(row))
        with source.block(f"for c in range({self.wide // len(self.heads)}):"):
            source.line(self.column_of())
            self.point(source, space, self.point_of(row))

    def point(self, source: TaskSource, space: Workspace | None, totals: Sequence[str]) -> None:
        """What is behind the sums of the point `mi`, `ni`, where that is one; or the partial sums stored."""
        with source.block(f"if mi < u32({self.m}) and ni < u32({self.n}):"):
            place = len(source.lines)
            if space is not None:
                flat = source.index(_flat_out(source, self.nest.out[self.head]))
                for n, total in enumerate(totals):
                    start = f"u32({n * self.batch * self.m * self.n}) + " if n else ""
                    source.line(f"w0[part * u32({self._sums}) + {start}{flat}] = {total}")
            else:
                self._behind(source, [source.value(total) for total in totals])
            source.unravel("ni", self.loops.n, place, source.depth)
            source.unravel("mi", self.loops.m, place, source.depth)

    def _behind(self, source: TaskSource, totals: Sequence[str]) -> None:
        for head, total in zip(self.heads, totals, strict=True):
            name = head.node.outputs[0]
            goal = compute_type(self.task.program.graph.type_of(name).dtype)
            text = total if goal == self.kind else source.value(f"{goal}({total})")
            source.known[name] = (source.coords(head.position), text)
        for storage in self.task.kernel.writes:
            source.write_at(storage, frozenset(self.nest.out[self.head]))

    def _joined(self) -> EmittedKernel:
        """The second kernel of a split: sums of the parts, and what is behind them."""
        source = self.task.source(workspace=True)

        def body() -> None:
            totals = []
            for n in range(len(self.heads)):
                totals.append(source.value(f"{self.kind}(0)", "r"))
                start = f"u32({n * self.batch * self.m * self.n}) + " if n else ""
                with source.block(f"for c in range({self.split}):"):
                    source.line(f"{totals[-1]} = {totals[-1]} + w0[u32(c) * u32({self._sums}) + {start}p]")
            self._behind(source, totals)

        return over_points(source, self.nest.out[self.head], 128, 1, body)


def task_writes_upstream(task: Task, storage: int) -> bool:
    """Whether a write belongs to the operators in front of the contraction."""
    return task.writer(storage) in task.nest.upstream


def _flat_out(source: TaskSource, order: Sequence[int]) -> Affine:
    extents = [source.nest.extent[loop] for loop in order]
    return flatten([variable(source.vars[loop]) for loop in order], extents)
