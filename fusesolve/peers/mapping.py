"""From node names to operators: the groups of a partition on a program."""

from collections.abc import Sequence
from dataclasses import dataclass

from fusesolve.candidates.program import Program
from fusesolve.errors import InputError
from fusesolve.peers.document import PeerPartition

Members = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapped:
    """A partition on a program's operators.

    `groups`: ascending operator numbers; `place[i]`: where group i stands in the document, None for a node that
    nothing names. `views`: operators that cost nothing. `copied`: bytes of the tensor that each kernel of views alone
    copies. `empty`: kernels without a source node.
    """

    groups: tuple[Members, ...]
    place: tuple[int | None, ...]
    views: frozenset[int]
    copied: tuple[int, ...]
    empty: int


def map_partition(program: Program, partition: PeerPartition) -> Mapped:
    """The groups of a partition as operators of a program.

    A node stands for all its primitives. Nodes that are views in the program belong to no kernel; a group of nothing
    else is a copy of the tensor that the last of them makes. Operators that no group and no `unassigned` names run
    alone, those of one node together. InputError where a name is no node of the graph.
    """
    names = _Names(program)
    groups: list[Members] = []
    place: list[int | None] = []
    copied: list[int] = []
    for number, group in enumerate(partition.groups):
        members = tuple(sorted({index for name in group for index in names.operators(name, partition)}))
        if members:
            groups.append(members)
            place.append(number)
        elif group:
            copied.append(names.view_bytes(group[-1]))
    named = {index for members in groups for index in members}
    views = {index for name in partition.unassigned for index in names.operators(name, partition)} - named
    for node in names.nodes():
        alone = tuple(index for index in node if index not in named and index not in views)
        if alone:
            groups.append(alone)
            place.append(None)
    return Mapped(
        groups=tuple(groups), place=tuple(place), views=frozenset(views), copied=tuple(copied),
        empty=sum(not group for group in partition.groups),
    )  # fmt: skip


class _Names:
    """Operators by the name of their node."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.found: dict[str, list[int]] = {}
        self.views: dict[str, str] = {}
        for node in program.graph.nodes:
            for name in (node.source, node.name):
                self.found.setdefault(name, [])
                self.views[name] = node.outputs[0]
        self.by_source: dict[str, list[int]] = {}
        for operator in program.operators:
            node = program.graph.nodes[operator.node]
            self.by_source.setdefault(node.source, []).append(operator.index)
            for name in dict.fromkeys((node.source, node.name)):
                self.found[name].append(operator.index)

    def operators(self, name: str, partition: PeerPartition) -> Sequence[int]:
        """Operators of a node, none for a view; InputError where there is no such node."""
        if name not in self.found:
            graph = self.program.graph.name
            near = [known for known in self.by_source if known.lower().startswith(name.lower()[:3])][:5]
            hint = f"; near names: {', '.join(near)}" if near else ""
            raise InputError(f"{partition.origin}: no node named {name!r} in graph {graph}{hint}")
        return self.found[name]

    def view_bytes(self, name: str) -> int:
        """Bytes of what a view makes."""
        return self.program.graph.type_of(self.views[name]).nbytes

    def nodes(self) -> Sequence[Sequence[int]]:
        """Operators of each node, in order."""
        return tuple(self.by_source.values())
