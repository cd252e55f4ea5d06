"""docs/RULES.md is what the tables say."""

from pathlib import Path

from fusesolve.legality import LIMIT_RULES, STRUCTURE_RULES
from fusesolve.report.rules_page import rules_page, write_page

PAGE = Path(__file__).parents[2] / "docs" / "RULES.md"


def test_the_page_is_current():
    assert PAGE.read_text() == rules_page(), "docs/RULES.md is behind fusesolve/legality.py: run `make docs`"


def test_every_rule_has_its_row():
    rows = [line for line in rules_page().splitlines() if line.startswith("| ") and "| rule |" not in line]
    assert len(rows) == len(STRUCTURE_RULES) + len(LIMIT_RULES)
    assert all(line.count(" | ") == 3 for line in rows)


def test_the_page_is_written_to_the_file_named(tmp_path):
    write_page([str(tmp_path / "page.md")])
    assert (tmp_path / "page.md").read_text() == rules_page()
