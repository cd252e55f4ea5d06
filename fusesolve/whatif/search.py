"""Search: the smallest (or largest) value of one number with which a graph meets a target latency."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fusesolve.errors import NoPlanError
from fusesolve.hardware import HardwareProfile
from fusesolve.hardware_yaml import NumberPath
from fusesolve.units import format_seconds
from fusesolve.whatif.axes import Range
from fusesolve.whatif.evaluate import Bench
from fusesolve.whatif.points import set_numbers
from fusesolve.whatif.rows import Outcome
from fusesolve.whatif.thresholds import check_resolution, scan_places


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The value that meets the target: `value` does, `misses` (None: there is none in the range) does not.

    Both in base units, at most `resolution` apart; times in ns.
    """

    graph: str
    hardware: str
    path: str
    largest: bool
    target_ns: int
    resolution: float
    value: float
    outcome: Outcome
    misses: float | None
    misses_ns: int | None

    def to_dict(self) -> dict[str, Any]:
        """As plain data, keys in a fixed order."""
        return {
            "graph": self.graph, "hardware": self.hardware, "path": self.path,
            "wanted": "largest" if self.largest else "smallest", "target_ns": self.target_ns,
            "resolution": self.resolution, "value": self.value, "objective_ns": self.outcome.objective_ns,
            "plan_sha256": self.outcome.plan_sha256, "kernels": self.outcome.kernels, "misses": self.misses,
            "misses_ns": self.misses_ns,
        }  # fmt: skip


def find_value(
    bench: Bench, profile: HardwareProfile, span: Range, target_ns: int, *, largest: bool = False,
    resolution: float | None = None, hardware: str | None = None,
) -> Answer:  # fmt: skip
    """The smallest (`largest`: greatest) value of `span` on `profile` whose plan takes at most `target_ns`.

    The range is looked at in 17 places from the wanted end; the first that meets the target is refined by bisection
    against the one before. Where time falls (rises) with the number all along, that is the smallest (largest) value to
    within `resolution`; else a value between two places may be missed. Raises NoPlanError where no place meets it.
    """
    low, high = span.ends(profile)
    number = span.number
    step = check_resolution(number, low, high, resolution)
    name = hardware or profile.name

    def look(value: float) -> _Look:
        changed = set_numbers(profile, {number.path: number.write(value)})
        return _Look(value=value, outcome=bench.outcome(changed), target_ns=target_ns)

    places = scan_places(number, low, high, step)
    good, bad, best = _first(look, places[::-1] if largest else places)
    if good is None:
        said = "there is no plan" if best is None else f"the best is {format_seconds(best / 1e9)}"
        target = format_seconds(target_ns / 1e9)
        raise NoPlanError(f"{bench.graph.name} on {name}: no {number.path} of the range meets {target}; {said}")
    if bad is not None:
        good, bad = _refine(look, good, bad, step, number)
    return Answer(
        graph=bench.graph.name, hardware=name, path=number.path, largest=largest, target_ns=target_ns, resolution=step,
        value=good.value, outcome=good.outcome, misses=None if bad is None else bad.value,
        misses_ns=None if bad is None else bad.outcome.objective_ns,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """One value that was tried."""

    value: float
    outcome: Outcome
    target_ns: int

    @property
    def meets(self) -> bool:
        """Whether there is a plan within the target."""
        return self.outcome.objective_ns is not None and self.outcome.objective_ns <= self.target_ns


def _first(look: Callable[[float], _Look], places: Sequence[float]) -> tuple[_Look | None, _Look | None, int | None]:
    """The first place that meets the target, the one before it, and the best time seen."""
    bad: _Look | None = None
    best: int | None = None
    for value in places:
        found = look(value)
        time = found.outcome.objective_ns
        best = time if best is None else min(best, best if time is None else time)
        if found.meets:
            return found, bad, best
        bad = found
    return None, bad, best


def _refine(
    look: Callable[[float], _Look], good: _Look, bad: _Look, step: float, number: NumberPath
) -> tuple[_Look, _Look]:
    """Both sides of the border between a value that meets the target and one that misses it, at most `step` apart."""
    while abs(good.value - bad.value) > step:
        middle = (good.value + bad.value) / 2
        found = look(float(int(middle)) if number.whole else middle)
        good, bad = (found, bad) if found.meets else (good, found)
    return good, bad
