"""Results that are written back into an input's storage: what is touched, and who must read the old value first.

An input may name the result that takes its place (`alias_out`). Where that result is a chain of updates of the input,
each update writes its slice only. Everyone else who reads the old value has to run before, or in the very same loops.
Where neither can be (a reader of the old value needs the new one, or the writer walks the old value in other loops),
the result is written beside it like any other.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fusesolve.access import AccessKind
from fusesolve.graph import Graph, Node
from fusesolve.ops import OPS, access_map
from fusesolve.ops.definition import OpKind

UPDATES = frozenset({"slice_update", "select_scatter"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Aliases:
    """What is done in place; operators are named by their first results.

    `updates`: those that write a slice of their base. `overwrites`: the storage (by name) whose old value a writer
    destroys. `orders`: (reader, writer), the reader of an old value runs before its writer.
    """

    updates: frozenset[str]
    overwrites: Mapping[str, str]
    orders: tuple[tuple[str, str], ...]


def find_aliases(graph: Graph, root: Mapping[str, str]) -> Aliases:
    """What the graph's `alias_out` marks allow to be done in place; `root` names the storage behind each view."""
    return _Finder(graph, root).run()


class _Finder:
    def __init__(self, graph: Graph, root: Mapping[str, str]) -> None:
        self.graph = graph
        self.root = root
        self.marked = [value for value in graph.values.values() if value.alias_out is not None]
        self.readers: dict[str, list[Node]] = {}
        self.after: dict[str, set[str]] = {}  # orders found so far: from a reader's result to writers' results
        for node in graph.nodes if self.marked else ():
            if OPS[node.op].kind is not OpKind.VIEW:
                for storage in dict.fromkeys(self._storage(name) for name in node.reads):
                    self.readers.setdefault(storage, []).append(node)

    def run(self) -> Aliases:
        updates: set[str] = set()
        overwrites: dict[str, str] = {}
        orders: list[tuple[str, str]] = []
        for value in self.marked:
            chain = self._chain(value.name, self._storage(str(value.alias_out)))
            if chain is None:
                continue
            found = [pair for writer, old in chain.items() for pair in self._orders(writer, old)]
            if self._circular(found):
                continue
            for reader, writer in found:
                self.after.setdefault(reader, set()).add(writer)
            orders += found
            overwrites |= chain
            updates |= {writer for writer in chain if self._node(writer).op in UPDATES}
        return Aliases(updates=frozenset(updates), overwrites=overwrites, orders=tuple(orders))

    def _storage(self, name: str) -> str:
        return self.root.get(name, name)

    def _node(self, result: str) -> Node:
        return self.graph.nodes[self.graph.producer[result]]

    def _chain(self, old: str, new: str) -> dict[str, str] | None:
        """Writers from `new` back to `old`, each with the storage that it destroys; None where they lead elsewhere."""
        found: dict[str, str] = {}
        while new != old:
            if new not in self.graph.producer:
                return None
            node = self._node(new)
            base = self._storage(node.inputs[0]) if isinstance(node.inputs[0], str) else None
            if node.op in UPDATES and base is not None and isinstance(node.inputs[1], str):
                found[new] = base
                new = base
            elif self._walks_alike(node, old):
                found[new] = old
                return found
            else:
                return None
        return found

    def _walks_alike(self, node: Node, old: str) -> bool:
        """Whether an operator reads the old value, if at all, at the very index that it writes."""
        if OPS[node.op].kind is OpKind.OPAQUE or len(node.outputs) > 1:
            return False
        access = access_map(self.graph, node)
        for name, dims in zip(node.inputs, access.operands, strict=True):
            if isinstance(name, str) and self._storage(name) == old:
                same = [item.kind is AccessKind.SAME and item.out == axis for axis, item in enumerate(dims)]
                if name != old or not all(same):
                    return False
        return True

    def _orders(self, writer: str, old: str) -> Iterator[tuple[str, str]]:
        for node in self.readers.get(old, ()):
            if node.outputs[0] != writer:
                yield node.outputs[0], writer

    def _circular(self, orders: list[tuple[str, str]]) -> bool:
        """Whether a reader of an old value would wait for its own writer, by data or by orders found before."""
        if not orders:
            return False
        after = {key: set(found) for key, found in self.after.items()}
        for reader, writer in orders:
            after.setdefault(reader, set()).add(writer)
        return any(self._reaches(writer, reader, after) for reader, writer in orders)

    def _reaches(self, start: str, goal: str, after: Mapping[str, set[str]]) -> bool:
        seen: set[str] = set()
        stack = [start]
        while stack:
            result = stack.pop()
            if result in seen:
                continue
            seen.add(result)
            if result == goal:
                return True
            read_by = (node for name in self._node(result).outputs for node in self.readers.get(name, ()))
            stack.extend(node.outputs[0] for node in read_by)
            stack.extend(after.get(result, ()))
        return False
