"""Atoms: the common factors of dimensions that reshapes relate.

A reshape from [8, 512, 768] to [4096, 12, 64] says that 4096 is 8 x 512 and that 768 is 12 x 64. Splitting every
dimension into such factors once, for the whole graph, turns reshapes into plain renamings: a value is then a
sequence of atoms, and all its views are the same sequence. A reshape whose boundaries do not nest
([6, 4] to [8, 3]) cannot be written so; it stays a barrier that no kernel crosses.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import pairwise

from fusesolve.access import AccessKind, AccessMap
from fusesolve.graph import Graph, Node
from fusesolve.ops import access_map, operand_types, result_types


class Atoms:
    """Union-find over dimensions `(value, axis)`, each class with its factors from outer to inner.

    A class is a list of "cuts": inner products, ascending, each dividing the next; the last is the size.
    """

    def __init__(self, graph: Graph) -> None:
        self._parent: dict[tuple[str, int], tuple[str, int]] = {}
        self._cuts: dict[tuple[str, int], list[int]] = {}
        self._sizes: dict[str, tuple[tuple[int, ...], ...]] = {}
        self.graph = graph
        for value in graph.values.values():
            for axis, size in enumerate(value.type.shape):
                key = (value.name, axis)
                self._parent[key] = key
                self._cuts[key] = [size] if size != 1 else []

    def find(self, key: tuple[str, int]) -> tuple[str, int]:
        """The representative of a dimension's class."""
        parent = self._parent
        while parent[key] != key:
            parent[key] = parent[parent[key]]
            key = parent[key]
        return key

    def cuts(self, key: tuple[str, int]) -> list[int]:
        """Inner products of the factors of a dimension, ascending; empty for size 1."""
        return self._cuts[self.find(key)]

    def join(self, left: tuple[str, int], right: tuple[str, int]) -> bool:
        """Give two dimensions of one size the same factors; False where their factors do not nest."""
        a, b = self.find(left), self.find(right)
        if a == b:
            return True
        merged = _merge(self._cuts[a], self._cuts[b])
        if merged is None:
            return False
        self._parent[b] = a
        self._cuts[a] = merged
        return True

    def refine(self, key: tuple[str, int], cut: int) -> bool | None:
        """Add an inner product to a class: True if new, False if it was there, None if it does not nest."""
        root = self.find(key)
        merged = _merge(self._cuts[root], [cut, self._cuts[root][-1]] if self._cuts[root] else [])
        if merged is None:
            return None
        changed = len(merged) != len(self._cuts[root])
        self._cuts[root] = merged
        return changed

    def sizes(self, key: tuple[str, int]) -> tuple[int, ...]:
        """Extents of the atoms of a dimension, outer to inner; `()` for size 1."""
        cuts = self.cuts(key)
        if len(cuts) < 2 or cuts[-1] == 0:
            return tuple(cuts)
        inner = [1, *cuts[:-1]]
        return tuple(high // low for low, high in zip(reversed(inner), reversed(cuts), strict=True))

    def all_sizes(self, value: str) -> tuple[tuple[int, ...], ...]:
        """`sizes` of all dimensions of a value; asked for only once nothing is joined or refined any more."""
        found = self._sizes.get(value)
        if found is None:
            rank = len(self.graph.type_of(value).shape)
            found = self._sizes[value] = tuple(self.sizes((value, axis)) for axis in range(rank))
        return found


class Looks:
    """Access maps of a graph's nodes, one for all that look alike: that differ in the names of their values alone.

    `number`: which look each node has, by its name.
    """

    def __init__(self, graph: Graph) -> None:
        looks: dict[Hashable, int] = {}
        self._maps: list[AccessMap] = []
        self.number: dict[str, int] = {}
        for node in graph.nodes:
            reads = node.reads
            literals = tuple(None if isinstance(item, str) else item for item in node.inputs)
            repeats = () if len(set(reads)) == len(reads) else tuple(map(reads.index, reads))
            types = operand_types(graph, node), result_types(graph, node)
            number = looks.setdefault((node.op, node.attrs, types, literals, repeats), len(looks))
            if number == len(self._maps):
                self._maps.append(access_map(graph, node))
            self.number[node.name] = number

    def access(self, node: Node) -> AccessMap:
        """How the operands of a node are indexed."""
        return self._maps[self.number[node.name]]


def _merge(left: Sequence[int], right: Sequence[int]) -> list[int] | None:
    """Union of two chains of inner products if it is again a divisor chain, else None."""
    merged = sorted(set(left) | set(right))
    if any(low == 0 or high % low for low, high in pairwise(merged)):
        return None if merged[0] != 0 or len(merged) > 1 else merged
    return merged


def same_pairs(node: Node, access: AccessMap) -> Iterator[tuple[tuple[str, int], tuple[str, int]]]:
    """Pairs of dimensions that a node indexes alike: operand with result, and operands of one reduction axis."""
    first: dict[int, tuple[str, int]] = {}
    for operand, dims in zip(node.inputs, access.operands, strict=True):
        if not isinstance(operand, str):
            continue
        for axis, item in enumerate(dims):
            if item.kind is AccessKind.SAME and item.out is not None:
                yield (operand, axis), (node.outputs[0], item.out)
            elif item.kind is AccessKind.REDUCED and item.red is not None:
                seen = first.setdefault(item.red, (operand, axis))
                if seen != (operand, axis):
                    yield (operand, axis), seen


def relate_views(graph: Graph, views: Iterable[Node], atoms: Atoms) -> set[str]:
    """Refine both sides of every view until nothing changes; returns the views that cannot be renamings."""
    pending = [(node, node.reads[0]) for node in views]
    barriers: set[str] = set()
    changed = True
    while changed:
        changed = False
        for node, operand in pending:
            result = node.outputs[0]
            if result in barriers:
                continue
            outcome = _align(graph, operand, result, atoms)
            if outcome is None:
                barriers.add(result)
            else:
                changed |= outcome
    return barriers


def _boundaries(graph: Graph, value: str, atoms: Atoms) -> list[tuple[int, tuple[str, int], int]]:
    """Inner products over the flattened value: (product, dimension, product inside the dimension)."""
    found: list[tuple[int, tuple[str, int], int]] = []
    base = 1
    shape = graph.type_of(value).shape
    for axis in reversed(range(len(shape))):
        found.extend((base * cut, (value, axis), base) for cut in atoms.cuts((value, axis)))
        base *= shape[axis]
    return found


def _align(graph: Graph, left: str, right: str, atoms: Atoms) -> bool | None:
    if graph.type_of(left).size == 0:
        return None
    changed = False
    for source, target in ((left, right), (right, left)):
        for product, _, _ in _boundaries(graph, source, atoms):
            outcome = _cut_at(graph, target, product, atoms)
            if outcome is None:
                return None
            changed |= outcome
    return changed


def _cut_at(graph: Graph, value: str, product: int, atoms: Atoms) -> bool | None:
    """Make `product` a boundary of the flattened value."""
    base = 1
    shape = graph.type_of(value).shape
    for axis in reversed(range(len(shape))):
        size = shape[axis]
        if product == base:
            return False
        if product < base * size:
            inner, rest = divmod(product, base)
            return None if rest or size % inner else atoms.refine((value, axis), inner)
        base *= size
    return False if product == base else None
