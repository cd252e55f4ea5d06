"""Weights of registers and code, fitted on compiled kernels. Written by benchmarks/fit_resources.py.

Compiler: CUDA 13.5 (NVVM, nvJitLink), Numba CUDA 0.30, sm_80 and sm_90.
"""

from collections.abc import Mapping

from fusesolve.cost.gpu.features import Fit
from fusesolve.cost.gpu.gemm_features import TileTable

FITTED: Mapping[str, Fit] = {
    "point_registers": Fit(
        knee=37.04, rows=78, error=0.054,
        weights={
            "one": 5.69, "arrays": 3.054, "live": -1.355, "scratch": 1.343, "newer": -0.683,
            "called": 0.461, "branches": -0.09, "window": 6.143, "window_called": 4.383, "window_branch": 7.988,
            "window_two": 6.44, "parts": 0.091, "free": 1.122, "doubled": 0.34, "doubled_wide": 0.34,
            "eight": 1.47, "eight_wide": 1.47, "reads": 0.797, "doubled_bound": 0.351,
        },
    ),
    "point_code": Fit(
        knee=None, rows=78, error=0.090,
        weights={
            "one": 182.83, "body": 10.58, "once": 20.86, "moved": 13.27, "arrays": 52.11,
            "parts_each": 0.83, "ends": 4.73, "windows": 236.82, "looped": 31.46, "branches": 73.58,
            "window_branch": 56.7,
        },
    ),
    "row_registers": Fit(
        knee=34.79, rows=59, error=0.048,
        weights={
            "one": 15.784, "held": 11.229, "arrays": 0.357, "live": 0.767, "live_held": -0.469,
            "scratch": 1.121, "newer": 0.583, "apart": 1.147, "apart_held": -3.507, "parts": 2.874,
            "folds": 4.163, "split": 1.305, "warp": -0.295, "passes": -3.788, "strip": -9.838,
            "kept": 0.758, "kept_ends": -0.535, "alone": 2.575, "alone_held": -4.697, "flight": 1.358,
            "window": 20.212, "window_flight": -3.426, "shared": 1.046,
        },
    ),
    "row_code": Fit(
        knee=None, rows=59, error=0.105,
        weights={
            "held": 2124.62, "body_held": 0.19, "body": 22.75, "body_once": 5.58, "once": 11.69,
            "moved": 99.64, "arrays": 93.64, "row_reads": 57.93, "folds_wide": 660.14, "parts_each": 0.52,
            "ends": 576.48, "windows": 2137.59, "looped": 0.64,
        },
    ),
    "fma_registers": Fit(
        knee=None, rows=212, error=0.020,
        weights={
            "tile": 1.011, "part": 47.58, "points": 1.313, "sides": -1.117, "loads": -0.669,
            "newer": -3.522, "split": 2.281, "scratch": 3.244, "behind": 1.562, "in_front": 3.667,
            "parts": -0.344, "parts_part": -0.574, "short_part": -10.178, "called": -11.479, "families": 11.118,
        },
    ),
    "fma_code": Fit(
        knee=None, rows=212, error=0.137,
        weights={
            "one": 2622.79, "points": 57.01, "sides": 222.86, "strips": 1.81, "behind": 20.41,
            "loads": 19.69, "parts": 216.63,
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

# Registers of a bare product and of a bare convolution in f32 by tile.
TILES: TileTable = {
    (8, 64): (56.9, 65.8), (8, 128): (56.9, 50.4), (16, 32): (48.7, 51.0),
    (16, 64): (82.1, 71.1), (16, 128): (93.1, 85.8), (32, 16): (56.9, 55.6),
    (32, 32): (64.5, 71.7), (32, 64): (120.8, 96.1), (32, 128): (112.0, 101.5),
    (64, 8): (64.5, 64.0), (64, 16): (80.6, 53.0), (64, 32): (96.3, 115.3),
    (64, 64): (127.8, 125.3), (64, 96): (121.5, 128.5), (64, 128): (96.7, 121.3),
    (64, 192): (119.9, 120.0), (64, 256): (96.3, 110.1), (96, 64): (120.4, 125.7),
    (96, 128): (117.9, 120.9), (128, 8): (49.1, 48.0), (128, 16): (94.3, 88.8),
    (128, 32): (96.6, 91.0), (128, 64): (122.9, 121.9), (128, 96): (121.5, 122.0),
    (128, 128): (96.3, 109.7), (128, 160): (127.8, 128.0), (128, 192): (127.8, 140.8),
    (128, 224): (162.2, 154.6), (128, 256): (167.1, 166.8), (160, 128): (120.9, 121.0),
    (192, 64): (121.4, 123.7), (192, 128): (127.8, 128.0), (192, 192): (211.4, 213.0),
    (224, 128): (146.5, 147.0), (256, 64): (108.1, 115.9), (256, 128): (163.6, 131.9),
}
