"""Programs and groups from native text, by the names of values."""

from collections.abc import Sequence

from fusesolve.candidates.loops import Nest, build_nest
from fusesolve.candidates.program import Program, build_program
from fusesolve.candidates.space import inspect_group
from fusesolve.graph import Graph
from fusesolve.group import FusionGroup, Refusal
from fusesolve.importers.native import parse_native


def graph(inputs: Sequence[str], ops: Sequence[str], outputs: Sequence[str], weights: Sequence[str] = ()) -> Graph:
    """A graph in the native notation."""
    lines = ["format: fusesolve-graph/1", "name: test"]
    for key, items in (("inputs", inputs), ("weights", weights), ("ops", ops), ("outputs", outputs)):
        lines.append(f"{key}: [{', '.join(repr(item) for item in items)}]")
    return parse_native("\n".join(lines), "test", {}, False)


def program(inputs: Sequence[str], ops: Sequence[str], outputs: Sequence[str], weights: Sequence[str] = ()) -> Program:
    """The program of a graph in the native notation."""
    return build_program(graph(inputs, ops, outputs, weights))


def members(owner: Program, *values: str) -> tuple[int, ...]:
    """Numbers of the operators that make the values."""
    made = {storage.value: storage.producer for storage in owner.storage}
    return tuple(sorted(made[value] for value in values))


def names(owner: Program, storage: Sequence[int]) -> list[str]:
    """Names of storage."""
    return [owner.storage[index].value for index in storage]


def nest(owner: Program, *values: str) -> Nest:
    """The loop nest of the operators that make the values."""
    return build_nest(owner, members(owner, *values))


def inspect(owner: Program, *values: str) -> FusionGroup | Refusal:
    """The operators that make the values as a group, or why they are none."""
    return inspect_group(owner, nest(owner, *values))


def group(owner: Program, *values: str) -> FusionGroup:
    """The operators that make the values, which must be a group."""
    found = inspect(owner, *values)
    assert isinstance(found, FusionGroup), found
    return found


def refusal(owner: Program, *values: str) -> str:
    """The rule that refuses the operators that make the values, which must be refused."""
    found = inspect(owner, *values)
    assert isinstance(found, Refusal), found.template
    return found.rule
