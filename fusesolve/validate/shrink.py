"""Shrinking a graph: the same operators under the same names at small extents, so that it runs where it is too large.

Dimensions are cut into the atoms of `fusesolve.candidates.atoms`; atoms that a view relates are one. Each atom gets a
small odd extent, except: extents that slices, concatenations and updates relate are divided by one common power of
two, extents behind windows follow by the shape rules, and what does not fit together keeps its extent. Channels of a
grouped convolution are the atoms of its groups and of one group's part.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from fusesolve.access import AccessKind
from fusesolve.builder import GraphBuilder
from fusesolve.errors import InputError
from fusesolve.graph import AttrValue, Graph, Node, TensorType
from fusesolve.ops import OPS, access_map
from fusesolve.ops.definition import OpKind
from fusesolve.validate.extents import Atom, AtomTable, Dim

_TIED = frozenset({"slice", "concat", "slice_update"})
_SPATIAL = frozenset({"conv1d", "conv2d", "conv3d", "maxpool", "avgpool"})
PATIENCE = 6  # times that one atom takes the extent that an operator asks of it
_SHAPED = {"reshape": "to", "broadcast": "to", "fill": "shape", "random_uniform": "shape"}


def shrink_graph(graph: Graph, *, inner: int, outer: int) -> Graph:
    """`graph` with extents of about `inner` along the innermost axes of large tensors and `outer` elsewhere (>= 2).

    Names, operators and attributes that are no extents stay. A graph that does not shrink comes back equal.
    """
    atoms = AtomTable(graph)
    fixed: dict[Atom, int] = {}
    wishes: Counter[Atom] = Counter()
    while True:
        attempt = _Attempt(graph, atoms, _choose(graph, atoms, fixed, inner, outer))
        try:
            return attempt.build()
        except _ConflictError as conflict:
            patience = 1 if conflict.grow else PATIENCE
            if conflict.wish is not None and wishes[conflict.wish[0]] < patience:
                wishes[conflict.wish[0]] += 1
                fixed[conflict.wish[0]] = conflict.wish[1]
                continue
            here = [atom for dim in conflict.dims for atom in atoms.of(dim)]
            whole = {atom: atoms.extent[atom] for atom in here}
            if conflict.grow is not None:
                whole = {atom: min(atoms.extent[atom], conflict.grow(attempt.extents[atom])) for atom in here}
            if all(fixed.get(atom) == extent for atom, extent in whole.items()):
                whole = dict(atoms.extent)
            fixed.update(whole)


class _ConflictError(Exception):
    """Dimensions that do not fit together.

    `wish`: the extent that one atom would have to have. `grow`: larger extents may help (a window does not fit, levels
    of a picture do not meet), the next one to try of an extent.
    """

    def __init__(
        self, dims: Sequence[Dim], wish: tuple[Atom, int] | None = None, grow: Callable[[int], int] | None = None
    ) -> None:
        super().__init__(dims)
        self.dims = dims
        self.wish = wish
        self.grow = grow


def _odd(extent: int) -> int:
    return 2 * extent + 1


def _power(extent: int) -> int:
    """The next power of two: halved by strides and doubled by resizing again, its levels meet."""
    return 1 << extent.bit_length()


def _choose(graph: Graph, atoms: AtomTable, given: Mapping[Atom, int], inner: int, outer: int) -> dict[Atom, int]:
    """A new extent for each atom: `given` ones, tied ones by powers of two, frozen ones whole, others small and odd."""
    fixed = dict(given)
    for node in graph.nodes:
        for dim in _frozen_dims(graph, node, atoms):
            fixed.update({atom: atoms.extent[atom] for atom in atoms.of(dim) if atom not in given})
    ties = _ties(graph)
    for group in sorted(ties, key=lambda item: min(_size(graph, dim) for dim in item.dims)):
        fixed.update(_divide(graph, atoms, group, fixed, outer))
    innermost = {
        atom
        for value in graph.values.values() if value.type.shape
        for atom in atoms.of((value.name, len(value.type.shape) - 1))[-1:]
    }  # fmt: skip
    small: dict[Atom, int] = {}
    for number, atom in enumerate(sorted({atoms.find(a) for a in atoms.parent})):
        goal = (inner if atom in innermost else outer) + 2 * (number % 3)
        small[atom] = fixed.get(atom, min(atoms.extent[atom], goal | 1))
    return small


def _size(graph: Graph, dim: Dim) -> int:
    return graph.type_of(dim[0]).shape[dim[1]]


def _frozen_dims(graph: Graph, node: Node, atoms: AtomTable) -> list[Dim]:
    """Dimensions whose extent an attribute fixes: taps of a convolution, its channels across groups, views that cut."""
    found: list[Dim] = []
    if OPS[node.op].kind is OpKind.VIEW and node.outputs[0] in atoms.barriers:
        for name in (node.reads[0], node.outputs[0]):
            found += [(name, axis) for axis in range(len(graph.type_of(name).shape))]
    if node.op.startswith("conv"):
        x, w = node.reads[:2]
        found += [(w, axis) for axis in range(2, len(graph.type_of(w).shape))]
        if node.attr("group", 1) != 1 and node.name not in atoms.groups:
            found += [(w, 0), (w, 1), (x, 1), (node.outputs[0], 1)]
    return found


@dataclass(slots=True)
class _Tie:
    """Dimensions that are divided alike, and the numbers that must stay whole."""

    dims: set[Dim] = field(default_factory=set)
    numbers: set[int] = field(default_factory=set)


def _ties(graph: Graph) -> list[_Tie]:
    found: list[_Tie] = []
    for node in graph.nodes:
        if node.op not in _TIED or not node.reads or _takes_one(graph, node):
            continue
        axis = int(str(node.attr("axis")))
        tie = _Tie(dims={(name, axis) for name in (*node.reads, node.outputs[0]) if graph.type_of(name).shape})
        for name in ("start", "end"):
            value = node.attr(name)
            tie.numbers |= {value} if isinstance(value, int) else set()
        joined = [other for other in found if other.dims & tie.dims]
        for other in joined:
            tie.dims |= other.dims
            tie.numbers |= other.numbers
            found.remove(other)
        found.append(tie)
    return found


def _takes_one(graph: Graph, node: Node) -> bool:
    """A slice or an update of one index: nothing is divided, the index moves inside the smaller extent."""
    part = {"slice": node.outputs[0], "slice_update": node.reads[-1]}.get(node.op)
    return part is not None and _size(graph, (part, int(str(node.attr("axis"))))) == 1


def _divide(graph: Graph, atoms: AtomTable, tie: _Tie, fixed: Mapping[Atom, int], outer: int) -> dict[Atom, int]:
    """New extents of tied dimensions: all divided by the largest power of two that leaves each at least `outer`."""
    sizes = [_size(graph, dim) for dim in tie.dims]
    power = 1
    while all(n % (2 * power) == 0 for n in (*sizes, *tie.numbers)) and min(sizes) // (2 * power) >= min(outer, 4):
        power *= 2
    while power > 1:
        found = _distribute(atoms, tie, fixed, power)
        if found is not None:
            return found
        power //= 2
    return {atom: atoms.extent[atom] for dim in tie.dims for atom in atoms.of(dim) if atom not in fixed}


def _distribute(atoms: AtomTable, tie: _Tie, fixed: Mapping[Atom, int], power: int) -> dict[Atom, int] | None:
    found: dict[Atom, int] = {}
    for dim in sorted(tie.dims, key=lambda item: len(atoms.of(item))):
        here = atoms.of(dim)
        known = {atom: found.get(atom, fixed.get(atom)) for atom in here}
        open_ = {atom: atoms.extent[atom] for atom in here if known[atom] is None}
        goal = prod(atoms.extent[a] for a in here) // power
        rest, odd = divmod(goal, prod(n for n in known.values() if n is not None))
        if odd:
            return None
        while prod(open_.values()) > rest:
            even = [a for a in open_ if open_[a] % 2 == 0 and open_[a] > 2]
            if not even:
                return None
            largest = max(even, key=lambda a: open_[a])
            open_[largest] //= 2
        if prod(open_.values()) != rest:
            return None
        found.update(open_)
    return found


class _Attempt:
    """One try to build the graph at the chosen extents; `_ConflictError` names the dimensions that do not fit."""

    def __init__(self, graph: Graph, atoms: AtomTable, extents: dict[Atom, int]) -> None:
        self.graph = graph
        self.atoms = atoms
        self.extents = extents
        self.known: set[Atom] = set()
        self.builder = GraphBuilder(graph.name)

    def build(self) -> Graph:
        graph, builder = self.graph, self.builder
        builder.inputs_of(graph, lambda name: TensorType(graph.type_of(name).dtype, self._shape(name)), strides=False)
        for node in graph.nodes:
            self._node(node)
        for name in graph.outputs:
            builder.output(name)
        return builder.build()

    def _shape(self, name: str) -> tuple[int, ...]:
        """The chosen shape of a value, which fixes its atoms."""
        shape = []
        for axis, old in enumerate(self.graph.type_of(name).shape):
            here = self.atoms.of((name, axis))
            self.known.update(here)
            shape.append(prod(self.extents[a] for a in here) if here else old)
        return tuple(shape)

    def _node(self, node: Node) -> None:
        graph, builder = self.graph, self.builder
        axes = [(name, axis) for name in (*node.reads, *node.outputs) for axis in range(len(graph.type_of(name).shape))]
        attrs = dict(node.attrs) | self._attrs(node)
        types = None
        if OPS[node.op].declared:
            types = [type(graph.type_of(n))(graph.type_of(n).dtype, self._shape(n)) for n in node.outputs]
        try:
            builder.add(node.op, node.inputs, attrs, outputs=node.outputs, source=node.source, types=types)
        except InputError:
            data = self._pictures(node) if node.op in _SPATIAL or node.op == "pad" else []
            raise _ConflictError(data or axes, grow=_odd if data else None) from None
        for name in node.outputs:
            for axis, extent in enumerate(builder.type(name).shape):
                wish = self._settle((name, axis), extent)
                if wish is not None:
                    raise self._unsettled(node, axis, wish)

    def _unsettled(self, node: Node, axis: int, wish: tuple[Atom, int]) -> _ConflictError:
        """A result's extent is not the chosen one: windows want larger pictures, resizing such as can be doubled."""
        if wish[1] and node.op.startswith("resize"):
            wish = self._before_resizing(node, axis) or wish
        grow = _power if node.op.startswith("resize") else _odd if node.op in _SPATIAL and not wish[1] else None
        data = self._pictures(node) if grow else []
        return _ConflictError(data or self._related(node, axis), wish if wish[1] else None, grow if data else None)

    def _before_resizing(self, node: Node, axis: int) -> tuple[Atom, int] | None:
        """The extent that a resized axis would need before, so that its result meets the one that is known already."""
        before = self.atoms.of((node.reads[0], axis))
        source, target = _size(self.graph, (node.reads[0], axis)), _size(self.graph, (node.outputs[0], axis))
        now = prod(self.extents[a] for a in self.atoms.of((node.outputs[0], axis)))
        wanted, odd = divmod(now * source, target)
        rest = prod(self.extents[a] for a in before[1:])
        return None if odd or not before or wanted % rest else (before[0], wanted // rest)

    def _pictures(self, node: Node) -> list[Dim]:
        """Dimensions of the graph's inputs above a node that could still be larger and along which windows may move.

        Those are spatial ones; where there are none, the innermost of each input that can grow.
        """
        spatial: list[Dim] = []
        others: list[Dim] = []
        for name in self._above(node):
            dims = [(name, axis) for axis in range(len(self.graph.type_of(name).shape))]
            free = [dim for dim in dims if any(self.extents[a] < self.atoms.extent[a] for a in self.atoms.of(dim))]
            spatial += [dim for dim in free if dim[1] >= 2]
            others += free[-1:]
        return spatial or others

    def _above(self, node: Node) -> list[str]:
        """The graph's inputs that a node depends on."""
        producer, nodes = self.graph.producer, self.graph.nodes
        seen, stack = set(node.reads), list(node.reads)
        while stack:
            made = producer.get(stack.pop())
            new = [] if made is None else [name for name in nodes[made].reads if name not in seen]
            seen.update(new)
            stack += new
        return [name for name in self.graph.inputs if name in seen]

    def _settle(self, dim: Dim, extent: int) -> tuple[Atom, int] | None:
        """None where an inferred extent agrees with the chosen one, which it replaces where nothing has used it yet.

        Else the atom that stands in the way and the extent that it would need (0: none would do).
        """
        here = self.atoms.of(dim)
        chosen = prod(self.extents[a] for a in here) if here else _size(self.graph, dim)
        if chosen != extent:
            rest = prod(self.extents[a] for a in here[1:])
            if not here or extent % rest or extent // rest < 2:
                return (here[0] if here else (dim, 0)), 0
            if here[0] in self.known:
                return here[0], extent // rest
            self.extents[here[0]] = extent // rest
        self.known.update(here)
        return None

    def _related(self, node: Node, axis: int) -> list[Dim]:
        """The result's dimension and those of the operands that it follows from."""
        found = [(name, axis) for name in node.outputs]
        for operand, dims in zip(node.inputs, access_map(self.graph, node).operands, strict=True):
            found += [(str(operand), place) for place, item in enumerate(dims) if item.out == axis]
        return found

    def _attrs(self, node: Node) -> dict[str, AttrValue]:
        if node.op in _SHAPED:
            return {_SHAPED[node.op]: self._shape(node.outputs[0])}
        if node.op == "arange":
            return {"n": self._shape(node.outputs[0])[0]}
        if node.op in ("slice", "slice_update"):
            return self._scaled(node)
        if node.op in ("maxpool", "avgpool"):
            return self._pooled(node)
        if node.op.startswith("resize"):
            return {"to": self._resized(node)}
        if node.name in self.atoms.groups:
            return {"group": prod(self.extents[self.atoms.find(atom)] for atom in self.atoms.groups[node.name])}
        return {}

    def _scaled(self, node: Node) -> dict[str, AttrValue]:
        axis = int(str(node.attr("axis")))
        old = _size(self.graph, (node.reads[0], axis))
        new = self.builder.type(node.reads[0]).shape[axis]
        found: dict[str, AttrValue] = {}
        if _takes_one(self.graph, node):
            start = int(str(node.attr("start", 0)))
            start = new - 1 if start == old - 1 else min(start, new - 1)
            return {"start": start, "end": start + 1} if node.op == "slice" else {"start": start}
        for name in ("start", "end"):
            value = node.attr(name)
            if isinstance(value, int) and new != old:
                scaled, odd = divmod(value * new, old)
                if odd or value < 0 or node.attr("step", 1) != 1:
                    raise _ConflictError([(n, axis) for n in (*node.reads, node.outputs[0])])
                found[name] = scaled
        return found

    def _pooled(self, node: Node) -> dict[str, AttrValue]:
        """A pool over a whole axis stays one."""
        before, now = self.graph.type_of(node.reads[0]).shape, self.builder.type(node.reads[0]).shape
        taps = node.attr("k")
        assert isinstance(taps, tuple)
        return {"k": tuple(now[2 + i] if tap == before[2 + i] else tap for i, tap in enumerate(taps))}

    def _resized(self, node: Node) -> tuple[int, ...]:
        before, after = self.graph.type_of(node.reads[0]).shape, self.graph.type_of(node.outputs[0]).shape
        now = self.builder.type(node.reads[0]).shape
        found = []
        for axis, (a, b, c) in enumerate(zip(before, after, now, strict=True)):
            if c * b % a:
                raise _ConflictError([(node.reads[0], axis), (node.outputs[0], axis)])
            found.append(c * b // a)
        return tuple(found)


def work_of(graph: Graph) -> float:
    """Multiply-adds and element operations that one run of the graph in NumPy takes, roughly."""
    total = 0.0
    for node in graph.nodes:
        reduced: Any = access_map(graph, node)
        has_whole = any(a.kind is AccessKind.WHOLE for dims in reduced.operands for a in dims)
        total += graph.type_of(node.outputs[0]).size * max(1, prod(reduced.reduced)) * (8 if has_whole else 1)
    return total
