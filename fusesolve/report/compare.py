"""A comparison as a person reads it: one line a strategy or partition, then the groups that are no kernels."""

from collections.abc import Mapping, Sequence
from typing import Any

from fusesolve.report.text import Column, fold, render_facts, render_table, short_names
from fusesolve.units import format_bytes, format_seconds

COLUMNS = (
    Column(head="strategy", flexible=True),
    Column(head="kernels", right=True),
    Column(head="time", right=True),
    Column(head="over optimum", right=True),
    Column(head="DRAM", right=True),
    Column(head="no kernels", right=True),
    Column(head="because", flexible=True),
)
SHOWN = 12  # groups that are explained below the table
NAMES = 48  # columns for the operators of such a group


def compare_table(document: Mapping[str, Any], *, width: int, colour: bool) -> str:
    """The report on a `fusesolve-compare/1` document, fastest first, at most `width` columns wide."""
    rows = sorted(document["rows"], key=lambda row: (row["objective_ns"], row["name"] != "cpsat", row["name"]))
    head = fold(f"{document['graph']} on {document['hardware']}: {_proof(document)}", width)
    table = render_table(COLUMNS, [_cells(row) for row in rows], width=width, colour=colour)
    facts = [*_refused(rows), *(("warning", text) for text in document["warnings"])]
    return head + "\n" + table + ("\n" + render_facts(facts, width=width) if facts else "")


def _proof(document: Mapping[str, Any]) -> str:
    if document["status"] == "OPTIMAL":
        return "cpsat is the proven optimum of the stated space"
    if document["gap"] is None:
        return "cpsat is the best plan found; nothing is proven"
    return f"cpsat is within {100 * document['gap']:.2f} % of the optimum"


def _cells(row: Mapping[str, Any]) -> list[str]:
    illegal = row["illegal"]
    reasons = list(dict.fromkeys(item["rule"] for item in illegal))
    if not row["in_space"] and not illegal:
        reasons.append("beyond the stated space")
    return [
        row["name"],
        str(row["kernels"]) if row["kernels"] == row["groups"] else f"{row['groups']} > {row['kernels']}",
        format_seconds(row["objective_ns"] / 1e9),
        _over(row["ratio"]),
        format_bytes(row["dram_bytes"]).replace(" ", ""),
        str(len(illegal)) if illegal else "-",
        ", ".join(reasons),
    ]


def _over(ratio: float) -> str:
    return "-" if abs(ratio - 1.0) < 5e-6 else f"{100 * (ratio - 1.0):+.2f} %"


def _refused(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Groups that are no kernels, with the message; they were priced as their best legal parts."""
    found = [(row["name"], item) for row in rows for item in row["illegal"]]
    facts = [
        (name, f"{short_names(item['nodes'], NAMES)}: {item['rule']}: {item['message']}")
        for name, item in found[:SHOWN]
    ]
    if len(found) > SHOWN:
        facts.append(("", f"and {len(found) - SHOWN} more; --format json lists all"))
    return facts
