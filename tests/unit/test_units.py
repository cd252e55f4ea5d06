"""Parsing and formatting of quantities with units."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusesolve.errors import InputError
from fusesolve.units import (
    Dimension,
    format_bandwidth,
    format_bytes,
    format_flops,
    format_hertz,
    format_quantity,
    format_seconds,
    has_unit,
    parse_count,
    parse_quantity,
)

D = Dimension


@pytest.mark.parametrize(
    ("text", "dimension", "expected"),
    [
        ("3.35 TB/s", D.BANDWIDTH, 3.35e12),
        ("228 KiB", D.BYTES, 228 * 1024),
        ("228KiB", D.BYTES, 228 * 1024),
        ("1 KB", D.BYTES, 1000),
        ("1 kB", D.BYTES, 1000),
        ("1.5 KiB", D.BYTES, 1536),
        ("80 GB", D.BYTES, 80_000_000_000),
        ("2.4us", D.SECONDS, 2.4e-6),
        ("2.4 µs", D.SECONDS, 2.4e-6),
        ("2.4 μs", D.SECONDS, 2.4e-6),
        ("19.2 ns", D.SECONDS, 19.2e-9),
        ("1.98 GHz", D.HERTZ, 1.98e9),
        ("989 TFLOP/s", D.FLOPS, 989e12),
        ("989 TFLOPS", D.FLOPS, 989e12),
        ("26 TOP/s", D.FLOPS, 26e12),
        ("25e9", D.COUNT, 25e9),
        (132, D.COUNT, 132),
        (0.25, D.COUNT, 0.25),
        ("92 %", D.RATIO, 0.92),
        ("92%", D.RATIO, 0.92),
        (0.92, D.RATIO, 0.92),
        ("+5 s", D.SECONDS, 5),
        (".5 s", D.SECONDS, 0.5),
        ("0 B", D.BYTES, 0),
    ],
)
def test_quantities_come_in_base_units(text, dimension, expected):
    assert parse_quantity(text, dimension) == expected


@pytest.mark.parametrize(
    ("value", "dimension", "says"),
    [
        ("25e9", D.BANDWIDTH, "has no unit: expected bytes per second such as '3.35 TB/s'"),
        (25e9, D.BYTES, "has no unit"),
        ("3 GHz", D.SECONDS, "is hertz: expected seconds"),
        ("3 TB", D.BANDWIDTH, "is bytes: expected bytes per second"),
        ("3 tb/s", D.BANDWIDTH, "did you mean 'TB/s'"),
        ("3 parsec", D.SECONDS, "unknown unit 'parsec'"),
        ("-3 us", D.SECONDS, "at least 0"),
        (-1, D.COUNT, "at least 0"),
        ("nan", D.COUNT, "finite"),
        (math.inf, D.RATIO, "finite"),
        (".inf", D.COUNT, "finite"),
        ("-inf s", D.SECONDS, "finite"),
        ("1e999999999 s", D.SECONDS, "out of range"),
        ("1e-999999999 s", D.SECONDS, "out of range"),
        ("", D.BYTES, "expected bytes"),
        ("KiB", D.BYTES, "expected bytes"),
        ("1 2 KiB", D.BYTES, "expected bytes"),
        ("1,5 KiB", D.BYTES, "expected bytes"),
        ("1 KiB extra", D.BYTES, "expected bytes"),
        ("٣ KiB", D.BYTES, "expected bytes"),
        (True, D.COUNT, "expected a bare count"),
        (None, D.COUNT, "expected a bare count"),
        ([1], D.COUNT, "expected a bare count"),
        ("5 %", D.COUNT, "is a ratio"),
        ("1" * 100, D.COUNT, "expected a bare count"),
    ],
)
def test_what_is_not_a_quantity_says_what_is_expected(value, dimension, says):
    with pytest.raises(InputError) as caught:
        parse_quantity(value, dimension)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_counts_must_be_whole():
    assert parse_count("0.5 KiB", D.BYTES) == 512
    with pytest.raises(InputError, match="whole number"):
        parse_count("0.3 B", D.BYTES)
    assert parse_count("8192 TiB", D.BYTES) == 2**53
    with pytest.raises(InputError, match="at most 9007199254740992"):
        parse_count("8193 TiB", D.BYTES)


def test_decimal_quantities_are_exact_where_binary_floats_would_drift():
    assert parse_count("1.1 MB", D.BYTES) == 1_100_000  # 1.1 * 1e6 is 1100000.0000000002 in floats
    assert parse_count("0.07 GB", D.BYTES) == 70_000_000  # 0.07 * 1e9 is 70000000.00000001


def test_a_unit_is_recognised_without_its_number_being_sound():
    assert has_unit("0 %", D.RATIO)
    assert not has_unit("0.9", D.RATIO)
    assert not has_unit(0.9, D.RATIO)
    assert not has_unit("90 GB/s", D.RATIO)


@given(st.integers(0, 10**15), st.sampled_from(["B", "KB", "KiB", "MB", "MiB", "GiB"]))
def test_whole_bytes_in_any_unit_are_exact(count, unit):
    scale = {"B": 1, "KB": 1000, "KiB": 1024, "MB": 10**6, "MiB": 1 << 20, "GiB": 1 << 30}[unit]
    if count * scale < 2**53:
        assert parse_count(f"{count} {unit}", D.BYTES) == count * scale


@given(st.floats(1e-12, 1e3, allow_nan=False))
def test_formatted_time_reads_back_within_its_three_digits(seconds):
    assert parse_quantity(format_seconds(seconds), D.SECONDS) == pytest.approx(seconds, rel=0.006, abs=1e-11)


@pytest.mark.parametrize(
    ("formatted", "expected"),
    [
        (format_bytes(228 * 1024), "228 KiB"),
        (format_bytes(12), "12 B"),
        (format_bytes(1536), "1.5 KiB"),
        (format_bytes(80 << 30), "80 GiB"),
        (format_bytes(0), "0 B"),
        (format_bandwidth(3.352e12), "3.35 TB/s"),
        (format_bandwidth(900e9), "900 GB/s"),
        (format_seconds(2.4e-6), "2.4 us"),
        (format_seconds(0.99999), "1 s"),
        (format_seconds(1234e-6), "1.23 ms"),
        (format_hertz(1.98e9), "1.98 GHz"),
        (format_flops(989e12), "989 TFLOP/s"),
        (format_flops(2.25e15), "2.25 PFLOP/s"),
        (format_seconds(math.inf), "inf ns"),
        (format_quantity(1302, D.COUNT), "1,302"),
        (format_quantity(0.25, D.COUNT), "0.25"),
        (format_quantity(0.957, D.RATIO), "95.7 %"),
        (format_quantity(2.4e-6, D.SECONDS), "2.4 us"),
    ],
)
def test_numbers_for_people(formatted, expected):
    assert formatted == expected
