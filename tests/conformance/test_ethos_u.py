"""Ethos-U profiles against the cycle estimates of Arm's compiler (ethos_u_vela_estimates.csv, 25 operators each).

The estimates come from Vela 5.2.0 on one network of unconnected 8-bit operators, memory mode Shared_Sram, system
configuration as in the table (`--verbose-performance`, column "Op Cycles").
"""

from pathlib import Path

import pytest

from fusesolve.errors import InputError
from fusesolve.study import measure_accuracy

TABLE = Path(__file__).parent / "ethos_u_vela_estimates.csv"


@pytest.fixture(scope="module")
def rows():
    return {(row.device, row.op): row.errors for row in measure_accuracy([TABLE]).rows}


@pytest.mark.parametrize("engine", ["ethos-u55-32", "ethos-u55-64", "ethos-u55-128", "ethos-u55-256"])
def test_an_u55_is_near_its_compilers_estimates(rows, engine):
    assert rows[engine, "conv2d"].mape < 0.16
    assert rows[engine, "conv2d"].spearman > 0.93
    assert rows[engine, "linear"].mape < 0.2
    assert rows[engine, "add"].mape < 0.2


@pytest.mark.parametrize("engine", ["ethos-u65-256", "ethos-u65-512", "ethos-u85-128", "ethos-u85-256"])
def test_larger_engines_keep_the_order(rows, engine):
    assert rows[engine, "conv2d"].mape < 0.3
    assert rows[engine, "conv2d"].spearman > 0.9


@pytest.mark.parametrize("engine", ["ethos-u55-32", "ethos-u55-64", "ethos-u85-128", "ethos-u85-256"])
def test_depthwise_convolutions_run_on_the_array(rows, engine):
    assert rows[engine, "depthwise"].mape < 0.15


@pytest.mark.parametrize("size", [128, 256, 512, 1024, 2048])
def test_an_addition_on_an_u85_costs_its_output_cycles(rows, size):
    assert rows[f"ethos-u85-{size}", "add"].mape < 0.05


def test_every_row_is_counted(rows):
    assert sum(errors.n for errors in rows.values()) == 11 * 25


def test_an_engine_without_a_profile_is_refused(tmp_path):
    head, row, *_ = TABLE.read_text().splitlines()
    path = tmp_path / "table.csv"
    path.write_text(f"{head}\n{row.replace('ethos-u55-128', 'ethos-u99')}\n")
    with pytest.raises(InputError, match="ethos-u99"):
        measure_accuracy([path])


def test_an_unknown_operator_is_listed(tmp_path):
    head, row, *_ = TABLE.read_text().splitlines()
    path = tmp_path / "table.csv"
    path.write_text(f"{head}\n{row.replace('conv2d', 'resize')}\n")
    assert "resize" in measure_accuracy([path]).excluded[0].why
