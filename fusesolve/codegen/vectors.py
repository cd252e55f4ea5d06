"""Pointwise kernels whose threads take neighbouring points and move them in one access of up to 16 bytes.

A vector lies along the innermost loops. An array is loaded or stored whole where its points are neighbours in memory
and every vector starts at a multiple of its width, which extents, strides and offsets prove; what does not change along
the vector is one load. Where anything else turns with the innermost loops (a transposed or guarded access), a kernel
has no vectors. Arrays start at multiples of 16 bytes, as every allocation and every buffer of `run` does.
"""

from collections.abc import Callable, Sequence
from math import prod

from fusesolve.codegen.affine import Affine, Var, flatten, variable
from fusesolve.codegen.kernel import UNROLL_LIMIT, EmittedKernel, Task, TaskSource, ceil_div
from fusesolve.codegen.scalars import compute_type
from fusesolve.codegen.source import INDENT
from fusesolve.codegen.values import Index
from fusesolve.graph import DType

ACCESS_BYTES = 16
WIDTHS = (16, 8, 4, 2)  # elements of a vector, the widest first


def vector_kernel(
    task: Task, order: Sequence[int], threads: int, per_thread: int, body: Callable[[TaskSource], None]
) -> EmittedKernel | None:
    """The kernel that runs `body` at every point of `order` with the widest vectors that fit; None where none do.

    The loop over a vector must be one that the compiler unrolls.
    """
    points = prod(task.nest.extent[loop] for loop in order)
    each = sum(task.program.operators[member].work.instructions for member in task.nest.members)
    for width in WIDTHS:
        if width > per_thread or points % width or width * each > UNROLL_LIMIT:
            continue
        source = VectorSource(task, order, width)
        source.write(threads, per_thread // width, body)
        if not source.scattered:
            return source.emitted(ceil_div(points, threads * per_thread), threads)
    return None


class VectorSource(TaskSource):
    """The body of a kernel whose threads take vectors of `width` points along the innermost loops of `order`."""

    def __init__(self, task: Task, order: Sequence[int], width: int) -> None:
        plain = task.source()
        super().__init__(task, dict(plain.arrays), workspace=False)
        self.width, self.order = width, tuple(order)
        extents = [task.nest.extent[loop] for loop in order]
        inner = next(n for n in range(len(extents) - 1, -1, -1) if prod(extents[n:]) % width == 0)
        self.outer, self.along = self.order[:inner], self.order[inner:]
        self.run = prod(extents[inner:])
        self.first = Var("sb", self.run)
        self.dense = self._dense(self.along)
        self.aliases.append((self._dense(self.outer).scaled(self.run) + variable(self.first), Var("pb", prod(extents))))
        self.flat_alias("p", self.order)
        self.before: list[str] = []
        self.behind: list[str] = []
        self.held: dict[tuple[int, Affine], str] = {}
        self.level = 0  # depth of the loop over a vector
        self.scattered = False
        self.vectors = True

    def _dense(self, loops: Sequence[int]) -> Affine:
        extents = [self.nest.extent[loop] for loop in loops]
        return flatten([variable(self.vars[loop]) for loop in loops], extents)

    def write(self, threads: int, vectors: int, body: Callable[[TaskSource], None]) -> None:
        """All lines: `vectors` vectors a thread, a block of threads apart."""
        points = prod(self.nest.extent[loop] for loop in self.order)
        self.line(f"c0 = u32({self.block_number} * u32({threads * vectors}) + u32(cuda.threadIdx.x))")
        with self.block(f"for c in range({vectors}):") if vectors > 1 else self.scope():
            at = "c0" if vectors == 1 else f"(c0 + u32(c) * u32({threads}))"
            self.line(f"pb = u32({at} * u32({self.width}))")
            exact = points % (threads * vectors * self.width) == 0
            with self.scope() if exact else self.block(f"if pb < u32({points}):"):
                self._vector(body)

    def _vector(self, body: Callable[[TaskSource], None]) -> None:
        place, depth = len(self.lines), self.depth
        with self.block(f"for e in range({self.width}):"):
            inside, self.level = len(self.lines), self.depth
            body(self)
            self.unravel("s", self.along, inside, self.level)
            if any(self.vars[loop].name in self.used for loop in self.along):
                self.lines.insert(inside, f"{INDENT * self.level}s = u32(sb + u32(e))")
                self.used.add("sb")
            if "p" in self.used:
                self.lines.insert(inside, f"{INDENT * self.level}p = u32(pb + u32(e))")
        self.lines[place:place] = [INDENT * depth + text for text in self.before]
        for text in self.behind:
            self.line(text)
        lines = len(self.lines)
        self.unravel("po", self.outer, place, depth)
        if len(self.lines) > lines:
            self.lines.insert(place, f"{INDENT * depth}po = u32(pb // u32({self.run}))")
        if "sb" in self.used:
            self.lines.insert(place, f"{INDENT * depth}sb = u32(pb % u32({self.run}))")

    def start(self, storage: int, offset: Affine) -> str | None:
        """The text of the position of a vector's first element; None where its elements are not one aligned access."""
        rest = tuple(term for term in offset.terms if term not in self.dense.terms)
        whole = len(rest) + len(self.dense.terms) == len(offset.terms)
        steps = [step for _, step in rest]
        apart = self.turns(Affine(rest)) or any(step % self.width for step in (*steps, offset.const))
        size = self.program.storage[storage].type.dtype.itemsize * self.width
        if not whole or apart or size > ACCESS_BYTES or self.depth != self.level or offset.const < 0:
            return None
        return f"u32({self.index(Affine(rest, offset.const) + variable(self.first))})"

    def turns(self, offset: Affine) -> bool:
        """Whether an index changes along the vector."""
        return not offset.names <= {self.vars[loop].name for loop in self.outer}

    def fetch(self, storage: int, offset: Affine) -> str:
        """A load: the element of a vector that is loaded before the loop over it, or one element."""
        if not self.turns(offset):
            return super().fetch(storage, offset)
        name = self.held.get((storage, offset))
        if name is None:
            dtype = self.program.storage[storage].type.dtype
            where = None if dtype is DType.BOOL else self.start(storage, offset)
            if where is None:
                self.scattered = True
                return super().fetch(storage, offset)
            name = self.held[storage, offset] = self.fresh("x")
            self.before.append(f"{name} = load{self.width}({self.arrays[storage]}, {where})")
        return self.value(f"{compute_type(self.program.storage[storage].type.dtype)}({name}[e])")

    def stored(self, storage: int, text: str) -> str:
        """As it is computed: a vector is narrowed when it is stored."""
        return text

    def store(self, storage: int, index: Index, text: str) -> None:
        """A store: into a vector that is stored behind the loop over it."""
        kind = self.program.storage[storage].type
        where = None if kind.dtype is DType.BOOL else self.start(storage, flatten(index, kind.shape))
        if where is None:
            self.scattered = True
            return
        name = self.fresh("y")
        self.before.append(f"{name} = cuda.local.array({self.width}, {compute_type(kind.dtype)})")
        self.line(f"{name}[e] = {text}")
        parts = ", ".join(f"{kind.dtype.value}({name}[{n}])" for n in range(self.width))
        self.behind.append(f"store{self.width}({self.arrays[storage]}, {where}, ({parts}))")
