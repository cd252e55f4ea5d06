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
from fusesolve.codegen import device
from fusesolve.errors import InputError, MissingError
from fusesolve.hardware_yaml import load_profile
from fusesolve.hardware_yaml.loader import parse_profile
from fusesolve.importers.native import parse_native
from fusesolve.report.profiles import profile_yaml
from fusesolve.report.validate import validation_table
from fusesolve.study.machine import cuda_definition
from fusesolve.validate.cuda import check_device, prepare_folder
from fusesolve.validate.ladder import plan_graph, validate_plan
from tests.cudasim.conftest import needs_numba_cuda

SMALL = {
    "FLUSH_BYTES = 512 << 20": "FLUSH_BYTES = 1 << 7", "WARM_UP = 3": "WARM_UP = 0", "REPEATS = 15": "REPEATS = 2",
    "LAUNCHES = 2000": "LAUNCHES = 2",
    "THREADS = 256": "THREADS = 8", "range(20, 31)": "range(6, 8)", '"device": device_facts()': '"device": {}',
    'plan[part]': 'plan["small" if part == "fused" else part]',
    "8 * int": "int",
}  # fmt: skip


def simulated(folder, *options):
    """The script in a process that cannot see fusesolve, as on a bare machine, with little to measure."""
    text = Path(device.__file__).read_text()
    for whole, small in SMALL.items():
        text = text.replace(whole, small)
    (folder / "run.py").write_text("import sys\nsys.modules.update(fusesolve=None, ortools=None, onnx=None)\n" + text)
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1", "PYTHONPATH": ""}
    return subprocess.run(
        [sys.executable, "-W", "ignore", "run.py", ".", *options], capture_output=True, text=True, timeout=120,
        check=False, cwd=folder, env=environment,
    )  # fmt: skip


@pytest.fixture(scope="module")
def document():
    text = """format: fusesolve-graph/1
name: rows
inputs: ["x: f32[3,40]"]
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
    done = simulated(folder, "-o", "result.json")
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads((folder / "result.json").read_text())
    (plan,) = found["plans"]
    assert [row["ok"] for row in plan["checks"]] == [True] * len(plan["checks"]) and plan["checks"]
    assert [row["id"] for row in plan["times"]] == [row["id"] for row in plan["checks"]]
    assert all(row["predicted_ns"] > 0 and "p80_ns" in row for row in plan["times"]) and not plan["not_timed"]
    assert found["fault"] is None and len(found["machine"]["copy_by_working_set"]) == 2


@needs_numba_cuda
def test_a_wrong_kernel_is_found(folder):
    (plan,) = json.loads((folder / "plans.json").read_text())
    path = folder / plan["small"]
    text = path.read_text()
    assert "f32(0.0)" in text  # the sum of exponentials starts there
    path.write_text(text.replace("f32(0.0)", "f32(1.0)"))
    done = simulated(folder, "--part", "check:0:0")
    assert json.loads(done.stdout)["ok"] is False


class Said(device.Run):
    """A run whose processes say what a test lets them say."""

    def __init__(self, folder, minutes, answers):
        super().__init__(folder, lambda text: None, minutes)
        self.answers = answers

    def _child(self, part, plan, numbers):
        return self.answers.pop(0) if self.answers else super()._child(part, plan, numbers)


def test_a_group_that_ends_its_process_fails_alone(folder):
    run = Said(folder, 1, [([{"id": 3}], "an illegal address"), ([{"id": 5}, {"id": 6}], "")])
    assert run.ask("check", 0, [3, 4, 5, 6]) == ([{"id": 3}, {"id": 5}, {"id": 6}], {4: "an illegal address"})


def test_what_the_minutes_do_not_suffice_for_is_named(folder, monkeypatch):
    monkeypatch.setattr(device, "device_facts", dict)
    found = Said(folder, 0, []).run()
    (plan,) = found["plans"]
    assert [row["ok"] for row in plan["checks"]] == [None] and plan["checks"][0]["note"] == device.LATE
    assert plan["times"] == [] and found["machine"] is None and found["fault"] == device.LATE


@needs_numba_cuda
@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="this machine has a GPU")
def test_without_a_device_the_step_says_so(document):
    with pytest.raises(MissingError, match="--on cuda: no CUDA device"):
        validate_plan(document, "cuda")
    assert main(["calibrate", "--device", "cuda", "-q"]) == 4


@needs_numba_cuda
def test_a_device_run_is_reported_with_predicted_compiled_and_measured(document, monkeypatch):
    groups = document["groups"]
    taken = {"latency_ns": 2.0 * groups[0]["latency_ns"], "p20_ns": 1.0, "p80_ns": 1e6, "unfused_ns": 1e6}
    record = {"checks": [{"id": 0, "ok": True, "error": 0.0, "tolerance": 1e-6}], "times": [{"id": 0, **taken}]}
    monkeypatch.setattr(
        "fusesolve.validate.cuda.run_plan_on_device", lambda *_: {"device": {"name": "A100"}, "plans": [record]}
    )
    monkeypatch.setattr("fusesolve.validate.cuda.query_nvidia_smi", lambda: None)
    found = validate_plan(document, "cuda")
    (row,) = found.groups
    assert row.ratio == 2.0 and row.compiled["registers_per_thread"] > 0 and found.winner["right"]
    text = validation_table(found, width=160, colour=False)
    assert "2.00" in text and "the winner is the predicted one" in text


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
