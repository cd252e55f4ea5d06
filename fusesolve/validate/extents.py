"""Extents that must change together: the atoms of all dimensions of a graph, those that views relate joined."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from fusesolve.candidates.atoms import Atoms, relate_views, same_pairs
from fusesolve.graph import Graph, Node
from fusesolve.ops import OPS, access_map
from fusesolve.ops.definition import OpKind

Dim: TypeAlias = tuple[str, int]  # value, axis
Atom: TypeAlias = tuple[Dim, int]  # representative dimension, position of the atom in it


@dataclass(frozen=True, slots=True)
class _Grouped:
    """Channels of a grouped convolution: `apart` hold one part for each group, and each channel of `whole` another.

    `apart`: dimension whose parts of `w`'s axis 1 are summed (transposed: made) group by group. `whole`: dimension
    that `w`'s axis 0 lists. `part`, `each`: channels of one group along them.
    """

    w: str
    apart: Dim
    whole: Dim
    part: int
    each: int


def _grouped(graph: Graph, node: Node) -> _Grouped | None:
    group = node.attr("group", 1)
    if not node.op.startswith("conv") or not isinstance(group, int) or group == 1:
        return None
    x, w = node.reads[:2]
    if not graph.type_of(w).size:
        return None
    many, part = graph.type_of(w).shape[:2]
    x_dim, out_dim = (x, 1), (node.outputs[0], 1)
    if node.op.endswith("transpose"):
        x_dim, out_dim = out_dim, x_dim
    return _Grouped(w=w, apart=x_dim, whole=out_dim, part=part, each=many // group)


def _cut_groups(atoms: Atoms, groups: dict[str, _Grouped]) -> bool:
    """Cut the channels of grouped convolutions into groups and parts alike; True where something was cut.

    Convolutions whose channels are cut across are taken out of `groups`.
    """
    changed = False
    for name, item in list(groups.items()):
        outcome = _cut_alike(atoms, item)
        if outcome is None:
            del groups[name]
        changed |= bool(outcome)
    return changed


def _cut_alike(atoms: Atoms, item: _Grouped) -> bool | None:
    """Whether one convolution's channels were cut further; None where their cuts do not nest."""
    inner, apart, whole, part, each = (item.w, 1), item.apart, item.whole, item.part, item.each

    def refine(*wanted: tuple[Dim, int]) -> bool | None:
        found = [atoms.refine(dim, cut) for dim, cut in wanted if cut > 1]
        return None if None in found else any(found)

    changed = refine((apart, part), (whole, each))
    if changed is None:
        return None
    outcomes = [
        refine(*((inner, cut) if cut < part else (whole, cut // part * each) for cut in atoms.cuts(apart))),
        refine(*((apart, cut) for cut in atoms.cuts(inner))),
        refine(*((apart, cut // each * part) for cut in atoms.cuts(whole) if cut > each)),
    ]
    return None if None in outcomes else changed or any(outcomes)


class AtomTable:
    """Atoms of all dimensions, those that views relate joined."""

    def __init__(self, graph: Graph) -> None:
        self.atoms = Atoms(graph)
        views = [node for node in graph.nodes if OPS[node.op].kind is OpKind.VIEW]
        for node in graph.nodes:
            if OPS[node.op].kind is not OpKind.VIEW:
                for left, right in same_pairs(node, access_map(graph, node)):
                    self.atoms.join(left, right)
        groups = {node.name: found for node in graph.nodes if (found := _grouped(graph, node)) is not None}
        groups = {name: found for name, found in groups.items() if self.atoms.join((found.w, 0), found.whole)}
        self.barriers = relate_views(graph, views, self.atoms)
        while _cut_groups(self.atoms, groups):
            self.barriers = relate_views(graph, views, self.atoms)
        self.parent: dict[Atom, Atom] = {}
        self.extent: dict[Atom, int] = {}
        for name, value in graph.values.items():
            for axis in range(len(value.type.shape)):
                self.of((name, axis))
        for node in views:
            if node.outputs[0] not in self.barriers:
                self._join_view(graph, node)
        # atoms of the groups of each grouped convolution whose channels may shrink, by its name
        self.groups = {name: self._join_groups(item) for name, item in groups.items()}

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

    def _join_groups(self, item: _Grouped) -> tuple[Atom, ...]:
        """Make the atoms of groups the same on both sides, and those of parts and weights; returns the former."""
        apart, whole, part = self.of(item.apart), self.of(item.whole), self.of((item.w, 1))
        outer = len(apart) - len(part)
        self._join(apart[:outer], whole[:outer])
        self._join(apart[outer:], part)
        return apart[:outer]

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
