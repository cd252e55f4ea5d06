"""Results are written whole or not at all, and nothing that was computed is lost."""

import os
import stat
import sys

import pytest

from fusesolve.cli import streams
from fusesolve.cli.streams import check_writable, colour_wanted, result_width, write_result
from fusesolve.errors import InputError


def test_a_file_is_written_and_nothing_else_is_left(tmp_path, capsys):
    write_result("whole\n", tmp_path / "a.json")
    assert (tmp_path / "a.json").read_text() == "whole\n"
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]
    assert capsys.readouterr().out == ""


def test_without_a_file_the_result_goes_to_stdout(capsys):
    write_result("text\n", None)
    assert capsys.readouterr().out == "text\n"


def test_a_failed_write_keeps_the_old_file_and_shows_the_result(tmp_path, monkeypatch, capsys):
    target = tmp_path / "a.json"
    target.write_text("old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(streams.Path, "replace", full)
    with pytest.raises(InputError, match=r"a\.json: No space left on device; the result went to stdout"):
        write_result("new\n", target)
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]
    assert capsys.readouterr().out == "new\n"


def test_a_new_file_has_the_usual_permissions_and_an_old_one_keeps_its_own(tmp_path):
    fresh, kept = tmp_path / "fresh", tmp_path / "kept"
    kept.write_text("old")
    kept.chmod(0o640)
    before = os.umask(0o022)
    try:
        write_result("x", fresh)
        write_result("x", kept)
    finally:
        os.umask(before)
    assert stat.S_IMODE(fresh.stat().st_mode) == 0o644
    assert stat.S_IMODE(kept.stat().st_mode) == 0o640


def test_a_link_keeps_pointing_and_its_target_changes(tmp_path):
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write_result("new", tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


def test_a_device_is_written_to_not_replaced():
    from pathlib import Path

    check_writable(Path("/dev/null"))
    write_result("x", Path("/dev/null"))
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def test_places_that_cannot_be_written_are_told_at_once(tmp_path):
    with pytest.raises(InputError, match="it is a folder; name a file in it"):
        check_writable(tmp_path)
    with pytest.raises(InputError, match="there is no folder"):
        check_writable(tmp_path / "missing" / "plan.json")
    check_writable(None)
    check_writable(tmp_path / "new.json")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_told_at_once(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(InputError, match="no permission"):
        check_writable(tmp_path / "plan.json")


@pytest.mark.parametrize(("columns", "width"), [("", 160), ("100", 100), ("39", 160), ("wide", 160)])
def test_a_piped_table_has_a_fixed_width_unless_columns_says_more(monkeypatch, columns, width):
    monkeypatch.setenv("COLUMNS", columns)
    assert result_width(None) == width


def test_colour_only_on_a_terminal_that_wants_it(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert not colour_wanted()
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert colour_wanted()
    monkeypatch.setenv("NO_COLOR", "1")
    assert not colour_wanted()
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert not colour_wanted()
