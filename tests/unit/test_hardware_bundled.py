"""Where bundled files are found: in an installed package first, then at the top of a checkout."""

import pytest

from fusesolve import bundled
from fusesolve.errors import InternalError


def installed(monkeypatch, folder):
    monkeypatch.setattr(bundled, "files", lambda name: folder / "site-packages" / name)


def test_an_installed_package_carries_them(monkeypatch, tmp_path):
    inside = tmp_path / "site-packages/fusesolve/_bundled/hardware"
    inside.mkdir(parents=True)
    (tmp_path / "site-packages/hardware").mkdir()  # another package's folder must not win
    installed(monkeypatch, tmp_path)
    assert bundled.bundled_dir("hardware") == inside


def test_a_checkout_has_them_at_its_top(monkeypatch, tmp_path):
    (tmp_path / "site-packages/fusesolve").mkdir(parents=True)
    (tmp_path / "site-packages/graphs").mkdir()
    installed(monkeypatch, tmp_path)
    assert bundled.bundled_dir("graphs") == tmp_path / "site-packages/graphs"


def test_a_broken_installation_is_named(monkeypatch, tmp_path):
    installed(monkeypatch, tmp_path)
    with pytest.raises(InternalError, match="the bundled hardware files are missing"):
        bundled.bundled_dir("hardware")
