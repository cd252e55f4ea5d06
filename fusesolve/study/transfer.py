"""What a device without measurements gets: the constants of its family's others, and the error that this leaves.

Leaving a device out answers how far a profile that nobody calibrated can be trusted: every constant that calibration
fits is taken from the nearest calibrated devices of the vendor, none from the device itself.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from statistics import median

from fusesolve.hardware import Constant, HardwareProfile
from fusesolve.hardware_yaml import load_profile
from fusesolve.study.constants import GROUPS
from fusesolve.study.devices import DEVICES

FITTED: frozenset[str] = frozenset(constant.name for group in GROUPS for constant in group.constants)
OLDER = 1.5  # weight of a generation that lies before the device's own


def _l2(profile: HardwareProfile) -> float:
    cache_ = profile.memory.l2
    return cache_.bandwidth if cache_ is not None else 1.0


def _share(profile: HardwareProfile) -> float:
    return _l2(profile) / profile.compute.units


def _clock(profile: HardwareProfile) -> float:
    return profile.compute.sustained_clock


def _cycle(profile: HardwareProfile) -> float:
    return 1.0 / profile.compute.sustained_clock


def _as_it_is(profile: HardwareProfile) -> float:
    return 1.0


# What a constant is carried over in units of: the L2 rate (of the device, of a unit), clocks, cycles; else as it is.
SCALES: Mapping[str, Callable[[HardwareProfile], float]] = {
    "l2_stream": _l2,
    "gemm_l2_per_unit": _share,
    **dict.fromkeys(("gemm_drain", "attention_feed"), _clock),
    **dict.fromkeys(
        ("gemm_latency", "gemm_prologue", "fma_prologue", "attention_step"), _cycle,
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """A profile with the constants of `donors` (names of bundled profiles) in the place of its own."""

    profile: HardwareProfile
    donors: tuple[str, ...]


def transfer(name: str) -> Transfer | None:
    """The profile `name` with constants of its family's others; None where no other device of its vendor is calibrated.

    InputError where there is no such profile.
    """
    profile = load_profile(name)
    others = {key: other for key, other in measured_profiles().items() if _is_other(profile, other)}
    return with_donors(profile, others) if others else None


@cache
def measured_profiles() -> Mapping[str, HardwareProfile]:
    """Bundled profiles with a constant that was fitted on rows of the device itself, by name."""
    found: dict[str, HardwareProfile] = {}
    for name in sorted(set(DEVICES.values())):
        profile = load_profile(name)
        known = any(profile.name == other.name for other in found.values())
        if not known and any(is_own(key, constant) for key, constant in profile.calibration.items()):
            found[name] = profile
    return found


def is_own(name: str, constant: Constant) -> bool:
    """Whether a constant was fitted on rows of its own device."""
    return name in FITTED and bool(constant.rows) and not (constant.source or "").startswith("family")


def _is_other(profile: HardwareProfile, other: HardwareProfile) -> bool:
    return other.vendor == profile.vendor and other.name != profile.name


def with_donors(profile: HardwareProfile, others: Mapping[str, HardwareProfile]) -> Transfer:
    """The profile without any fitted constant of its own.

    Each is the median of what was fitted on the nearest generation that has it, rates as a share of their unit; a
    constant that was fitted on no other device is left to the model's default.
    """
    kept = {name: constant for name, constant in profile.calibration.items() if name not in FITTED}
    used: set[str] = set()
    for name in sorted(FITTED):
        donors = _nearest(profile, name, others)
        scale = SCALES.get(name, _as_it_is)
        shares = [others[donor].calibration[name].value / scale(others[donor]) for donor in donors]
        if shares:
            kept[name] = Constant(value=median(shares) * scale(profile))
        used.update(donors)
    return Transfer(profile=replace(profile, calibration=kept), donors=tuple(sorted(used)))


def _nearest(profile: HardwareProfile, name: str, others: Mapping[str, HardwareProfile]) -> list[str]:
    """The devices on which the constant was fitted, of the generation nearest to the profile's."""
    known = [
        key for key, other in others.items() if name in other.calibration and is_own(name, other.calibration[name])
    ]
    away = {key: _distance(profile, others[key]) for key in known}
    return [key for key in known if away[key] == min(away.values())]


def _distance(one: HardwareProfile, other: HardwareProfile) -> float:
    """Generations between two devices: the difference of their compute capabilities, 0 where they have none.

    An older generation counts half as much again: units keep what a generation brought.
    """
    ahead = float(other.compute_capability or 0) - float(one.compute_capability or 0)
    return ahead if ahead >= 0 else OLDER * -ahead
