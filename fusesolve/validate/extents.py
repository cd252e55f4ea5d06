"""Extents that must change together: the atoms of all dimensions of a graph, those that views relate joined."""

from collections.abc import Sequence
from typing import TypeAlias

from fusesolve.candidates.atoms import Atoms, relate_views, same_pairs
from fusesolve.graph import Graph, Node
from fusesolve.ops import OPS, access_map
from fusesolve.ops.definition import OpKind

Dim: TypeAlias = tuple[str, int]  # value, axis
Atom: TypeAlias = tuple[Dim, int]  # representative dimension, position of the atom in it


def depthwise(graph: Graph, node: Node) -> bool:
    """One channel in, one channel out, as many groups as channels."""
    group, w = node.attr("group", 1), graph.type_of(node.reads[1]).shape
    return group != 1 and w[0] == group and w[1] == 1 and not node.op.endswith("transpose")


class AtomTable:
    """Atoms of all dimensions, those that views relate joined."""

    def __init__(self, graph: Graph) -> None:
        self.atoms = Atoms(graph)
        access = {node.name: access_map(graph, node) for node in graph.nodes}
        views = [node for node in graph.nodes if OPS[node.op].kind is OpKind.VIEW]
        for node in graph.nodes:
            if OPS[node.op].kind is not OpKind.VIEW:
                for left, right in same_pairs(node, access[node.name]):
                    self.atoms.join(left, right)
        self.barriers = relate_views(graph, views, self.atoms)
        self.parent: dict[Atom, Atom] = {}
        self.extent: dict[Atom, int] = {}
        for name, value in graph.values.items():
            for axis in range(len(value.type.shape)):
                self.of((name, axis))
        for node in views:
            if node.outputs[0] not in self.barriers:
                self._join_view(graph, node)
        for node in graph.nodes:
            if node.op.startswith("conv") and depthwise(graph, node):
                self._join([*self.of((node.reads[0], 1))], [*self.of((node.reads[1], 0))])
                self._join([*self.of((node.outputs[0], 1))], [*self.of((node.reads[1], 0))])

    def of(self, dim: Dim) -> tuple[Atom, ...]:
        """Atoms of a dimension, outer to inner."""
        root = self.atoms.find(dim)
        found = []
        for position, size in enumerate(self.atoms.sizes(dim)):
            atom = (root, position)
            self.parent.setdefault(atom, atom)
            self.extent.setdefault(atom, size)
            found.append(self.find(atom))
        return tuple(found)

    def find(self, atom: Atom) -> Atom:
        """The representative of an atom."""
        while self.parent[atom] != atom:
            atom = self.parent[atom]
        return atom

    def _join_view(self, graph: Graph, node: Node) -> None:
        sides = []
        for name in (node.reads[0], node.outputs[0]):
            rank = len(graph.type_of(name).shape)
            sides.append([atom for axis in range(rank) for atom in self.of((name, axis))])
        self._join(*sides)

    def _join(self, left: Sequence[Atom], right: Sequence[Atom]) -> None:
        """Make the atoms of two equal products one by one the same, where they are cut alike."""
        if [self.extent[a] for a in left] != [self.extent[a] for a in right]:
            return
        for one, other in zip(left, right, strict=True):
            a, b = self.find(one), self.find(other)
            if a != b:
                self.parent[max(a, b)] = min(a, b)
