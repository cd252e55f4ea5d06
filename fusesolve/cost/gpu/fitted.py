"""Weights of registers and code, fitted on compiled kernels. Written by benchmarks/fit_resources.py.

Compiler: CUDA 13.5 (NVVM, nvJitLink), Numba CUDA 0.30, sm_80 and sm_90.
"""

from collections.abc import Mapping

from fusesolve.cost.gpu.features import Fit

FITTED: Mapping[str, Fit] = {
    "point_registers": Fit(
        knee=38.44, rows=327, error=0.084,
        weights={
            "one": 7.966, "arrays": -0.649, "live": 1.318, "scratch": 0.349, "newer": 3.266,
            "called": -2.156, "branches": 1.767, "window": 19.895, "parts": 0.162, "free": 3.338,
            "doubled": 1.749, "doubled_wide": 1.644, "eight": -1.599, "eight_wide": -2.397, "newer_free": -2.869,
            "newer_doubled": 1.564, "reads": 0.311, "doubled_bound": 2.474,
        },
    ),
    "point_code": Fit(
        knee=None, rows=327, error=0.107,
        weights={
            "one": 213.07, "body": 16.51, "once": 14.46, "moved": 40.05, "row_reads": 63.09,
            "arrays": 36.98, "parts": 12.87, "parts_each": 11.1, "narrow": 19.5,
        },
    ),
    "row_registers": Fit(
        knee=37.47, rows=174, error=0.058,
        weights={
            "one": 27.007, "held": -4.281, "arrays": -0.822, "live": 1.74, "live_held": 1.652,
            "scratch": 0.184, "scratch_held": -1.74, "newer": 0.381, "apart": 0.837, "apart_held": 16.202,
            "parts": 0.768, "folds": -1.384, "split": 0.213, "warp": 0.89, "warp_held": 1.677,
            "passes": -2.427, "strip": -3.389, "kept": 0.938, "kept_few": 0.004, "kept_ends": 6.656,
            "several": -1.768, "flight": 0.055, "shared": 0.265,
        },
    ),
    "row_code": Fit(
        knee=None, rows=174, error=0.128,
        weights={
            "body_held": 0.78, "body_once": 30.13, "once": 10.33, "moved": 87.52, "moved_held": 18.99,
            "arrays": 48.12, "row_reads": 47.98, "folds": 1516.81, "parts": 74.79, "parts_each": 557.13,
            "narrow": 19.61, "ends": 892.32, "ends_held": 637.86, "split": 260.1,
        },
    ),
    "fma_registers": Fit(
        knee=None, rows=0, error=0.000,
        weights={
            "one": 16.0, "points": 1.0, "side": 2.0, "behind": 1.0, "scratch": 0.5,
        },
    ),
    "fma_code": Fit(
        knee=None, rows=0, error=0.000,
        weights={
            "one": 3000.0, "points": 110.0, "behind": 16.5, "loads": 18.7,
        },
    ),
    "tensor_registers": Fit(
        knee=None, rows=110, error=0.018,
        weights={
            "one": 52.167, "points": 0.525, "side": 5.338, "behind": 0.995, "scratch": 0.08,
            "newer": -0.353, "parts": 0.156, "split": 0.142, "double": -1906.547, "in_front": -1.386,
            "strips": -1.07, "few": -2.038, "rows": -0.832,
        },
    ),
    "tensor_code": Fit(
        knee=None, rows=110, error=0.049,
        weights={
            "one": 4528.58, "points": 83.54, "behind": 0.27, "loads": 3.05, "strips": 85.54,
            "strips_parts": 40.7, "in_front": 201.88, "parts": 160.25, "split": 286.19,
        },
    ),
    "attention_registers": Fit(
        knee=None, rows=12, error=0.012,
        weights={
            "one": 13.464, "result": 0.47, "scores": -0.284, "head": 0.996, "scratch": 2.693,
            "live": 1.775, "newer": 9.391, "parts": -0.201, "split": -7.227,
        },
    ),
    "attention_code": Fit(
        knee=None, rows=12, error=0.029,
        weights={
            "inner": 212.29, "parts": 143.49, "once": 121.66,
        },
    ),
}
