"""A sweep on a Dask cluster of two workers, one of which is killed in the middle: nothing lost, nothing doubled."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fusesolve.errors import InputError
from fusesolve.whatif.executors import Resources, execute

PROGRAM = """
import json, os, signal, sys
from pathlib import Path

from distributed import LocalCluster

from fusesolve.hardware_yaml import load_profile
from fusesolve.importers import load_graph
from fusesolve.pipeline.options import PlanOptions
from fusesolve.whatif.axes import parse_axis
from fusesolve.whatif.executors import Resources
from fusesolve.whatif.files import format_csv
from fusesolve.whatif.points import build_study
from fusesolve.whatif.sweep import run_study


def main(folder):
    axes = [parse_axis("memory.dram.bandwidth=1TB/s..4TB/s:5"), parse_axis("launch.stream=1us..5us:4")]
    study = build_study([load_graph("rms_norm", bind={})], [load_profile("h100")], axes, PlanOptions())
    killed = []

    def watch(event):
        # after the first finished block 19 are left for two workers: end one of them as a crash would
        if not event.stage.startswith("0 of") and not killed:
            victim = cluster.workers[0].pid
            killed.append(victim)
            os.kill(victim, signal.SIGKILL)

    state = folder / "state"
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50) as cluster:
        there = Resources(scheduler=cluster.scheduler_address)
        table, _ = run_study(study, there, state=state, progress=watch)
    here, _ = run_study(study, Resources(workers=1))
    blocks = [json.loads(line)["block"] for line in state.read_text().splitlines()[1:]]
    print(json.dumps({"killed": len(killed), "same": format_csv(table) == format_csv(here), "blocks": sorted(blocks),
                      "rows": len(table.rows)}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
"""


def test_a_killed_worker_loses_and_doubles_nothing(tmp_path):
    (tmp_path / "sweep.py").write_text(PROGRAM)
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, str(tmp_path / "sweep.py"), str(tmp_path)],
        capture_output=True, text=True, cwd=tmp_path, timeout=600, check=False,
        env={"PYTHONPATH": str(root), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found == {"killed": 1, "same": True, "blocks": list(range(20)), "rows": 20}


def test_a_scheduler_that_does_not_answer_is_named(monkeypatch):
    monkeypatch.setattr("fusesolve.whatif.executors.CONNECT_S", 0.2)
    with (
        pytest.raises(InputError, match=r"--scheduler tcp://127\.0\.0\.1:9: no Dask scheduler answers"),
        execute(str, ["a"], Resources(scheduler="tcp://127.0.0.1:9")) as results,
    ):
        list(results)
