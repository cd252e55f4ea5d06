"""The page docs/RULES.md, generated from the tables of legality rules: `python -m fusesolve.report.rules_page FILE`."""

import sys
from collections.abc import Sequence
from pathlib import Path

from fusesolve.legality import LIMIT_RULES, STRUCTURE_RULES, LimitRule, StructureRule

HEAD = """# When a set of operators is not a kernel

Generated from the tables in `fusesolve/legality.py` by `make docs`; edit the tables, not this page.

A set of operators that breaks one of these rules is refused: `fusesolve explain --between A B` names the rule, the
numbers, and what would make it fit. Structure rules look at the operators alone and hold on every device. Limit rules
compare what the kernel needs, for the tiling in question, with a number of the hardware profile.
"""
STRUCTURE_HEAD = """
## Structure

| rule | meaning | at most | what would make it fit |
|---|---|---|---|
"""
STRUCTURE_TAIL = """
A set that breaks a rule marked with * has no legal superset, so the search stops growing there.
"""
LIMIT_HEAD = """
## Limits of the device

| rule | meaning | set by | what would make it fit |
|---|---|---|---|
"""


def rules_page() -> str:
    """The whole page as Markdown that ends with a newline."""
    structure = "".join(_structure_row(rule) for rule in STRUCTURE_RULES)
    limits = "".join(_limit_row(rule) for rule in LIMIT_RULES)
    return HEAD + STRUCTURE_HEAD + structure + STRUCTURE_TAIL + LIMIT_HEAD + limits


def _structure_row(rule: StructureRule) -> str:
    return _row(rule.name + ("*" if rule.hereditary else ""), rule.doc, str(rule.allowed), rule.lever)


def _limit_row(rule: LimitRule) -> str:
    return _row(rule.name, rule.doc, f"`{rule.path}`", rule.lever)


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def write_page(arguments: Sequence[str]) -> None:
    """Write the page to the one file named in `arguments`."""
    (target,) = arguments
    Path(target).write_text(rules_page(), encoding="utf-8")


if __name__ == "__main__":
    write_page(sys.argv[1:])
