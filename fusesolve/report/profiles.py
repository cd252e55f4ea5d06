"""Hardware profiles as a person reads them: the list, one profile with its sources, and the YAML of a detected one."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from fusesolve.hardware_yaml import ProfileSummary
from fusesolve.hardware_yaml.profiles import ShownLeaf
from fusesolve.report.text import Column, render_table
from fusesolve.units import format_bandwidth, format_bytes, format_flops, format_hertz

LIST_COLUMNS = (
    Column(head="profile"),
    Column(head="kind"),
    Column(head="units", right=True),
    Column(head="clock", right=True),
    Column(head="memory", right=True),
    Column(head="bandwidth", right=True),
    Column(head="matrix peak", right=True),
    Column(head="description", flexible=True),
)
SHOW_COLUMNS = (Column(head="key"), Column(head="value", flexible=True), Column(head="source", flexible=True))
NARROW = 100


def profile_rows(summaries: Sequence[ProfileSummary]) -> list[dict[str, Any]]:
    """The list of profiles as plain data, in base units (Hz, bytes, bytes/s, FLOP/s)."""
    return [asdict(summary) for summary in summaries]


def profiles_table(summaries: Sequence[ProfileSummary], *, width: int, colour: bool) -> str:
    """The list of profiles, one line each: what to type after `--hw`, and the main numbers.

    A narrow terminal gets them without the descriptions.
    """
    rows = [
        (
            summary.file,
            summary.kind,
            str(summary.units),
            format_hertz(summary.clock),
            format_bytes(summary.dram_size),
            format_bandwidth(summary.dram_bandwidth),
            _peak(summary),
            summary.description or summary.name,
        )
        for summary in summaries
    ]
    kept = len(LIST_COLUMNS) - (width < NARROW)
    return render_table(LIST_COLUMNS[:kept], [row[:kept] for row in rows], width=width, colour=colour)


def _peak(summary: ProfileSummary) -> str:
    if summary.tensor_peak is None:
        return "-"
    return f"{format_flops(summary.tensor_peak)} {summary.tensor_type}"


def profile_table(leaves: Sequence[ShownLeaf], *, width: int, colour: bool) -> str:
    """One profile: each number on a line with its unit and where it comes from."""
    rows = [(leaf.path, leaf.value, _origin(leaf)) for leaf in leaves]
    return render_table(SHOW_COLUMNS, rows, width=width, colour=colour)


def _origin(leaf: ShownLeaf) -> str:
    accuracy = f" ({leaf.accuracy})" if leaf.accuracy else ""
    note = f"; {leaf.note}" if leaf.note else ""
    return f"{leaf.source}{accuracy}{note}"


def profile_yaml(definition: Mapping[str, Any]) -> str:
    """A plain definition as the text of a profile file (YAML), in its own order, texts quoted as in JSON."""
    return "\n".join(_yaml_lines(definition, "")) + "\n"


def _yaml_lines(block: Mapping[str, Any], indent: str) -> list[str]:
    lines: list[str] = []
    for key, value in block.items():
        if not isinstance(value, Mapping):
            lines.append(f"{indent}{key}: {json.dumps(value, ensure_ascii=False)}")
        elif "value" in value:
            leaf = ", ".join(f"{name}: {json.dumps(item, ensure_ascii=False)}" for name, item in value.items())
            lines.append(f"{indent}{key}: {{{leaf}}}")
        else:
            lines += [f"{indent}{key}:", *_yaml_lines(value, indent + "  ")]
    return lines
