"""The studies: every printed command makes the points it speaks of, links lead somewhere, each shows real output."""

import re
import shlex
from hashlib import sha256

import pytest

from fusesolve.cli import main
from fusesolve.cli import whatif as command
from tests.docs.pages import STUDIES, commands, links, outputs
from tests.docs.pictures import draw_table, parse_table, picture_of

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


@pytest.mark.parametrize("page", [page for page in STUDIES if page.stem != "README"], ids=lambda page: page.name)
def test_every_study_shows_a_picture_of_its_first_table(page):
    """After a change of a table: `python -m tests.docs.pages docs/studies/*.md` draws it anew."""
    shown = next(shown for _, shown in outputs(page))
    name = picture_of(page.read_text())
    assert name is not None
    assert sha256(shown.encode()).hexdigest() in (page.parent / name).read_text()


def test_a_picture_says_what_its_table_says_and_is_the_same_each_time():
    shown = (
        "all: hardware H100, status OPTIMAL, gap 0 %\n"
        "launch.stream  graph  plan         time  speedup  kernels  mostly bound by\n"
        "       200 ns  a      dc980c2c  61.6 us   2.43 x        7  tensor 59 %\n"
        "         2 us  a      ab980c2c   1.4 ms   3.00 x        5  dram 100 %\n"
    )
    axis, rows = parse_table(shown)
    assert axis == "launch.stream"
    assert [(row.x, row.seconds, row.speedup, row.kernels) for row in rows] == [
        (pytest.approx(200e-9), pytest.approx(61.6e-6), 2.43, 7), (pytest.approx(2e-6), pytest.approx(1.4e-3), 3.0, 5)
    ]  # fmt: skip
    drawn = draw_table(shown)
    assert drawn == draw_table(shown)
    assert b">7</text>" in drawn
    assert b">5</text>" in drawn


@pytest.mark.parametrize("page", STUDIES, ids=lambda page: page.name)
def test_every_link_of_a_study_leads_somewhere(page):
    assert not [target for target in links(page) if not (page.parent / target).exists()]


@pytest.mark.parametrize("page", STUDIES, ids=lambda page: page.name)
def test_the_index_names_every_study(page):
    index = page.parent / "README.md"
    assert page == index or re.search(rf"\]\({page.name}\)", index.read_text())
