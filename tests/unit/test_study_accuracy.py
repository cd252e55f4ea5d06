"""Accuracy and calibration end to end on made-up tables whose truth is the simulator itself."""

import json

import jsonschema
import numpy as np
import pytest
import yaml

from fusesolve.cli.entry import main
from fusesolve.errors import InputError
from fusesolve.hardware_yaml import load_profile
from fusesolve.report.accuracy import accuracy_table
from fusesolve.schema import load_schema
from fusesolve.study import Part, calibrate, measure_accuracy
from fusesolve.study.accuracy import chosen, is_fit_row
from fusesolve.study.calibration import with_constants
from fusesolve.study.predict import price_samples
from fusesolve.study.readers import read_table

HEAD = "gpu,framework,rows,cols,static_quant_us,dynamic_quant_us\n"
SHAPES = [(2**i, 1024 + 256 * j) for i in range(2, 17, 2) for j in range(8)]


def write_truth(path, profile, device="H200-SXM-141GB"):
    """A quantisation table with exactly what the simulator says on `profile`, six digits."""
    path.write_text(HEAD + "".join(f"{device},trtllm,{r},{c},1.0,\n" for r, c in SHAPES))
    seconds = price_samples(read_table(path).samples, profile)
    lines = [f"{device},trtllm,{r},{c},{1e6 * t:.6f},\n" for (r, c), t in zip(SHAPES, seconds, strict=True)]
    path.write_text(HEAD + "".join(lines))
    return path


def test_the_simulator_agrees_with_itself(tmp_path):
    found = measure_accuracy([write_truth(tmp_path / "q.csv", load_profile("h200"))])
    (row,) = found.rows
    assert (row.device, row.profile, row.timing, row.errors.n) == ("H200-SXM-141GB", "h200", "cuda-graph", len(SHAPES))
    assert row.errors.mape < 1e-5
    assert row.errors.spearman > 0.99  # tiny tensors take the same time: ties that six digits tell apart
    assert len(row.worst) == 10


def test_another_profile_can_be_asked_for(tmp_path):
    path = write_truth(tmp_path / "q.csv", load_profile("h200"))
    (row,) = measure_accuracy([path], "h100").rows
    assert row.profile == "h100"
    assert row.errors.mape > 0.01


def test_a_device_without_a_profile_is_listed(tmp_path):
    path = tmp_path / "q.csv"
    path.write_text(HEAD + "TPU-v9,trtllm,4,1024,2.0,\n")
    found = measure_accuracy([path])
    assert not found.rows
    assert (found.excluded[0].device, found.excluded[0].n) == ("TPU-v9", 1)
    assert "TPU-v9" in accuracy_table(found, width=100, colour=False)


def test_the_json_keeps_its_schema(tmp_path, capsys):
    path = write_truth(tmp_path / "q.csv", load_profile("h200"))
    assert main(["accuracy", str(path), "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, load_schema("accuracy"))
    assert document["rows"][0]["op"] == "static_quant (trtllm)"


def test_the_table_fits_its_width(tmp_path, capsys):
    path = write_truth(tmp_path / "q.csv", load_profile("h200"))
    found = measure_accuracy([path])
    text = accuracy_table(found, width=100, colour=False, verbose=True)
    assert "worst rows" in text
    assert max(map(len, text.splitlines())) <= 100


def test_the_split_is_by_sizes_and_the_same_on_every_device(tmp_path):
    one, two = tmp_path / "a.csv", tmp_path / "b.csv"
    write_truth(one, load_profile("h200"))
    write_truth(two, load_profile("h100"), "H100-SXM5-80GB")
    left, right = (read_table(path).samples for path in (one, two))
    assert [is_fit_row(s) for s in left] == [is_fit_row(s) for s in right]
    assert len(chosen(left, Part.FIT)) + len(chosen(left, Part.HELD_OUT)) == len(left)


def test_calibration_finds_the_constants_that_made_the_table(tmp_path):
    truth = with_constants(load_profile("h200"), {"kernel_floor": 2.0e-6, "stream_share": 0.75, "l2_stream": 8e12})
    found = calibrate([write_truth(tmp_path / "q.csv", truth)], "h200")
    (group,) = found.groups
    assert group.name == "streams"
    assert group.after.mape < 0.025 < group.before.mape / 2
    assert group.values["kernel_floor"] == pytest.approx(2.0e-6, rel=0.05)
    assert group.values["stream_share"] == pytest.approx(0.75, rel=0.03)
    assert group.values["l2_stream"] == pytest.approx(8e12, rel=0.2)


def test_the_calibrated_profile_loads_and_says_where_it_comes_from(tmp_path, capsys):
    truth = with_constants(load_profile("h200"), {"stream_share": 0.7})
    table, out = write_truth(tmp_path / "q.csv", truth), tmp_path / "mine.yaml"
    assert main(["calibrate", "--data", str(table), "--hw", "h200", "-o", str(out)]) == 0
    assert "streams" in capsys.readouterr().err
    constant = load_profile(str(out)).calibration["stream_share"]
    assert constant.value == pytest.approx(0.7, rel=0.02)
    assert "q.csv" in constant.source
    assert constant.rows == sum(is_fit_row(s) for s in read_table(table).samples)
    assert yaml.safe_load(out.read_text())["extends"] == "h200"


def test_no_rows_of_the_device(tmp_path):
    path = tmp_path / "q.csv"
    path.write_text(HEAD + "H100-SXM5-80GB,trtllm,4,1024,2.0,\nL40S,trtllm,4,1024,2.0,\n")
    with pytest.raises(InputError, match="no row of the device of 'h200'"):
        calibrate([path], "h200")


def test_too_few_rows(tmp_path):
    path = tmp_path / "q.csv"
    path.write_text(HEAD + "H200-SXM-141GB,trtllm,4,1024,2.0,\n")
    with pytest.raises(InputError, match="too few rows"):
        calibrate([path], "h200")


@pytest.mark.parametrize(
    "arguments", [["calibrate"], ["calibrate", "--device", "cpu", "--hw", "h100"], ["calibrate", "--hw", "h100"]]
)
def test_calibrate_says_what_it_needs(arguments, capsys):
    assert main(arguments) == 2
    assert "--data" in capsys.readouterr().err


def test_a_kernel_without_a_legal_tiling_is_counted_as_excluded(tmp_path, monkeypatch):
    path = write_truth(tmp_path / "q.csv", load_profile("h200"))
    count = len(SHAPES)
    monkeypatch.setattr("fusesolve.study.accuracy.price_samples", lambda samples, profile: np.full(count, np.inf))
    found = measure_accuracy([path])
    assert not found.rows
    assert found.excluded[0].n == count
