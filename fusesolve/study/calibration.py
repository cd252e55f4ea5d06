"""Fitting the calibrated constants of a profile on measured tables.

The rows of a device are split by a hash of the operator's sizes; constants are fitted on the one half with
`scipy.optimize.least_squares` (bounds, soft-L1 loss of the logarithm of predicted over measured), errors are reported
on the other half. The fit sees a host's share exactly as `accuracy` does.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fusesolve.errors import InputError
from fusesolve.hardware import Constant, HardwareProfile
from fusesolve.hardware_yaml import load_profile
from fusesolve.hardware_yaml.schema import CONSTANTS, FORMAT
from fusesolve.metrics import Errors, measure_errors
from fusesolve.study.accuracy import Part, chosen, predict_on
from fusesolve.study.constants import GROUPS, Fitted, Group
from fusesolve.study.devices import profile_name
from fusesolve.study.predict import Array
from fusesolve.study.readers import read_table
from fusesolve.study.samples import Sample
from fusesolve.units import Dimension

MOST_ROWS = 500  # rows of each table that one group is fitted on; which ones, a hash decides
FEWEST_ROWS = 20  # a group with fewer rows keeps its constants
NARROW = 0.05  # errors (as a ratio) beyond which the loss grows linearly, not as the square
STEP = 0.01  # of a constant's range: the difference quotient must step over the kinks of tile choices
SEEN = 1e-6  # a constant whose whole range moves no row by more than this share is not measured
ROUNDS = 16  # evaluations of the Jacobian at most
PULL = 0.1  # error (as a ratio) of one row that outweighs moving a constant through its whole range


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedGroup:
    """What came out for one group: values in base units, rows used, errors on the half that was not used."""

    name: str
    values: Mapping[str, float]
    rows: int
    files: tuple[str, ...]
    before: Errors
    after: Errors


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """A calibrated profile and what was fitted; `skipped` are groups with too few rows."""

    hardware: str
    profile: HardwareProfile
    groups: tuple[FittedGroup, ...]
    skipped: tuple[str, ...]

    def definition(self) -> dict[str, Any]:
        """The profile's definition: a few lines on top of the one that was calibrated."""
        constants: dict[str, Any] = {"uncalibrated": False}
        for group in self.groups:
            source = f"fusesolve_calibrate: on {', '.join(group.files)}; half of the rows, error on the other half"
            for name, value in group.values.items():
                constants[name] = {
                    "value": _quantity(name, value), "source": source, "rows": group.rows,
                    "error": round(group.after.mape, 4),
                }  # fmt: skip
        return {
            "format": FORMAT, "extends": self.hardware, "name": self.profile.name, "calibration": constants,
        }  # fmt: skip


def calibrate(paths: Sequence[Path], hardware: str) -> Calibration:
    """Fit the constants of the profile `hardware` (name or path) on the rows of its device in the tables.

    Raises InputError where no table has rows of the device, or too few for every group.
    """
    profile = load_profile(hardware)
    tables = _own_rows(paths, hardware, profile)
    done: list[FittedGroup] = []
    skipped: list[str] = []
    for group in GROUPS:
        parts = {file: rows for file, samples in tables.items() if (rows := [s for s in samples if group.takes(s)])}
        fit_rows = {file: _sampled(chosen(rows, Part.FIT)) for file, rows in parts.items()}
        if sum(map(len, fit_rows.values())) < FEWEST_ROWS:
            skipped.append(group.name)
            continue
        found, profile = _fit(group, fit_rows, {f: chosen(rows, Part.HELD_OUT) for f, rows in parts.items()}, profile)
        done.append(found)
    if not done:
        raise InputError(f"too few rows for any group of constants of '{hardware}': at least {FEWEST_ROWS} are needed")
    return Calibration(hardware=hardware, profile=profile, groups=tuple(done), skipped=tuple(skipped))


def _own_rows(paths: Sequence[Path], hardware: str, profile: HardwareProfile) -> dict[str, list[Sample]]:
    """Samples by file whose device text stands for this profile; all of them where the profile stands for none."""
    tables = [read_table(path) for path in paths]
    devices = {(sample.device, sample.library) for table in tables for sample in table.samples}
    own = {key for key in devices if (name := profile_name(*key)) and load_profile(name).name == profile.name}
    texts = sorted({device for device, _ in devices})
    own = own or (devices if len(texts) == 1 else set())
    if not own:
        listed = ", ".join(texts) or "none"
        raise InputError(f"no row of the device of '{hardware}' in the tables; their devices: {listed}")
    rows = {table.file: [s for s in table.samples if (s.device, s.library) in own] for table in tables}
    return {file: samples for file, samples in rows.items() if samples}


def _sampled(samples: Sequence[Sample]) -> list[Sample]:
    """At most MOST_ROWS of the samples, the same on every run: those with the smallest hashes.

    A fit needs slopes, so a coarse clock's steps are left out of its predictions; what the clock cut off each kernel is
    half a step in the mean.
    """
    keyed = sorted(samples, key=lambda s: hashlib.sha256(f"{s.op}{s.label}".encode()).digest())
    return [
        replace(s, resolution=0.0, latency=s.latency + 0.5 * s.resolution * len(s.kernels)) for s in keyed[:MOST_ROWS]
    ]


def _fit(
    group: Group, rows: Mapping[str, Sequence[Sample]], held_out: Mapping[str, Sequence[Sample]],
    profile: HardwareProfile,
) -> tuple[FittedGroup, HardwareProfile]:  # fmt: skip
    values = _solve(group.constants, rows, profile)
    fitted = with_constants(profile, values)
    test = held_out if any(held_out.values()) else rows
    return (
        FittedGroup(
            name=group.name, values=values, rows=sum(map(len, rows.values())), files=tuple(rows),
            before=_errors(test, profile), after=_errors(test, fitted),
        ),
        fitted,
    )  # fmt: skip


def _solve(
    constants: Sequence[Fitted], rows: Mapping[str, Sequence[Sample]], profile: HardwareProfile
) -> dict[str, float]:
    """The best values: a bounded least-squares fit in units of each constant's range, from the profile's values.

    A weak pull to these decides between constants that the rows cannot tell apart. A constant that no row depends on,
    and that the fit has not moved, is left out: these rows do not measure it.
    """
    from scipy.optimize import least_squares

    low = np.array([c.low for c in constants])
    width = np.array([c.high - c.low for c in constants])
    start = (np.array([profile.constant(c.name, c.start) for c in constants]) - low) / width
    start = np.clip(start, 0.02, 0.98)
    names = [c.name for c in constants]

    def residuals(position: Array) -> Array:
        trial = with_constants(profile, dict(zip(names, (low + position * width).tolist(), strict=True)))
        errors = [_log_errors(samples, trial, file) for file, samples in rows.items()]
        return np.concatenate([*errors, PULL * (position - start)])

    found = least_squares(
        residuals, start, bounds=(0.0, 1.0), loss="soft_l1", f_scale=NARROW, diff_step=STEP, max_nfev=ROUNDS
    )
    measured = np.abs(found.jac[: -len(constants)]).max(axis=0) > SEEN
    seen = measured | (np.abs(found.x - start) > STEP)
    best = (low + found.x * width).tolist()
    return {name: value for name, value, kept in zip(names, best, seen.tolist(), strict=True) if kept}


def _log_errors(samples: Sequence[Sample], profile: HardwareProfile, file: str) -> Array:
    """The logarithm of predicted over measured; 3 where there is no legal kernel."""
    if not samples:
        return np.zeros(0)
    predicted = predict_on(file, samples[0].device, samples, profile.name, profile).predicted
    measured = np.array([sample.latency for sample in samples])
    errors: Array = np.nan_to_num(np.log(predicted / measured), nan=3.0, posinf=3.0)
    return errors


def _errors(rows: Mapping[str, Sequence[Sample]], profile: HardwareProfile) -> Errors:
    ratios = np.concatenate([np.exp(_log_errors(samples, profile, file)) for file, samples in rows.items()])
    return measure_errors(ratios, np.ones_like(ratios))


def with_constants(profile: HardwareProfile, values: Mapping[str, float]) -> HardwareProfile:
    """The profile with these calibrated constants (base units)."""
    constants = {name: Constant(value=value) for name, value in values.items()}
    return replace(profile, calibration={**profile.calibration, **constants})


def _quantity(name: str, value: float) -> str | float:
    """A constant as a profile writes it: four digits and a unit."""
    dimension = CONSTANTS[name]
    if dimension is Dimension.SECONDS:
        return f"{value * 1e6:.4g} us"
    if dimension is Dimension.BANDWIDTH:
        return f"{value / 1e9:.4g} GB/s"
    return float(f"{value:.4g}")
