"""Thresholds: the values of one number at which the best plan changes, by bisection on what the plan decides.

The range is looked at in SCAN places; wherever two neighbours decide differently the interval is halved until it is no
wider than the resolution. Every change between neighbours that differ is found. A plan that comes and goes between two
places with the same plan on both is not seen, except for launches: the cost of every plan is a straight line in the
launch, so a plan that is best at two values is best between them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from fusesolve.difference import diff
from fusesolve.errors import InputError
from fusesolve.hardware import HardwareProfile
from fusesolve.hardware_yaml import NumberPath
from fusesolve.pipeline.assemble import assemble
from fusesolve.plan import Plan
from fusesolve.whatif.axes import Range
from fusesolve.whatif.evaluate import Bench
from fusesolve.whatif.points import set_numbers

SCAN = 17
RESOLUTION = 1 / 4096  # of the range, unless one is given
REGROUPED = frozenset({"merged", "split", "regrouped"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """One value (base unit) that was looked at, with its profile and what the best plan decides there.

    `plan_sha256` None: no plan.
    """

    value: float
    profile: HardwareProfile
    plan_sha256: str | None
    objective_ns: int | None
    kernels: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Where the plan changes along one range, on one graph and profile.

    `segments`: stretches with one plan, ascending, as plain data: `low` and `high` (the outermost values that were
    looked at with this plan), `plan_sha256`, `kernels`, `low_ns`, `high_ns` (the plan's time at both ends). `changes`
    lie between neighbouring segments: `below` and `above` are at most `resolution` apart, the plan of the one is not
    that of the other, `groups` are the kernels that merged or split, `gain_ns` what the new plan saves over the old one
    at `above`, `gain_at_end_ns` at the end of its segment (None: the old plan does not exist there).
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
    scan = scan_places(span.number, low, high, step)
    spots = [look(scan[0])]
    for value in scan[1:]:
        spots += [*_between(spots[-1], look(value), step, span.number, look), look(value)]
    runs = _runs(spots)
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
            changed = set_numbers(profile, {number.path: number.write(value)})
            outcome = bench.outcome(changed)
            seen[value] = Spot(
                value=value, profile=changed, plan_sha256=outcome.plan_sha256, objective_ns=outcome.objective_ns,
                kernels=outcome.kernels,
            )  # fmt: skip
        return seen[value]

    return look


def scan_places(number: NumberPath, low: float, high: float, step: float) -> list[float]:
    """Up to SCAN evenly spaced values from `low` to `high`, both ends among them, no closer than `step`."""
    count = min(SCAN, max(2, int((high - low) / step) + 1))
    values = [low + (high - low) * i / (count - 1) for i in range(count - 1)] + [high]
    return list(dict.fromkeys(float(round(value)) if number.whole else value for value in values))


def _between(left: Spot, right: Spot, step: float, number: NumberPath, look: Callable[[float], Spot]) -> list[Spot]:
    """What was looked at strictly between two spots, ascending: nothing where they decide the same."""
    if left.plan_sha256 == right.plan_sha256 or right.value - left.value <= step:
        return []
    value = (left.value + right.value) / 2
    middle = look(float(int(value)) if number.whole else value)
    return [*_between(left, middle, step, number, look), middle, *_between(middle, right, step, number, look)]


def _runs(spots: list[Spot]) -> list[list[Spot]]:
    """Neighbouring spots of one plan together."""
    runs: list[list[Spot]] = []
    for spot in spots:
        if runs and runs[-1][0].plan_sha256 == spot.plan_sha256:
            runs[-1].append(spot)
        else:
            runs.append([spot])
    return runs


def _segment(run: list[Spot]) -> dict[str, Any]:
    first, last = run[0], run[-1]
    return {
        "low": first.value, "high": last.value, "plan_sha256": first.plan_sha256, "kernels": first.kernels,
        "low_ns": first.objective_ns, "high_ns": last.objective_ns,
    }  # fmt: skip


def _change(bench: Bench, old: list[Spot], new: list[Spot]) -> dict[str, Any]:
    below, above, end = old[-1], new[0], new[-1]
    before, after = whole_plan(bench, below.profile), whole_plan(bench, above.profile)
    groups: list[dict[str, Any]] = []
    if before.groups and after.groups:
        groups = [
            {"kind": c.kind, "nodes": list(c.nodes), "from": len(c.left), "to": len(c.right)}
            for c in diff(before, after).changes
            if c.kind in REGROUPED
        ]
    return {
        "below": below.value, "above": above.value, "below_sha256": below.plan_sha256,
        "above_sha256": above.plan_sha256, "groups": groups, "gain_ns": _gain(bench, below, above),
        "gain_at_end_ns": _gain(bench, below, end),
    }  # fmt: skip


def _gain(bench: Bench, old: Spot, new: Spot) -> int | None:
    """What the plan at `new` saves there over that of `old`; None where one of the two does not exist there."""
    if new.objective_ns is None or old.plan_sha256 is None:
        return None
    columns, result = bench.solve(bench.price(old.profile))
    costs = bench.price(new.profile).priced.cost_ns
    paid = [costs[columns.kernels[i].unique] for i in result.selected]
    return None if None in paid else sum(cost for cost in paid if cost is not None) - new.objective_ns


def whole_plan(bench: Bench, profile: HardwareProfile) -> Plan:
    """The plan of the bench's graph on `profile` with all its groups."""
    planning = bench.price(profile)
    columns, result = bench.solve(planning)
    return assemble(planning, columns.kernels, result)
