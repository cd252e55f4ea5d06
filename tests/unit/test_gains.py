"""Gains of fusion end to end on small made-up tables, and the arithmetic of hosts and gain rows."""

import json

import jsonschema
import numpy as np
import pytest

from fusesolve.cli.entry import main
from fusesolve.errors import InputError
from fusesolve.report.accuracy import accuracy_table
from fusesolve.schema import load_schema
from fusesolve.study import measure_accuracy
from fusesolve.study.gains.cases import Case, measure_gain
from fusesolve.study.gains.launches import Launches, Timed, borrowed, estimate_launches
from fusesolve.study.gains.library import Mode

TIMES = "version,level,problem_id,host,gpu,compile_default_us,eager_us\n"
DAG = "version,level,problem_id,op_idx,op,inputs,outputs,out_dtype,flops\n"
LENGTHS = (1, 2, 3, 4)
SHAPE = "16384x8192"
PASS_US = 16384 * 8192 * 8 / 3.0e6  # one read and one write at 3 TB/s


@pytest.fixture
def tables(tmp_path):
    """Chains of one to four elementwise operators on H100, a program without a DAG, and an unknown device."""
    times, dag = [TIMES], [DAG]
    for number in LENGTHS:
        for index in range(number):
            value = f"in0:{SHAPE}" if index == 0 else f"#{index - 1}:{SHAPE}"
            dag.append(f"v0.2,2,{number},{index},{('relu', 'tanh', 'gelu', 'mul')[index]},{value},{SHAPE},float32,0\n")
        times.append(f"v0.2,2,{number},lab,H100-SXM5-80GB,{PASS_US + 50},{number * PASS_US + 20}\n")
    times.append("v0.2,3,1,lab,H100-SXM5-80GB,10,20\n")
    times.append("v0.2,2,1,lab,TPU-v9,10,20\n")
    (tmp_path / "dag.csv").write_text("".join(dag))
    main_table = tmp_path / "times.csv"
    main_table.write_text("".join(times))
    return main_table


def test_the_gain_of_a_chain_is_its_number_of_passes(tables):
    found = measure_accuracy([tables])
    (gain,) = found.gains
    assert (gain.device, gain.host, gain.split, gain.n) == ("H100-SXM5-80GB", "lab", "v0.2/level2", 4)
    assert gain.spearman == pytest.approx(1.0)
    assert (gain.winner_right, gain.clear) == (1.0, 3)
    assert gain.median_ape < 0.15
    assert gain.planned_gain == pytest.approx(gain.predicted_gain, rel=1e-6)
    assert {(row.op, row.errors.n) for row in found.rows} == {
        ("v0.2/level2 eager (lab)", 4),
        ("v0.2/level2 compiled (lab)", 4),
    }


def test_every_row_is_in_a_gain_or_named(tables):
    found = measure_accuracy([tables])
    assert sum(gain.n for gain in found.gains) + sum(item.n for item in found.excluded) == 6
    why = {item.device: item.why for item in found.excluded}
    assert "level 3" in why["H100-SXM5-80GB"]
    assert "TPU-v9" in why["TPU-v9"]


def test_a_companion_table_is_no_error(tables):
    found = measure_accuracy([tables.with_name("dag.csv")])
    assert not found.rows and not found.gains and not found.excluded


def test_with_a_device_left_out_programs_are_not_counted(tables):
    found = measure_accuracy([tables], leave_out=True)
    assert not found.gains
    assert sum(item.n for item in found.excluded) == 6


def test_without_its_dag_a_table_is_refused(tables):
    tables.with_name("dag.csv").unlink()
    with pytest.raises(InputError, match="operator DAGs"):
        measure_accuracy([tables])


def test_files_beside_the_table_may_be_anything(tables):
    tables.with_name("a.csv").write_bytes(b"\xff\xfe\x00")
    tables.with_name("b.csv").mkdir()
    assert measure_accuracy([tables]).gains


def test_a_time_of_zero_is_refused(tables):
    text = tables.read_text().replace(f"{PASS_US + 50},", "0,", 1)
    tables.write_text(text)
    with pytest.raises(InputError, match="above 0"):
        measure_accuracy([tables])


def test_a_malformed_dag_is_refused(tables):
    path = tables.with_name("dag.csv")
    path.write_text(path.read_text().replace("8192,float32", "many,float32"))
    with pytest.raises(InputError, match="malformed"):
        measure_accuracy([tables])


def test_the_json_keeps_its_schema(tables, capsys):
    assert main(["accuracy", str(tables), "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, load_schema("accuracy"))
    assert document["gains"][0]["split"] == "v0.2/level2"
    assert document["gains"][0]["worst"]


def test_the_table_shows_gains(tables):
    text = accuracy_table(measure_accuracy([tables]), width=180, colour=False, verbose=True)
    assert "v0.2/level2" in text and "worst gains" in text and "100% of 3" in text


def cases(*pairs):
    return [
        Case(label=str(i), unfused=g, fused=1.0, predicted_unfused=p, predicted_fused=1.0)
        for i, (g, p) in enumerate(pairs)
    ]


def test_winners_count_only_clear_gains():
    gain = measure_gain(
        cases((2.0, 1.5), (1.2, 0.9), (1.05, 0.5), (0.5, 0.8)), file="f", device="d", host=None, profile="p", split="s"
    )
    assert (gain.winner_right, gain.clear, gain.losers_right, gain.losers) == (0.5, 2, 1.0, 1)
    assert gain.spearman == pytest.approx(0.8)
    assert gain.worst[0].label == "2"


def test_a_host_hides_behind_long_kernels_and_shows_behind_short_ones():
    host = Launches(mode=Mode.EAGER, floor=20e-6, gap=5e-6, rows=9)
    assert host.total(np.full(3, 1e-6)) == pytest.approx(30e-6)
    assert host.total(np.full(3, 1e-3)) == pytest.approx(3e-3 + 10e-6)


def test_hosts_are_estimated_from_short_chains_or_borrowed():
    truth = Launches(mode=Mode.EAGER, floor=20e-6, gap=5e-6, rows=0)
    chains = [np.full(n, 1e-6) for n in (1, 1, 1, 4, 5, 9)]
    found = estimate_launches([Timed(kernels=k, measured=truth.total(k)) for k in chains], Mode.EAGER)
    assert (found.floor, found.gap) == (pytest.approx(20e-6), pytest.approx(5e-6))
    long = [Timed(kernels=np.full(2, 1e-2), measured=2e-2)] * 9
    assert estimate_launches(long, Mode.EAGER) is None
    assert borrowed([found]).rows == 0
    assert borrowed([]) is None
