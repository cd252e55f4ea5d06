"""Attention: two contractions around a softmax, keys streamed past a tile of query rows, in one pass.

`lanes` threads share a query row and take every `lanes`-th key. Each keeps a running maximum, a running sum of
exponentials and its own part of the result, rescaled where its maximum grows (the online softmax of M. Milakov and
N. Gimelshein, 2018, arXiv:1805.02867); the lanes, and the blocks of a split over keys, are joined at the end by the
same rule. What lies between the exponential and the second contraction is linear in it and is applied to the sum.
"""

from contextlib import ExitStack
from dataclasses import dataclass
from math import prod

from fusesolve.codegen.affine import Affine, flatten, variable
from fusesolve.codegen.contraction import GemmLoops, gemm_loops
from fusesolve.codegen.folds import Fold
from fusesolve.codegen.kernel import STATIC_SHARED, EmittedKernel, Task, TaskSource, Workspace, ceil_div, shared_type
from fusesolve.codegen.lanes import Partial, Team, join_lanes
from fusesolve.codegen.pointwise import over_points
from fusesolve.codegen.scalars import UnsupportedError, compute_type
from fusesolve.codegen.windows import enter, product
from fusesolve.cost.gpu.layout import attention_bytes
from fusesolve.graph import DType, Graph, Node
from fusesolve.ops import OPS, operand_types
from fusesolve.ops.definition import OpKind

SUM = Fold("reduce_sum", "f32", 1, "f32")
COLUMNS = 16  # columns of the result that one loop joins and writes
MAXIMUM = Fold("reduce_max", "f32", 1, "f32")


@dataclass(frozen=True, slots=True, kw_only=True)
class Softmax:
    """The values of an online softmax by name: what is exponentiated, its maximum, the exponential, its sum."""

    logits: str
    maximum: str
    exponential: str
    total: str


def find_softmax(task: Task) -> Softmax:
    """The softmax between the two contractions; UnsupportedError where it is not exp(x - max(x)) and its sum."""
    graph, operators, nest = task.program.graph, task.program.operators, task.nest
    folds = [graph.nodes[operators[m].node] for m in nest.members if operators[m].kind is OpKind.REDUCE]
    by_op = {node.op: node for node in folds}
    if len(folds) != 2 or set(by_op) != {"reduce_max", "reduce_sum"}:
        raise UnsupportedError("the reductions of the attention are not one maximum and one sum")
    logits, maximum = by_op["reduce_max"].reads[0], by_op["reduce_max"].outputs[0]
    exponential = _plain(graph, by_op["reduce_sum"].reads[0])
    node = _maker(graph, exponential)
    if node is None or node.op != "exp":
        raise UnsupportedError("the sum of the attention is not of exponentials")
    shifted = _maker(graph, _plain(graph, node.reads[0]))
    if shifted is None or shifted.op != "sub" or len(shifted.reads) != 2:
        raise UnsupportedError("the exponential of the attention is not of a difference")
    if _plain(graph, shifted.reads[0]) != _plain(graph, logits) or _plain(graph, shifted.reads[1]) != maximum:
        raise UnsupportedError("the exponential of the attention does not take off the maximum")
    return Softmax(logits=logits, maximum=maximum, exponential=exponential, total=by_op["reduce_sum"].outputs[0])


def _maker(graph: Graph, name: str) -> Node | None:
    made = graph.producer.get(name)
    return None if made is None else graph.nodes[made]


def _plain(graph: Graph, name: str) -> str:
    """The value behind views, copies and casts between floats."""
    node = _maker(graph, name)
    while node is not None and (
        OPS[node.op].kind is OpKind.VIEW
        or (node.op in ("cast", "copy") and all(graph.type_of(n).dtype.is_float for n in (node.reads[0], name)))
    ):
        name = node.reads[0]
        node = _maker(graph, name)
    return name


def emit_attention(task: Task) -> tuple[EmittedKernel, ...]:
    """The kernel of an attention group, or the two of one that is split over keys."""
    return _Attention(task).emit()


class _Attention:
    """Writes one attention group."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.nest = nest = task.nest
        self.first, self.second = nest.heads
        operators, graph = task.program.operators, task.program.graph
        ops = [operators[nest.members[i]] for i in nest.heads]
        self.nodes = [graph.nodes[op.node] for op in ops]
        self.softmax = find_softmax(task)
        if any(node.op != "matmul" for node in self.nodes):
            raise UnsupportedError("attention over something else than matrix products is not supported")
        self.score: GemmLoops = gemm_loops(nest, self.first, ops[0])
        rows = frozenset((*self.score.batch, *self.score.m))
        self.width = tuple(loop for loop in nest.out[self.second] if loop not in rows)
        if frozenset(self.score.n) != frozenset(nest.red[self.second]) or not rows <= frozenset(nest.out[self.second]):
            raise UnsupportedError("the keys of the two contractions of the attention differ")
        self.queries, self.keys = task.tile("tile_m", 64), task.tile("tile_n", 64)
        self.split = task.tile("split", 1)
        threads = 2 * self.queries if self.queries >= 64 else 128
        self.team = Team(lanes=threads // self.queries, rows=self.queries, neighbours=True)
        self.batch, self.m, self.n = (self._size(part) for part in (self.score.batch, self.score.m, self.score.n))
        self.inner, self.head = self._size(self.score.k), self._size(self.width)
        self.stored = self._operand_type()
        if self.head > 256:
            raise UnsupportedError(f"heads of {self.head} do not fit the registers")

    def _size(self, loops: tuple[int, ...]) -> int:
        return prod(self.nest.extent[loop] for loop in loops)

    def _operand_type(self) -> DType:
        """The type in which operands lie in shared memory."""
        graph = self.task.program.graph
        found = {kind.dtype for node in self.nodes for kind in operand_types(graph, node)}
        if any(not kind.is_float or kind is DType.F64 or kind.itemsize == 1 for kind in found):
            raise UnsupportedError("attention in another type than f32, f16 or bf16 is not supported")
        return found.pop() if found in ({DType.F16}, {DType.BF16}) else DType.F32

    def _narrowed(self, text: str) -> str:
        """An f32 element as it lies in shared memory; bf16 as its bits, rounded to nearest even."""
        if self.stored is not DType.BF16:
            return text if self.stored is DType.F32 else f"{self.stored.value}({text})"
        bits = f"u32(float_bits({text}))"
        rounded = f"({bits} + u32(32767) + ({bits} >> u32(16) & u32(1))) >> u32(16)"
        return f"u16(32704) if {text} != {text} else u16({rounded})"

    def _widened(self, slot: str) -> str:
        """An element of shared memory in f32."""
        return f"bits_float(i32(u32({slot}) << u32(16)))" if self.stored is DType.BF16 else f"f32({slot})"

    def emit(self) -> tuple[EmittedKernel, ...]:
        """All kernels of the group."""
        if self.split == 1:
            return (self._main(None),)
        rows = self.batch * self.m
        space = Workspace(size=self.split * rows * (2 + self.head), kind="f32")
        return self._main(space), self._joined()

    # the main kernel

    def _main(self, space: Workspace | None) -> EmittedKernel:
        source = self.task.source(workspace=space is not None)
        tiles = ceil_div(self.m, self.queries)
        elements = self.queries * self.inner + self.keys * (self.inner + self.head)
        shared = attention_bytes(self.queries, self.keys, self.inner, self.head, self.stored.itemsize)
        dynamic = shared > STATIC_SHARED - 4096
        self._begin(source, tiles, 0 if dynamic else elements)
        self._strip(source, "q", self.queries, 0)
        self._walk(source)
        self._lanes(source)
        self._finish(source, space)
        blocks = tiles * self.batch * self.split
        return source.emitted(blocks, self.team.threads, shared if dynamic else 0, space)

    def _begin(self, source: TaskSource, tiles: int, elements: int) -> None:
        """Thread, lane, query row, batch and chunk; running maximum, sum and result."""
        lanes = self.team.lanes
        source.line("tid = u32(cuda.threadIdx.x)")
        source.line(f"lane = u32(tid % u32({lanes}))")
        source.line(f"local = u32(tid // u32({lanes}))")
        source.line("block = u32(cuda.blockIdx.x)")
        source.line(f"m_base = u32(block % u32({tiles}) * u32({self.queries}))")
        source.line(f"rest = u32(block // u32({tiles}))")
        source.line(f"batch = u32(rest % u32({self.batch}))")
        source.line(f"part = u32(rest // u32({self.batch}))")
        place = len(source.lines)
        source.used.update(source.vars[loop].name for loop in self.score.batch)
        source.unravel("batch", self.score.batch, place, source.depth)
        source.line(f"live = m_base + local < u32({self.m})")
        source.line(f"mrow = min(u32(m_base + local), u32({self.m - 1}))")
        source.line(f"sh = cuda.shared.array({elements}, {'' if elements else 'd_'}{shared_type(self.stored)})")
        source.line(f"acc = cuda.local.array({self.head}, f32)")
        with source.block(f"for d in range({self.head}):"):
            source.line("acc[d] = f32(0)")
        source.line("high = f32(-inf)")
        source.line("total = f32(0)")

    def _strip(self, source: TaskSource, which: str, rows: int, start: int) -> None:
        """Load the rows of one operand (q, k or v) into shared memory from element `start`, zero outside."""
        node = self.nodes[1] if which == "v" else self.nodes[0]
        columns, loops = (self.head, self.width) if which == "v" else (self.inner, self.score.k)
        flat, base, limit, order = (
            ("mi", "m_base", f"u32({self.m})", self.score.m) if which == "q" else ("ni", "n_base", "end", self.score.n)
        )
        count, threads = rows * columns, self.team.threads
        with source.block(f"for q in range({ceil_div(count, threads)}):"):
            source.line(f"f = u32(tid + u32(q) * u32({threads}))")
            with source.block(f"if f < u32({count}):") if count % threads else source.scope():
                source.line(f"ci = u32(f % u32({columns}))")
                source.line(f"{flat} = u32({base} + f // u32({columns}))")
                source.line("x = f32(0)")
                with source.block(f"if {flat} < {limit}:"):
                    place, depth = len(source.lines), source.depth
                    with ExitStack() as open_:
                        source.line(f"x = {self._operand(source, open_, node, left=which == 'q')}")
                    source.unravel(flat, order, place, depth)
                    source.unravel("ci", loops, place, depth)
                source.line(f"sh[u32({start}) + f] = {self._narrowed('x')}")

    def _operand(self, source: TaskSource, open_: ExitStack, node: Node, *, left: bool) -> str:
        position = self.first if node is self.nodes[0] else self.second
        types = operand_types(source.graph, node)
        depth = types[0].shape[-2 if node.attr("transpose_a") else -1]
        found = product(source, node, source.coords(position), source.folded(position, (depth,)))
        side = 0 if left else 1
        where = enter(source, open_, found.left, found.lead, types[0].shape) if left else found.right
        return source.cast(source.operand(node.inputs[side], types[side], where), types[side], "f32")

    def _walk(self, source: TaskSource) -> None:
        """Tiles of keys: load keys and values, then every thread takes its keys of the tile."""
        chunk = ceil_div(ceil_div(self.n, self.split), self.keys) * self.keys
        source.line(f"n_base = u32(part * u32({chunk}))")
        source.line(f"end = min(u32(n_base + u32({chunk})), u32({self.n}))")
        k_start = self.queries * self.inner
        v_start = k_start + self.keys * self.inner
        with source.block("while n_base < end:"):
            source.line("cuda.syncthreads()")
            self._strip(source, "k", self.keys, k_start)
            self._strip(source, "v", self.keys, v_start)
            source.line("cuda.syncthreads()")
            source.line("w = lane")
            with source.block(f"while w < u32({self.keys}) and n_base + w < end:"):
                self._key(source, k_start, v_start)
                source.line(f"w = u32(w + u32({self.team.lanes}))")
            source.line(f"n_base = u32(n_base + u32({self.keys}))")

    def _key(self, source: TaskSource, k_start: int, v_start: int) -> None:
        """One key of one query row: its score, the running maximum and sum, and its share of the result."""
        source.line("ni = u32(n_base + w)")
        source.line("mi = mrow")
        source.line("dot = f32(0)")
        with source.block(f"for d in range({self.inner}):"):
            left = self._widened(f"sh[local * u32({self.inner}) + u32(d)]")
            right = self._widened(f"sh[u32({k_start}) + w * u32({self.inner}) + u32(d)]")
            source.line(f"dot += {left} * {right}")
        place, depth = len(source.lines), source.depth
        source.known[self.nodes[0].outputs[0]] = (source.coords(self.first), "dot")
        logit = source.at(self.softmax.logits, self._score_index(source, self.softmax.logits))
        source.unravel("ni", self.score.n, place, depth)
        source.unravel("mi", self.score.m, place, depth)
        with source.block(f"if {logit} > high:"):
            source.line(f"shrink = exp(high - {logit})")
            source.line("total = total * shrink")
            with source.block(f"for d in range({self.head}):"):
                source.line("acc[d] = acc[d] * shrink")
            source.line(f"high = {logit}")
        source.line(f"weight = f32(0) if {logit} == f32(-inf) else exp({logit} - high)")
        source.line("total = total + weight")
        with source.block(f"for d in range({self.head}):"):
            value = self._widened(f"sh[u32({v_start}) + w * u32({self.head}) + u32(d)]")
            source.line(f"acc[d] += weight * {value}")

    def _score_index(self, source: TaskSource, name: str) -> tuple[Affine, ...]:
        """The index of a value between the contractions at the current point."""
        made = self.task.program.storage[source.where[name]].producer
        if made is None or made not in self.nest.position or source.graph.producer[name] != (
            self.task.program.operators[made].node
        ):
            raise UnsupportedError("the attention takes its maximum of a reshaped value")
        return source.coords(self.nest.position[made])

    def _lanes(self, source: TaskSource) -> None:
        """Join the lanes of a row: the greatest maximum, and sums rescaled to it."""
        source.line("own = high")
        join_lanes(source, self.team, [Partial(MAXIMUM, "high")])
        source.line("shrink = f32(0) if own == f32(-inf) else exp(own - high)")
        source.line("total = total * shrink")
        join_lanes(source, self.team, [Partial(SUM, "total")])

    def _finish(self, source: TaskSource, space: Workspace | None) -> None:
        """Column by column: join the lanes, then one of them computes what is behind and stores."""
        rows = self.batch * self.m
        source.line("mi = mrow")
        base = ""
        if space is not None:
            base = f"part * u32({(2 + self.head) * rows}) + batch * u32({self.m}) + mrow"
            with source.block("if lane == u32(0) and live:"):
                source.line(f"w0[{base}] = high")
                source.line(f"w0[{base} + u32({rows})] = total")
        columns = COLUMNS if self.head % COLUMNS == 0 else self.head
        for start in range(0, self.head, columns):  # short loops: the compiler keeps the result in registers
            with source.scope(), source.block(f"for q in range({columns}):"):
                source.line(f"d = u32(u32({start}) + u32(q))")
                source.line(f"out = acc[{start} + q] * shrink")
                join_lanes(source, self.team, [Partial(SUM, "out")])
                with source.block(f"if d % u32({self.team.lanes}) == lane and live:"):
                    if space is not None:
                        source.line(f"w0[{base} + (d + u32(2)) * u32({rows})] = out")
                    else:
                        place, depth = len(source.lines), source.depth
                        self._behind(source, "high", "total", "out")
                        source.unravel("d", self.width, place, depth)
                        source.unravel("mi", self.score.m, place, depth)

    def _behind(self, source: TaskSource, high: str, total: str, out: str) -> None:
        """The linear tail on the sum, the operators behind the second contraction, and the stores."""
        for name, text in (
            (self.softmax.maximum, high), (self.softmax.total, total), (self.softmax.exponential, "f32(1)"),
        ):  # fmt: skip
            made = self.task.program.storage[source.where[name]].producer
            assert made is not None
            source.known[name] = (source.coords(self.nest.position[made]), text)
        keys = {source.vars[loop].name for loop in self.score.n}
        before = source.used & keys
        source.used -= keys
        with ExitStack() as open_:
            tail = self._operand(source, open_, self.nodes[1], left=True)
        if source.used & keys:
            raise UnsupportedError("what lies between softmax and second contraction differs from key to key")
        source.used |= before
        name = self.nodes[1].outputs[0]
        if compute_type(source.graph.type_of(name).dtype) != "f32":
            raise UnsupportedError("attention with another result type than f32, f16 or bf16 is not supported")
        source.known[name] = (source.coords(self.second), source.value(f"{out} * {tail}"))
        for storage in self.task.kernel.writes:
            source.write_at(storage, frozenset(self.nest.out[self.second]))

    def _joined(self) -> EmittedKernel:
        """The second kernel of a split: maxima, sums and results of the parts in one."""
        source = self.task.source(workspace=True)
        rows, step = self.batch * self.m, (2 + self.head) * self.batch * self.m
        order = self.nest.out[self.second]

        def body() -> None:
            row = source.index(self._flat(source, (*self.score.batch, *self.score.m)))
            column = source.index(self._flat(source, self.width))
            source.line(f"row = u32({row})")
            source.line(f"column = u32({column})")
            source.line("high = f32(-inf)")
            with source.block(f"for c in range({self.split}):"):
                source.line(f"own = w0[u32(c) * u32({step}) + row]")
                source.line(f"high = {MAXIMUM.join('high', 'own')}")
            source.line("total = f32(0)")
            source.line("out = f32(0)")
            with source.block(f"for c in range({self.split}):"):
                source.line(f"own = w0[u32(c) * u32({step}) + row]")
                source.line("shrink = f32(0) if own == f32(-inf) else exp(own - high)")
                source.line(f"total = total + w0[u32(c) * u32({step}) + u32({rows}) + row] * shrink")
                part = f"w0[u32(c) * u32({step}) + (column + u32(2)) * u32({rows}) + row]"
                source.line(f"out = out + {part} * shrink")
            self._behind(source, "high", "total", "out")

        return over_points(source, order, 128, 1, body)

    def _flat(self, source: TaskSource, order: tuple[int, ...]) -> Affine:
        extents = [self.nest.extent[loop] for loop in order]
        return flatten([variable(source.vars[loop]) for loop in order], extents)
