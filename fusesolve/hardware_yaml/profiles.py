"""What `fusesolve profiles` does: list, show and check profiles, as pure functions."""

from dataclasses import dataclass

from fusesolve.errors import InputError
from fusesolve.hardware import HardwareProfile, Kind, Provenance, tensor_peak
from fusesolve.hardware_yaml.loader import bundled_names, load_profile
from fusesolve.hardware_yaml.paths import value_at
from fusesolve.hardware_yaml.schema import CONSTANTS, LEAVES
from fusesolve.units import Dimension, format_quantity


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSummary:
    """One line of the list of profiles: units, bytes and bytes/s of device memory, best dense matrix rate or None."""

    name: str
    file: str
    vendor: str
    kind: Kind
    units: int
    clock: float
    dram_size: int
    dram_bandwidth: float
    tensor_type: str | None
    tensor_peak: float | None
    calibrated: bool
    description: str | None


def list_profiles() -> list[ProfileSummary]:
    """Every bundled profile, by name."""
    return [summarise(name, load_profile(name)) for name in bundled_names()]


def summarise(file: str, profile: HardwareProfile) -> ProfileSummary:
    """The summary of one profile; its matrix rate is that of f16, else of i8, whichever it has."""
    rates = {dtype: tensor_peak(profile, dtype) for dtype in ("f16", "i8")}
    best = next((dtype for dtype, rate in rates.items() if rate is not None), None)
    return ProfileSummary(
        name=profile.name,
        file=file,
        vendor=profile.vendor,
        kind=profile.kind,
        units=profile.compute.units,
        clock=profile.compute.clock,
        dram_size=profile.memory.dram.size,
        dram_bandwidth=profile.memory.dram.bandwidth,
        tensor_type=best,
        tensor_peak=rates[best] if best else None,
        calibrated=bool(profile.calibration) and not profile.uncalibrated,
        description=profile.description,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownLeaf:
    """One number of a profile for people: dotted path, value with unit, source and accuracy ("" where not said)."""

    path: str
    value: str
    source: str
    accuracy: str
    note: str


def show_profile(path_or_name: str) -> list[ShownLeaf]:
    """Every number of a profile in the format's order, defaults and calibrated constants included.

    Raises InputError as `load_profile`.
    """
    profile = load_profile(path_or_name)
    shown = [_shown(profile, path, _text(profile, path)) for path in _paths(profile)]
    constants = [
        _shown(profile, f"calibration.{name}", _constant_text(name, constant.value))
        for name, constant in profile.calibration.items()
    ]
    return [*shown, *([_mark(profile)] if profile.uncalibrated else []), *constants]


def _mark(profile: HardwareProfile) -> ShownLeaf:
    """That a profile is not calibrated, with the error to expect where it was measured on its relatives."""
    error = profile.calibration.get("transfer_error")
    note = "" if error is None else f"expect errors of about {100 * error.value:.0f} % (transfer_error)"
    return ShownLeaf(
        path="calibration.uncalibrated", value="true", source="no constant was fitted on this device", accuracy="",
        note=note,
    )  # fmt: skip


def check_profile(path: str) -> list[str]:
    """The problems of a profile file, one line each; [] where it is sound. A missing file is a problem too."""
    try:
        load_profile(path)
    except InputError as error:
        lines = str(error).splitlines()
        return [line.strip() for line in lines[1:]] if len(lines) > 1 else lines
    return []


def _paths(profile: HardwareProfile) -> list[str]:
    """The dotted paths of all numbers that `profile` has, in the format's order."""
    found: list[str] = []
    for path in LEAVES:
        if not path.endswith(".*"):
            found += [path] if value_at(profile, path) not in (None, ()) else []
            continue
        rates = value_at(profile, path.removesuffix(".*"))
        found += [f"{path[:-1]}{dtype}" for dtype in rates or {}]
    return [path for path in found if path != "format"]


def _text(profile: HardwareProfile, path: str) -> str:
    """The value at a dotted path with its unit, for people."""
    value = value_at(profile, path)
    leaf = LEAVES.get(path) or LEAVES[f"{path.rpartition('.')[0]}.*"]
    if isinstance(value, tuple):
        return ", ".join(str(item) for item in value)
    return format_quantity(value, leaf.dimension) if isinstance(value, int | float) else str(value)


def _constant_text(name: str, value: float) -> str:
    """A calibrated constant with its unit; ratios as they are."""
    dimension = CONSTANTS[name]
    return f"{value:g}" if dimension in (Dimension.RATIO, Dimension.COUNT) else format_quantity(value, dimension)


def _shown(profile: HardwareProfile, path: str, value: str) -> ShownLeaf:
    """The line of one number."""
    said = profile.sources.get(path, Provenance())
    return ShownLeaf(
        path=path, value=value, source=said.source or "", accuracy=said.accuracy or "", note=said.note or ""
    )
