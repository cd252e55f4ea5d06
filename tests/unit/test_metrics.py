"""Errors and rank correlation, by hand."""

import numpy as np
import pytest

from fusesolve.metrics import measure_errors, spearman


def test_errors_of_three_rows():
    # ratios 1.1, 0.8, 1.0: errors 10 %, 20 %, 0 %; bias is the median of +10 %, -20 %, 0 %
    found = measure_errors(np.array([11.0, 8.0, 5.0]), np.array([10.0, 10.0, 5.0]))
    assert found.n == 3
    assert found.mape == pytest.approx(0.1)
    assert found.median_ape == pytest.approx(0.1)
    assert found.p90_ape == pytest.approx(0.18)  # between 10 % and 20 %, at 0.9 * 2 = 1.8
    assert found.bias == pytest.approx(0.0)


def test_ranks_are_shared_by_equal_values():
    # ranks 0, 1.5, 1.5, 3 against 0, 1, 2, 3: covariance 4.5 over sqrt(4.5 * 5)
    left, right = np.array([1.0, 2.0, 2.0, 3.0]), np.array([1.0, 2.0, 3.0, 4.0])
    assert spearman(left, right) == pytest.approx(4.5 / np.sqrt(4.5 * 5.0))


def test_rank_correlation_sees_order_alone():
    values = np.array([3.0, 1.0, 7.0, 5.0])
    assert spearman(values, np.exp(values)) == pytest.approx(1.0)
    assert spearman(values, -values) == pytest.approx(-1.0)


@pytest.mark.parametrize("values", [[1.0, 2.0], [1.0, 1.0, 1.0]])
def test_no_rank_correlation_where_there_is_none(values):
    assert spearman(np.array(values), np.arange(len(values), dtype=float)) is None
