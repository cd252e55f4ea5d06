"""Leaving a device out: whose constants it gets, and that none of its own are left."""

import csv

import pytest

from fusesolve.cli.entry import main
from fusesolve.hardware_yaml import load_profile
from fusesolve.study import measure_accuracy
from fusesolve.study.calibration import with_constants
from fusesolve.study.predict import price_samples
from fusesolve.study.readers import read_table
from fusesolve.study.transfer import FITTED, is_own, transfer, with_donors

HEAD = "gpu,framework,rows,cols,static_quant_us,dynamic_quant_us\n"
SHAPES = [(2**i, 1024 * j) for i in range(8, 17, 2) for j in (1, 3, 5)]


def test_no_fitted_constant_of_the_device_is_left():
    own = load_profile("h200")
    found = transfer("h200")
    assert "h200" not in found.donors and "h100-sxm" in found.donors
    mine = {name for name, constant in own.calibration.items() if is_own(name, constant)}
    shared = mine & set(found.profile.calibration) & FITTED
    assert len(shared) > 10
    donors = {name for name in shared if found.profile.calibration[name].value != own.calibration[name].value}
    assert len(donors) > 8


def test_a_device_without_calibrated_relatives_has_none():
    assert transfer("mi210") is None


def test_rates_are_carried_over_as_shares():
    base = load_profile("h200")
    other = with_constants(load_profile("h100-sxm"), {})
    found = with_donors(base, {"h100-sxm": other}).profile
    share = other.calibration["l2_stream"].value / other.memory.l2.bandwidth
    assert found.calibration["l2_stream"].value == pytest.approx(share * base.memory.l2.bandwidth)
    assert found.calibration["stream_share"].value == other.calibration["stream_share"].value


def test_the_nearest_generation_lends():
    base = load_profile("v100-pcie")
    others = {name: load_profile(name) for name in ("a100-pcie-80gb", "h200")}
    found = with_donors(base, others).profile
    assert found.calibration["fma_efficiency"].value == others["a100-pcie-80gb"].calibration["fma_efficiency"].value


def write_rows(path, profile):
    """A quantisation table of the H200 with exactly what the simulator says on `profile`."""
    lines = [f"H200-SXM-141GB,trtllm,{r},{c},1.0,\n" for r, c in SHAPES]
    path.write_text(HEAD + "".join(lines))
    seconds = price_samples(read_table(path).samples, profile)
    rows = [f"H200-SXM-141GB,trtllm,{r},{c},{1e6 * t:.6f},\n" for (r, c), t in zip(SHAPES, seconds, strict=True)]
    path.write_text(HEAD + "".join(rows) + "MI210,trtllm,4,1024,5.0,\n")
    return path


def test_the_command_prices_with_the_others(tmp_path, capsys):
    path = write_rows(tmp_path / "q.csv", transfer("h200").profile)
    found = measure_accuracy([path], leave_out=True)
    (row,) = found.rows
    assert row.errors.mape < 1e-5
    assert row.profile.startswith("h200 by") and "h100-sxm" in row.profile
    assert {item.device: item.n for item in found.excluded} == {"MI210": 1}
    assert measure_accuracy([path]).rows[-1].errors.mape > 1e-3
    assert main(["accuracy", str(path), "--leave-out"]) == 0
    assert "h200 by" in capsys.readouterr().out.replace("\n", " ")


def test_leaving_out_needs_the_own_profiles(tmp_path, capsys):
    path = tmp_path / "q.csv"
    with path.open("w", newline="") as stream:
        csv.writer(stream).writerows([HEAD.strip().split(",")])
    assert main(["accuracy", str(path), "--leave-out", "--hw", "h100"]) == 2
    assert "--hw" in capsys.readouterr().err


def test_an_uncalibrated_profile_says_what_to_expect(capsys):
    assert main(["profiles", "show", "l40s"]) == 0
    shown = capsys.readouterr().out
    assert "calibration.uncalibrated" in shown and "calibration.transfer_error" in shown
    assert load_profile("l40s").calibration["transfer_error"].value > 0
