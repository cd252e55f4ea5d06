"""Numbers of a profile by dotted path: what they measure, what a profile has there, how a new value is written."""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from fusesolve.errors import InputError
from fusesolve.hardware import HardwareProfile
from fusesolve.hardware_yaml.schema import CONSTANTS, DTYPES, LEAVES, Shape
from fusesolve.units import Dimension, parse_quantity

_CONSTANT = "calibration."
_BASE_UNIT = {
    Dimension.BYTES: " B", Dimension.BANDWIDTH: " B/s", Dimension.SECONDS: " s", Dimension.HERTZ: " Hz",
    Dimension.FLOPS: " FLOP/s", Dimension.COUNT: "", Dimension.RATIO: "",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberPath:
    """A number that profiles can have: its dotted path, dimension, and whether it is whole in its base unit."""

    path: str
    dimension: Dimension
    whole: bool

    def write(self, value: float) -> str | int:
        """`value` (base unit) as the text that a profile takes, exactly; whole numbers are rounded first."""
        number: float | int = round(value) if self.whole else float(value)
        unit = _BASE_UNIT[self.dimension]
        return f"{number!r}{unit}" if unit or not isinstance(number, int) else number

    def read(self, text: str | int) -> float:
        """The number that `text` stands for in base units; InputError names the path and what was expected."""
        try:
            return parse_quantity(text, self.dimension)
        except InputError as error:
            raise InputError(f"{self.path}: {error}") from error

    def of(self, profile: HardwareProfile) -> float | None:
        """The profile's number at the path in base units, defaults included; None where it has none."""
        if self.path.startswith(_CONSTANT):
            found = profile.calibration.get(self.path.removeprefix(_CONSTANT))
            return None if found is None else found.value
        node = value_at(profile, self.path)
        return node if isinstance(node, int | float) else None


def value_at(profile: HardwareProfile, path: str) -> Any:
    """The attribute of `profile` at a dotted path; None where a block on the way is absent."""
    node: Any = profile
    for key in path.split("."):
        node = node.get(key) if isinstance(node, Mapping) else getattr(node, key, None)
    return node


def number_at(path: str) -> NumberPath:
    """What the number at `path` measures; a last `.value` may be left out.

    Raises InputError with near paths where profiles have no number of that path.
    """
    bare = path.removesuffix(".value")
    name = bare.removeprefix(_CONSTANT)
    if bare.startswith(_CONSTANT) and name in CONSTANTS:
        return NumberPath(path=bare, dimension=CONSTANTS[name], whole=False)
    block, _, last = bare.rpartition(".")
    leaf = LEAVES.get(f"{block}.*") if last in DTYPES else LEAVES.get(bare)
    if leaf is None:
        raise InputError(f"no number at hardware path '{path}'{_near(bare)}")
    if leaf.shape not in (Shape.WHOLE, Shape.REAL):
        raise InputError(f"hardware path '{path}' is a {leaf.shape.value}, not a single number")
    return NumberPath(path=bare, dimension=leaf.dimension, whole=leaf.shape is Shape.WHOLE)


def number_paths(profile: HardwareProfile) -> tuple[NumberPath, ...]:
    """Every single number that the profile has, defaults and calibrated constants included, in the format's order."""
    found: list[str] = []
    for path, leaf in LEAVES.items():
        if leaf.shape in (Shape.WHOLE, Shape.REAL):
            rates = value_at(profile, path.removesuffix(".*")) if path.endswith(".*") else None
            found += [f"{path[:-1]}{dtype}" for dtype in rates or {}] if path.endswith(".*") else [path]
    found += [f"{_CONSTANT}{name}" for name in profile.calibration]
    numbers = (number_at(path) for path in found)
    return tuple(number for number in numbers if number.of(profile) is not None)


def _near(path: str) -> str:
    known = [*(p for p in LEAVES if not p.endswith(".*")), *(f"{_CONSTANT}{name}" for name in CONSTANTS)]
    last = path.rpartition(".")[2]
    close = get_close_matches(path, known, n=3, cutoff=0.7) or [p for p in known if p.endswith(f".{last}")][:3]
    return f": did you mean {' or '.join(close)}?" if close else "; `fusesolve profiles show NAME` lists the paths"
