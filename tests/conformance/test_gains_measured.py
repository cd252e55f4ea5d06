"""Gains of fusion on the measured tables, where they lie beside the checkout: errors may shrink, not grow.

The bounds are those that docs/ACCURACY.md reports, rounded.
"""

import csv
import shutil
from pathlib import Path

import pytest

from fusesolve.study import measure_accuracy

MEASURED = Path(__file__).parents[2] / ".." / "shared" / "measured"

pytestmark = pytest.mark.skipif(not MEASURED.is_dir(), reason="the measured tables are not beside the checkout")


@pytest.fixture(scope="module")
def kernelbench(tmp_path_factory):
    """The gains of level 2 of v0.2 by device: rows that no constant was fitted on."""
    folder = tmp_path_factory.mktemp("kernelbench")
    shutil.copy(MEASURED / "kernelbench_op_dag.csv", folder)
    path = folder / "times.csv"
    with (MEASURED / "kernelbench_eager_vs_compile_fp32.csv").open(newline="") as stream:
        head, *rows = list(csv.reader(stream))
    with path.open("w", newline="") as stream:
        csv.writer(stream).writerows([head, *(row for row in rows if row[:2] == ["v0.2", "2"])])
    return {gain.device: gain for gain in measure_accuracy([path]).gains}


@pytest.mark.parametrize(("device", "rank"), [("H100-PCIe-80GB", 0.87), ("H100-SXM5-80GB", 0.77)])
def test_gains_of_operator_chains(kernelbench, device, rank):
    gain = kernelbench[device]
    assert gain.n > 50
    assert gain.spearman >= rank
    assert gain.median_ape <= 0.13
    assert gain.winner_right >= 0.95


def test_a_plan_of_ours_is_no_slower_than_the_compilers(kernelbench):
    for gain in kernelbench.values():
        assert gain.planned_gain >= gain.predicted_gain - 0.02


def test_gains_of_fused_kernels_of_language_models():
    gains = {gain.device: gain for gain in measure_accuracy([MEASURED / "liger_fused_vs_unfused.csv"]).gains}
    assert gains["A100-SXM4-80GB"].spearman > 0.9
    assert gains["H100-SXM5-80GB"].gain_median_ape < 0.1
    assert gains["H100-SXM5-80GB"].winner_right == 1.0


def test_times_of_whole_models():
    found = measure_accuracy([MEASURED / "neusight_models_e2e_fp32.csv"])
    errors = {row.device: row.errors.mape for row in found.rows if row.op == "model eager"}
    for device in ("A100-PCIE-40GB", "H100-SXM5-80GB", "V100-PCIE-32GB"):
        assert errors[device] < 0.08


def test_the_order_of_networks_on_npus():
    tables = [MEASURED / "hailo_npu_models.csv", MEASURED / "qualcomm_aihub_npu_models.csv"]
    ranks = [row.errors.spearman for row in measure_accuracy(tables).rows if row.errors.n > 30]
    assert len(ranks) > 12
    assert min(ranks) > 0.72
