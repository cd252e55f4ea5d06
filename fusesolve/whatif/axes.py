"""What a sweep varies: `PATH=2TB/s,4TB/s`, `PATH=LO..HI:STEPS`, `PATH=x0.5..x4:7:log`, as values of a profile."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from fusesolve.errors import InputError
from fusesolve.hardware import HardwareProfile
from fusesolve.hardware_yaml import NumberPath, number_at

MOST_STEPS = 100_000
MAP_LINES = 9
SPACINGS = ("lin", "log")
_UNIT = re.compile(r"[\d.]\s*([^\s\d.+-]\S*)\s*$")
_EXAMPLE = "memory.dram.bandwidth=2TB/s,4TB/s or memory.dram.bandwidth=2TB/s..8TB/s:13"


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """From `low` to `high`, texts with a unit or factors such as `x0.5` of what the profile has."""

    number: NumberPath
    low: str
    high: str

    def ends(self, profile: HardwareProfile) -> tuple[float, float]:
        """Both ends in base units on a profile, the lower one below the upper; InputError where they are not."""
        low, high = (_resolve(self.number, text, profile) for text in (self.low, self.high))
        if not low < high:
            raise InputError(f"{self.number.path}={self.low}..{self.high}: the first end must be below the second")
        return low, high


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One number of the profile and the values it takes: given ones, or `steps` over a range (`lin` or `log`)."""

    number: NumberPath
    given: tuple[str, ...] = ()
    range: Range | None = None
    steps: int = 0
    spacing: str = "lin"

    def texts(self, profile: HardwareProfile) -> tuple[str | int, ...]:
        """The values as a profile takes them, in order, repeats (of rounded whole numbers) left out."""
        if self.range is None:
            return tuple(dict.fromkeys(_as_written(self.number, text, profile) for text in self.given))
        low, high = self.range.ends(profile)
        if self.spacing == "log" and low <= 0:
            raise InputError(f"{self.number.path}: a log range starts above 0, not at {self.range.low}")
        points = [_between(low, high, i / (self.steps - 1), self.spacing) for i in range(1, self.steps - 1)]
        return tuple(dict.fromkeys(self.number.write(value) for value in (low, *points, high)))


def parse_axis(text: str) -> Axis:
    """`PATH=V1,V2,...` or `PATH=LO..HI:STEPS[:log]`; a value `x2` is a factor of the profile's own number.

    A bare number takes the unit of the last one (`2..8TB/s`). Raises InputError with an example of what was expected.
    """
    number, body = _split(text, "--set")
    if ".." not in body:
        given = tuple(item.strip() for item in body.split(","))
        if not all(given):
            raise InputError(f"--set {text}: an empty value; expected {_EXAMPLE}")
        return Axis(number=number, given=_with_units(number, given))
    span, *rest = body.split(":")
    spacing = rest[1].strip() if len(rest) > 1 else "lin"
    if not 1 <= len(rest) <= 2 or spacing not in SPACINGS:
        raise InputError(f"--set {text}: a range is LO..HI:STEPS, or LO..HI:STEPS:log; expected {_EXAMPLE}")
    steps = rest[0].strip()
    if not (steps.isascii() and steps.isdigit() and 2 <= int(steps) <= MOST_STEPS):
        raise InputError(f"--set {text}: STEPS is an integer from 2 to {MOST_STEPS}, not {steps!r}")
    return Axis(number=number, range=_parse_span(number, span, text), steps=int(steps), spacing=spacing)


def parse_range(text: str, option: str) -> Range:
    """`PATH=LO..HI` of `--threshold` or `--minimise` (named in errors); raises InputError."""
    number, body = _split(text, option)
    if ":" in body or ".." not in body:
        raise InputError(f"{option} {text}: expected PATH=LO..HI without steps, such as "
                         "memory.shared.per_block_max=32KiB..256KiB")  # fmt: skip
    return _parse_span(number, body, text)


def parse_map(texts: Sequence[str]) -> tuple[Range, Axis | None]:
    """One or two `--threshold`: the range to search, and the lines of a map (the second, `LO..HI[:LINES[:log]]`).

    Raises InputError where there are more.
    """
    if len(texts) > 2:
        raise InputError(f"--threshold is given {len(texts)} times: once for thresholds, twice for a map")
    span = parse_range(texts[0], "--threshold")
    if len(texts) == 1:
        return span, None
    second = texts[1] if ":" in texts[1] else f"{texts[1]}:{MAP_LINES}"
    axis = parse_axis(second)
    if axis.number.path == span.number.path:
        raise InputError(f"--threshold gives {span.number.path} twice; a map needs two different numbers")
    return span, axis


def _split(text: str, option: str) -> tuple[NumberPath, str]:
    path, equals, body = (part.strip() for part in text.partition("="))
    if not (path and equals and body):
        raise InputError(f"{option} {text}: expected PATH=VALUES, such as {_EXAMPLE}")
    return number_at(path), body


def _parse_span(number: NumberPath, span: str, text: str) -> Range:
    ends = tuple(part.strip() for part in span.split(".."))
    if len(ends) != 2 or not all(ends):
        raise InputError(f"{text}: expected LO..HI, such as 32KiB..256KiB")
    low, high = _with_units(number, ends)
    return Range(number=number, low=low, high=high)


def _with_units(number: NumberPath, items: tuple[str, ...]) -> tuple[str, ...]:
    """Bare numbers with the unit of the last item; every value that is no factor is checked."""
    unit = _UNIT.search(items[-1])
    found = []
    for item in items:
        bare = not item.startswith("x") and _UNIT.search(item) is None
        whole = f"{item}{unit[1]}" if unit is not None and bare and not items[-1].startswith("x") else item
        if whole.startswith("x"):
            _factor(number, whole)
        elif not whole.endswith("%"):
            number.read(whole)
        found.append(whole)
    return tuple(found)


def _factor(number: NumberPath, text: str) -> float:
    try:
        factor = float(text[1:])
    except ValueError:
        factor = 0.0
    if not 0 < factor < float("inf"):
        raise InputError(f"{number.path}: {text!r} is no factor; expected a number above 0 after the x, such as x0.5")
    return factor


def _resolve(number: NumberPath, text: str, profile: HardwareProfile) -> float:
    """A text in base units on a profile."""
    if not text.startswith("x"):
        return number.read(text)
    own = number.of(profile)
    if own is None:
        raise InputError(f"{number.path}={text}: profile {profile.name} has no number there to take a factor of")
    return _factor(number, text) * own


def _as_written(number: NumberPath, text: str, profile: HardwareProfile) -> str | int:
    """A given value as it stands in the profile: factors are worked out, the rest stays as it was typed."""
    return number.write(_resolve(number, text, profile)) if text.startswith("x") else text


def _between(low: float, high: float, share: float, spacing: str) -> float:
    """The value at `share` (0 to 1) of the way, straight or on a log scale."""
    if spacing == "log":
        middle: float = low * (high / low) ** share
        return middle
    return low + (high - low) * share
