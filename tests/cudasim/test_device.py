"""The device script: a prepared folder run in the simulator, which has kernels and events but no times."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fusesolve import plan
from fusesolve.cli import main
from fusesolve.errors import InputError, MissingError
from fusesolve.hardware_yaml import load_profile
from fusesolve.hardware_yaml.loader import parse_profile
from fusesolve.importers.native import parse_native
from fusesolve.report.profiles import profile_yaml
from fusesolve.study.machine import cuda_definition
from fusesolve.validate.cuda import check_device, prepare_folder
from fusesolve.validate.ladder import plan_graph, validate_plan
from tests.cudasim.conftest import needs_numba_cuda

SCRIPT = """
import json, sys
from pathlib import Path
import numpy as np
import device
device.FLUSH_BYTES, device.REPEATS, device.LAUNCHES, device.THREADS = 1 << 12, 3, 2, 8
folder = Path(sys.argv[1])
plan, = json.loads((folder / "plans.json").read_text())
arrays = np.load(folder / plan["arrays"])
rows = device.check_groups(device.load_kernels(folder / plan["small"]), arrays, plan["checks"])
watch = device.Stopwatch(1 << 12, 3)
watch.blocks = 1
times = device.time_groups(device.load_kernels(folder / plan["small"]), plan["groups"], watch)
print(json.dumps({"rows": rows, "times": device._rows(plan, times, {}), "loaded": "fusesolve" in sys.modules}))
"""


def simulated(folder):
    """The script's functions in a process that cannot see fusesolve, as on a bare machine."""
    from fusesolve.codegen import device

    (folder / "device.py").write_text(Path(device.__file__).read_text())
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1", "PYTHONPATH": ""}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT, str(folder)],
        capture_output=True, text=True, timeout=120, check=False, cwd=folder, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def document():
    text = """format: fusesolve-graph/1
name: rows
inputs: ["x: f32[33,40]"]
ops: ["a = mul(x, 2.0)", "y = softmax(a; axis=1)"]
outputs: [y]"""
    return plan(parse_native(text, "rows", {}, False), "a100", implementation="generated").to_dict()


@pytest.fixture
def folder(document, tmp_path):
    left_out = prepare_folder(tmp_path, [("rows", document, plan_graph(document), load_profile("a100"))])
    assert left_out == {"rows": []}
    return tmp_path


@needs_numba_cuda
def test_a_prepared_folder_runs_without_fusesolve(folder):
    found = simulated(folder)
    assert not found["loaded"]
    assert [row["ok"] for row in found["rows"]] == [True] * len(found["rows"])
    assert {row["id"] for row in found["times"]} == {row["id"] for row in found["rows"]}
    assert all(row["unfused_ns"] is None and row["predicted_ns"] > 0 for row in found["times"])


@needs_numba_cuda
def test_a_wrong_kernel_is_found(folder):
    (plan,) = json.loads((folder / "plans.json").read_text())
    path = folder / plan["small"]
    text = path.read_text()
    assert "f32(0.0)" in text  # the sum of exponentials starts there
    path.write_text(text.replace("f32(0.0)", "f32(1.0)"))
    assert any(not row["ok"] for row in simulated(folder)["rows"])


@needs_numba_cuda
@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="this machine has a GPU")
def test_without_a_device_the_step_says_so(document):
    with pytest.raises(MissingError, match="--on cuda: no CUDA device"):
        validate_plan(document, "cuda")
    assert main(["calibrate", "--device", "cuda", "-q"]) == 4


def test_what_is_measured_replaces_three_numbers_of_the_bundled_profile():
    curve = [{"bytes": 1 << n, "bytes_per_s": 6e12 if n < 26 else 3e12} for n in range(20, 31)]
    said = []
    definition = cuda_definition(
        "h200", "NVIDIA H200", {"launch_stream_s": 2.5e-6, "copy_by_working_set": curve}, said.append
    )
    profile = parse_profile(profile_yaml(definition), "measured")
    assert profile.launch.stream == pytest.approx(2.5e-6)
    assert profile.memory.dram.sustained == pytest.approx(3e12)
    assert profile.memory.l2.knee == 1 << 25
    assert profile.registers == load_profile("h200").registers
    assert "2.50 us" in said[0]


@pytest.mark.parametrize(("answer", "force", "refused"), [
    (None, False, False), ("NVIDIA A100-SXM4-80GB, 81920, 1410, 8.0\n", False, False),
    ("NVIDIA H200, 143771, 1980, 9.0\n", False, True), ("NVIDIA H200, 143771, 1980, 9.0\n", True, False),
    ("Quadro RTX 4000, 8192, 1545, 7.5\n", False, True),
])  # fmt: skip
def test_a_plan_for_another_gpu_is_refused_without_force(monkeypatch, answer, force, refused):
    monkeypatch.setattr("fusesolve.validate.cuda.query_nvidia_smi", lambda: answer)
    profile = load_profile("a100")
    if refused:
        with pytest.raises(InputError, match="the plan is for A100"):
            check_device(profile, force=force)
    else:
        check_device(profile, force=force)
