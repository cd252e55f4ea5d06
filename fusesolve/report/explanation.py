"""An explanation as a person reads it: together against apart, term by term, then the rule or the lever."""

from collections.abc import Mapping
from typing import Any

from fusesolve.report.text import Column, render_facts, render_table
from fusesolve.units import format_seconds

COLUMNS = (
    Column(head="term"),
    Column(head="together - apart", right=True),
    Column(head="because", flexible=True),
)


def explanation_table(document: Mapping[str, Any], *, width: int, colour: bool) -> str:
    """The report on a `fusesolve-explanation/1` document, at most `width` columns wide."""
    rows = [(str(term["term"]), _signed(term["delta_ns"]), str(term["message"])) for term in document["because"]]
    table = render_table(COLUMNS, rows, width=width, colour=colour) if rows else ""
    return _subject(document) + "\n\n" + table + ("\n" if table else "") + render_facts(_facts(document), width=width)


def _subject(document: Mapping[str, Any]) -> str:
    between = document.get("between")
    if between is not None:
        return f"between {' and '.join(map(str, between))}: {_verdict(document)}"
    return f"kernel {document.get('group')}: {_verdict(document)}"


def _verdict(document: Mapping[str, Any]) -> str:
    if document["rule"] is not None and document["together_ns"] is None:
        return f"they cannot share a kernel ({document['rule']})"
    delta = document["delta_ns"]
    if delta is None:
        return "no price for one of the two"
    if delta == 0:
        return "together and apart cost the same"
    word = "saves" if delta < 0 else "costs"
    return f"together {word} {format_seconds(abs(delta) / 1e9)}"


def _facts(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    facts = [
        (label, format_seconds(document[key] / 1e9))
        for label, key in (("together", "together_ns"), ("apart", "apart_ns"))
        if document[key] is not None
    ]
    if document["delta_ns"] is not None:
        facts.append(("difference", _signed(document["delta_ns"])))
    facts += [(key, str(document[key])) for key in ("rule", "lever") if document.get(key) is not None]
    numbers = dict(document.get("numbers") or {})
    message = numbers.pop("message", None)
    if message is not None:
        facts.append(("because", str(message)))
    if numbers:
        facts.append(("numbers", ", ".join(f"{name} {value}" for name, value in numbers.items())))
    return facts


def _signed(delta_ns: int) -> str:
    if delta_ns == 0:
        return "-"
    return f"{'+' if delta_ns > 0 else '-'}{format_seconds(abs(delta_ns) / 1e9)}"
