"""Quantities with units: strict parsing to base units (byte, s, Hz, FLOP, count, ratio) and text for people.

KiB, MiB, GiB, TiB are powers of 1024; KB (or kB), MB, GB, TB, PB are powers of 1000 (IEC 80000-13).
"""

import math
import re
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache

from fusesolve.errors import InputError


class Dimension(StrEnum):
    """What a number measures; each has one base unit in memory."""

    BYTES = "bytes"
    BANDWIDTH = "bytes per second"
    SECONDS = "seconds"
    HERTZ = "hertz"
    FLOPS = "FLOP per second"
    COUNT = "a bare count"
    RATIO = "a ratio"


_EXAMPLE = {
    Dimension.BYTES: "'228 KiB'",
    Dimension.BANDWIDTH: "'3.35 TB/s'",
    Dimension.SECONDS: "'2.4 us'",
    Dimension.HERTZ: "'1.98 GHz'",
    Dimension.FLOPS: "'989 TFLOP/s'",
    Dimension.COUNT: "132",
    Dimension.RATIO: "0.92 or '92 %'",
}
_DECIMAL = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_TIME = {"s": Fraction(1), "ms": Fraction(1, 10**3), "us": Fraction(1, 10**6), "µs": Fraction(1, 10**6),
         "μs": Fraction(1, 10**6), "ns": Fraction(1, 10**9), "ps": Fraction(1, 10**12)}  # fmt: skip


def _unit_table() -> dict[str, tuple[Dimension, Fraction]]:
    """Every unit text with its dimension and its size in base units."""
    table: dict[str, tuple[Dimension, Fraction]] = {"%": (Dimension.RATIO, Fraction(1, 100))}
    for prefix, scale in (_DECIMAL | _BINARY).items():
        table[f"{prefix}B"] = (Dimension.BYTES, Fraction(scale))
        table[f"{prefix}B/s"] = (Dimension.BANDWIDTH, Fraction(scale))
    for prefix, scale in _DECIMAL.items():
        table[f"{prefix}Hz"] = (Dimension.HERTZ, Fraction(scale))
        for word in ("FLOP/s", "FLOPS", "OP/s", "OPS"):
            table[f"{prefix}{word}"] = (Dimension.FLOPS, Fraction(scale))
    for unit, size in _TIME.items():
        table[unit] = (Dimension.SECONDS, size)
    return table


_UNITS = _unit_table()
_QUANTITY = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([^\s\d.+-]\S*)?\s*", re.ASCII)
_NOT_FINITE = re.compile(r"\s*[+-]?\.?(inf|infinity|nan)\b.*", re.IGNORECASE)
_LARGEST_EXPONENT = 40
_LONGEST_TEXT = 64
_LARGEST_WHOLE = 2**53  # beyond it floats are not exact


def parse_quantity(value: object, dimension: Dimension) -> float:
    """The number that `value` stands for, in the base unit of `dimension`; never negative, always finite.

    A count or a ratio may be a bare number (or text of one); everything else must be text with a unit, the
    space before it optional. Raises InputError, in one line that says what was expected.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise InputError(f"expected {dimension.value} such as {_EXAMPLE[dimension]}, got {_shown(value)}")
    return _parse(value if isinstance(value, str) else repr(value), _shown(value), dimension)


@lru_cache(maxsize=4096)
def _parse(text: str, shown: str, dimension: Dimension) -> float:
    """The number of a text; profiles that differ in one leaf have all the others in common."""
    if _NOT_FINITE.fullmatch(text):
        raise InputError(f"expected a finite number of {dimension.value}, got {shown}")
    match = _QUANTITY.fullmatch(text)
    if match is None or len(text) > _LONGEST_TEXT:
        raise InputError(f"expected {dimension.value} such as {_EXAMPLE[dimension]}, got {shown}")
    number, scale = _number(match[1], shown), _scale(match[2], dimension, shown)
    result = float(number * scale)
    if result < 0:
        raise InputError(f"expected {dimension.value} of at least 0, got {shown}")
    return result


def parse_count(value: object, dimension: Dimension) -> int:
    """As `parse_quantity`, for what must be whole (bytes, threads), up to 2**53: raises InputError on anything else."""
    number = parse_quantity(value, dimension)
    if not number.is_integer():
        raise InputError(f"expected a whole number of {dimension.value}, got {_shown(value)}")
    if number > _LARGEST_WHOLE:
        raise InputError(f"expected {dimension.value} of at most {_LARGEST_WHOLE}, got {_shown(value)}")
    return int(number)


def has_unit(value: object, dimension: Dimension) -> bool:
    """True if `value` is text that ends in a unit of `dimension` (whether or not its number is sound)."""
    if not isinstance(value, str):
        return False
    match = _QUANTITY.fullmatch(value)
    return bool(match and match[2] in _UNITS and _UNITS[match[2]][0] is dimension)


def _number(text: str, shown: str) -> Fraction:
    """The exact number of `text`; exponents beyond 40 are refused before they cost memory."""
    try:
        number = Decimal(text)
    except InvalidOperation as error:
        raise InputError(f"expected a number, got {shown}") from error
    if number and abs(number.adjusted()) > _LARGEST_EXPONENT:
        raise InputError(f"number out of range (beyond 1e{_LARGEST_EXPONENT}): {shown}")
    return Fraction(number) if number else Fraction(0)


def _scale(unit: str | None, dimension: Dimension, shown: str) -> Fraction:
    """Base units per `unit`, or an InputError that names the missing, unknown or wrong unit."""
    bare = dimension in (Dimension.COUNT, Dimension.RATIO)
    if unit is None:
        if bare:
            return Fraction(1)
        raise InputError(f"{shown} has no unit: expected {dimension.value} such as {_EXAMPLE[dimension]}")
    found = _UNITS.get(unit)
    if found is None:
        near = [known for known in _UNITS if known.lower() == unit.lower()]
        hint = f" (did you mean {near[0]!r}?)" if near else f": expected {dimension.value}, {_EXAMPLE[dimension]}"
        raise InputError(f"unknown unit {unit!r} in {shown}{hint}")
    if found[0] is not dimension:
        raise InputError(f"{shown} is {found[0].value}: expected {dimension.value} such as {_EXAMPLE[dimension]}")
    return found[1]


def _shown(value: object) -> str:
    """`value` as it appears in an error, cut to a line."""
    text = repr(value)
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}..."


def format_bytes(count: float) -> str:
    """Bytes for people, in powers of 1024: `1.5 MiB`, `228 KiB`, `12 B`."""
    return _format(count, (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("B", 1)))


def format_bandwidth(bytes_per_second: float) -> str:
    """Bytes per second for people, in powers of 1000: `3.35 TB/s`."""
    return _format(bytes_per_second, (("TB/s", 10**12), ("GB/s", 10**9), ("MB/s", 10**6), ("KB/s", 10**3), ("B/s", 1)))


def format_seconds(seconds: float) -> str:
    """Time for people: `2.4 us`, `1.25 ms`, `3.1 s`."""
    return _format(seconds, (("s", 1), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9)))


def format_hertz(hertz: float) -> str:
    """A clock for people: `1.98 GHz`."""
    return _format(hertz, (("GHz", 10**9), ("MHz", 10**6), ("kHz", 10**3), ("Hz", 1)))


def format_flops(flop_per_second: float) -> str:
    """A rate of arithmetic for people: `989 TFLOP/s`."""
    scales = (("PFLOP/s", 10**15), ("TFLOP/s", 10**12), ("GFLOP/s", 10**9), ("MFLOP/s", 10**6), ("FLOP/s", 1))
    return _format(flop_per_second, scales)


def format_quantity(value: float, dimension: Dimension) -> str:
    """`value` (base unit of `dimension`) for people; counts with thousands commas, ratios in per cent."""
    if dimension is Dimension.COUNT:
        return f"{int(value):,}" if float(value).is_integer() else f"{value:g}"
    if dimension is Dimension.RATIO:
        return f"{_significant(100 * value)} %"
    formats = {
        Dimension.BYTES: format_bytes,
        Dimension.BANDWIDTH: format_bandwidth,
        Dimension.SECONDS: format_seconds,
        Dimension.HERTZ: format_hertz,
        Dimension.FLOPS: format_flops,
    }
    return formats[dimension](value)


def _format(value: float, scales: tuple[tuple[str, float], ...]) -> str:
    """`value` in the largest unit that leaves at least 1 in front (after rounding), three significant digits."""
    if not math.isfinite(value):
        return f"{value} {scales[-1][0]}"
    for unit, size in scales:
        if abs(value) >= size * 0.9995:
            return f"{_significant(value / size)} {unit}"
    unit, size = scales[-1]
    return f"{_significant(value / size)} {unit}"


def _significant(value: float) -> str:
    """Three significant digits without an exponent, trailing zeros dropped (four digits stay whole)."""
    if abs(value) >= 99.95:
        return f"{value:.0f}"
    text = f"{value:.3g}"
    return text if "e" not in text else f"{value:.6f}".rstrip("0").rstrip(".")
