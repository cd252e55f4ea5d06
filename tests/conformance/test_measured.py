"""The simulator against the measured tables, where they lie beside the checkout: errors may shrink, not grow.

The bounds are those that docs/ACCURACY.md reports, rounded up; each table is thinned to keep the test short.
"""

import csv
import random
from pathlib import Path

import pytest

from fusesolve.study import Part, measure_accuracy

MEASURED = Path(__file__).parents[2] / ".." / "shared" / "measured"
ROWS = 2000  # of each table: hosts are estimated from their smallest rows, of which a thinner table has too few

pytestmark = pytest.mark.skipif(not MEASURED.is_dir(), reason="the measured tables are not beside the checkout")

# (file, devices, operator) -> mean absolute percentage error that must not be passed, over those devices' rows.
BOUNDS = {
    ("neusight_elementwise_fp32.csv", "A100 V100", "add"): 0.015,
    ("aic_gemm_tensorcore.csv", "A100 H100 H200", "gemm bf16"): 0.065,
    ("aic_bmm_bf16.csv", "A100 H100 H200", "bmm bf16"): 0.065,
    ("aic_attention_bf16.csv", "A100 H100 H200", "attention decode"): 0.06,
    ("aic_attention_bf16.csv", "A100 H100 H200", "attention prefill"): 0.065,
    ("neusight_linear_fp32.csv", "A100 H100 V100", "linear"): 0.06,
    ("neusight_bmm_fp32.csv", "A100 H100 V100", "bmm"): 0.065,
    ("neusight_softmax_layernorm_fp32.csv", "A100 V100", "layernorm"): 0.055,
}


@pytest.fixture
def thinned(tmp_path):
    """A function that writes a table with a fixed sample of its rows."""

    def write(name):
        with (MEASURED / name).open(newline="") as stream:
            head, *rows = list(csv.reader(stream))
        random.Random(7).shuffle(rows)
        path = tmp_path / name
        with path.open("w", newline="") as stream:
            csv.writer(stream).writerows([head, *rows[:ROWS]])
        return path

    return write


@pytest.mark.parametrize(("file", "devices", "op"), BOUNDS)
def test_errors_stay_within_what_is_reported(thinned, file, devices, op):
    found = measure_accuracy([thinned(file)])
    rows = [r for r in found.rows if r.op == op and r.device.split("-")[0] in devices.split()]
    count = sum(row.errors.n for row in rows)
    assert count > 100
    assert sum(row.errors.mape * row.errors.n for row in rows) / count <= BOUNDS[file, devices, op]


def test_every_row_is_counted_or_named(thinned):
    path = thinned("llmservingsim_layers_bf16.csv")
    found = measure_accuracy([path])
    assert sum(row.errors.n for row in found.rows) + sum(item.n for item in found.excluded) == ROWS
    assert any("TPU" in (item.device or "") for item in found.excluded)


def test_the_two_parts_share_no_row(thinned):
    path = thinned("aic_bmm_bf16.csv")
    sizes = {part: sum(row.errors.n for row in measure_accuracy([path], part=part).rows) for part in Part}
    assert sizes[Part.FIT] + sizes[Part.HELD_OUT] == sizes[Part.ALL]
    assert min(sizes.values()) > 0.3 * sizes[Part.ALL]
