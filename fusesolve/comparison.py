"""Comparing strategies, and partitions of other compilers, on one graph and one simulator."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fusesolve.candidates.pricing import Priced, price_workloads
from fusesolve.candidates.space import Kernel
from fusesolve.errors import InputError, NoPlanError
from fusesolve.graph import Graph
from fusesolve.group import TEMPLATES, Template, Workload
from fusesolve.hardware import HardwareProfile
from fusesolve.peers import Mapped, PeerPartition, load_partition, map_partition
from fusesolve.pipeline import Planning, PlanOptions, begin
from fusesolve.pipeline.options import Bindings, Report
from fusesolve.pipeline.planning import Clock
from fusesolve.pipeline.policy import STRATEGY_NAMES, Followed, check_strategy, follow_groups, follow_policy
from fusesolve.solve import SolveResult
from fusesolve.strategies import POLICIES, Context, Members

FORMAT = "fusesolve-compare/1"
REFERENCE = "cpsat"
REFERENCE_SHARE = 0.6  # of the time that is left once the space is priced; the rows share what remains


@dataclass(frozen=True, slots=True, kw_only=True)
class IllegalGroup:
    """A group of a row that is no kernel: its place in the partition, its operators' names, rule and message.

    `group` None: a node that the partition does not name and that is no kernel alone.
    """

    group: int | None
    nodes: tuple[str, ...]
    rule: str
    message: str

    def to_dict(self) -> dict[str, Any]:
        """As plain data; `group` is the list of names where there is no place."""
        group: Any = list(self.nodes) if self.group is None else self.group
        return {"group": group, "nodes": list(self.nodes), "rule": self.rule, "message": self.message}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One strategy or partition.

    `objective_ns`: its plan's time; `ratio`: over that of cpsat; `kernels`: of the plan that is priced; `groups`: that
    the partition has; `legal`: the profile's limits hold; `in_space`: every group is a kernel of the stated space (one
    that computes for itself what others need is priced as it is, and may be beyond it); `priced_as`: `own`, or `split`
    where a group was replaced by its best legal sub-plan.
    """

    name: str
    kind: str
    objective_ns: int
    ratio: float
    kernels: int
    groups: int
    dram_bytes: int
    legal: bool
    in_space: bool
    priced_as: str
    illegal: tuple[IllegalGroup, ...]
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """As plain data, keys in the order of the format."""
        return {
            "name": self.name, "kind": self.kind, "objective_ns": self.objective_ns, "ratio": self.ratio,
            "kernels": self.kernels, "groups": self.groups, "dram_bytes": self.dram_bytes, "legal": self.legal,
            "in_space": self.in_space, "priced_as": self.priced_as,
            "illegal": [item.to_dict() for item in self.illegal], "seconds": self.seconds,
        }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """All rows on one graph and profile. `gap`: what cpsat left unproven, None where it has no bound."""

    graph: str
    hardware: str
    status: str
    gap: float | None
    rows: tuple[Row, ...]
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The `fusesolve-compare/1` document."""
        return {
            "format": FORMAT, "graph": self.graph, "hardware": self.hardware, "status": self.status, "gap": self.gap,
            "rows": [row.to_dict() for row in self.rows], "warnings": list(self.warnings),
        }  # fmt: skip


def compare(
    graph: Graph | str, hardware: HardwareProfile | str, *, strategies: Sequence[str] = STRATEGY_NAMES,
    partitions: Sequence[PeerPartition | Path | str] = (), bind: Bindings | None = None, strict: bool = False,
    time_limit: float | None = 60.0, workers: int | None = None, progress: Report | None = None, **options: Any,
) -> Comparison:  # fmt: skip
    """Price `strategies` (names) and `partitions` (documents or their files) on one graph and profile.

    `options` are fields of `PlanOptions`, without pins. Raises InputError for unknown names, NoPlanError where no plan
    exists or none was found within the limit.
    """
    for name in strategies:
        check_strategy(name)
    peers = [item if isinstance(item, PeerPartition) else load_partition(item) for item in partitions]
    planning = begin(
        graph, hardware, PlanOptions(**options), bind=bind, strict=strict, time_limit=time_limit, workers=workers,
        progress=progress,
    )  # fmt: skip
    return compare_planning(planning, strategies=strategies, partitions=peers)


def compare_planning(
    planning: Planning, *, strategies: Sequence[str] = STRATEGY_NAMES, partitions: Sequence[PeerPartition] = ()
) -> Comparison:
    """The rows on a planning that `begin` has made; see `compare`."""
    if planning.options.together or planning.options.apart:
        raise InputError("a comparison takes no pins: policies follow their own rules")
    comparer = _Comparer(planning)
    rows = tuple(comparer.rows(dict.fromkeys(strategies), partitions))
    result = comparer.result
    return Comparison(
        graph=planning.graph.name, hardware=planning.profile.name, status=result.status.value,
        gap=0.0 if result.gap is None and result.bound == result.objective else result.gap, rows=rows,
        warnings=(*planning.warnings, *planning.graph.warnings),
    )  # fmt: skip


class _Comparer:
    """One solved planning, and the context that all policies share."""

    def __init__(self, planning: Planning) -> None:
        self.planning = planning
        self.context = Context(planning.priced)
        since = time.monotonic()
        self.columns, self.result = _limited(planning, REFERENCE_SHARE).solve(strategy=REFERENCE)
        self.solved_s = time.monotonic() - since
        if self.result.objective is None:
            reasons = "; ".join(self.result.conflicts) or "raise --time-limit"
            raise NoPlanError(f"there is no plan to compare with: {reasons}")
        self.best: int = self.result.objective
        self.start = [self.columns.kernels[i] for i in self.result.selected]
        self.followed: dict[tuple[tuple[Members, ...], frozenset[int]], Followed] = {}

    def rows(self, strategies: Mapping[str, None], partitions: Sequence[PeerPartition]) -> Iterator[Row]:
        """Strategies in the given order, then partitions."""
        rows = len(strategies) + len(partitions)
        for done, name in enumerate(strategies):
            since = time.monotonic()
            if name in POLICIES:
                planning = _limited(self.planning, 1 / (rows - done))
                followed = follow_policy(planning, name, self.context, start=self.start)
                yield self._followed(name, "strategy", followed, since)
            else:
                yield self._solved(name, since)
        for done, partition in enumerate(partitions, len(strategies)):
            since = time.monotonic()
            yield self._partition(partition, since, 1 / (rows - done))

    def _solved(self, name: str, since: float) -> Row:
        columns, result = self.columns, self.result
        if name != REFERENCE:
            columns, result = self.planning.solve(strategy=name)
        kernels = [columns.kernels[i] for i in result.selected]
        if result.objective is None:
            raise NoPlanError(f"strategy {name} found no plan: {'; '.join(result.conflicts) or 'raise --time-limit'}")
        return Row(
            name=name, kind="strategy", objective_ns=result.objective, ratio=self._ratio(result.objective),
            kernels=len(kernels), groups=len(kernels), dram_bytes=_dram(self.planning.priced, kernels), legal=True,
            in_space=True, priced_as="own", illegal=(),
            seconds=self.solved_s if name == REFERENCE else time.monotonic() - since,
        )  # fmt: skip

    def _followed(self, name: str, kind: str, followed: Followed, since: float, mapped: Mapped | None = None) -> Row:
        objective = followed.objective
        if objective is None:
            reasons = _reasons(followed.result)
            raise NoPlanError(f"{kind} {name} has no plan on {self.planning.profile.name}: {reasons}")
        copies = _Copies(self.planning, mapped)
        return Row(
            name=name, kind=kind, objective_ns=objective + copies.ns,
            ratio=self._ratio(objective + copies.ns), kernels=len(followed.kernels) + copies.count,
            groups=followed.groups + copies.count,
            dram_bytes=_dram(followed.planning.priced, followed.kernels) + copies.dram_bytes,
            legal=not any(item.breaks_limit for item in followed.illegal),
            in_space=all(item.breaks_limit for item in followed.illegal)
            and all(map(self.context.is_stated, followed.kernels)),
            priced_as="split" if followed.illegal else "own", illegal=self._illegal(followed, mapped),
            seconds=time.monotonic() - since,
        )  # fmt: skip

    def _illegal(self, followed: Followed, mapped: Mapped | None) -> tuple[IllegalGroup, ...]:
        return tuple(
            IllegalGroup(
                group=item.group if mapped is None else mapped.place[item.group],
                nodes=tuple(self.context.name(m) for m in item.members), rule=item.rule, message=item.message,
            )
            for item in followed.illegal
        )  # fmt: skip

    def _partition(self, partition: PeerPartition, since: float, share: float) -> Row:
        mapped = map_partition(self.planning.priced.space.program, partition)
        key = (mapped.groups, mapped.views)
        if key not in self.followed:
            self.followed[key] = follow_groups(
                _limited(self.planning, share), mapped.groups, self.context, views=mapped.views, start=self.start
            )
        followed = self.followed[key]
        return self._followed(partition.name, "partition", followed, since, mapped)

    def _ratio(self, objective: int) -> float:
        return objective / self.best if self.best else 1.0


def _limited(planning: Planning, share: float) -> Planning:
    """The same planning with a share of the time that is left."""
    left = planning.clock.left()
    if left is None:
        return planning
    return replace(planning, clock=Clock(limit=share * left))


def _reasons(result: SolveResult) -> str:
    return "; ".join(result.conflicts) or "none was found within the limit: raise --time-limit"


def _dram(priced: Priced, kernels: Sequence[Kernel]) -> int:
    column = priced.prices.resources["dram_bytes"]
    return sum(int(column[kernel.unique]) for kernel in kernels)


class _Copies:
    """Kernels of a partition without an operator: a launch each, and the copy of the tensor where it is known."""

    def __init__(self, planning: Planning, mapped: Mapped | None) -> None:
        copied = () if mapped is None else mapped.copied
        empty = 0 if mapped is None else mapped.empty
        self.count = len(copied) + empty
        self.ns = self.dram_bytes = 0
        if self.count:
            prices = price_workloads(
                [_copy(16), *(_copy(size) for size in copied)], planning.profile, planning.priced.options
            )
            launch_s = float(prices.terms["launch"][0])
            self.ns = round(empty * launch_s * 1e9) + sum(round(float(s) * 1e9) for s in prices.latency[1:])
            self.dram_bytes = sum(int(part) for part in prices.resources["dram_bytes"][1:])


def _copy(size: int) -> Workload:
    """A kernel that reads and writes `size` bytes, 16 at a time."""
    points = max(1, -(-size // 4))
    return Workload(
        template=TEMPLATES.index(Template.MOVEMENT), inner=points, full_reads=1, full_writes=1, arrays=2,
        element_bytes=4, read_bytes=size, write_bytes=size, warm_read_bytes=size,
        footprint_bytes=2 * size,
    )  # fmt: skip
