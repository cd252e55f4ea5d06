"""The studies: every printed command makes the points it speaks of, links lead somewhere, each shows real output."""

import re
import shlex

import pytest

from fusesolve.cli import main
from fusesolve.cli import whatif as command
from tests.docs.pages import STUDIES, commands, links, outputs

LINES = sorted({line for page in STUDIES for line in (*commands(page), *(shown for shown, _ in outputs(page)))})


class PointsMadeError(Exception):
    """Raised in place of the long work once a command's points are made."""


@pytest.mark.parametrize("line", LINES)
def test_every_command_of_a_study_makes_its_points(line, tmp_path, monkeypatch, capsys):
    """The work itself takes minutes: it is done by `python -m tests.docs.pages docs/studies/*.md`, not here."""
    made = []

    def make(request, axes, *, zipped):
        made.extend(real(request, axes, zipped=zipped).points)
        raise PointsMadeError

    real = command.make_study
    monkeypatch.setattr(command, "make_study", make)
    monkeypatch.chdir(tmp_path)
    words = shlex.split(line)
    assert words[:2] == ["fusesolve", "whatif"]
    main(words[1:])
    assert "PointsMadeError" in capsys.readouterr().err
    assert len(made) >= 1


def test_there_are_three_studies_with_output():
    pages = [page for page in STUDIES if page.stem != "README"]
    assert len(pages) >= 3
    for page in pages:
        assert len(list(outputs(page))) >= 2, page.name
        assert all(shown.strip() for _, shown in outputs(page)), page.name


@pytest.mark.parametrize("page", STUDIES, ids=lambda page: page.name)
def test_every_link_of_a_study_leads_somewhere(page):
    assert not [target for target in links(page) if not (page.parent / target).exists()]


@pytest.mark.parametrize("page", STUDIES, ids=lambda page: page.name)
def test_the_index_names_every_study(page):
    index = page.parent / "README.md"
    assert page == index or re.search(rf"\]\({page.name}\)", index.read_text())
