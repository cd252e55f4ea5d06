"""The program: a graph as the planner sees it.

Views (reshapes) are gone: they name the same storage, so each operator reads *storage* by atoms (see
`fusesolve.candidates.atoms`). Operators and storage are numbered; operator numbers are a topological order.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from fusesolve.access import AccessKind, AccessMap
from fusesolve.candidates.aliasing import Aliases, find_aliases
from fusesolve.candidates.atoms import Atoms, Looks, relate_views, same_pairs
from fusesolve.candidates.links import Links
from fusesolve.candidates.siblings import near_products
from fusesolve.graph import DType, Graph, Node, TensorType
from fusesolve.ops import OPS
from fusesolve.ops.definition import OpDef, OpKind, Work

_CLOSED = frozenset({AccessKind.INDIRECT, AccessKind.WHOLE})
_APART = frozenset({AccessKind.WINDOW, AccessKind.SHIFTED})
SMALL_GROUP_WIDTH = 8  # grouped convolutions with fewer result channels per group are windows, not contractions


@dataclass(frozen=True, slots=True)
class AtomAccess:
    """How one atom of the storage is indexed: the kind, and the result atom or reduction atom it follows."""

    kind: AccessKind
    out: int = -1
    red: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """One operand in storage terms.

    `barrier`: the view in between cuts across dimensions. `apart`: a window or a shift stands between the index of the
    operand and that of the result, so a producer is computed at the reader's points (an operand of extent 1 in a
    concat has no atom that would tell). `walks`: for each atom the reader's loop that it follows alone, counted over
    its result loops and then its reduction loops, -1 where it follows none; `closed`: an index depends on data.
    """

    storage: int
    axes: tuple[AtomAccess, ...]
    elements: int  # elements of the operand that the operator touches
    barrier: bool
    apart: bool
    walks: tuple[int, ...]
    closed: bool

    def moved(self, storage: int) -> "Read":
        """The same operand in other storage."""
        return Read(
            storage=storage, axes=self.axes, elements=self.elements, barrier=self.barrier, apart=self.apart,
            walks=self.walks, closed=self.closed,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One operator of the program, with its loops: result atoms `out` and reduction atoms `red` (extents).

    `in_place`: it writes a slice of its second operand's extents into the storage of its first, and nothing else.
    """

    index: int
    node: int
    kind: OpKind
    work: Work
    linear: bool
    is_double: bool
    reads: tuple[Read, ...]
    writes: tuple[int, ...]
    out: tuple[int, ...]
    red: tuple[int, ...]
    points: int
    reduced: int
    in_place: bool = False

    def moved(self, index: int, node: int, reads: tuple[Read, ...], writes: tuple[int, ...]) -> "Operator":
        """The same operator of another node."""
        return Operator(
            index=index, node=node, kind=self.kind, work=self.work, linear=self.linear, is_double=self.is_double,
            reads=reads, writes=writes, out=self.out, red=self.red, points=self.points, reduced=self.reduced,
            in_place=self.in_place,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """A tensor in memory: the value that names it, its bytes, and who makes and reads it (operator numbers).

    `written`: elements that its producer writes, fewer than all where it updates another tensor in place.
    """

    index: int
    value: str
    type: TensorType
    producer: int | None
    readers: tuple[int, ...]
    weight: bool
    required: bool
    written: int


@dataclass(frozen=True, kw_only=True)
class Program:
    """Operators and storage of a graph.

    `view_root`: the storage behind each view. `overwrites`: for operators that write in place, the storage whose old
    value they destroy. `orders`: (reader, writer), the reader of an old value runs before the writer that destroys it.
    """

    graph: Graph
    operators: tuple[Operator, ...]
    storage: tuple[Storage, ...]
    view_root: Mapping[str, int]
    overwrites: Mapping[int, int]
    orders: tuple[tuple[int, int], ...]

    @cached_property
    def preds(self) -> tuple[tuple[int, ...], ...]:
        """Operators that make what each operator reads, ascending."""
        made = [storage.producer for storage in self.storage]
        return tuple(
            tuple(sorted({p for read in op.reads if (p := made[read.storage]) is not None})) for op in self.operators
        )

    @cached_property
    def succs(self) -> tuple[tuple[int, ...], ...]:
        """Operators that read what each operator makes, ascending."""
        return tuple(
            tuple(sorted({r for value in op.writes for r in self.storage[value].readers})) for op in self.operators
        )

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Elements of each storage."""
        return tuple(storage.type.size for storage in self.storage)

    @cached_property
    def links(self) -> Links:
        """What the operands of each operator say about loops."""
        return Links(self)

    @cached_property
    def siblings(self) -> tuple[tuple[int, ...], ...]:
        """`siblings.near_products`."""
        return near_products(self)


def build_program(graph: Graph) -> Program:
    """Number operators and storage of a verified graph, with views resolved to the storage behind them."""
    return _Builder(graph).build()


class _Builder:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.looks = Looks(graph)
        self.alike: dict[Hashable, Operator] = {}
        self.views = [node for node in graph.nodes if OPS[node.op].kind is OpKind.VIEW]
        self.atoms = Atoms(graph)
        for node in graph.nodes:
            if OPS[node.op].kind is not OpKind.VIEW:
                for left, right in same_pairs(node, self.looks.access(node)):
                    self.atoms.join(left, right)
        self.barriers = relate_views(graph, self.views, self.atoms)
        self.root: dict[str, str] = {}
        self.crossed: set[str] = set()
        for node in self.views:
            operand, result = node.reads[0], node.outputs[0]
            self.root[result] = self.root.get(operand, operand)
            if result in self.barriers or operand in self.crossed:
                self.crossed.add(result)

        self.aliases = find_aliases(graph, self.root)

    def build(self) -> Program:
        graph = self.graph
        order = _demand_order(graph, self.aliases)
        nodes = [(i, graph.nodes[i]) for i in order if OPS[graph.nodes[i].op].kind is not OpKind.VIEW]
        names = [*graph.inputs, *graph.weights, *(out for _, node in nodes for out in node.outputs)]
        number = {name: index for index, name in enumerate(dict.fromkeys(names))}
        operators = tuple(self._operator(k, i, node, number) for k, (i, node) in enumerate(nodes))
        view_root = {name: number[root] for name, root in self.root.items()}
        index = {graph.nodes[op.node].outputs[0]: op.index for op in operators}
        aliases = self.aliases
        return Program(
            graph=graph, operators=operators, storage=self._storage(number, operators), view_root=view_root,
            overwrites={index[writer]: number[old] for writer, old in aliases.overwrites.items()},
            orders=tuple((index[reader], index[writer]) for reader, writer in aliases.orders),
        )  # fmt: skip

    def _operator(self, index: int, node_index: int, node: Node, number: Mapping[str, int]) -> Operator:
        if node.outputs[0] in self.aliases.updates:
            return self._update(index, node_index, node, number)
        dims = tuple((self.atoms.all_sizes(name), name in self.crossed) for name in node.reads)
        key = (self.looks.number[node.name], dims, self.atoms.all_sizes(node.outputs[0]))
        like = self.alike.get(key)
        if like is None:
            like = self.alike[key] = self._first_operator(index, node_index, node, number)
        storage = [number[self.root.get(name, name)] for name in node.reads]
        reads = tuple(read.moved(place) for read, place in zip(like.reads, storage, strict=True))
        writes = tuple(number[name] for name in node.outputs)
        return like.moved(index, node_index, reads, writes)

    def _first_operator(self, index: int, node_index: int, node: Node, number: Mapping[str, int]) -> Operator:
        """The operator of a node, for all nodes that look like it up to the numbers of what they read and write."""
        graph, definition, access = self.graph, OPS[node.op], self.looks.access(node)
        result = graph.type_of(node.outputs[0])
        out_first, out = self._result_atoms(node.outputs[0])
        red_first, red = self._reduction_atoms(node, access)
        reads = tuple(
            self._read(node, position, access, (out_first, red_first, len(out)), number)
            for position, operand in enumerate(node.inputs)
            if isinstance(operand, str)
        )
        reduced = 1
        for extent in access.reduced:
            reduced *= extent
        return Operator(
            index=index, node=node_index, kind=_planned_kind(graph, node, definition.kind),
            work=_work_of(node, definition),
            linear=definition.linear, is_double=_computes_doubles(graph, node), reads=reads,
            writes=tuple(number[name] for name in node.outputs), out=out, red=red,
            points=result.size, reduced=reduced,
        )  # fmt: skip

    def _update(self, index: int, node_index: int, node: Node, number: Mapping[str, int]) -> Operator:
        """An update in place: a copy of the second operand, in its own loops, to a slice of the first."""
        base, part = node.reads[0], node.reads[-1]
        _, out = self._result_atoms(part)
        size = self.graph.type_of(part).size
        axes = tuple(AtomAccess(AccessKind.SAME, atom) for atom in range(len(out)))
        untouched = Read(
            storage=number[self.root.get(base, base)], axes=(), elements=0, barrier=True, apart=False, walks=(),
            closed=False,
        )  # fmt: skip
        source = Read(
            storage=number[self.root.get(part, part)], axes=axes, elements=size, barrier=part in self.crossed,
            apart=False, walks=tuple(range(len(out))), closed=False,
        )  # fmt: skip
        definition = OPS[node.op]
        return Operator(
            index=index, node=node_index, kind=definition.kind, work=definition.work, linear=definition.linear,
            is_double=_computes_doubles(self.graph, node), reads=(untouched, source),
            writes=tuple(number[name] for name in node.outputs), out=out, red=(), points=size, reduced=1, in_place=True,
        )  # fmt: skip

    def _result_atoms(self, value: str) -> tuple[list[int], tuple[int, ...]]:
        """Position of the first atom of each result dimension (-1: it has none), and all extents."""
        first: list[int] = []
        extents: list[int] = []
        for sizes in self.atoms.all_sizes(value):
            first.append(len(extents) if sizes else -1)
            extents.extend(sizes)
        return first, tuple(extents)

    def _reduction_atoms(self, node: Node, access: AccessMap) -> tuple[list[int], tuple[int, ...]]:
        where: dict[int, tuple[str, int]] = {}
        for operand, dims in zip(node.inputs, access.operands, strict=True):
            for axis, item in enumerate(dims):
                if item.kind is AccessKind.REDUCED and item.red is not None and isinstance(operand, str):
                    where.setdefault(item.red, (operand, axis))
        first: list[int] = []
        extents: list[int] = []
        for number, size in enumerate(access.reduced):
            first.append(len(extents))
            sizes = self.atoms.sizes(where[number]) if number in where else ((size,) if size != 1 else ())
            extents.extend(sizes)
        return first, tuple(extents)

    def _read(
        self, node: Node, position: int, access: AccessMap, loops: tuple[list[int], list[int], int],
        number: Mapping[str, int],
    ) -> Read:  # fmt: skip
        operand = node.inputs[position]
        out_first, red_first, width = loops
        if not isinstance(operand, str):
            raise TypeError(operand)
        axes: list[AtomAccess] = []
        for axis, item in enumerate(access.operands[position]):
            for step in range(len(self.atoms.sizes((operand, axis)))):
                axes.append(_atom_access(item.kind, item.out, item.red, step, out_first, red_first))
        root = self.root.get(operand, operand)
        return Read(
            storage=number[root], axes=tuple(axes), elements=_touched(self.graph, node, operand, axes),
            barrier=operand in self.crossed,
            apart=any(item.kind in _APART for item in access.operands[position]),
            walks=tuple(_walk(axis, width) for axis in axes), closed=any(axis.kind in _CLOSED for axis in axes),
        )  # fmt: skip

    def _storage(self, number: Mapping[str, int], operators: tuple[Operator, ...]) -> tuple[Storage, ...]:
        graph = self.graph
        required = {number[self.root.get(name, name)] for name in graph.outputs}
        producer = {value: op.index for op in operators for value in op.writes}
        readers: dict[int, list[int]] = {}
        for op in operators:
            for value in dict.fromkeys(read.storage for read in op.reads):
                readers.setdefault(value, []).append(op.index)
        weights = set(graph.weights)
        parts = {op.writes[0]: op.points for op in operators if op.in_place}
        return tuple(
            Storage(
                index=index, value=name, type=graph.type_of(name), producer=producer.get(index),
                readers=tuple(readers.get(index, ())), weight=name in weights, required=index in required,
                written=parts.get(index, graph.type_of(name).size),
            )
            for name, index in number.items()
        )  # fmt: skip


def _demand_order(graph: Graph, aliases: Aliases) -> list[int]:
    """Nodes in the order in which the outputs need them, operands from left to right (depth first).

    A topological order that keeps an operator near its first reader whatever the order of the file, so that
    repeated layers look alike to the memo of the growth. Nodes that no output needs come last. Who reads an old value
    comes before the node that destroys it.
    """
    earlier: dict[int, list[int]] = {}
    for reader, writer in aliases.orders:
        earlier.setdefault(graph.producer[writer], []).append(graph.producer[reader])
    roots = [graph.producer[name] for name in graph.outputs if name in graph.producer]
    order: list[int] = []
    state = bytearray(len(graph.nodes))  # 0 new, 1 open, 2 done
    for root in (*roots, *range(len(graph.nodes))):
        stack = [root]
        while stack:
            item = stack[-1]
            if state[item] == 0:
                state[item] = 1
                operands = [graph.producer[name] for name in graph.nodes[item].reads if name in graph.producer]
                operands += earlier.get(item, [])
                stack.extend(p for p in reversed(operands) if state[p] == 0)
            else:
                stack.pop()
                if state[item] == 1:
                    state[item] = 2
                    order.append(item)
    return order


def _atom_access(
    kind: AccessKind, out: int | None, red: int | None, step: int, out_first: list[int], red_first: list[int]
) -> AtomAccess:
    out_atom = -1 if out is None or out_first[out] < 0 else out_first[out] + (step if kind is AccessKind.SAME else 0)
    red_atom = red_first[red] + (step if kind is AccessKind.REDUCED else 0) if red is not None else -1
    return AtomAccess(kind, out_atom, red_atom)


def _walk(axis: AtomAccess, width: int) -> int:
    if axis.kind is AccessKind.SAME:
        return axis.out
    return width + axis.red if axis.kind is AccessKind.REDUCED else -1


def _touched(graph: Graph, node: Node, operand: str, axes: list[AtomAccess]) -> int:
    """Elements read: all, or the result's for a slice, or the gathered rows."""
    size = graph.type_of(operand).size
    kinds = {axis.kind for axis in axes}
    if kinds & {AccessKind.SHIFTED, AccessKind.INDIRECT}:
        return min(size, sum(graph.type_of(name).size for name in node.outputs))
    return size


def _planned_kind(graph: Graph, node: Node, kind: OpKind) -> OpKind:
    """Depthwise-like convolutions are windows: a contraction tile would be nearly empty."""
    group = node.attr("group", 1)
    if kind is OpKind.CONTRACTION and isinstance(group, int) and group > 1:
        channels = graph.type_of(node.outputs[0]).shape[1] // group
        return OpKind.WINDOW if channels < SMALL_GROUP_WIDTH else kind
    return kind


def _work_of(node: Node, definition: OpDef) -> Work:
    """The operator's work per element; a concat compares with each boundary between its sources.

    The table's numbers are those of two sources: one comparison and one selection.
    """
    work = definition.work
    boundaries = len(node.inputs) - 1
    if node.op != "concat" or boundaries < 2:
        return work
    return replace(work, alu=work.alu * boundaries, instructions=work.instructions * boundaries)


def _computes_doubles(graph: Graph, node: Node) -> bool:
    return any(graph.type_of(name).dtype is DType.F64 for name in (*node.reads, *node.outputs))
