"""Studies: measured tables against the simulator, and the calibration of profiles on them."""

from fusesolve.study.accuracy import Accuracy, Part, measure_accuracy

__all__ = ["Accuracy", "Part", "measure_accuracy"]
