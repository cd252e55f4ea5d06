"""Random graphs of few primitives over small matrices, for properties of the kernel space."""

from collections.abc import Iterator
from itertools import combinations

from hypothesis import strategies as st

from fusesolve.builder import GraphBuilder
from fusesolve.candidates.program import Program
from fusesolve.graph import DType, Graph, Literal, TensorType

ROWS, COLUMNS = 4, 6
SHAPES = ((ROWS, COLUMNS), (COLUMNS, ROWS), (ROWS, 1), (1, COLUMNS), (ROWS, ROWS))
KINDS = ("unary", "scale", "binary", "reduce", "transpose", "matmul", "slice", "reshape", "broadcast", "cast", "opaque")


def _fits(left: tuple[int, ...], right: tuple[int, ...]) -> bool:
    return all(a == b or 1 in (a, b) for a, b in zip(left, right, strict=True))


class _Growing:
    """A graph that grows by drawn steps; a step that fits no value falls back to a unary operator."""

    def __init__(self, draw, kinds: tuple[str, ...], scale: int) -> None:
        self.draw, self.kinds, self.scale = draw, kinds, scale
        self.builder = GraphBuilder("random")
        shapes = [tuple(extent * scale if extent > 1 else 1 for extent in shape) for shape in SHAPES]
        self.values = [
            self.builder.input(f"x{i}", TensorType(DType.F32, draw(st.sampled_from(shapes))))
            for i in range(draw(st.integers(1, 3)))
        ]
        self.made: list[str] = []

    def shape(self, name: str) -> tuple[int, ...]:
        return self.builder.type(name).shape

    def pick(self) -> str:
        """A value, the later ones more often: draws shrink towards the last."""
        return self.values[-1 - min(self.draw(st.integers(0, 5)), len(self.values) - 1)]

    def step(self) -> None:
        kind, x = self.draw(st.sampled_from(self.kinds)), self.pick()
        op, operands, attrs = getattr(self, f"_{kind}")(x)
        name = f"v{len(self.made)}"
        if op == "opaque":
            self.builder.add(op, operands, attrs, outputs=(name,), source=name, types=(self.builder.type(x),))
        else:
            self.builder.one(op, operands, attrs, output=name, source=name)
        self.values.append(name)
        self.made.append(name)

    def _unary(self, x):
        return self.draw(st.sampled_from(("exp", "relu", "neg", "tanh"))), [x], {}

    def _scale(self, x):
        return "mul", [x, Literal(0.5)], {}

    def _opaque(self, x):
        return "opaque", [x], {}

    def _cast(self, x):
        return "cast", [x], {"to": self.draw(st.sampled_from(("f16", "f32")))}

    def _binary(self, x):
        others = [y for y in self.values if _fits(self.shape(x), self.shape(y))]
        op = self.draw(st.sampled_from(("add", "mul", "sub")))
        return op, [x, self.draw(st.sampled_from(others))], {}

    def _reduce(self, x):
        op = self.draw(st.sampled_from(("reduce_sum", "reduce_max", "reduce_mean")))
        return op, [x], {"axis": (self.draw(st.integers(0, 1)),), "keepdims": True}

    def _transpose(self, x):
        return "transpose", [x], {"perm": (1, 0)}

    def _matmul(self, x):
        inner = self.shape(x)[1]
        others = [y for y in self.values if self.shape(y)[0] == inner]
        return ("matmul", [x, self.draw(st.sampled_from(others))], {}) if others else self._unary(x)

    def _sibling(self, x):
        """A product of an operand that some product reads already, with another second operand of any width."""
        products = [node for name in self.made if (node := self.builder._producer[name]).op == "matmul"]
        if not products:
            return self._matmul(x)
        left = products[-1].inputs[0]
        others = [y for y in self.values if self.shape(y)[0] == self.shape(left)[1]]
        return "matmul", [left, self.draw(st.sampled_from(others))], {}

    def _slice(self, x):
        axis = self.draw(st.integers(0, 1))
        end = self.shape(x)[axis] // 2
        return ("slice", [x], {"axis": axis, "start": 0, "end": end}) if end else self._unary(x)

    def _reshape(self, x):
        rows, columns = self.shape(x)
        return "reshape", [x], {"to": (columns, rows)}

    def _broadcast(self, x):
        rows, columns = self.shape(x)
        wide = (rows if rows > 1 else ROWS * self.scale, columns if columns > 1 else COLUMNS * self.scale)
        return "broadcast", [x], {"to": wide}

    def finish(self) -> Graph:
        read = {item for name in self.made for item in self.builder._producer[name].inputs if isinstance(item, str)}
        extra = self.draw(st.integers(0, 2**len(self.made) - 1))
        for index, name in enumerate(self.made):
            if name not in read or (extra >> index & 1 and index % 3 == 0):
                self.builder.output(name)
        return self.builder.build()


@st.composite
def graphs(draw, most: int = 9, kinds: tuple[str, ...] = KINDS, scale: int = 1) -> Graph:
    """A verified graph of 1 to `most` primitives; every value that nobody reads is an output, and some others.

    Extents are 1, 4 * `scale` and 6 * `scale`.
    """
    growing = _Growing(draw, kinds, scale)
    for _ in range(draw(st.integers(1, most))):
        growing.step()
    return growing.finish()


def connected_convex_sets(program: Program) -> Iterator[tuple[int, ...]]:
    """Every connected convex set of operators, by trying all subsets (2 ** operators)."""
    count = len(program.operators)
    for size in range(1, count + 1):
        for members in combinations(range(count), size):
            if is_connected(program, members) and is_convex(program, members):
                yield members


def is_connected(program: Program, members: tuple[int, ...]) -> bool:
    """Whether data edges inside the set, and operands that contractions share, join all of it."""
    inside, seen, stack = set(members), {members[0]}, [members[0]]
    while stack:
        item = stack.pop()
        near = {*program.preds[item], *program.succs[item], *program.siblings[item]} & inside - seen
        seen |= near
        stack.extend(near)
    return seen == inside


def is_convex(program: Program, members: tuple[int, ...]) -> bool:
    """Whether no path leaves the set and comes back; operator numbers are a topological order."""
    inside, tainted = set(members), set()
    for item in range(min(members), max(members) + 1):
        preds = program.preds[item]
        if item in inside:
            if tainted.intersection(preds):
                return False
        elif any(p in inside or p in tainted for p in preds):
            tainted.add(item)
    return True
