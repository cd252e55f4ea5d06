"""Reading a plan document back: its graph, its program, and the operators, reads and writes of each of its kernels."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fusesolve.candidates.program import Program, build_program
from fusesolve.errors import InputError
from fusesolve.graph import Graph
from fusesolve.plan import FORMAT

_GROUP_KEYS = ("id", "nodes", "inputs", "outputs", "template", "implementation", "tiling")
PREDICTED = ("registers_per_thread", "shared_bytes", "spill_bytes", "code_bytes", "occupancy", "latency_ns")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedKernel:
    """One kernel of a plan over the program's numbers.

    `members` are operators (ascending, a topological order); `reads` and `writes` are storage. `tiling` is the one
    that was priced; `predicted` the resources that the plan gives, None where it gives none. `parts` are kernels that
    are packed in this launch, each with the tiling that it was priced with alone.
    """

    id: int
    nodes: tuple[str, ...]
    members: tuple[int, ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    template: str
    implementation: str
    tiling: Mapping[str, int]
    predicted: Mapping[str, Any]
    parts: tuple["PlannedKernel", ...] = ()


@dataclass(frozen=True, kw_only=True)
class PlannedProgram:
    """The kernels of a plan, in execution order, over the program of its graph; `where` maps values to storage."""

    program: Program
    kernels: tuple[PlannedKernel, ...]
    where: Mapping[str, int]

    @property
    def graph(self) -> Graph:
        """The graph that was planned."""
        return self.program.graph


def is_plan(document: object) -> bool:
    """Whether parsed JSON is a plan document."""
    return isinstance(document, Mapping) and document.get("format") == FORMAT


def read_plan(document: Mapping[str, Any], graph: Graph) -> PlannedProgram:
    """The kernels of a `fusesolve-plan/1` document over `graph`, which is its definition (or that at other extents).

    InputError where a kernel lacks a key or names an operator or a value that the graph does not have, and where the
    document has no kernels.
    """
    groups = document.get("groups")
    if not isinstance(groups, Sequence) or not groups:
        raise InputError(f"the plan has no groups (status {document.get('status')}); a plan with kernels can be run")
    program = build_program(graph)
    where = {storage.value: storage.index for storage in program.storage} | dict(program.view_root)
    finder = _Finder(program, where)
    return PlannedProgram(program=program, kernels=tuple(finder.kernel(group) for group in groups), where=where)


def part_of(program: Program, whole: PlannedKernel, members: Sequence[int], tiling: Mapping[str, int]) -> PlannedKernel:
    """Operators of a kernel as one of the kernels that it consists of: they read what they do not make themselves."""
    operators = [program.operators[member] for member in members]
    made = {storage for op in operators for storage in op.writes}
    reads = dict.fromkeys(read.storage for op in operators for read in op.reads if read.storage not in made)
    return PlannedKernel(
        id=whole.id, nodes=whole.nodes, members=tuple(members), reads=tuple(reads),
        writes=tuple(storage for storage in whole.writes if storage in made), template="", implementation="generated",
        tiling=tiling, predicted={},
    )  # fmt: skip


def _tiling(numbers: Mapping[str, Any]) -> dict[str, int]:
    return {str(name): int(value) for name, value in numbers.items()}


class _Finder:
    """Looks up the names of a plan in a program."""

    def __init__(self, program: Program, where: Mapping[str, int]) -> None:
        self.program = program
        self.where = where
        self.by_name: dict[str, list[int]] = {}
        graph = program.graph
        operator = {op.node: op.index for op in program.operators}
        for index, node in enumerate(graph.nodes):
            found = [operator[index]] if index in operator else []
            for name in dict.fromkeys((node.source, node.name)):
                self.by_name.setdefault(name, []).extend(found)

    def kernel(self, group: Mapping[str, Any]) -> PlannedKernel:
        missing = [key for key in _GROUP_KEYS if key not in group]
        if missing:
            raise InputError(f"group {group.get('id', '?')} of the plan lacks {missing[0]!r}; write the plan again")
        members = self._members(group, group["nodes"])
        whole = PlannedKernel(
            id=int(group["id"]), nodes=tuple(group["nodes"]), members=members,
            reads=self._storage(group, "inputs"), writes=self._storage(group, "outputs"),
            template=str(group["template"]), implementation=str(group["implementation"]),
            tiling=_tiling(group["tiling"]), predicted={name: group.get(name) for name in PREDICTED},
        )  # fmt: skip
        pairs = zip(group.get("parts", ()), group.get("part_tilings", ()), strict=False)
        parts = (part_of(self.program, whole, self._members(group, names), _tiling(tiling)) for names, tiling in pairs)
        return replace(whole, parts=tuple(parts))

    def _members(self, group: Mapping[str, Any], names: Sequence[str]) -> tuple[int, ...]:
        """The operators behind names of nodes, ascending."""
        members: set[int] = set()
        for name in names:
            if name not in self.by_name:
                raise InputError(f"group {group['id']}: the plan's graph has no operator {name!r}")
            members.update(self.by_name[name])
        return tuple(sorted(members))

    def _storage(self, group: Mapping[str, Any], key: str) -> tuple[int, ...]:
        for name in group[key]:
            if name not in self.where:
                raise InputError(f"group {group['id']}: the plan's graph has no value {name!r} (in {key})")
        return tuple(dict.fromkeys(self.where[name] for name in group[key]))
