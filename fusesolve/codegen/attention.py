"""Attention: two contractions around a softmax, in one pass over the keys; what its emitters share.

A running maximum, a running sum of exponentials and a result that is rescaled where the maximum grows make the online
softmax of M. Milakov and N. Gimelshein, 2018, arXiv:1805.02867; results of several parts of the keys are joined by the
same rule. What lies between the exponential and the second contraction is linear in it and is applied to the sum.
"""

from abc import ABC, abstractmethod
from contextlib import ExitStack
from dataclasses import dataclass
from math import prod

from fusesolve.codegen.affine import Affine, flatten, variable
from fusesolve.codegen.contraction import GemmLoops, gemm_loops
from fusesolve.codegen.folds import Fold
from fusesolve.codegen.kernel import EmittedKernel, Task, TaskSource, Workspace, ceil_div
from fusesolve.codegen.pointwise import over_points
from fusesolve.codegen.scalars import UnsupportedError, compute_type
from fusesolve.codegen.windows import enter, inner_extents, product
from fusesolve.graph import DType, Graph, Node
from fusesolve.ops import OPS, operand_types
from fusesolve.ops.definition import OpKind

SUM = Fold("reduce_sum", "f32", 1, "f32")
MAXIMUM = Fold("reduce_max", "f32", 1, "f32")


@dataclass(frozen=True, slots=True, kw_only=True)
class Softmax:
    """The values of an online softmax by name: what is exponentiated, its maximum, the exponential, its sum."""

    logits: str
    maximum: str
    exponential: str
    total: str


def operand_type(task: Task) -> DType:
    """The type in which both contractions' operands lie in shared memory; UnsupportedError for f64 and 8 bits."""
    graph, members = task.program.graph, [task.nest.members[head] for head in task.nest.heads]
    nodes = [graph.nodes[task.program.operators[member].node] for member in members]
    found = {kind.dtype for node in nodes for kind in operand_types(graph, node)}
    if any(not kind.is_float or kind is DType.F64 or kind.itemsize == 1 for kind in found):
        raise UnsupportedError("attention in another type than f32, f16 or bf16 is not supported")
    return found.pop() if found in ({DType.F16}, {DType.BF16}) else DType.F32


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


@dataclass(frozen=True, slots=True)
class Side:
    """Rows of an operand: flat index, the tile's first one, their end, their loops, and the loops along a row."""

    flat: str
    base: str
    end: str
    loops: tuple[int, ...]
    inner: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Merge:
    """Where a part's maximum, sum and result lie."""

    high: str
    total: str
    out: str


class Chain:
    """Two contractions, the second over what the operators between make of the first's result.

    Queries are rows of the first's left operand, keys its columns and the reduced loops of the second.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        self.nest = nest = task.nest
        self.first, self.second = nest.heads
        operators, graph = task.program.operators, task.program.graph
        ops = [operators[nest.members[i]] for i in nest.heads]
        self.nodes = [graph.nodes[op.node] for op in ops]
        self.score: GemmLoops = gemm_loops(nest, self.first, ops[0])
        rows = frozenset((*self.score.batch, *self.score.m))
        self.width = tuple(loop for loop in nest.out[self.second] if loop not in rows)
        if frozenset(self.score.n) != frozenset(nest.red[self.second]) or not rows <= frozenset(nest.out[self.second]):
            raise UnsupportedError("the keys of the two contractions of the attention differ")
        self.queries, self.keys = task.tile("tile_m", 64), task.tile("tile_n", 64)
        self.split = task.tile("split", 1)
        self.threads = 2 * self.queries if self.queries >= 64 else 128
        self.batch, self.m, self.n = (self._size(part) for part in (self.score.batch, self.score.m, self.score.n))
        self.inner, self.head = self._size(self.score.k), self._size(self.width)
        self.chunk = ceil_div(ceil_div(self.n, self.split), self.keys) * self.keys
        self.stored = operand_type(task)

    def _size(self, loops: tuple[int, ...]) -> int:
        return prod(self.nest.extent[loop] for loop in loops)

    @property
    def tiles(self) -> int:
        """Tiles of query rows of one batch."""
        return ceil_div(self.m, self.queries)

    def begin(self, source: TaskSource) -> None:
        """Thread, tile of query rows, batch, part, and the part's first key and end."""
        source.line("tid = u32(cuda.threadIdx.x)")
        source.line("block = u32(cuda.blockIdx.x)")
        source.line(f"m_base = u32(block % u32({self.tiles}) * u32({self.queries}))")
        source.line(f"rest = u32(block // u32({self.tiles}))")
        source.line(f"batch = u32(rest % u32({self.batch}))")
        source.line(f"part = u32(rest // u32({self.batch}))")
        place = len(source.lines)
        source.used.update(source.vars[loop].name for loop in self.score.batch)
        source.unravel("batch", self.score.batch, place, source.depth)
        source.line(f"first = u32(part * u32({self.chunk}))")
        source.line(f"end = min(u32(first + u32({self.chunk})), u32({self.n}))")

    def side(self, which: str) -> Side:
        """Rows of an operand: q, k or v."""
        if which == "q":
            return Side("mi", "m_base", f"u32({self.m})", self.score.m, self.score.k)
        return Side("ni", "n_base", "end", self.score.n, self.width if which == "v" else self.score.k)

    def element(self, source: TaskSource, open_: ExitStack, which: str) -> str:
        """The text of an element of q, k or v at the current loop variables, in f32."""
        return self.operand(source, open_, self.nodes[1 if which == "v" else 0], left=which == "q")

    def operand(self, source: TaskSource, open_: ExitStack, node: Node, *, left: bool) -> str:
        """The text of an element of a contraction's operand at the current loop variables, in f32."""
        position = self.first if node is self.nodes[0] else self.second
        types = operand_types(source.graph, node)
        inner = source.folded(position, inner_extents(node, types))
        found = product(source, node, source.coords(position), inner)
        side = 0 if left else 1
        where = enter(source, open_, found.left, found.lead, types[0].shape) if left else found.right
        return source.cast(source.operand(node.inputs[side], types[side], where), types[side], "f32")

    def strip(self, source: TaskSource, which: str, rows: int, start: int) -> None:
        """Load the rows of one operand (q, k or v) into the f32 array `sh` from element `start`, zero outside."""
        side, columns = self.side(which), self.head if which == "v" else self.inner
        count = rows * columns
        with source.block(f"for q in range({ceil_div(count, self.threads)}):"):
            source.line(f"f = u32(tid + u32(q) * u32({self.threads}))")
            with source.block(f"if f < u32({count}):") if count % self.threads else source.scope():
                source.line(f"ci = u32(f % u32({columns}))")
                source.line(f"{side.flat} = u32({side.base} + f // u32({columns}))")
                source.line("x = f32(0)")
                with source.block(f"if {side.flat} < {side.end}:"):
                    place, depth = len(source.lines), source.depth
                    with ExitStack() as open_:
                        source.line(f"x = {self.element(source, open_, which)}")
                    source.unravel(side.flat, side.loops, place, depth)
                    source.unravel("ci", side.inner, place, depth)
                source.line(f"sh[u32({start}) + f] = x")

    def store(self, source: TaskSource, out: str) -> None:
        """The operators behind the second contraction, whose result is `out`, and the stores."""
        name = self.nodes[1].outputs[0]
        if compute_type(source.graph.type_of(name).dtype) != "f32":
            raise UnsupportedError("attention with another result type than f32, f16 or bf16 is not supported")
        source.known[name] = (source.coords(self.second), source.value(out))
        for storage in self.task.kernel.writes:
            source.write_at(storage, frozenset(self.nest.out[self.second]))


class Attention(Chain, ABC):
    """Writes one attention group around an online softmax; `main` is the pipe's own kernel."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.softmax = find_softmax(task)
        if any(node.op != "matmul" for node in self.nodes):
            raise UnsupportedError("attention over something else than matrix products is not supported")
        if self.head > 256:
            raise UnsupportedError(f"heads of {self.head} do not fit the registers")

    def emit(self) -> tuple[EmittedKernel, ...]:
        """All kernels of the group: the main one, and one that joins where it is split over keys."""
        if self.split == 1:
            return (self.main(None),)
        rows = self.batch * self.m
        space = Workspace(size=self.split * rows * (2 + self.head), kind="f32")
        return self.main(space), self._joined()

    @abstractmethod
    def main(self, space: Workspace | None) -> EmittedKernel:
        """The kernel that walks the keys; with `space`, a block leaves maxima, sums and results of its part there."""

    def logit(self, source: TaskSource, dot: str) -> str:
        """The name of what is exponentiated at the current query and key, from their product `dot`."""
        name = self.softmax.logits
        made = self.task.program.storage[source.where[name]].producer
        if (
            made is None
            or made not in self.nest.position
            or source.graph.producer[name] != (self.task.program.operators[made].node)
        ):
            raise UnsupportedError("the attention takes its maximum of a reshaped value")
        source.known[self.nodes[0].outputs[0]] = (source.coords(self.first), dot)
        return source.at(name, source.coords(self.nest.position[made]))

    def merged(self, source: TaskSource, parts: int, places: Merge) -> None:
        """`best`, `sum_` and `out` of a point from those of `parts` parts: places are texts over the part `c`."""
        source.line("best = f32(-inf)")
        with source.block(f"for c in range({parts}):"):
            source.line(f"own = {places.high}")
            source.line(f"best = {MAXIMUM.join('best', 'own')}")
        source.line("sum_ = f32(0)")
        source.line("out = f32(0)")
        with source.block(f"for c in range({parts}):"):
            source.line(f"own = {places.high}")
            source.line("shrink = f32(0) if own == f32(-inf) else exp(own - best)")
            source.line(f"sum_ = sum_ + {places.total} * shrink")
            source.line(f"out = out + {places.out} * shrink")

    def behind(self, source: TaskSource, high: str, total: str, out: str) -> None:
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
            tail = self.operand(source, open_, self.nodes[1], left=True)
        if source.used & keys:
            raise UnsupportedError("what lies between softmax and second contraction differs from key to key")
        source.used |= before
        self.store(source, f"{out} * {tail}")

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
            places = Merge(
                f"w0[u32(c) * u32({step}) + row]", f"w0[u32(c) * u32({step}) + u32({rows}) + row]",
                f"w0[u32(c) * u32({step}) + (column + u32(2)) * u32({rows}) + row]",
            )  # fmt: skip
            self.merged(source, self.split, places)
            self.behind(source, "best", "sum_", "out")

        return over_points(source, order, 128, 1, body)

    def _flat(self, source: TaskSource, order: tuple[int, ...]) -> Affine:
        extents = [self.nest.extent[loop] for loop in order]
        return flatten([variable(source.vars[loop]) for loop in order], extents)
