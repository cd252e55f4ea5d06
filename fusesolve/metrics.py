"""Errors of predictions against measurements."""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Errors over `n` rows, as ratios.

    Mean, median and 90th percentile of |predicted / measured - 1|, the median of predicted / measured - 1 (`bias`),
    and the rank correlation (None where ranks are undefined).
    """

    n: int
    mape: float
    median_ape: float
    p90_ape: float
    bias: float
    spearman: float | None


def measure_errors(predicted: Array, measured: Array) -> Errors:
    """The errors of at least one row; times > 0 in one unit."""
    ratio = predicted / measured - 1.0
    size = np.abs(ratio)
    return Errors(
        n=len(ratio), mape=float(size.mean()), median_ape=float(np.median(size)),
        p90_ape=float(np.quantile(size, 0.9)), bias=float(np.median(ratio)), spearman=spearman(predicted, measured),
    )  # fmt: skip


def spearman(left: Array, right: Array) -> float | None:
    """Spearman's rank correlation, ties at their mean rank; None below three rows or where one side is constant."""
    if len(left) < 3:
        return None
    first, second = _ranks(left), _ranks(right)
    if first.std() == 0 or second.std() == 0:
        return None
    return float(np.clip(np.corrcoef(first, second)[0, 1], -1.0, 1.0))


def _ranks(values: Array) -> Array:
    """Ranks from 0, the mean rank for equal values."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    means = last - (counts + 1) / 2.0
    found: Array = means[inverse]
    return found
