"""Studies: measured tables against the simulator, and the calibration of profiles on them."""

from fusesolve.study.accuracy import Accuracy, Part, measure_accuracy
from fusesolve.study.calibration import Calibration, calibrate

__all__ = ["Accuracy", "Calibration", "Part", "calibrate", "measure_accuracy"]
