"""Thresholds: the values of one number at which the best plan stops being the best, by bisection.

From the lower end on, the plan at hand is followed through the range: it holds at a value where no plan is faster by
more than the rounding of prices to whole ns. The range is looked at in SCAN places; where the plan holds at one and not
at the next, the interval is halved until it is no wider than the resolution; the best plan above takes over, from where
it overtakes the old one. What is not seen: a plan that fails and holds again between two places. (Along a launch it
cannot: the time of every plan is a straight line there.)
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

from fusesolve.candidates.space import Kernel
from fusesolve.difference import diff
from fusesolve.errors import InputError
from fusesolve.hardware import HardwareProfile
from fusesolve.hardware_yaml import NumberPath
from fusesolve.pipeline.assemble import assemble
from fusesolve.pipeline.planning import Planning
from fusesolve.plan import Plan
from fusesolve.ragged import choose
from fusesolve.whatif.axes import Range
from fusesolve.whatif.evaluate import Bench, cost_elsewhere
from fusesolve.whatif.points import set_numbers

SCAN = 17
RESOLUTION = 1 / 4096  # of the range, unless one is given
REGROUPED = frozenset({"merged", "split", "regrouped"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """One value (base unit) that was looked at, and its best plan: `order`, the kernels; no plan: None and ().

    `planning` has the prices at the value. `home` is a planning whose solution is this very plan. `shapes`: workloads
    that all plannings of the graph share. (Kernels that policies add to a space that was cut are not among them: plans
    with such kernels are compared by their hash alone.)
    """

    value: float
    planning: Planning
    order: tuple[Kernel, ...]
    objective_ns: int | None
    plan_sha256: str | None
    home: Planning
    shapes: int

    def excess_ns(self, other: "Spot") -> int | None:
        """What the plan of `other` takes here beyond the best one, in ns; None where one of the two does not exist."""
        if self.objective_ns is None or not other.order:
            return None
        cost = cost_elsewhere(self.planning, other.order, other.home, self.shapes)
        return None if cost is None else cost - self.objective_ns

    def keeps(self, other: "Spot") -> bool:
        """Whether the plan of `other` is still as good as any here, up to half a ns for each kernel of both plans."""
        if other.objective_ns is None or self.objective_ns is None:
            return other.objective_ns is self.objective_ns
        if self.plan_sha256 == other.plan_sha256:
            return True
        excess = self.excess_ns(other)
        return excess is not None and 2 * excess <= len(self.order) + len(other.order)


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Where the plan changes along one range, on one graph and profile.

    `segments`: stretches on which one plan holds, ascending, as plain data: `low` and `high` (values that were looked
    at), `plan_sha256`, `kernels`, `low_ns`, `high_ns` (the best time at both ends). `changes` lie between neighbouring
    segments: at `below` the plan of the lower one holds, at `above`, at most `resolution` away, it does not and that of
    the upper one does; `groups` are the kernels that merged or split, `gain_ns` what the new plan saves over the old
    one at `above`, `gain_at_end_ns` at the end of its segment (None: the old plan does not exist there).
    """

    graph: str
    hardware: str
    path: str
    resolution: float
    segments: tuple[dict[str, Any], ...]
    changes: tuple[dict[str, Any], ...]

    def to_dict(self) -> dict[str, Any]:
        """As plain data, keys in a fixed order."""
        return {
            "graph": self.graph, "hardware": self.hardware, "path": self.path, "resolution": self.resolution,
            "segments": list(self.segments), "changes": list(self.changes),
        }  # fmt: skip


def find_thresholds(
    bench: Bench, profile: HardwareProfile, span: Range, *, resolution: float | None = None, hardware: str | None = None
) -> Thresholds:
    """All values of `span` (on `profile`) at which the plan changes; see the top of the file for what can be missed.

    `resolution`: base units, at least 1 for whole numbers; None for 1/4096 of the range. `hardware`: a name for the
    profile. Raises InputError where a value of the range makes no profile.
    """
    low, high = span.ends(profile)
    step = check_resolution(span.number, low, high, resolution)
    look = _looker(bench, profile, span.number)
    runs = _follow(look, scan_places(span.number, low, high, step), step, span.number)
    return Thresholds(
        graph=bench.graph.name, hardware=hardware or profile.name, path=span.number.path, resolution=step,
        segments=tuple(_segment(run) for run in runs),
        changes=tuple(_change(bench, old, new) for old, new in pairwise(runs)),
    )  # fmt: skip


def check_resolution(number: NumberPath, low: float, high: float, resolution: float | None) -> float:
    """The resolution in base units: the given one, or 1/4096 of the range; whole numbers at least 1."""
    if resolution is not None and not 0 < resolution < high - low:
        raise InputError(f"--resolution {resolution:g} of {number.path}: expected more than 0 and less than the range "
                         f"of {high - low:g}")  # fmt: skip
    found = (high - low) * RESOLUTION if resolution is None else resolution
    return max(1.0, float(int(found))) if number.whole else found


def _looker(bench: Bench, profile: HardwareProfile, number: NumberPath) -> Callable[[float], Spot]:
    seen: dict[float, Spot] = {}

    def look(value: float) -> Spot:
        if value not in seen:
            seen[value] = bench_spot(bench, set_numbers(profile, {number.path: number.write(value)}), value)
        return seen[value]

    return look


def bench_spot(bench: Bench, profile: HardwareProfile, value: float) -> Spot:
    """The bench's graph planned on `profile`, which has `value` at the number in question."""
    planning = bench.price(profile)
    columns, result = bench.solve(planning)
    order = choose(columns.kernels, result.selected)
    return Spot(
        value=value, planning=planning, order=order, objective_ns=result.objective, home=planning,
        plan_sha256=None if result.objective is None else bench.hash_of(planning, order),
        shapes=len(bench.space.workloads),
    )  # fmt: skip


def scan_places(number: NumberPath, low: float, high: float, step: float) -> list[float]:
    """Up to SCAN evenly spaced values from `low` to `high`, both ends among them, no closer than `step`."""
    count = min(SCAN, max(2, int((high - low) / step) + 1))
    values = [low + (high - low) * i / (count - 1) for i in range(count - 1)] + [high]
    return list(dict.fromkeys(float(round(value)) if number.whole else value for value in values))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """A stretch on which the plan of `first` holds, up to `last`."""

    first: Spot
    last: Spot


def _follow(look: Callable[[float], Spot], places: list[float], step: float, number: NumberPath) -> list[_Run]:
    """The stretches of one plan, ascending: where the plan at hand holds at one place and not at the next, bisect."""
    first = last = look(places[0])
    runs: list[_Run] = []
    for value in places[1:]:
        spot = look(value)
        while not spot.keeps(first):
            good, bad = _border(look, partial(Spot.keeps, other=first), last, spot, step, number)
            if not _is_before(good, first, bad):  # the new plan was faster already, by less than the rounding
                new = bad
                good, bad = _border(look, partial(_is_before, old=first, new=new), first, good, step, number)
                bad = replace(bad, order=new.order, plan_sha256=new.plan_sha256, home=new.home)
            runs.append(_Run(first=first, last=good))
            first = last = bad
        last = spot
    return [*runs, _Run(first=first, last=last)]


def _border(
    look: Callable[[float], Spot], is_good: Callable[[Spot], bool], good: Spot, bad: Spot, step: float,
    number: NumberPath,
) -> tuple[Spot, Spot]:  # fmt: skip
    """Two spots at most `step` apart, the first good, the second not."""
    while bad.value - good.value > step:
        value = (good.value + bad.value) / 2
        middle = look(float(int(value)) if number.whole else value)
        good, bad = (middle, bad) if is_good(middle) else (good, middle)
    return good, bad


def _is_before(spot: Spot, old: Spot, new: Spot) -> bool:
    """Whether the plan of `old` still comes before that of `new` at `spot`: faster, or equal with `new` not chosen."""
    mine, other = spot.excess_ns(old), spot.excess_ns(new)
    if mine is None or other is None:
        return mine is not None or (other is None and spot.plan_sha256 == old.plan_sha256)
    return mine < other or (mine == other and spot.plan_sha256 != new.plan_sha256)


def _segment(run: _Run) -> dict[str, Any]:
    first, last = run.first, run.last
    return {
        "low": first.value, "high": last.value, "plan_sha256": first.plan_sha256,
        "kernels": None if first.objective_ns is None else len(first.order), "low_ns": first.objective_ns,
        "high_ns": last.objective_ns,
    }  # fmt: skip


def _change(bench: Bench, old: _Run, new: _Run) -> dict[str, Any]:
    above, end = new.first, new.last
    groups: list[dict[str, Any]] = []
    if old.first.objective_ns is not None and above.objective_ns is not None:
        before, after = (_whole_plan(bench, spot.home) for spot in (old.first, above))
        groups = [
            {"kind": c.kind, "nodes": list(c.nodes), "from": len(c.left), "to": len(c.right)}
            for c in diff(before, after).changes
            if c.kind in REGROUPED
        ]
    return {
        "below": old.last.value, "above": above.value, "below_sha256": old.first.plan_sha256,
        "above_sha256": above.plan_sha256, "groups": groups, "gain_ns": above.excess_ns(old.first),
        "gain_at_end_ns": end.excess_ns(old.first),
    }  # fmt: skip


def _whole_plan(bench: Bench, home: Planning) -> Plan:
    """The plan that solves a planning with all its groups."""
    columns, result = bench.solve(home)
    return assemble(home, columns.kernels, result)
