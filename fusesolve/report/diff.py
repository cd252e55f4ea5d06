"""The difference of two plans as a person reads it: totals, then one line a change."""

from collections.abc import Mapping
from typing import Any

from fusesolve.report.text import Column, fold, render_facts, render_table, room_for_flexible, short_names
from fusesolve.units import format_bytes, format_seconds

COLUMNS = (
    Column(head="change"),
    Column(head="kernels"),
    Column(head="operators", flexible=True),
    Column(head="left", right=True),
    Column(head="right", right=True),
    Column(head="difference", right=True),
    Column(head="DRAM", right=True),
    Column(head="mostly"),
)
OPERATORS = 2  # the place of the operators' column
TERMS_SHOWN = 4


def diff_table(document: Mapping[str, Any], *, width: int, colour: bool) -> str:
    """The report on a `fusesolve-diff/1` document, at most `width` columns wide; differences are right minus left."""
    head = fold(f"left {_side(document['left'])}; right {_side(document['right'])}: {_verdict(document)}", width)
    changes = document["changes"]
    rows = [_cells(change) for change in changes]
    table = ""
    if rows:
        room = max(room_for_flexible(COLUMNS, rows, width), 12)
        for row, change in zip(rows, changes, strict=True):
            row[OPERATORS] = short_names(change["nodes"], room)
        table = render_table(COLUMNS, rows, width=width, colour=colour) + "\n"
    return head + "\n" + table + render_facts(_facts(document), width=width)


def _side(side: Mapping[str, Any]) -> str:
    kernels = f"{side['kernels']} kernel{'s' * (side['kernels'] != 1)}"
    time = format_seconds(side["objective_ns"] / 1e9)
    return f"{side['graph']} on {side['hardware']} by {side['strategy']}: {time} in {kernels}"


def _verdict(document: Mapping[str, Any]) -> str:
    delta = document["delta_ns"]
    if delta == 0:
        return "equally fast"
    return f"right is {format_seconds(abs(delta) / 1e9)} {'slower' if delta > 0 else 'faster'}"


def _cells(change: Mapping[str, Any]) -> list[str]:
    terms = list(change["terms_ns"].items())
    return [
        change["kind"],
        f"{_numbers(change['left'])} > {_numbers(change['right'])}",
        "",
        _time(change["left_ns"]),
        _time(change["right_ns"]),
        _signed_time(change["delta_ns"]),
        _signed_bytes(change["delta_dram_bytes"]),
        f"{terms[0][0]} {_signed_time(terms[0][1])}" if terms else "-",
    ]


def _numbers(ids: list[int]) -> str:
    shown = ",".join(map(str, ids[:4]))
    return shown + (f",…{len(ids) - 4}" if len(ids) > 4 else "") if ids else "-"


def _facts(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    left, right = document["left"], document["right"]
    facts = [
        ("same", f"{document['same']} kernels"),
        ("time", f"{_time(left['objective_ns'])} > {_time(right['objective_ns'])}"),
        ("DRAM", f"{format_bytes(left['dram_bytes'])} > {format_bytes(right['dram_bytes'])}"),
    ]
    peaks = left["peak_memory_bytes"], right["peak_memory_bytes"]
    if None not in peaks:
        facts.append(("peak memory", f"{format_bytes(peaks[0])} > {format_bytes(peaks[1])}"))
    terms = [f"{name} {_signed_time(ns)}" for name, ns in list(document["terms_ns"].items())[:TERMS_SHOWN]]
    if terms:
        facts.append(("terms", ", ".join(terms) + " (each before they overlap)"))
    return facts


def _time(ns: int) -> str:
    return format_seconds(ns / 1e9)


def _signed_time(ns: int) -> str:
    return "-" if ns == 0 else f"{'+' if ns > 0 else '-'}{format_seconds(abs(ns) / 1e9)}"


def _signed_bytes(count: int) -> str:
    return "-" if count == 0 else f"{'+' if count > 0 else '-'}{format_bytes(abs(count))}".replace(" ", "")
