"""Measured pairs of fused and unfused execution, and how well their ratio is predicted."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fusesolve.metrics import spearman

CLEAR = 1.10  # a measured gain above this is no noise: the winner must be right
WORST = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One program on one device and host; seconds, measured and predicted, unfused and fused.

    `planned`: predicted seconds of fusesolve's own plan under the same timing, None where there is no graph. ValueError
    where a measured time is not above 0.
    """

    label: str
    unfused: float
    fused: float
    predicted_unfused: float
    predicted_fused: float
    planned: float | None = None

    def __post_init__(self) -> None:
        if not (self.unfused > 0 and self.fused > 0):
            raise ValueError(f"{self.label}: a measured time must be above 0")

    @property
    def gain(self) -> float:
        """Measured speed-up of fused over unfused."""
        return self.unfused / self.fused

    @property
    def predicted_gain(self) -> float:
        """Predicted speed-up of fused over unfused."""
        return self.predicted_unfused / self.predicted_fused


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """How well the gain of `n` programs is predicted; errors as ratios.

    `spearman`: rank correlation of predicted and measured gain (None where undefined). `median_ape`: of the fused
    time, `unfused_median_ape` of the unfused time, `gain_median_ape` of their ratio. `winner_right`: share of the
    `clear` programs (measured gain above 1.10) whose predicted gain is above 1, None where there are none;
    `losers_right`: share of the `losers` (measured gain below 1 / 1.10) predicted to lose. `gain`: median of measured
    gains, `predicted_gain` of predicted ones, `planned_gain` of those of fusesolve's own plans.
    """

    file: str
    device: str
    host: str | None
    profile: str
    split: str
    n: int
    spearman: float | None
    median_ape: float
    unfused_median_ape: float
    gain_median_ape: float
    winner_right: float | None
    clear: int
    losers_right: float | None
    losers: int
    gain: float
    predicted_gain: float
    planned_gain: float | None
    worst: tuple[Case, ...]

    def to_dict(self) -> dict[str, Any]:
        """As plain data; times of the worst programs in us."""
        document = asdict(self)
        document["worst"] = [
            {
                "row": case.label, "gain": case.gain, "predicted_gain": case.predicted_gain,
                "unfused_us": case.unfused * 1e6, "predicted_unfused_us": case.predicted_unfused * 1e6,
                "fused_us": case.fused * 1e6, "predicted_fused_us": case.predicted_fused * 1e6,
            }
            for case in self.worst
        ]  # fmt: skip
        return document


def measure_gain(cases: Sequence[Case], *, file: str, device: str, host: str | None, profile: str, split: str) -> Gain:
    """The gain row of at least one case."""
    measured = np.array([case.gain for case in cases])
    predicted = np.array([case.predicted_gain for case in cases])
    planned = [case.predicted_unfused / case.planned for case in cases if case.planned]
    clear, losing = measured > CLEAR, measured < 1 / CLEAR
    order = np.argsort(-np.abs(np.log(predicted / measured)), kind="stable")[:WORST]
    return Gain(
        file=file, device=device, host=host, profile=profile, split=split, n=len(cases),
        spearman=spearman(predicted, measured),
        median_ape=_median_error([(case.predicted_fused, case.fused) for case in cases]),
        unfused_median_ape=_median_error([(case.predicted_unfused, case.unfused) for case in cases]),
        gain_median_ape=_median_error([(case.predicted_gain, case.gain) for case in cases]),
        winner_right=_share(predicted[clear] > 1.0), clear=int(clear.sum()),
        losers_right=_share(predicted[losing] < 1.0), losers=int(losing.sum()),
        gain=float(np.median(measured)), predicted_gain=float(np.median(predicted)),
        planned_gain=float(np.median(planned)) if planned else None, worst=tuple(cases[i] for i in order),
    )  # fmt: skip


def _median_error(pairs: Sequence[tuple[float, float]]) -> float:
    return float(np.median([abs(predicted / measured - 1.0) for predicted, measured in pairs]))


def _share(flags: np.ndarray) -> float | None:
    return float(flags.mean()) if flags.size else None
