"""docs/RULES.md and docs/OPERATORS.md are what the tables say."""

from pathlib import Path

from fusesolve.decompose import COMPOSITES
from fusesolve.legality import LIMIT_RULES, STRUCTURE_RULES
from fusesolve.ops import OPS
from fusesolve.report import operators_page as operators
from fusesolve.report.rules_page import rules_page, write_page

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_is_current():
    assert (DOCS / "RULES.md").read_text() == rules_page(), "docs/RULES.md is behind fusesolve/legality.py: make docs"


def test_the_page_of_operators_is_current():
    page = operators.operators_page()
    assert (DOCS / "OPERATORS.md").read_text() == page, "docs/OPERATORS.md is behind the tables: run `make docs`"


def test_every_operator_has_its_row(tmp_path):
    operators.write_page([str(tmp_path / "page.md")])
    rows = [line for line in (tmp_path / "page.md").read_text().splitlines() if line.startswith("| `")]
    assert len(rows) == len(OPS) + len(COMPOSITES)
    assert "| `topk` | 1 | The k greatest (or least) along one axis, sorted, and their indices. |" in "\n".join(rows)


def test_every_rule_has_its_row():
    rows = [line for line in rules_page().splitlines() if line.startswith("| ") and "| rule |" not in line]
    assert len(rows) == len(STRUCTURE_RULES) + len(LIMIT_RULES)
    assert all(line.count(" | ") == 3 for line in rows)


def test_the_page_is_written_to_the_file_named(tmp_path):
    write_page([str(tmp_path / "page.md")])
    assert (tmp_path / "page.md").read_text() == rules_page()
