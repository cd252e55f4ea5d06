"""Assembling a plan: selected kernels become groups in the user's names, with the numbers of their tiling."""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fusesolve import __version__
from fusesolve.candidates.pricing import Priced
from fusesolve.candidates.program import Program
from fusesolve.candidates.table import Kernel, arrays_of
from fusesolve.cost.table import TERMS
from fusesolve.graph import Node
from fusesolve.hardware import HardwareProfile
from fusesolve.importers.native import native_document
from fusesolve.pipeline.collector import uncollected
from fusesolve.pipeline.levels import levels_record
from fusesolve.pipeline.memory import peak_memory
from fusesolve.pipeline.planning import Planning
from fusesolve.pipeline.streams import Scheduled
from fusesolve.pipeline.timing import peak_of_schedule, simulate_order
from fusesolve.plan import GraphRecord, HardwareRecord, Plan, PlannedGroup, SpaceRecord
from fusesolve.ragged import choose
from fusesolve.solve import SolveResult, Status

MODEL_ERROR = 0.10  # a gain below this share of the unfused time is within the simulator's error


@uncollected
def assemble(
    planning: Planning, kernels: Sequence[Kernel], result: SolveResult, scheduled: Scheduled | None = None
) -> Plan:
    """The plan of a solved problem; `kernels[i]` is the kernel of column i. `scheduled`: it is on several streams."""
    program = planning.priced.space.program
    result = result if scheduled is None else scheduled.result
    order = choose(kernels, result.selected)
    columns, unfused = planning.unfused
    alone = choose(columns.kernels, unfused.selected)
    exists = result.objective is not None
    groups = assemble_groups(planning, order, scheduled) if exists else ()
    unfused_ns = unfused.objective
    peak = peak_memory(program, order)
    gain = unfused_ns / result.objective if exists and unfused_ns and result.objective else None
    return Plan(
        fusesolve_version=__version__,
        graph=_graph_record(planning), hardware=_hardware_record(planning),
        options=planning.options.to_dict(),
        timing=_timing(planning, groups, alone, scheduled),
        status=result.status.value, objective_ns=result.objective, bound_ns=result.bound,
        gap=_gap(result), unfused_ns=unfused_ns, speedup=gain,
        dram_bytes=sum(g.dram_bytes for g in groups) if exists else None,
        unfused_dram_bytes=_dram(planning.priced, alone) if unfused_ns is not None else None,
        peak_memory_bytes=(peak if scheduled is None else _peak(program, order, groups)) if exists else None,
        unfused_peak_memory_bytes=peak_memory(program, alone) if unfused_ns is not None else None,
        space=_space_record(planning.priced), seconds=dict(planning.clock.seconds),
        groups=groups, warnings=_warnings(planning, program, peak),
        conflicts=_conflicts(planning, result), levels=levels_record(planning.options.objective, result),
    )  # fmt: skip


def _conflicts(planning: Planning, result: SolveResult) -> tuple[dict[str, Any], ...]:
    """Why there is no plan, or none was found; what explains the first is loaded only then."""
    if result.status is not Status.INFEASIBLE:
        return tuple({"message": line} for line in result.conflicts)
    from fusesolve.pipeline.conflicts import explain_infeasible

    return explain_infeasible(planning, result)


def assemble_groups(
    planning: Planning, order: Sequence[Kernel], scheduled: Scheduled | None = None
) -> tuple[PlannedGroup, ...]:
    """Kernels in execution order as groups in the user's names, with the numbers of their tilings.

    `scheduled`: their starts and streams, where there is more than one; with events, when the simulator runs them.
    """
    groups = _Groups(planning, order).build()
    if scheduled is not None:
        groups = tuple(
            replace(group, start_ns=start, stream=stream)
            for group, start, stream in zip(groups, scheduled.start, scheduled.stream, strict=True)
        )
    if planning.options.simulate != "events":
        return groups
    simulated = simulate_order(planning.priced, order, [group.stream for group in groups])
    return tuple(
        replace(group, simulated_start_ns=start, simulated_ns=latency)
        for group, start, latency in zip(groups, simulated.start_ns, simulated.latency_ns, strict=True)
    )


def _timing(
    planning: Planning, groups: Sequence[PlannedGroup], unfused: Sequence[Kernel], scheduled: Scheduled | None
) -> dict[str, Any]:
    """Launch mode, streams and mode; the proven least makespan of these kernels on streams; simulated totals."""
    options = planning.options
    found: dict[str, Any] = {"launch": options.launch, "streams": options.streams, "mode": options.simulate}
    if scheduled is not None:
        found["kernels_bound_ns"] = scheduled.kernels_bound
    ends = [group.simulated_start_ns + (group.simulated_ns or 0) for group in groups if group.simulated_start_ns]
    if ends:
        found["simulated_ns"] = max(ends)
        found["unfused_simulated_ns"] = simulate_order(planning.priced, unfused).total_ns if unfused else None
    return found


def _peak(program: Program, order: Sequence[Kernel], groups: Sequence[PlannedGroup]) -> int:
    """Peak memory (bytes) of kernels as they overlap on streams."""
    start = [group.start_ns for group in groups]
    return peak_of_schedule(program, order, start, [group.start_ns + group.latency_ns for group in groups])


def _gap(result: SolveResult) -> float | None:
    return 0.0 if result.status is Status.OPTIMAL else result.gap


def _dram(priced: Priced, kernels: Sequence[Kernel]) -> int:
    column = priced.prices.resources["dram_bytes"]
    return sum(int(column[k.unique]) for k in kernels)


def _digest(document: Mapping[str, Any]) -> str:
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _graph_record(planning: Planning) -> GraphRecord:
    graph = planning.graph
    definition = native_document(graph)
    return GraphRecord(
        name=graph.name, sha256=_digest(definition), nodes=len(graph.nodes), values=len(graph.values),
        definition=definition,
    )  # fmt: skip


def _hardware_record(planning: Planning) -> HardwareRecord:
    profile = planning.profile
    return HardwareRecord(name=profile.name, sha256=profile.sha256, definition=profile.definition)


def _space_record(priced: Priced) -> SpaceRecord:
    space = priced.space
    legal = [cost is not None for cost in priced.cost_ns]
    table = arrays_of(space.kernels)
    reach = 0
    regions = 0
    for low, high in table.spans(legal):
        regions += low > reach or not regions
        reach = max(reach, high)
    count = table.priced_count(legal)
    return SpaceRecord(candidates=count, truncated=bool(space.cut_by), cut_by=tuple(space.cut_by), regions=regions)


def _uncalibrated(profile: HardwareProfile) -> str:
    error = profile.calibration.get("transfer_error")
    expected = "" if error is None else f"; expect errors of about {100 * error.value:.0f} %"
    return f"profile {profile.name} is uncalibrated: its constants are its family's or the model's defaults{expected}"


def _warnings(planning: Planning, program: Program, peak: int) -> tuple[str, ...]:
    """What the user should know; `peak`: bytes that the kernels take one after the other."""
    found = [*planning.warnings, *planning.graph.warnings]
    if planning.profile.uncalibrated:
        found.append(_uncalibrated(planning.profile))
    for operator in program.operators:
        node = program.graph.nodes[operator.node]
        if node.op == "opaque" and not any(node.source in line for line in found):
            found.append(f"{node.source}: priced by its bytes alone, it is opaque to the planner")
    size = planning.profile.memory.dram.size
    if peak > size:
        found.append(f"peak memory {peak} bytes is above the device's {size} bytes")
    if planning.priced.space.cut_by:
        found.append(f"the kernel space was cut: {planning.priced.space.cut_by[0]}")
    return tuple(dict.fromkeys(found))


class _Groups:
    """Names and numbers of the groups of a plan, in execution order."""

    def __init__(self, planning: Planning, order: Sequence[Kernel]) -> None:
        self.planning = planning
        self.priced = planning.priced
        self.program = planning.priced.space.program
        self.order = order
        self.nodes = self.program.graph.nodes
        self.parts = Counter(node.source for node in self.nodes)
        singles = arrays_of(self.priced.space.kernels).singles()
        self.alone_ns = {k.members[0]: self.priced.cost_ns[k.unique] for k in singles if k.full}
        self.views = self._views_by_step()

    def build(self) -> tuple[PlannedGroup, ...]:
        """All groups; starts are cumulative on one stream."""
        start = 0
        computed: set[int] = set()
        found: list[PlannedGroup] = []
        for number, kernel in enumerate(self.order):
            again = [m for m in kernel.members if m in computed]
            computed.update(kernel.members)
            group = self._group(number, kernel, start, again)
            found.append(group)
            start += group.latency_ns
        return tuple(found)

    def _views_by_step(self) -> list[list[Node]]:
        """View nodes go with the first kernel that makes their storage, or reads it where it is an input."""
        first: dict[int, int] = {}
        for step in reversed(range(len(self.order))):
            kernel = self.order[step]
            for member in kernel.members:
                operator = self.program.operators[member]
                first.update(dict.fromkeys((read.storage for read in operator.reads), step))
        for step in reversed(range(len(self.order))):
            for member in self.order[step].members:
                first.update(dict.fromkeys(self.program.operators[member].writes, step))
        found: list[list[Node]] = [[] for _ in self.order]
        for node in self.nodes:
            chosen = first.get(self.program.view_root.get(node.outputs[0], -1))
            if chosen is not None:
                found[chosen].append(node)
        return found

    def _names(self, members: Sequence[int], views: Sequence[Node]) -> tuple[str, ...]:
        """Source names where the whole source is here, `source/primitive` where it is split."""
        here = [self.nodes[self.program.operators[m].node] for m in members]
        present = Counter(node.source for node in (*here, *views))
        names = [
            node.source if present[node.source] == self.parts[node.source] else node.name for node in (*here, *views)
        ]
        return tuple(dict.fromkeys(names))

    def _group(self, number: int, kernel: Kernel, start: int, again: Sequence[int]) -> PlannedGroup:
        unique = kernel.unique
        prices = self.priced.prices
        workload = self.priced.space.workloads[unique]
        latency = self.priced.cost_ns[unique] or 1
        terms = {name: round(float(prices.terms[name][unique]) * 1e9) for name in TERMS}
        gpu = self.planning.profile.kind == "gpu"
        storage = self.program.storage

        packed = self.priced.space.packs.get(unique, ())

        def count(name: str) -> int:
            return int(prices.resources[name][unique])

        return PlannedGroup(
            id=number, nodes=self._names(kernel.members, self.views[number]),
            inputs=tuple(storage[s].value for s in kernel.reads),
            outputs=tuple(storage[s].value for s in kernel.writes),
            recomputed=self._names(again, ()) if again else (),
            template=self.priced.space.templates[unique].value,
            implementation="library" if prices.implementation[unique] else "generated",
            tiling=prices.tiling_of(unique),
            start_ns=start, stream=0, latency_ns=latency, bound_by=bound_by(terms),
            terms_ns={name: value for name, value in terms.items() if value},
            dram_bytes=count("dram_bytes"), flops=int(2 * workload.mma + workload.fma + workload.sfu),
            registers_per_thread=count("registers") if gpu else None, shared_bytes=count("shared_bytes"),
            spill_bytes=count("spill_bytes") if gpu else None,
            occupancy=round(float(prices.resources["occupancy"][unique]), 4) if gpu else None,
            blocks=count("blocks") if gpu else None, threads=count("threads") if gpu else None,
            code_bytes=count("code_bytes") if gpu else None, argument_bytes=count("argument_bytes"),
            uncertain=self._uncertain(kernel, latency),
            parts=tuple(self._names(part.members, ()) for part in packed),
            part_tilings=tuple(prices.tiling_of(self.priced.packed_row(part.unique)) for part in packed),
        )  # fmt: skip

    def _uncertain(self, kernel: Kernel, latency: int) -> bool:
        """Whether what fusing these operators gains is within the model's error."""
        alone = [self.alone_ns.get(m) for m in kernel.members]
        if len(alone) < 2 or any(cost is None for cost in alone):
            return False
        apart = sum(cost for cost in alone if cost is not None)
        return apart - latency < MODEL_ERROR * apart


def bound_by(terms: Mapping[str, int]) -> str:
    """The greatest term; launch and floor count together as launch."""
    merged = {name: value for name, value in terms.items() if name != "floor"}
    merged["launch"] = terms.get("launch", 0) + terms.get("floor", 0)
    return max(sorted(merged), key=lambda name: merged[name])
