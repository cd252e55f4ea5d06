"""Sensitivity: what 1 % more of each number of the profile buys, and which numbers are known too badly to decide.

The elasticity of a number is the relative change of the best plan's time over the relative change of the number, from a
step of 1 % upwards (downwards where the profile forbids more); the plan may change with it. A decision could flip where
at either end of the number's stated accuracy another plan is faster.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fusesolve.errors import InputError
from fusesolve.hardware import HardwareProfile
from fusesolve.hardware_yaml import NumberPath, number_paths
from fusesolve.pipeline.options import PlanOptions
from fusesolve.whatif.evaluate import open_bench
from fusesolve.whatif.points import Point, Subject, set_numbers
from fusesolve.whatif.thresholds import bench_spot

STEP = 0.01
# What the words of a profile's `accuracy` are taken to mean, as a relative error either way (docs/WHATIF.md).
SPREAD: Mapping[str, float] = {
    "vendor_code": 0.0, "vendor_doc": 0.0, "datasheet": 0.0, "microbenchmark": 0.05, "derived": 0.1, "secondary": 0.15,
    "recalled": 0.2, "estimate": 0.3,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One changed profile: number `path` set to `value`; `role` is `step`, `low` or `high` (ends of its accuracy)."""

    path: str
    role: str
    value: float
    profile: HardwareProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class Trials:
    """All changed profiles of one base point; `stuck`: numbers that cannot move by a step alone, with the reason."""

    trials: tuple[Trial, ...]
    spreads: Mapping[str, float | None]
    stuck: Mapping[str, str]


def plan_trials(point: Point) -> Trials:
    """Every number of a point's profile, one at a time: a step, and both ends of its stated accuracy."""
    profile = point.profile
    trials: list[Trial] = []
    stuck: dict[str, str] = {}
    spreads: dict[str, float | None] = {}
    for number in number_paths(profile):
        own = number.of(profile)
        if not own:
            continue
        spreads[number.path] = stated_spread(profile, number.path)
        moved = _step(profile, number, own)
        if isinstance(moved, Trial):
            trials.append(moved)
        else:
            stuck[number.path] = moved
        spread = spreads[number.path] or 0.0
        for role, factor in (("low", 1 - spread), ("high", 1 + spread)):
            if spread:
                found = _trial(profile, number, role, factor * own)
                trials += [found] if isinstance(found, Trial) else []
    return Trials(trials=tuple(trials), spreads=spreads, stuck=stuck)


def stated_spread(profile: HardwareProfile, path: str) -> float | None:
    """The relative error of a number either way: of a fitted constant its fit's, else what its accuracy's word means.

    None where nothing is stated.
    """
    constant = profile.calibration.get(path.removeprefix("calibration."))
    if path.startswith("calibration.") and constant is not None:
        return constant.error
    said = profile.sources.get(path)
    return None if said is None or said.accuracy is None else SPREAD.get(said.accuracy)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What a trial came to: the best time (ns), and whether the plan of the base point is no longer as good as any."""

    objective_ns: int | None
    flips: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """The best plan of a base point: its time (ns), hash and number of kernels."""

    objective_ns: int
    plan_sha256: str | None
    kernels: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialPart:
    """A base point and some of its trials, worked out in one process."""

    subject: Subject
    options: PlanOptions
    base: HardwareProfile
    trials: tuple[Trial, ...]


def try_out(part: TrialPart) -> tuple[Base, list[Tried]]:
    """The base point and the outcome of each trial of the part; runs in any process that has fusesolve.

    Raises InputError where the base point has no plan.
    """
    bench = open_bench(part.subject, part.options)
    base = bench_spot(bench, part.base, 0.0)
    if base.objective_ns is None:
        raise InputError(f"{part.subject.graph.name} has no plan on {part.base.name}: nothing to take a sensitivity of")
    tried = []
    for trial in part.trials:
        spot = bench_spot(bench, trial.profile, trial.value)
        tried.append(Tried(objective_ns=spot.objective_ns, flips=not spot.keeps(base)))
    found = Base(objective_ns=base.objective_ns, plan_sha256=base.plan_sha256, kernels=len(base.order))
    return found, tried


def judge(point: Point, trials: Trials, base: Base, tried: Sequence[Tried]) -> dict[str, Any]:
    """A base point as a plain document: its plan, and its numbers by the size of their elasticity."""
    profile = point.profile
    rows: dict[str, dict[str, Any]] = {
        number.path: {
            "path": number.path, "value": number.of(profile), "dimension": number.dimension.value,
            "elasticity": None, "delta_ns": None, "step": None, "accuracy": trials.spreads[number.path],
            "could_flip": False, "stuck": trials.stuck.get(number.path),
        }
        for number in number_paths(profile) if number.path in trials.spreads
    }  # fmt: skip
    for trial, outcome in zip(trials.trials, tried, strict=True):
        row = rows[trial.path]
        if trial.role != "step":
            row["could_flip"] = row["could_flip"] or outcome.flips
        elif outcome.objective_ns is not None:
            moved = trial.value / row["value"] - 1
            delta = outcome.objective_ns - base.objective_ns
            row.update(step=moved, delta_ns=delta, elasticity=delta / base.objective_ns / moved)
    order = sorted(rows.values(), key=lambda row: (-abs(row["elasticity"] or 0.0), not row["could_flip"]))
    return {
        "hardware": point.hardware, "plan_sha256": base.plan_sha256, "objective_ns": base.objective_ns,
        "kernels": base.kernels, "numbers": order,
    }  # fmt: skip


def _step(profile: HardwareProfile, number: NumberPath, own: float) -> Trial | str:
    """1 % more (at least one unit of a whole number), else 1 % less, else why neither is a profile."""
    amount = max(STEP * own, 1.0) if number.whole else STEP * own
    up = _trial(profile, number, "step", own + amount)
    if isinstance(up, Trial):
        return up
    down = _trial(profile, number, "step", own - amount)
    return down if isinstance(down, Trial) else up


def _trial(profile: HardwareProfile, number: NumberPath, role: str, value: float) -> Trial | str:
    written = number.write(value)
    try:
        changed = set_numbers(profile, {number.path: written})
    except InputError as error:
        return str(error).splitlines()[-1].strip()
    return Trial(path=number.path, role=role, value=number.read(written), profile=changed)
