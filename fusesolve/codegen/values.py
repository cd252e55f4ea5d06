"""Values at indices: any value of the graph at any index, written as the scalar code that computes it.

`KernelSource.at` starts from what is asked for and walks back: a value that the kernel computes becomes the
expressions of its operator at that index, any other one a load. What an enclosing scope has computed is used again.
Views are index arithmetic. Reductions and windows met on the way are loops in place, except where a template has put
their result into a register (`known`).
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from math import prod

from fusesolve.candidates.loops import Nest
from fusesolve.candidates.program import Program
from fusesolve.codegen.affine import ZERO, Affine, Var, flatten, split, variable
from fusesolve.codegen.folds import make_fold
from fusesolve.codegen.moves import MOVES
from fusesolve.codegen.scalars import UnsupportedError, compute_type, elementwise_text, literal_text
from fusesolve.codegen.source import Source
from fusesolve.codegen.windows import WINDOWS
from fusesolve.graph import DType, Literal, Node, Operand, TensorType
from fusesolve.ops import OPS, jumps, operand_types
from fusesolve.ops.definition import OpKind

Index = tuple[Affine, ...]


class KernelSource(Source):
    """The body of one kernel over a group's nest.

    `arrays` maps storage to the names of the kernel's arguments; `known` maps a value to the index and the name
    under which a template holds it; `kept` maps results of reductions to the shared arrays that hold all of them.
    """

    def __init__(self, program: Program, nest: Nest, arrays: Mapping[int, str]) -> None:
        super().__init__()
        self.program = program
        self.graph = program.graph
        self.nest = nest
        self.arrays = arrays
        self.known: dict[str, tuple[Index, str]] = {}
        self.kept: dict[str, str] = {}
        self.where = {item.value: item.index for item in program.storage} | dict(program.view_root)
        loops = sorted(nest.extent.items())
        self.vars: dict[int, Var] = {loop: Var(f"i{n}", size) for n, (loop, size) in enumerate(loops)}
        self.aliases: list[tuple[Affine, Var]] = []
        self.walks: dict[int, Affine] = {}  # loops that are walked as an expression of other loops
        members = [self.graph.nodes[program.operators[member].node] for member in nest.members]
        self.jumps = any(jumps(self.graph, node) for node in members)

    # indices

    def coords(self, position: int) -> Index:
        """The index of the result of the member at `position`, over the loops of the nest.

        That of an update in place is the index of what it writes, its second operand.
        """
        op = self.program.operators[self.nest.members[position]]
        node = self.graph.nodes[op.node]
        name = node.reads[-1] if op.in_place else node.outputs[0]
        return self._dims(self.graph.type_of(name).shape, op.out, self.nest.out[position])

    def folded(self, position: int, extents: Sequence[int]) -> Index:
        """The index along the reduced axes (of `extents`) of the member at `position`."""
        op = self.program.operators[self.nest.members[position]]
        return self._dims(extents, op.red, self.nest.red[position])

    def _dims(self, shape: Sequence[int], atoms: Sequence[int], loops: Sequence[int]) -> Index:
        found: list[Affine] = []
        place = 0
        for extent in shape:
            part, size = ZERO, 1
            while size < extent:
                part = part.scaled(atoms[place]) + self.walk_of(loops[place])
                size *= atoms[place]
                place += 1
            found.append(part)
        return tuple(found)

    def walk_of(self, loop: int) -> Affine:
        """The index that a loop stands for."""
        return self.walks.get(loop) or variable(self.vars[loop])

    def index(self, expression: Affine) -> str:
        """As in `Source`, with the flat position of the kernel where the expression contains it."""
        for pattern, var in self.aliases:
            if pattern.terms and set(pattern.terms) <= set(expression.terms):
                rest = tuple(term for term in expression.terms if term not in pattern.terms)
                expression = Affine(rest, expression.const) + variable(var)
        return super().index(expression)

    def fix(self, expression: Affine, extent: int, prefix: str = "t") -> Affine:
        """A new unsigned variable of `extent` that holds an index expression (one that a branch has bounded)."""
        name = self.value(f"u32({self.index(expression)})", prefix)
        return variable(Var(name, extent))

    # values

    def at(self, name: str, index: Index) -> str:
        """The name of the scalar that holds the value `name` at `index`, in its register type."""
        held = self.known.get(name)
        if held is not None and held[0] == index:
            return held[1]
        found = self.recall((name, index))
        return found if found is not None else self.keep((name, index), self._compute(name, index))

    def _compute(self, name: str, index: Index) -> str:
        node = self._maker(name)
        if node is None:
            return self.load(self.where[name], index)
        kind = OPS[node.op].kind
        if kind is OpKind.VIEW:
            return self.at(node.reads[0], self._view(node, index))
        if kind is OpKind.ELEMENTWISE:
            text = self._elementwise(node, index)
            return text if text.isidentifier() else self.value(text)
        if kind is OpKind.REDUCE:
            return self._kept(name, index) if name in self.kept else self._reduce(node, index)
        rule = MOVES.get(node.op) or WINDOWS.get(node.op)
        if rule is None:
            raise UnsupportedError(f"{node.op} is not supported in generated kernels")
        return rule(self, node, index)

    def _maker(self, name: str) -> Node | None:
        """The node that makes a value inside this kernel (a view counts); None where it comes from memory."""
        made = self.graph.producer.get(name)
        if made is None:
            return None
        node = self.graph.nodes[made]
        if OPS[node.op].kind is OpKind.VIEW:
            return node
        producer = self.program.storage[self.where[name]].producer
        return node if producer in self.nest.position else None

    def _view(self, node: Node, index: Index) -> Index:
        before, after = self.graph.type_of(node.reads[0]).shape, self.graph.type_of(node.outputs[0]).shape
        flat = flatten(index, after)
        found = split(flat, before)
        if found is not None:
            return found
        rest, parts = self.fix(flat, prod(after)), []
        for axis in range(len(before)):
            step = prod(before[axis + 1 :])
            name = self.value(f"u32({self.index(rest)} // u32({step}) % u32({before[axis]}))", "t")
            parts.append(variable(Var(name, before[axis])))
        return tuple(parts)

    def operand(self, item: Operand, kind: TensorType, index: Index) -> str:
        """An operand at an index of its own, or a literal."""
        return literal_text(item, kind) if isinstance(item, Literal) else self.at(item, index)

    def _elementwise(self, node: Node, index: Index) -> str:
        types = operand_types(self.graph, node)
        result = self.graph.type_of(node.outputs[0])
        texts = [
            self.operand(item, kind, broadcast_index(kind.shape, result.shape, index))
            for item, kind in zip(node.inputs, types, strict=True)
        ]
        if jumps(self.graph, node) or node.op == "cast":
            texts = [self.rounded(*found) for found in zip(node.inputs, types, texts, strict=True)]
        return elementwise_text(node, texts, types, result)

    def _kept(self, name: str, index: Index) -> str:
        flat = self.index(flatten(index, self.graph.type_of(name).shape))
        return self.value(f"{self.kept[name]}[{flat}]")

    def rounded(self, item: Operand, kind: TensorType, text: str) -> str:
        """A computed value of 16 bits rounded to its type, where the kernel has an operator that jumps.

        Such an operator compares, rounds or picks: it has to see what another kernel would have stored.
        """
        narrow = kind.dtype in (DType.F16, DType.BF16)
        if not (narrow and self.jumps) or isinstance(item, Literal) or self._maker(item) is None:
            return text
        key = ("rounded", text)
        found = self.recall(key)
        return found if found is not None else self.keep(key, self.value(self.through(kind.dtype, text)))

    def through(self, dtype: DType, text: str) -> str:
        """An f32 rounded to a type of 16 bits, as an f32."""
        return f"f32({dtype.value}({text}))"

    def _reduce(self, node: Node, index: Index) -> str:
        """A reduction in place: a loop over its axes at this index."""
        operand, result = self.graph.type_of(node.reads[0]), self.graph.type_of(node.outputs[0])
        axes = node.attr("axis")
        assert isinstance(axes, tuple)
        extents = [operand.shape[axis] for axis in axes]
        fold = make_fold(node.op, operand, result, prod(extents))
        total = self.value(fold.start(), "r")
        best = self.value("i64(0)", "r") if fold.indexed else ""
        with self.loops(extents) as reduced:
            element = self.at(node.reads[0], reduced_index(node, operand.shape, index, reduced))
            if fold.indexed:
                element = self.rounded(node.reads[0], operand, element)
                place = self.value(f"i64({self.index(reduced[0])})")
                with self.block(f"if {fold.wins(element, place, total, best)}:"):
                    self.line(f"{total} = {element}")
                    self.line(f"{best} = {place}")
            else:
                self.line(f"{total} = {fold.join(total, self.cast(element, operand, fold.kind))}")
        return best if fold.indexed else self.value(fold.finish(total))

    def cast(self, text: str, kind: TensorType, goal: str) -> str:
        """A scalar of a tensor's register type in another one."""
        own = compute_type(kind.dtype)
        return text if own == goal else f"{goal}({text})"

    @contextmanager
    def loops(self, extents: Sequence[int]) -> Iterator[Index]:
        """Nested counted loops with u32 counters: a context that gives one index expression per extent."""
        found: list[Affine] = []
        with ExitStack() as open_:
            for extent in extents:
                if extent == 1:
                    found.append(ZERO)
                    continue
                counter = self.fresh("d")
                open_.enter_context(self.block(f"for {counter} in range({extent}):"))
                found.append(variable(Var(self.value(f"u32({counter})", "t"), extent)))
            yield tuple(found)

    # memory

    def load(self, storage: int, index: Index) -> str:
        """A load of one element of a storage at an index of its value."""
        kind = self.program.storage[storage].type
        return self.fetch(storage, self.offset(storage, flatten(index, kind.shape), index))

    def offset(self, storage: int, flat: Affine, index: Index) -> Affine:
        """The position in memory: dense row-major, or by the strides that the model gives to what it is fed."""
        steps = self.graph.values[self.program.storage[storage].value].strides
        if steps is None or self.program.storage[storage].producer is not None:
            return flat
        total = ZERO
        for part, step in zip(index, steps, strict=True):
            total = total + part.scaled(step)
        return total

    def fetch(self, storage: int, offset: Affine) -> str:
        """A load from a position; templates override it to hold rows."""
        if storage not in self.arrays:
            raise UnsupportedError(f"{self.program.storage[storage].value} is not an argument of the kernel")
        kind = compute_type(self.program.storage[storage].type.dtype)
        text = f"{self.arrays[storage]}[{self.index(offset)}]"
        return self.value(text if kind == "b1" else f"{kind}({text})")

    def store(self, storage: int, index: Index, text: str) -> None:
        """A store of one element."""
        kind = self.program.storage[storage].type
        self.line(f"{self.arrays[storage]}[{self.index(flatten(index, kind.shape))}] = {text}")


def broadcast_index(shape: Sequence[int], result: Sequence[int], index: Index) -> Index:
    """The index of an operand that broadcasts to a result: right-aligned, 0 where its extent is 1."""
    shift = len(result) - len(shape)
    return tuple(index[axis + shift] if extent != 1 else ZERO for axis, extent in enumerate(shape))


def reduced_index(node: Node, shape: Sequence[int], index: Index, reduced: Index) -> Index:
    """The operand's index of a reduction from the result's index and that along the reduced axes."""
    axes = node.attr("axis")
    assert isinstance(axes, tuple)
    kept = list(index)
    if not node.attr("keepdims"):
        for axis in axes:
            kept.insert(axis, ZERO)
    return tuple(reduced[axes.index(axis)] if axis in axes else kept[axis] for axis in range(len(shape)))
