"""Explanations: why operators share a kernel or do not, by solving the plan again the other way."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fusesolve.candidates.pricing import Priced, price_runner_up
from fusesolve.candidates.space import Kernel
from fusesolve.cost.table import TERMS
from fusesolve.errors import InputError, NoPlanError
from fusesolve.graph import Graph
from fusesolve.group import Refusal
from fusesolve.hardware import HardwareProfile
from fusesolve.pipeline import Planning, PlanOptions, begin
from fusesolve.pipeline.columns import ColumnSet, find_operators
from fusesolve.pipeline.conflicts import refuse_together
from fusesolve.pipeline.options import Bindings, Report
from fusesolve.ragged import choose
from fusesolve.solve import SolveResult

FORMAT = "fusesolve-explanation/1"
TERMS_SHOWN = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Two plans compared: with the operators in one kernel, and apart. Times in ns, None where there is no such plan.

    `delta_ns` is together - apart: negative where sharing a kernel saves time. `because` lists terms whose totals
    differ. `rule`, `numbers`, `lever`: why they cannot share a kernel, where a rule refuses it.
    """

    between: tuple[str, str] | None
    group: int | None
    together_ns: int | None
    apart_ns: int | None
    because: tuple[Mapping[str, Any], ...]
    rule: str | None = None
    numbers: Mapping[str, Any] | None = None
    lever: str | None = None

    @property
    def delta_ns(self) -> int | None:
        """Together minus apart in ns, None where one of the two has no plan."""
        if self.together_ns is None or self.apart_ns is None:
            return None
        return self.together_ns - self.apart_ns

    def to_dict(self) -> dict[str, Any]:
        """The `fusesolve-explanation/1` document."""
        subject = {"group": self.group} if self.between is None else {"between": list(self.between)}
        return {
            "format": FORMAT, **subject, "together_ns": self.together_ns, "apart_ns": self.apart_ns,
            "delta_ns": self.delta_ns, "because": [dict(item) for item in self.because], "rule": self.rule,
            "numbers": None if self.numbers is None else dict(self.numbers), "lever": self.lever,
        }  # fmt: skip


def explain(
    graph: Graph | str, hardware: HardwareProfile | str, *, between: tuple[str, str] | None = None,
    group: int | None = None, bind: Bindings | None = None, strict: bool = False, time_limit: float | None = 60.0,
    workers: int | None = None, progress: Report | None = None, **options: Any,
) -> Explanation:  # fmt: skip
    """Explain two operators (`between`) or a kernel of the plan (`group`, its number); one of the two must be given.

    `options` are fields of `PlanOptions`. Raises InputError for unknown names or numbers, NoPlanError without a plan.
    """
    if (between is None) == (group is None):
        raise InputError("explain needs one of between=(A, B) and group=N")
    for name in ("together", "apart"):
        options[name] = tuple(map(tuple, options.get(name, ())))
    planning = begin(
        graph, hardware, PlanOptions(**options), bind=bind, strict=strict, time_limit=time_limit,
        workers=workers, progress=progress, separable=between or (),
    )  # fmt: skip
    return explain_pair(planning, between) if between is not None else explain_group(planning, group or 0)


def explain_pair(planning: Planning, between: tuple[str, str]) -> Explanation:
    """Two operators: the plan as it is, and the plan solved again with them forced the other way."""
    program = planning.priced.space.program
    first, second = (find_operators(program, name) for name in between)
    if first == second:
        raise InputError(f"explain --between {between[0]} {between[1]}: the two names stand for the same operators")
    base = _solved(*planning.best)
    shared = any(first & set(k.members) and second & set(k.members) for k in base.kernels)
    if shared:
        other = _solved_or_none(*planning.solve(apart=(between,), warm=base.kernels))
        return _compare(planning, base, other, between=between)
    other = _solved_or_none(*planning.solve(together=(between,), warm=base.kernels))
    refusal = None if other is not None else refuse_together(planning, between)
    return _compare(planning, other, base, between=between, refusal=refusal)


def explain_group(planning: Planning, number: int) -> Explanation:
    """A kernel of the plan against the best plan that does not have it."""
    base = _solved(*planning.best)
    if not 0 <= number < len(base.kernels):
        raise InputError(f"--group {number}: the plan has kernels 0 to {len(base.kernels) - 1}")
    chosen = base.kernels[number]
    other = _solved_or_none(*planning.without(chosen, warm=base.kernels))
    return _compare(planning, base, other, group=number, chosen=chosen)


@dataclass(frozen=True, slots=True)
class _Solved:
    kernels: tuple[Kernel, ...]
    objective: int


def _solved_or_none(columns: ColumnSet, result: SolveResult) -> _Solved | None:
    if result.objective is None:
        return None
    return _Solved(choose(columns.kernels, result.selected), result.objective)


def _solved(columns: ColumnSet, result: SolveResult) -> _Solved:
    found = _solved_or_none(columns, result)
    if found is None:
        raise NoPlanError(f"there is no plan to explain: {'; '.join(result.conflicts) or result.status.value}")
    return found


def _compare(
    planning: Planning, together: _Solved | None, apart: _Solved | None, *, between: tuple[str, str] | None = None,
    group: int | None = None, refusal: Refusal | None = None, chosen: Kernel | None = None,
) -> Explanation:  # fmt: skip
    because: list[Mapping[str, Any]] = []
    if together is not None and apart is not None:
        because.extend(_terms(planning.priced, together.kernels, apart.kernels))
    if chosen is not None:
        because.extend(_own_terms(planning.priced, chosen))
        because.extend(_runner_up(planning.priced, chosen))
    numbers = None if refusal is None else {"need": refusal.need, "limit": refusal.limit, "message": refusal.message}
    return Explanation(
        between=between, group=group, together_ns=None if together is None else together.objective,
        apart_ns=None if apart is None else apart.objective, because=tuple(because),
        rule=None if refusal is None else refusal.rule, numbers=numbers,
        lever=None if refusal is None else refusal.lever,
    )  # fmt: skip


def _terms(priced: Priced, together: Sequence[Kernel], apart: Sequence[Kernel]) -> list[Mapping[str, Any]]:
    """Terms whose totals differ between the kernels that only one of the two plans has, greatest first."""
    mine = {(k.members, k.writes) for k in together}
    theirs = {(k.members, k.writes) for k in apart}
    left = [k for k in together if (k.members, k.writes) not in theirs]
    right = [k for k in apart if (k.members, k.writes) not in mine]
    found: list[Mapping[str, Any]] = []
    for name in TERMS:
        here, there = (sum(_term(priced, name, k) for k in kernels) for kernels in (left, right))
        if here != there:
            message = f"{here / 1e3:.2f} us in {len(left)} kernels together, {there / 1e3:.2f} us in {len(right)} apart"
            found.append({"term": name, "delta_ns": here - there, "message": message})
    found.sort(key=lambda item: -abs(item["delta_ns"]))
    return found[:TERMS_SHOWN] + _resources(priced, left)


def _resources(priced: Priced, kernels: Sequence[Kernel]) -> list[Mapping[str, Any]]:
    """Registers, shared memory and occupancy of the kernels that only the fused plan has."""
    if priced.profile.kind != "gpu" or not kernels:
        return []
    widest = max(kernels, key=lambda k: len(k.members))
    value = {name: float(column[widest.unique]) for name, column in priced.prices.resources.items()}
    message = (
        f"{value['registers']:.0f} registers, {value['shared_bytes']:.0f} bytes shared, "
        f"occupancy {100 * value['occupancy']:.0f} %, spills {value['spill_bytes']:.0f} bytes a thread"
    )
    return [{"term": "resources", "delta_ns": 0, "message": message}]


def _runner_up(priced: Priced, kernel: Kernel) -> list[Mapping[str, Any]]:
    """The best choice of tiling and implementation with other resources, and what it would cost."""
    found = price_runner_up(priced, kernel.unique)
    if found is None:
        return []
    tiling = ", ".join(f"{name} {value}" for name, value in found.tiling.items())
    resources = ", ".join(
        f"{100 * value:.0f} % occupancy" if name == "occupancy" else f"{value:.0f} {name}"
        for name, value in found.resources.items()
        if value
    )
    message = f"{found.cost_ns / 1e3:.2f} us {found.implementation} with {tiling or 'no tiling'}: {resources or 'none'}"
    delta = found.cost_ns - (priced.cost_ns[kernel.unique] or 1)
    return [{"term": "runner-up", "delta_ns": delta, "message": message}]


def _own_terms(priced: Priced, kernel: Kernel) -> list[Mapping[str, Any]]:
    """The terms of one kernel, each on its own before they overlap."""
    total = priced.cost_ns[kernel.unique] or 1
    values = {name: _term(priced, name, kernel) for name in TERMS}
    return [
        {"term": name, "delta_ns": 0, "message": f"{ns / 1e3:.2f} us, {100 * ns / total:.0f} % of this kernel's time"}
        for name, ns in values.items()
        if ns > 0
    ]


def _term(priced: Priced, name: str, kernel: Kernel) -> int:
    return round(float(priced.prices.terms[name][kernel.unique]) * 1e9)
