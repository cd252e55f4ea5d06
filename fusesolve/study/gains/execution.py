"""A traced program on a device: its eager kernels, those of a compiler, and those of fusesolve's own plan."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from fusesolve.candidates.pricing import Priced, price_space
from fusesolve.candidates.space import Kernel
from fusesolve.errors import NoPlanError
from fusesolve.hardware import HardwareProfile
from fusesolve.pipeline import PlanOptions, begin
from fusesolve.pipeline.policy import follow_policy
from fusesolve.study.gains.aten import Call, Traced
from fusesolve.study.gains.library import Mode, Placed, library_seconds

COMPILER = "inductor"  # the strategy that stands for torch.compile
OPTIONS = PlanOptions(implementation="library")


@dataclass(frozen=True, slots=True, kw_only=True)
class Executed:
    """Seconds of each kernel in order, launches not counted: eager, compiled, and of fusesolve's plan."""

    eager: np.ndarray
    compiled: np.ndarray
    planned: np.ndarray


class Program:
    """A traced program with its kernel space, enumerated once for all devices.

    Eager and compiled kernels follow from the program alone; fusesolve's own plan is chosen for each device.
    """

    def __init__(self, traced: Traced, profile: HardwareProfile) -> None:
        self.calls: Mapping[str, Call] = traced.calls
        self.planning = begin(traced.graph, profile, OPTIONS, workers=1, time_limit=None)

    @cached_property
    def eager(self) -> tuple[Placed, ...]:
        """Every source operator alone."""
        columns, result = self.planning.unfused
        return self._placed(self.planning.priced, [columns.kernels[i] for i in result.selected])

    @cached_property
    def compiled(self) -> tuple[Placed, ...]:
        """The compiler's groups."""
        followed = follow_policy(self.planning, COMPILER)
        return self._placed(followed.planning.priced, followed.kernels)

    def planned(self, profile: HardwareProfile) -> tuple[Placed, ...]:
        """The fastest plan on a device; NoPlanError where there is none."""
        priced = self.planning.priced
        if profile.name != self.planning.profile.name:
            priced = price_space(priced.space, profile, priced.options)
        columns, result = replace(self.planning, profile=profile, priced=priced).solve()
        if result.objective is None:
            raise NoPlanError(f"{self.planning.graph.name} has no plan on {profile.name}")
        return self._placed(priced, [columns.kernels[i] for i in result.selected])

    def _placed(self, priced: Priced, kernels: Sequence[Kernel]) -> tuple[Placed, ...]:
        """The launches of a plan, the parts of packs one by one."""
        nodes, operators = self.planning.graph.nodes, priced.space.program.operators
        found = []
        for launch, kernel in enumerate(kernels):
            parts = priced.space.packs.get(kernel.unique, (kernel,))
            share = _alone(priced, (kernel,)) / _alone(priced, parts)
            for part in parts:
                sources = dict.fromkeys(nodes[operators[member].node].source for member in part.members)
                calls = tuple(self.calls[source] for source in sources if source in self.calls)
                workload, mixed = priced.space.workloads[part.unique], len(calls) < len(sources)
                found.append(Placed(workload=workload, calls=calls, mixed=mixed, launch=launch, share=share))
        return tuple(found)


def _alone(priced: Priced, kernels: Sequence[Kernel]) -> float:
    """Seconds of kernels one after the other, launches not counted."""
    rows = [kernel.unique for kernel in kernels]
    return float(np.sum(priced.prices.latency[rows] - priced.prices.terms["launch"][rows]))


def execute(programs: Sequence[Program], profile: HardwareProfile) -> list[Executed]:
    """All programs on one device, priced in one go; inf where a kernel is not legal on it."""
    eager = _split([program.eager for program in programs], profile, Mode.EAGER)
    compiled = _split([program.compiled for program in programs], profile, Mode.COMPILED)
    planned = _split([program.planned(profile) for program in programs], profile, Mode.COMPILED)
    return [Executed(eager=a, compiled=b, planned=c) for a, b, c in zip(eager, compiled, planned, strict=True)]


def _split(groups: Sequence[tuple[Placed, ...]], profile: HardwareProfile, mode: Mode) -> list[np.ndarray]:
    """Seconds of every launch of every group."""
    kernels = [kernel for group in groups for kernel in group]
    seconds = library_seconds(kernels, profile, mode) if kernels else np.zeros(0)
    found, start = [], 0
    for group in groups:
        launches = np.array([kernel.launch for kernel in group], dtype=np.intp)
        found.append(np.bincount(launches, weights=seconds[start : start + len(group)]))
        start += len(group)
    return found
