"""From a kernel space to prices: every workload once, None where the limits refuse every tiling, in whole ns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fusesolve.candidates.loops import build_nest
from fusesolve.candidates.program import Program
from fusesolve.candidates.space import Kernel, Space, inspect_group
from fusesolve.cost import COST_MODELS
from fusesolve.cost.table import PriceOptions, Prices, WorkloadTable, empty_prices
from fusesolve.group import FusionGroup, Refusal, Workload
from fusesolve.hardware import HardwareProfile, LaunchMode, launch_overhead
from fusesolve.legality import allowed, explain_limits

ONE_LAUNCH = frozenset({"gpu", "npu"})  # kinds whose models add one launch to every kernel

SHOWN = ("registers", "shared_bytes", "spill_bytes", "occupancy")  # resources that tell one tiling from another


@dataclass(frozen=True, slots=True, kw_only=True)
class Priced:
    """A space with prices: `cost_ns[u]` of each unique workload, None where no tiling is legal.

    `twins`: for rows that a library call does best, the row of the same work as a generated kernel; a pack runs that.
    """

    space: Space
    prices: Prices
    cost_ns: tuple[int | None, ...]
    profile: HardwareProfile
    options: PriceOptions
    twins: Mapping[int, int] = field(default_factory=dict)

    def packed_row(self, row: int) -> int:
        """The row whose tiling a kernel of workload `row` has as part of a pack."""
        return self.twins.get(row, row)


def price_space(
    space: Space, profile: HardwareProfile, options: PriceOptions, *, table: WorkloadTable | None = None
) -> Priced:
    """Price every unique workload of the space on the profile; `table`: that of its workloads, if it is at hand."""
    prices = _price_table(WorkloadTable(space.workloads) if table is None else table, profile, options)
    return Priced(space=space, prices=prices, cost_ns=nanoseconds(prices), profile=profile, options=options)


def shift_launch(priced: Priced, profile: HardwareProfile) -> Priced | None:
    """Prices on a profile that differs from that of `priced` in its launch numbers alone, without pricing again.

    The models of GPUs and NPUs add one launch to the rest of each kernel's time, under every tiling and implementation
    (docs/MODEL.md), so the fastest stays the fastest. None where that does not hold: the model of CPUs has calls of
    other lengths, and a kernel that pays anything but one launch is not understood here.
    """
    mode: LaunchMode = "graph" if profile.kind == "gpu" and priced.options.launch == "graph" else "stream"
    before = priced.prices.terms["launch"]
    priced_at = launch_overhead(priced.profile, mode)
    if profile.kind not in ONE_LAUNCH or not (before[np.isfinite(priced.prices.latency)] == priced_at).all():
        return None
    launch = np.full_like(priced.prices.latency, launch_overhead(profile, mode))
    latency = priced.prices.latency - before + launch
    prices = replace(priced.prices, latency=latency, terms={**priced.prices.terms, "launch": launch})
    return replace(priced, prices=prices, cost_ns=nanoseconds(prices), profile=profile)


def price_workloads(workloads: Sequence[Workload], profile: HardwareProfile, options: PriceOptions) -> Prices:
    """Prices of workloads, best legal tiling each."""
    return _price_table(WorkloadTable(workloads), profile, options)


def _price_table(table: WorkloadTable, profile: HardwareProfile, options: PriceOptions) -> Prices:
    return COST_MODELS[profile.kind](table, profile, options, lambda resources: allowed(resources, profile))


def nanoseconds_of(
    workloads: Sequence[Workload], profile: HardwareProfile, options: PriceOptions
) -> tuple[int | None, ...]:
    """Cost of each workload in whole ns, None where the limits refuse every tiling."""
    return nanoseconds(price_workloads(workloads, profile, options))


def add_prices(priced: Priced, rows: Sequence[int]) -> Priced:
    """The space with these rows priced again under `priced.options`; all others keep their prices."""
    prices = price_workloads([priced.space.workloads[row] for row in rows], priced.profile, priced.options)

    def put(old: np.ndarray, new: np.ndarray) -> np.ndarray:
        found = old.copy()
        found[list(rows)] = new
        return found

    def columns(old: Mapping[str, np.ndarray], new: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {name: put(column, new[name]) for name, column in old.items()}

    before = priced.prices
    merged = Prices(
        latency=put(before.latency, prices.latency), implementation=put(before.implementation, prices.implementation),
        tiling=columns(before.tiling, prices.tiling), resources=columns(before.resources, prices.resources),
        terms=columns(before.terms, prices.terms), tilings=before.tilings,
    )  # fmt: skip
    return replace(priced, prices=merged, cost_ns=nanoseconds(merged))


def extend_priced(priced: Priced, groups: Sequence[FusionGroup]) -> tuple[Priced, tuple[Kernel, ...]]:
    """Prices of the space with those of these groups below them, and the kernel of each group.

    A group that the space already has (same members and writes) keeps its kernel there. The space itself, its list of
    kernels, stays what it is: the groups are beside it.
    """
    space = priced.space
    known = {(kernel.members, kernel.writes): kernel for kernel in space.kernels}
    fresh = {(g.members, g.writes): g for g in groups if (g.members, g.writes) not in known}
    start = len(space.workloads)
    for place, (key, group) in enumerate(fresh.items()):
        full = {w for m in group.members for w in space.program.operators[m].writes if _outside(space, w, group)}
        known[key] = Kernel(
            members=group.members, reads=group.reads, writes=group.writes, full=full <= set(group.writes),
            unique=start + place,
        )  # fmt: skip
    kernels = tuple(known[g.members, g.writes] for g in groups)
    if not fresh:
        return priced, kernels
    added = price_workloads([g.workload for g in fresh.values()], priced.profile, priced.options)
    prices = join_prices(priced.prices, added)
    extended = replace(
        space,
        workloads=(*space.workloads, *(g.workload for g in fresh.values())),
        templates=(*space.templates, *(g.template for g in fresh.values())),
    )  # fmt: skip
    return replace(priced, space=extended, prices=prices, cost_ns=nanoseconds(prices)), kernels


def add_free(priced: Priced, groups: Sequence[FusionGroup]) -> tuple[Priced, tuple[Kernel, ...]]:
    """Prices with one more row for each group that moves nothing and costs nothing, and the kernels.

    Such a kernel costs 1 ns, the least that a solver takes; whoever adds up costs takes it off again.
    """
    if not groups:
        return priced, ()
    start = len(priced.space.workloads)
    latency, tiling, resources, terms = empty_prices(len(groups))
    free = Prices(
        latency=np.full_like(latency, 1e-9), implementation=np.zeros(len(groups), dtype=np.int8), tiling=tiling,
        resources=resources, terms=terms, tilings=0,
    )  # fmt: skip
    prices = join_prices(priced.prices, free)
    space = replace(
        priced.space, workloads=(*priced.space.workloads, *(g.workload for g in groups)),
        templates=(*priced.space.templates, *(g.template for g in groups)),
    )  # fmt: skip
    kernels = tuple(
        Kernel(members=g.members, reads=g.reads, writes=g.writes, full=True, unique=start + i)
        for i, g in enumerate(groups)
    )
    return replace(priced, space=space, prices=prices, cost_ns=nanoseconds(prices)), kernels


def _outside(space: Space, value: int, group: FusionGroup) -> bool:
    storage = space.program.storage[value]
    return storage.required or not set(group.members).issuperset(storage.readers)


def join_prices(first: Prices, second: Prices) -> Prices:
    """Two tables of prices, one under the other."""

    def stack(left: Mapping[str, np.ndarray], right: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {name: np.concatenate((column, right[name])) for name, column in left.items()}

    return Prices(
        latency=np.concatenate((first.latency, second.latency)),
        implementation=np.concatenate((first.implementation, second.implementation)),
        tiling=stack(first.tiling, second.tiling), resources=stack(first.resources, second.resources),
        terms=stack(first.terms, second.terms), tilings=first.tilings + second.tilings,
    )  # fmt: skip


def nanoseconds(prices: Prices) -> tuple[int | None, ...]:
    """Whole ns, at least 1; the one place where seconds become the solver's integers."""
    return tuple(max(1, round(seconds * 1e9)) if np.isfinite(seconds) else None for seconds in prices.latency.tolist())


def judge_group(
    program: Program, members: Sequence[int], profile: HardwareProfile, options: PriceOptions
) -> FusionGroup | Refusal:
    """One set of operators (connected, convex) as a kernel on the profile, or the first reason why it is none."""
    found = inspect_group(program, build_nest(program, tuple(sorted(members))))
    if isinstance(found, Refusal):
        return found
    return limit_refusal(found.workload, profile, options) or found


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerUp:
    """Another way to run a kernel: whole ns, generated or library, its tiling, and the resources that set it apart."""

    cost_ns: int
    implementation: str
    tiling: Mapping[str, int]
    resources: Mapping[str, float]


def price_runner_up(priced: Priced, row: int) -> RunnerUp | None:
    """The best tiling of workload `row` with other resources than the chosen one; None where it has no other.

    A pack is launched as its parts are tiled and has none.
    """
    if row in priced.space.packs or not np.isfinite(priced.prices.latency[row]):
        return None
    chosen = {name: column[row] for name, column in priced.prices.resources.items()}

    def other(resources: Mapping[str, np.ndarray]) -> np.ndarray:
        same = np.ones((1, 1), dtype=np.bool_)
        for name, value in chosen.items():
            if name in resources:
                same = same & (resources[name] == value)
        verdict: np.ndarray = allowed(resources, priced.profile) & ~same
        return verdict

    model = COST_MODELS[priced.profile.kind]
    prices = model(WorkloadTable([priced.space.workloads[row]]), priced.profile, priced.options, other)
    if not np.isfinite(prices.latency[0]):
        return None
    return RunnerUp(
        cost_ns=max(1, round(float(prices.latency[0]) * 1e9)),
        implementation="library" if prices.implementation[0] else "generated",
        tiling={name: int(column[0]) for name, column in prices.tiling.items() if column[0]},
        resources={n: float(prices.resources[n][0]) for n in SHOWN if n in prices.resources},
    )  # fmt: skip


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
