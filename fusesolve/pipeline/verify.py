"""`--verify compile`: what the CUDA compiler makes of a plan's kernels takes the place of what was predicted.

A round solves, compiles the chosen generated kernels that are new (in the first round their runners-up too: the
kernels of the plans that do without one of the costliest chosen groups), and prices them again with the compiled
registers, shared memory, spills and code. The plan is confirmed when nothing new is chosen.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from fusesolve.candidates.pricing import Priced, add_prices
from fusesolve.candidates.space import Kernel
from fusesolve.codegen.planned import PlannedKernel, part_of
from fusesolve.codegen.runtime import check_extra
from fusesolve.cost.table import CompiledTiling
from fusesolve.group import Workload
from fusesolve.hardware import HardwareProfile
from fusesolve.pipeline.columns import ColumnSet
from fusesolve.pipeline.options import Event
from fusesolve.pipeline.planning import Planning
from fusesolve.plan import PlannedGroup
from fusesolve.solve import SolveResult
from fusesolve.validate.compile_groups import CompileStore, GroupCompiler, KernelResources
from fusesolve.validate.compiled import capability_of

ROUNDS = 6  # most rounds; a plan that is not confirmed then says so
RUNNERS_UP = 4  # chosen groups whose absence is solved for


Tiling: TypeAlias = tuple[tuple[str, int], ...]


class Source(NamedTuple):
    """What identifies a kernel's source: operators, writes, tiling; of a pack also those of its parts."""

    members: tuple[int, ...]
    writes: tuple[int, ...]
    tiling: Tiling
    parts: tuple[tuple[tuple[int, ...], Tiling], ...]


@dataclass(frozen=True, kw_only=True)
class Verified:
    """A solved plan over compiled resources. `compiled`: what a generated kernel takes, None where it has no source.

    `kernels` counts those that went through the compiler; `confirmed` says that nothing else is chosen.
    """

    planning: Planning
    columns: ColumnSet
    result: SolveResult
    compiled: Mapping[Source, KernelResources | None]
    rounds: int
    confirmed: bool
    kernels: int

    def record(self, groups: Sequence[PlannedGroup]) -> dict[str, Any]:
        """The plan's `verification`."""
        major, minor = capability_of(self.planning.profile)
        known = {g.id for g, kernel in zip(groups, self.chosen(), strict=True) if self.resources(kernel) is not None}
        return {
            "on": "compile", "target": f"sm_{major}{minor}", "rounds": self.rounds, "confirmed": self.confirmed,
            "kernels": self.kernels, "compiled": sorted(known),
            "without_source": [g.id for g in groups if g.implementation != "library" and g.id not in known],
        }  # fmt: skip

    def chosen(self) -> list[Kernel]:
        """The kernels of the plan, in its order."""
        return [self.columns.kernels[i] for i in self.result.selected]

    def resources(self, kernel: Kernel) -> KernelResources | None:
        """What a kernel of the plan takes as compiled."""
        return self.compiled.get(source_of(self.planning.priced, kernel))

    def shown(self, groups: Sequence[PlannedGroup]) -> tuple[PlannedGroup, ...]:
        """Groups with their own compiled numbers (prices take the largest where groups of one workload differ)."""
        return tuple(
            group if (item := self.resources(kernel)) is None else replace(
                group, registers_per_thread=item.registers, shared_bytes=item.shared, spill_bytes=item.spill,
                code_bytes=item.code, occupancy=item.occupancy,
            )
            for group, kernel in zip(groups, self.chosen(), strict=True)
        )  # fmt: skip


def check_verify(profile: HardwareProfile) -> None:
    """MissingError (exit 4) without the extra cuda, InputError for a device that CUDA does not compile for."""
    check_extra("--verify compile")
    capability_of(profile)


def verify_plan(planning: Planning, store: Path | None = None) -> Verified:
    """Solve, compile and price again until nothing new is chosen, or `ROUNDS` or the time limit is reached.

    `store`: a folder that keeps what was compiled, by source; None keeps it for this call.
    """
    return _Verifier(planning, CompileStore(store)).run()


def source_of(priced: Priced, kernel: Kernel) -> Source:
    """The source of a kernel with the tiling that is priced."""

    def tiling(row: int) -> Tiling:
        return tuple(sorted(priced.prices.tiling_of(row).items()))

    parts = priced.space.packs.get(kernel.unique, ())
    packed = tuple((part.members, tiling(priced.packed_row(part.unique))) for part in parts)
    return Source(kernel.members, kernel.writes, tiling(kernel.unique), packed)


class _Verifier:
    """Keeps what is compiled while rounds go on."""

    def __init__(self, planning: Planning, store: CompileStore) -> None:
        self.planning = planning
        space = planning.priced.space
        self.compiler = GroupCompiler(space.program, planning.profile, capability_of(planning.profile), store)
        self.found: dict[Source, KernelResources | None] = {}
        self.facts: dict[Workload, dict[tuple[tuple[str, int], ...], CompiledTiling]] = {}

    def run(self) -> Verified:
        """All rounds."""
        columns, result = self.planning.solve()
        rounds, confirmed = 0, False
        while rounds < ROUNDS and result.objective is not None:
            chosen = [columns.kernels[i] for i in result.selected]
            fresh = self._fresh(chosen)
            if not fresh:
                confirmed = True
                break
            if rounds and (left := self.planning.clock.left()) is not None and left < 1.0:
                break
            rounds += 1
            others = list(self._runners_up(chosen)) if rounds == 1 else []
            self._compile({source_of(self.planning.priced, k): k for k in (*fresh, *self._fresh(others))})
            columns, result = self.planning.solve(warm=chosen)
        return Verified(
            planning=self.planning, columns=columns, result=result, compiled=self.found, rounds=rounds,
            confirmed=confirmed, kernels=self.compiler.compiled,
        )  # fmt: skip

    def _fresh(self, kernels: Sequence[Kernel]) -> list[Kernel]:
        """Generated kernels that have not been compiled with the tiling that is priced."""
        priced = self.planning.priced
        return [
            kernel for kernel in kernels
            if not priced.prices.implementation[kernel.unique] and source_of(priced, kernel) not in self.found
        ]  # fmt: skip

    def _runners_up(self, chosen: Sequence[Kernel]) -> Iterator[Kernel]:
        """The kernels of the plans that do without one of the costliest chosen groups."""
        cost = self.planning.priced.cost_ns
        several = sorted((k for k in chosen if len(k.members) > 1), key=lambda k: -(cost[k.unique] or 0))
        for kernel in several[:RUNNERS_UP]:
            left = self.planning.clock.left()
            if left is not None and left < 10.0:
                return
            columns, result = self.planning.without(kernel, warm=chosen)
            yield from (columns.kernels[i] for i in result.selected)

    def _compile(self, kernels: Mapping[Source, Kernel]) -> None:
        """Compile, note what was found, and price the workloads of these kernels again."""
        priced = self.planning.priced
        if self.planning.report is not None:
            self.planning.report(Event(stage="compile", candidates=len(kernels)))
        made = self.compiler.compile([self._numbered(n, source, kernels[source]) for n, source in enumerate(kernels)])
        changed: set[int] = set()
        for number, (source, kernel) in enumerate(kernels.items()):
            items = made.get(number)
            self.found[source] = None if items is None else items[0]
            if items is not None and not source.parts:  # a pack is priced from its parts
                self._note(priced.space.workloads[kernel.unique], source, items[0])
                changed.add(kernel.unique)
        self._price(sorted(changed))

    def _numbered(self, number: int, source: Source, kernel: Kernel) -> PlannedKernel:
        priced, program = self.planning.priced, self.planning.priced.space.program
        whole = PlannedKernel(
            id=number, nodes=tuple(program.graph.nodes[program.operators[m].node].source for m in kernel.members),
            members=kernel.members, reads=kernel.reads, writes=kernel.writes,
            template=priced.space.templates[kernel.unique].value, implementation="generated",
            tiling=dict(source.tiling), predicted={},
        )  # fmt: skip
        parts = (part_of(program, whole, members, dict(tiling)) for members, tiling in source.parts)
        return replace(whole, parts=tuple(parts))

    def _note(self, workload: Workload, source: Source, item: KernelResources) -> None:
        """The compiled numbers of a workload with a tiling: the largest where sources of one workload differ."""
        known = self.facts.setdefault(workload, {})
        before = known.get(source.tiling)
        new = (item.registers, item.shared, item.code, item.spill)
        old = (0, 0, 0, 0) if before is None else (
            before.registers, before.shared_bytes, before.code_bytes, before.spill_bytes
        )  # fmt: skip
        most = [max(pair) for pair in zip(new, old, strict=True)]
        known[source.tiling] = CompiledTiling(
            tiling=dict(source.tiling), registers=most[0], shared_bytes=most[1], code_bytes=most[2], spill_bytes=most[3]
        )

    def _price(self, rows: Sequence[int]) -> None:
        """Price the workloads of these rows again."""
        priced = self.planning.priced
        facts = {workload: tuple(items.values()) for workload, items in self.facts.items()}
        options = replace(priced.options, compiled=facts)
        self.planning = replace(self.planning, priced=add_prices(replace(priced, options=options), rows))
