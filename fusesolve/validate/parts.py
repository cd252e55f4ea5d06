"""A graph as one kernel, and a group taken apart: its source operators as kernels with tilings of their own."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fusesolve.candidates.loops import build_nest
from fusesolve.candidates.pricing import price_workloads
from fusesolve.candidates.program import build_program
from fusesolve.candidates.space import inspect_group
from fusesolve.codegen.planned import PlannedKernel, PlannedProgram
from fusesolve.cost.table import PriceOptions
from fusesolve.errors import InputError
from fusesolve.graph import Graph
from fusesolve.group import FusionGroup, Refusal
from fusesolve.hardware import HardwareProfile


def one_kernel(graph: Graph) -> tuple[PlannedProgram, FusionGroup]:
    """A graph as the plan of one kernel over all its operators, without a tiling, and the group that it is.

    InputError with the rule where the operators are no kernel.
    """
    program = build_program(graph)
    group = inspect_group(program, build_nest(program, range(len(program.operators))))
    if isinstance(group, Refusal):
        raise InputError(f"{graph.name} is no kernel: {group.message}")
    kernel = PlannedKernel(
        id=0, nodes=tuple(dict.fromkeys(node.source for node in graph.nodes)), members=group.members,
        reads=group.reads, writes=group.writes, template=group.template.value, implementation="generated", tiling={},
        predicted={},
    )  # fmt: skip
    where = {item.value: item.index for item in program.storage} | dict(program.view_root)
    return PlannedProgram(program=program, kernels=(kernel,), where=where), group


def split_group(planned: PlannedProgram, kernel: PlannedKernel, first: int) -> tuple[PlannedKernel, ...]:
    """The source operators of a group as kernels of their own, in order, numbered from `first`."""
    program, graph = planned.program, planned.graph
    by_source: dict[str, list[int]] = {}
    for member in kernel.members:
        by_source.setdefault(graph.nodes[program.operators[member].node].source, []).append(member)
    found = []
    for number, members in enumerate(by_source.values()):
        inside = set(members)
        made = {s for m in members for s in program.operators[m].writes}
        reads = [read.storage for m in members for read in program.operators[m].reads if read.storage not in made]
        writes = [
            s for m in members for s in program.operators[m].writes
            if s in kernel.writes or any(reader not in inside for reader in program.storage[s].readers)
        ]  # fmt: skip
        found.append(
            PlannedKernel(
                id=first + number, nodes=kernel.nodes, members=tuple(members), reads=tuple(dict.fromkeys(reads)),
                writes=tuple(writes), template="", implementation="generated", tiling={}, predicted={},
            )
        )  # fmt: skip
    return tuple(found)


def tiled(
    planned: PlannedProgram, kernels: Sequence[PlannedKernel], profile: HardwareProfile
) -> tuple[PlannedKernel, ...]:
    """The kernels that are groups of the stated space, each with its fastest generated tiling on the profile."""
    program = planned.program
    groups: Mapping[int, FusionGroup] = {
        kernel.id: group for kernel in kernels
        if isinstance(
            group := inspect_group(program, build_nest(program, kernel.members), frozenset(kernel.writes)), FusionGroup
        )
    }  # fmt: skip
    prices = price_workloads(
        [group.workload for group in groups.values()], profile, PriceOptions(implementation="generated")
    )
    row = {number: place for place, number in enumerate(groups)}
    return tuple(
        replace(
            kernel, template=groups[kernel.id].template.value,
            tiling=prices.tiling_of(row[kernel.id]),
        )
        for kernel in kernels
        if kernel.id in groups and prices.latency[row[kernel.id]] < float("inf")
    )  # fmt: skip
