"""Every outcome of a command has its exit code, its one line, and leaves files whole."""

import json
import os
import subprocess
import sys

import jsonschema
import pytest

import fusesolve
from fusesolve import errors
from fusesolve.plan import SpaceRecord
from fusesolve.schema import load_schema
from tests.conftest import make_plan


@pytest.fixture
def planner(monkeypatch):
    """Replace the planner by one that returns, or raises, what a test gives it."""

    def install(outcome):
        def plan(graph, hardware, **options):
            plan.called_with = (graph, hardware, options)
            if isinstance(outcome, BaseException):
                raise outcome
            return outcome

        monkeypatch.setattr(fusesolve, "plan", plan)
        return plan

    return install


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InputError, 2),
        (errors.NoPlanError, 3),
        (errors.MissingError, 4),
        (errors.ValidationError, 5),
        (errors.InternalError, 70),
        (errors.FusesolveError, 70),
    ],
)
def test_each_error_class_has_its_exit_code(cli, planner, error, code):
    planner(error("what, where, 3, change that"))
    done = cli("plan", "--hw", "h100")
    assert (done.code, done.out, done.error) == (code, "", "what, where, 3, change that")


def test_every_error_class_is_tested_above():
    def below(kind):
        return {kind}.union(*(below(child) for child in kind.__subclasses__()))

    assert {kind.exit_code for kind in below(errors.FusesolveError)} == {2, 3, 4, 5, 70}


def test_a_bug_is_one_line_that_asks_for_a_report(cli, planner):
    planner(ZeroDivisionError("division by zero\nand more"))
    done = cli("plan", "--hw", "h100")
    assert done.code == 70
    assert done.error == (
        "internal error (ZeroDivisionError: division by zero); please report it; --debug shows the traceback"
    )


def test_an_exception_without_a_message_is_named(cli, planner):
    planner(AssertionError())
    assert cli("plan", "--hw", "h100").error.startswith("internal error (AssertionError")


def test_a_traceback_only_with_debug(cli, planner):
    planner(ZeroDivisionError("x"))
    assert "Traceback" not in cli("plan", "--hw", "h100").err
    done = cli("plan", "--hw", "h100", "--debug")
    assert done.code == 70
    assert "Traceback" in done.err
    assert done.err.splitlines()[-1].startswith("error: internal error")


def test_an_interrupt_before_there_is_a_plan_is_no_plan(cli, planner):
    planner(KeyboardInterrupt())
    done = cli("plan", "--hw", "h100")
    assert (done.code, done.out) == (3, "")
    assert done.error == "interrupted before there was a plan"


def test_running_out_of_memory_is_no_bug(cli, planner):
    planner(MemoryError())
    done = cli("plan", "--hw", "h100")
    assert done.code == 2
    assert done.error.startswith("out of memory")


def test_the_planner_gets_what_the_options_say(cli, planner, tmp_path):
    seen = planner(make_plan())
    done = cli(
        "plan", "model.onnx", "--hw", "h100.yaml", "--bind", "batch=8", "--together", "a,b", "--apart", "c,d",
        "--no-recompute", "--max-memory", "1 GiB", "--max-kernels", "9", "--launch", "graph", "--implementation",
        "library", "--time-limit", "5", "--work-limit", "2", "--workers", "1", "--seed", "3", "--strict",
        "--as-dtype", "f16", "--strategy", "greedy", "--streams", "2", "--simulate", "events",
        "--objective", "latency,kernels",
    )  # fmt: skip
    assert done.code == 0
    graph, hardware, options = seen.called_with
    assert callable(options.pop("progress"))
    assert (graph, hardware) == ("model.onnx", "h100.yaml")
    assert options == {
        "bind": {"batch": 8}, "strict": True, "as_dtype": "f16", "strategy": "greedy", "time_limit": 5.0,
        "work_limit": 2.0, "workers": 1, "seed": 3, "together": (("a", "b"),), "apart": (("c", "d"),),
        "recompute": False, "max_memory": 2**30, "max_kernels": 9, "launch": "graph", "implementation": "library",
        "simulate": "events", "streams": 2, "verify": "none", "objective": ("latency", "kernels"), "store": None,
    }  # fmt: skip


def test_without_a_graph_the_bundled_block_is_planned_and_stderr_says_so(cli, planner):
    seen = planner(make_plan())
    done = cli("plan", "--hw", "h100.yaml")
    assert seen.called_with[0] == "gpt2_block"
    assert done.err == "no GRAPH given: planning the bundled transformer block gpt2_block\n"
    assert "optimal over 1,302 kernels" in done.out
    assert cli("plan", "--hw", "h100.yaml", "-q").err == ""


def test_json_goes_to_stdout_and_warnings_to_stderr(cli, planner):
    planner(make_plan(warnings=("LSTM is opaque",)))
    done = cli("plan", "g", "--hw", "h100", "--format", "json")
    assert json.loads(done.out)["status"] == "OPTIMAL"
    assert done.err == "warning: LSTM is opaque\n"


def test_a_file_gets_the_result_and_stderr_its_summary(cli, planner, tmp_path):
    planner(make_plan())
    done = cli("plan", "g", "--hw", "h100", "-o", tmp_path / "plan.json")
    assert (done.code, done.out) == (0, "")
    assert json.loads((tmp_path / "plan.json").read_text())["objective_ns"] == 150_000
    assert "optimal over 1,302 kernels" in done.err


def test_a_dash_is_stdout(cli, planner, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    planner(make_plan())
    assert cli("plan", "g", "--hw", "h100", "-o", "-").out.startswith("two_kernels on H100")
    assert list(tmp_path.iterdir()) == []


def test_an_unwritable_file_is_told_before_any_planning(cli, planner, tmp_path):
    seen = planner(make_plan())
    done = cli("plan", "g", "--hw", "h100", "-o", tmp_path / "none" / "plan.json")
    assert done.code == 2
    assert "there is no folder" in done.error
    assert not hasattr(seen, "called_with")


def test_a_disk_that_fills_up_loses_neither_the_old_file_nor_the_plan(cli, planner, tmp_path, monkeypatch):
    from fusesolve.cli import streams

    def full(*_):
        raise OSError(28, "No space left on device")

    planner(make_plan())
    (tmp_path / "plan.json").write_text("old")
    monkeypatch.setattr(streams.Path, "replace", full)
    done = cli("plan", "g", "--hw", "h100", "-o", tmp_path / "plan.json")
    assert done.code == 2
    assert "No space left on device" in done.error
    assert (tmp_path / "plan.json").read_text() == "old"
    assert json.loads(done.out)["objective_ns"] == 150_000


def test_infeasible_is_exit_3_with_the_document_and_the_conflict(cli, planner, infeasible):
    planner(infeasible)
    done = cli("plan", "g", "--hw", "h100", "--format", "json")
    assert done.code == 3
    document = json.loads(done.out)
    assert (document["status"], document["groups"]) == ("INFEASIBLE", [])
    assert done.error == "no plan exists; --max-kernels 1: at least 2 kernels are needed"


def test_nothing_found_within_the_limit_is_exit_3(cli, planner):
    planner(
        make_plan(
            status="NO_SOLUTION", objective_ns=None, bound_ns=None, gap=None, speedup=None, groups=(),
            space=SpaceRecord(candidates=0, truncated=True, cut_by=("time",), regions=0),
        )
    )  # fmt: skip
    done = cli("plan", "g", "--hw", "h100", "--format", "json")
    assert done.code == 3
    assert json.loads(done.out)["gap"] is None
    assert "raise --time-limit" in done.error


def test_a_reader_that_leaves_early_is_no_error():
    program = (
        "import sys, fusesolve\n"
        "from tests.conftest import make_plan\n"
        "fusesolve.plan = lambda *a, **k: make_plan(warnings=('w' * 100,) * 5000)\n"
        "from fusesolve.cli import main\n"
        "sys.exit(main(['plan', 'g', '--hw', 'h100']))\n"
    )
    reader, writer = os.pipe()
    child = subprocess.Popen([sys.executable, "-c", program], stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    os.read(reader, 10)
    os.close(reader)
    _, err = child.communicate(timeout=60)
    assert (child.returncode, err) == (0, "")


def test_python_m_fusesolve_is_the_same():
    done = subprocess.run(
        [sys.executable, "-m", "fusesolve", "--version"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"fusesolve {fusesolve.__version__}\n"


INTERRUPTED = """
import contextlib, os, signal, sys, threading
import fusesolve.cli.plan as command

@contextlib.contextmanager
def shown(**_):
    sent = []
    def report(event):
        if event.stage == "{stage}" and not sent:
            sent.append(threading.Timer({delay}, os.kill, (os.getpid(), signal.SIGINT)))
            sent[0].start()
    yield report

command.shown_progress = shown
from fusesolve.cli import main
sys.exit(main(["plan", "bert_layer", "--hw", "h100", "--format", "json"]))
"""


@pytest.mark.parametrize(
    ("stage", "delay"),
    [("import", 0), ("enumerate", 0.1), ("enumerate", 0.4), ("price", 0.05), ("solve", 0.05), ("assemble", 0)],
)
def test_ctrl_c_at_any_time_gives_a_plan_or_one_line(stage, delay):
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED.format(stage=stage, delay=delay)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    if done.returncode in (3, 130):  # 130: the signal came while the command itself was still being loaded
        assert done.stdout == ""
        assert done.stderr.startswith("error: interrupted before there was a ")
    else:
        assert done.returncode == 0
        assert all(line.startswith("warning: ") for line in done.stderr.splitlines())
        plan = json.loads(done.stdout)
        jsonschema.validate(plan, load_schema("plan"))
        assert plan["status"] in ("OPTIMAL", "FEASIBLE")


def test_a_terminal_without_the_letters_is_no_error():
    done = subprocess.run(
        [sys.executable, "-m", "fusesolve", "graph", "show", "gpt2_block"],
        capture_output=True, timeout=60, check=False, env=os.environ | {"PYTHONIOENCODING": "ascii", "COLUMNS": "80"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"ln_1/reduce_m?" in done.stdout


def test_verbose_logs_each_stage(cli, monkeypatch):
    from fusesolve.pipeline.options import Event

    def plan(graph, hardware, *, progress, **options):
        progress(Event(stage="solve", candidates=1302, incumbent=200_000, bound=150_000))
        return make_plan()

    monkeypatch.setattr(fusesolve, "plan", plan)
    done = cli("plan", "g", "--hw", "h100", "-v")
    assert done.err.startswith("solve: 1,302 kernels, best 200 us, bound 150 us, gap 25.00 %, ")
