"""From a kernel space to columns: price every workload once, drop what the limits refuse, round to whole ns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from fusesolve.candidates.loops import build_nest
from fusesolve.candidates.program import Program
from fusesolve.candidates.space import Kernel, Space, inspect_group
from fusesolve.cost import COST_MODELS
from fusesolve.cost.table import PriceOptions, Prices, WorkloadTable
from fusesolve.group import FusionGroup, Refusal, Workload
from fusesolve.hardware import HardwareProfile
from fusesolve.legality import allowed, explain_limits
from fusesolve.solve.problem import TIE_LIMIT, Column, PartitionProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class Priced:
    """A space with prices: `cost_ns[u]` of each unique workload, None where no tiling is legal."""

    space: Space
    prices: Prices
    cost_ns: tuple[int | None, ...]
    profile: HardwareProfile
    options: PriceOptions


def price_space(space: Space, profile: HardwareProfile, options: PriceOptions) -> Priced:
    """Price every unique workload of the space on the profile."""
    prices = price_workloads(space.workloads, profile, options)
    return Priced(
        space=space, prices=prices, cost_ns=_nanoseconds(prices), profile=profile, options=options
    )


def price_workloads(workloads: Sequence[Workload], profile: HardwareProfile, options: PriceOptions) -> Prices:
    """Prices of workloads, best legal tiling each."""
    table = WorkloadTable(workloads)
    return COST_MODELS[profile.kind](table, profile, options, lambda resources: allowed(resources, profile))


def _nanoseconds(prices: Prices) -> tuple[int | None, ...]:
    """Whole ns, at least 1; the one place where seconds become the solver's integers."""
    return tuple(
        max(1, round(seconds * 1e9)) if np.isfinite(seconds) else None for seconds in prices.latency.tolist()
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnSet:
    """The columns of a problem and the kernel behind each."""

    problem: PartitionProblem
    kernels: tuple[Kernel, ...]


def make_problem(
    priced: Priced, *, recompute: bool, kernels: Sequence[Kernel] | None = None, max_kernels: int | None = None
) -> ColumnSet:
    """The integer problem over all (or the given) kernels that have a price."""
    program = priced.space.program
    made = [s.index for s in program.storage if s.producer is not None]
    number = {storage: value for value, storage in enumerate(made)}
    chosen = [k for k in (priced.space.kernels if kernels is None else kernels) if priced.cost_ns[k.unique] is not None]
    columns = tuple(
        Column(
            members=k.members,
            reads=tuple(number[s] for s in k.reads if s in number),
            writes=tuple(number[s] for s in k.writes),
            cost=priced.cost_ns[k.unique] or 1,
            tie=_tie(k),
            full=k.full,
        )
        for k in chosen
    )  # fmt: skip
    problem = PartitionProblem(
        n_ops=len(program.operators), n_values=len(made), columns=columns,
        required=frozenset(number[s.index] for s in program.storage if s.required and s.producer is not None),
        producer=tuple(program.storage[s].producer or 0 for s in made),
        recompute=recompute, max_kernels=max_kernels,
    )  # fmt: skip
    return ColumnSet(problem=problem, kernels=tuple(chosen))


def _tie(kernel: Kernel) -> int:
    """A hash of members and writes: which of two equally good plans is taken does not depend on any order."""
    text = f"{kernel.members}|{kernel.writes}".encode()
    return int.from_bytes(blake2b(text, digest_size=4).digest(), "big") % TIE_LIMIT


def judge_group(
    program: Program, members: Sequence[int], profile: HardwareProfile, options: PriceOptions
) -> FusionGroup | Refusal:
    """One set of operators (connected, convex) as a kernel on the profile, or the first reason why it is none."""
    found = inspect_group(program, build_nest(program, tuple(sorted(members))))
    if isinstance(found, Refusal):
        return found
    return limit_refusal(found.workload, profile, options) or found


def limit_refusal(workload: Workload, profile: HardwareProfile, options: PriceOptions) -> Refusal | None:
    """Why no tiling of a workload fits the profile (the tiling nearest to fitting is quoted), or None if one does."""
    seen: list[Mapping[str, np.ndarray]] = []

    def record(resources: Mapping[str, np.ndarray]) -> np.ndarray:
        seen.append(resources)
        verdict: np.ndarray = allowed(resources, profile)
        return verdict

    prices = COST_MODELS[profile.kind](WorkloadTable([workload]), profile, options, record)
    if np.isfinite(prices.latency[0]):
        return None
    nearest: tuple[Refusal, ...] = ()
    for resources in seen:
        for column in range(np.broadcast(*resources.values()).shape[-1]):
            row = {name: float(np.broadcast_to(part, (1, part.shape[-1]))[0, min(column, part.shape[-1] - 1)])
                   for name, part in resources.items()}  # fmt: skip
            broken = explain_limits(row, profile)
            real = tuple(item for item in broken if item.rule != "resident-block") or broken
            if not nearest or _excess(real) < _excess(nearest):
                nearest = real
    if nearest:
        return nearest[0]
    return Refusal(rule="no-tiling", message="no tiling of this template fits the device", lever="split the group")


def _excess(refusals: Sequence[Refusal]) -> float:
    return max(((item.need or 0.0) / max(item.limit or 0.0, 1.0) for item in refusals), default=np.inf)
