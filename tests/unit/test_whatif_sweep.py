"""Sweeps: rows are those of single plans, and the same however they were worked out."""

import csv
import io
import json
import signal
from functools import partial

import jsonschema
import pytest
from pyarrow import parquet

from fusesolve import plan
from fusesolve.errors import InputError, NoPlanError
from fusesolve.hardware_yaml import load_profile
from fusesolve.importers import load_graph
from fusesolve.pipeline.options import PlanOptions
from fusesolve.plan import partition_sha256
from fusesolve.schema import load_schema
from fusesolve.whatif.axes import parse_axis
from fusesolve.whatif.evaluate import evaluate_block
from fusesolve.whatif.executors import Resources, execute
from fusesolve.whatif.files import format_csv
from fusesolve.whatif.points import build_study, set_numbers
from fusesolve.whatif.remaining import duration
from fusesolve.whatif.rows import BOUND_TERMS, FIXED_COLUMNS
from fusesolve.whatif.state import open_journal, state_path
from fusesolve.whatif.sweep import run_study

SETS = ("memory.dram.bandwidth=1TB/s,3TB/s", "launch.stream=1us..5us:3")
HERE = Resources(workers=1)


def make_study(*sets, graphs=("rms_norm",), profiles=("h100",), zipped=False, **options):
    return build_study(
        [load_graph(name, bind={}) for name in graphs], [load_profile(name) for name in profiles],
        [parse_axis(text) for text in sets], PlanOptions(**options), zipped=zipped,
    )  # fmt: skip


@pytest.fixture(scope="module")
def study():
    return make_study(*SETS, graphs=("rms_norm", "softmax"))


@pytest.fixture(scope="module")
def table(study):
    return run_study(study, HERE)[0]


def test_rows_are_crossed_in_order(table):
    assert table.columns == ("memory.dram.bandwidth", "launch.stream", *FIXED_COLUMNS)
    assert [(r["graph"], r["memory.dram.bandwidth"], r["launch.stream"]) for r in table.records()] == [
        (graph, bandwidth, launch)
        for graph in ("rms_norm", "softmax")
        for bandwidth in (1e12, 3e12)
        for launch in (1e-6, 3e-6, 5e-6)
    ]


def test_rows_are_of_their_schema(table):
    for record in table.records():
        jsonschema.validate(record, load_schema("whatif"))


def test_each_row_is_the_plan_of_its_profile(table):
    for record in table.records()[::5]:
        values = {"memory.dram.bandwidth": f"{record['memory.dram.bandwidth']!r} B/s",
                  "launch.stream": f"{record['launch.stream']!r} s"}  # fmt: skip
        found = plan(record["graph"], set_numbers(load_profile("h100"), values))
        assert record["hardware"] == "H100-SXM5-80GB"
        assert record["plan_sha256"] == partition_sha256(found.groups)
        for name in ("status", "objective_ns", "bound_ns", "gap", "unfused_ns", "dram_bytes"):
            assert record[name] == getattr(found, name), name
        assert record["kernels"] == len(found.groups)
        shares = dict.fromkeys(BOUND_TERMS, 0)
        for group in found.groups:
            shares[group.bound_by] += group.latency_ns
        assert {name: record[f"bound_by_{name}"] for name in BOUND_TERMS} == {
            name: round(spent / found.objective_ns, 6) for name, spent in shares.items()
        }


def test_zipped_values_go_in_step():
    study = make_study("memory.dram.bandwidth=1TB/s,2TB/s", "launch.stream=1us,5us", zipped=True)
    assert [point.numbers for point in study.points] == [(1e12, 1e-6), (2e12, 5e-6)]
    with pytest.raises(InputError, match=r"dram\.bandwidth has 3, launch\.stream has 2"):
        make_study("memory.dram.bandwidth=1TB/s..2TB/s:3", "launch.stream=1us,5us", zipped=True)


def test_every_profile_is_an_axis_and_a_factor_is_of_its_own_number():
    study = make_study("memory.dram.bandwidth=x2", profiles=("h100", "h200"))
    assert [point.numbers[0] for point in study.points] == [2 * 3.352e12, 2 * 4.8e12]


def test_all_problems_are_said_at_once():
    with pytest.raises(InputError) as found:
        make_study("memory.shared.per_block_max=1MiB,2MiB", "launch.stream=0us,2us")
    assert str(found.value).count("is impossible") == 2
    assert str(found.value).count("more than memory.shared.per_unit") == 2


def test_a_path_is_given_once():
    with pytest.raises(InputError, match=r"launch\.stream twice"):
        make_study("launch.stream=1us", "launch.stream=2us")


def test_a_graph_is_taken_in_the_types_of_each_device():
    study = make_study(graphs=("softmax",), profiles=("h100", "mobile-npu"))
    assert [point.subject for point in study.points] == [0, 1]
    assert any("planned as f16" in line for line in study.subjects[1].warnings)


def test_an_infeasible_point_is_a_row_without_a_plan():
    rows = run_study(make_study("limits.argument_bytes=4B,4KiB"), HERE)[0].records()
    assert [row["status"] for row in rows] == ["INFEASIBLE", "OPTIMAL"]
    jsonschema.validate(rows[0], load_schema("whatif"))
    assert rows[0]["plan_sha256"] is rows[0]["objective_ns"] is rows[0]["kernels"] is rows[0]["bound_by_dram"] is None


def test_processes_write_the_same_bytes(study, table):
    other = run_study(study, Resources(workers=2))[0]
    assert format_csv(other) == format_csv(table)


def test_a_block_does_not_depend_on_what_came_before(study):
    first, second, *_ = study.blocks()
    alone = evaluate_block(second)
    evaluate_block(first)
    assert evaluate_block(second) == alone


def test_a_killed_sweep_goes_on_and_ends_the_same(study, table, tmp_path):
    state = tmp_path / "out.csv.state"
    whole, journal = run_study(study, HERE, state=state)
    assert format_csv(whole) == format_csv(table)
    lines = state.read_bytes().split(b"\n")
    state.write_bytes(b"\n".join(lines[:6]) + b"\n" + lines[6][:40])  # killed while the sixth block was written
    seen = []
    again, journal = run_study(study, HERE, state=state, progress=lambda event: seen.append(event.stage))
    assert format_csv(again) == format_csv(table)
    assert seen[0] == "5 of 12 points (5 kept from before)"
    assert seen[-1] == "12 of 12 points (5 kept from before), 0 s left"
    assert journal.kept == 5
    assert len(seen) == 1 + 7  # what was finished was not done twice
    assert sorted(json.loads(line)["block"] for line in state.read_bytes().splitlines()[1:]) == list(range(12))


def test_a_block_that_arrives_twice_counts_once(study, tmp_path):
    journal = open_journal(tmp_path / "state", study.sha256)
    journal.add(0, [[1]])
    journal.add(0, [[1]])
    assert (tmp_path / "state").read_text().count('"block"') == 1


def test_the_state_of_another_sweep_is_refused(study, tmp_path):
    open_journal(tmp_path / "state", study.sha256)
    other = make_study(*SETS, graphs=("rms_norm", "softmax"), recompute=False)
    with pytest.raises(InputError, match="another sweep"):
        open_journal(tmp_path / "state", other.sha256)
    journal = open_journal(tmp_path / "state", study.sha256)
    journal.add(0, [[1]])
    journal.finish()
    assert open_journal(tmp_path / "state", study.sha256).finished
    fresh = open_journal(tmp_path / "state", other.sha256)  # nothing unfinished is lost
    assert (fresh.done, fresh.finished) == ({}, False)


@pytest.mark.parametrize("text", ["a,b\n1,2\n", "[]\n", '{"format": "x"}\n', "\n\n"])
def test_a_file_that_is_no_state_is_refused_and_kept(study, tmp_path, text):
    (tmp_path / "state").write_text(text)
    with pytest.raises(InputError, match="not the state of a sweep"):
        open_journal(tmp_path / "state", study.sha256)
    assert (tmp_path / "state").read_text() == text


def test_the_time_limit_keeps_what_is_finished(study, tmp_path):
    state = tmp_path / "out.csv.state"
    with pytest.raises(NoPlanError, match="after 1 of 12 points; repeat the command"):
        run_study(study, Resources(workers=1, time_limit=1e-9), state=state)
    assert len(open_journal(state, study.sha256).done) == 1


def test_a_killed_process_is_said_and_what_is_finished_is_kept():
    with (
        pytest.raises(NoPlanError, match="was killed"),
        execute(signal.raise_signal, [signal.SIGKILL] * 2, Resources(workers=2)) as results,
    ):
        list(results)


def test_an_interrupt_says_how_to_go_on(run, tmp_path, monkeypatch):
    def interrupt(*args, **keywords):
        raise KeyboardInterrupt

    monkeypatch.setattr("fusesolve.whatif.sweep.run_study", interrupt)
    code, _, err = run("softmax", "--hw", "h100", "-o", tmp_path / "a.csv")
    assert code == 3
    assert "repeat the command to go on" in err


def test_durations_are_for_people():
    assert [duration(s) for s in (0.4, 59.4, 61, 7500)] == ["0 s", "59 s", "1 min 1 s", "2 h 5 min"]


@pytest.fixture
def run(call):
    return partial(call, "whatif")


def test_the_command_writes_csv_json_and_parquet(run, tmp_path):
    code, out, err = run("softmax", "--hw", "h100", "--set", "launch.stream=1us,2us", "--workers", 1)
    assert (code, err) == (0, "")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [row["launch.stream"] for row in rows] == ["1e-06", "2e-06"]
    for name in ("a.json", "a.parquet", "a.csv"):
        code, out, err = run("softmax", "--hw", "h100", "--set", "launch.stream=1us,2us", "--workers", 1, "-o",
                             tmp_path / name)  # fmt: skip
        assert (code, out) == (0, "")
        assert "2 points, 1 different plans" in err
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"a.{form}{state}" for form in ("csv", "json", "parquet") for state in ("", ".state")
    ]
    document = json.loads((tmp_path / "a.json").read_text())
    assert document["paths"] == ["launch.stream"]
    assert [str(row["objective_ns"]) for row in document["rows"]] == [row["objective_ns"] for row in rows]
    table = parquet.read_table(tmp_path / "a.parquet")
    assert table.to_pylist() == document["rows"]
    assert str(table.schema.field("objective_ns").type) == "int64"


def test_the_command_goes_on_from_its_state(run, tmp_path):
    command = [
        "rms_norm",
        "--hw",
        "h100",
        "--set",
        "launch.stream=1us,2us,3us",
        "--workers",
        1,
        "-o",
        tmp_path / "a.csv",
    ]
    code, _, err = run(*command, "--time-limit", "1e-9")
    assert code == 3
    assert "after 1 of 3 points; repeat the command to go on" in err
    assert state_path(tmp_path / "a.csv").exists()
    code, _, err = run(*command)
    assert (code, "3 points (1 kept from before), 1 different plans" in err) == (0, True)
    whole = run(*command[:-2])[1]
    assert (tmp_path / "a.csv").read_text() == whole


def test_a_finished_sweep_run_again_does_nothing_and_says_so(run, tmp_path, monkeypatch):
    command = ["rms_norm", "--hw", "h100", "--set", "launch.stream=1us,2us", "--workers", 1, "-o", tmp_path / "a.csv"]
    assert run(*command)[0] == 0
    before = (tmp_path / "a.csv").stat()
    whole = (tmp_path / "a.csv").read_bytes()
    monkeypatch.setattr("fusesolve.whatif.sweep.evaluate_block", None)  # nothing is worked out from here on
    code, out, err = run(*command)
    assert (code, out) == (0, "")
    assert err.startswith("nothing to do, ")
    assert "a.csv: 2 points are there already" in err
    assert (tmp_path / "a.csv").stat().st_mtime_ns == before.st_mtime_ns
    (tmp_path / "a.csv").unlink()  # written again from what is kept
    assert "wrote" in run(*command)[2]
    assert (tmp_path / "a.csv").read_bytes() == whole


@pytest.mark.parametrize(
    ("argv", "code", "said"),
    [
        (["--set", "launch.stream=0us"], 2, "must be above 0"),
        (["--set", "launch.stream"], 2, "expected PATH=VALUES"),
        (["--workers", "0"], 2, "--workers 0"),
        (["--work-limit", "0"], 2, "--work-limit 0"),
        (["--seed", "-1"], 2, "--seed -1"),
        (["--time-limit", "-1"], 2, "--time-limit -1"),
        (["-o", "/nowhere/at/all.csv"], 2, "there is no folder"),
    ],
)
def test_errors_are_one_clear_line(run, argv, code, said):
    found, out, err = run("softmax", "--hw", "h100", *argv)
    assert (found, out) == (code, "")
    assert said in err
