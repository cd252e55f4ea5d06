"""Weights of registers and code, fitted on compiled kernels. Written by benchmarks/fit_resources.py.

Compiler: CUDA 13.5 (NVVM, nvJitLink), Numba CUDA 0.30, sm_80 and sm_90.
"""

from collections.abc import Mapping

from fusesolve.cost.gpu.features import Fit

FITTED: Mapping[str, Fit] = {
    "point_registers": Fit(
        knee=47.42, rows=354, error=0.095,
        weights={
            "one": 6.781, "arrays": -0.564, "live": 1.308, "scratch": 2.845, "newer": 2.563,
            "called": -8.345, "branches": -2.4, "window": 15.656, "parts": 0.543, "free": -3.372,
            "doubled": 3.187, "doubled_wide": 0.363, "eight": 4.119, "eight_wide": -2.559, "newer_free": -1.725,
            "newer_doubled": 0.053, "reads": 0.515, "doubled_bound": 3.83, "staged": 6.231,
        },
    ),
    "point_code": Fit(
        knee=None, rows=354, error=0.098,
        weights={
            "one": 212.92, "body": 15.16, "once": 16.48, "moved": 3.08, "row_reads": 2.99,
            "arrays": 47.98, "parts": 28.68, "narrow": 15.99, "ends": 31.25, "staged": 197.95,
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
        knee=None, rows=44, error=0.059,
        weights={
            "one": 71.244, "points": 0.192, "side": 3.915, "behind": -2.492, "scratch": 0.309,
            "newer": 5.66, "parts": -2.046, "split": 1.24, "in_front": -11.762, "strips": -4.55,
            "rows": 7.506,
        },
    ),
    "fma_code": Fit(
        knee=None, rows=44, error=0.103,
        weights={
            "one": 2420.32, "points": 68.68, "behind": 18.38, "loads": 62.23, "strips": 300.56,
            "points_parts": 4.21, "parts": 130.58, "split": 1616.88,
        },
    ),
    "tensor_registers": Fit(
        knee=None, rows=130, error=0.019,
        weights={
            "one": 50.045, "points": 0.434, "side": 6.219, "behind": 1.111, "scratch": 0.26,
            "newer": 0.019, "parts": 0.17, "split": 1.142, "in_front": -0.816, "strips": -0.7,
            "few": -2.942, "rows": -1.009,
        },
    ),
    "tensor_code": Fit(
        knee=None, rows=130, error=0.052,
        weights={
            "one": 4274.72, "points": 82.25, "behind": 0.43, "loads": 3.35, "strips": 224.25,
            "strips_parts": 33.38, "in_front": 491.91, "parts": 158.02, "split": 340.85, "called": 11.58,
        },
    ),
    "attention_registers": Fit(
        knee=None, rows=18, error=0.022,
        weights={
            "one": 23.199, "result": 0.463, "scores": -0.35, "head": 0.937, "scratch": 4.639,
            "live": -0.454, "newer": 8.034, "parts": -0.629, "split": -6.912,
        },
    ),
    "attention_code": Fit(
        knee=None, rows=18, error=0.042,
        weights={
            "head": 108.08, "once": 183.98,
        },
    ),
    "flash_registers": Fit(
        knee=None, rows=36, error=0.034,
        weights={
            "one": 20.05, "head": 0.08, "held": 0.259, "wide": 0.714, "scores": -0.99,
            "both": 1.571, "newer": 3.253, "live": 7.582, "parts": -5.018, "ends": -9.676,
            "joined": 12.574, "split": -1.248,
        },
    ),
    "flash_code": Fit(
        knee=None, rows=36, error=0.028,
        weights={
            "head": 18.01, "inner": 11.15, "products": 18.54, "between": 1.54, "loads": 6.15,
            "parts": 603.62, "once": 70.46, "ends": 56.38, "joined": 3562.44, "in_front": 1239.39,
        },
    ),
}
