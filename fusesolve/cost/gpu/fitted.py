"""Weights of registers and code, fitted on compiled kernels. Written by benchmarks/fit_resources.py.

Compiler: CUDA 13.5 (NVVM, nvJitLink), Numba CUDA 0.30, sm_80 and sm_90.
"""

from collections.abc import Mapping

from fusesolve.cost.gpu.features import Fit
from fusesolve.cost.gpu.gemm_features import TileTable

FITTED: Mapping[str, Fit] = {
    "point_registers": Fit(
        knee=35.68, rows=93, error=0.078,
        weights={
            "one": 5.997, "arrays": 2.846, "live": -1.353, "scratch": 1.406, "newer": 0.012,
            "called": 0.313, "branches": 1.063, "window": 6.887, "window_called": 3.061, "window_branch": 5.393,
            "window_two": 5.653, "parts": -0.018, "free": 0.632, "doubled": -0.026, "doubled_wide": 1.214,
            "eight": 1.519, "eight_wide": 1.519, "reads": 0.628, "doubled_bound": 0.734,
        },
    ),
    "point_code": Fit(
        knee=None, rows=93, error=0.106,
        weights={
            "one": 152.38, "body": 6.34, "once": 24.75, "moved": 14.51, "arrays": 67.04,
            "parts": 9.74, "ends": 9.05, "windows": 238.4, "looped": 30.92, "branches": 39.53,
            "window_branch": 76.3,
        },
    ),
    "row_registers": Fit(
        knee=35.94, rows=81, error=0.071,
        weights={
            "one": 17.838, "held": 8.921, "arrays": 1.158, "live": 0.532, "live_held": -1.422,
            "scratch": 1.28, "newer": 1.053, "apart": -0.484, "apart_held": -4.513, "parts": 2.864,
            "folds": 3.371, "split": 1.807, "warp": 1.51, "passes": -3.068, "strip": -10.658,
            "kept": 0.832, "kept_ends": -0.505, "alone": -0.634, "alone_held": -5.205, "flight": 0.505,
            "window": 18.773, "window_flight": -2.6, "shared": 1.078,
        },
    ),
    "row_code": Fit(
        knee=None, rows=81, error=0.136,
        weights={
            "held": 1211.99, "body_held": 5.57, "body": 14.76, "once": 7.37, "moved": 90.35,
            "arrays": 93.69, "row_reads": 70.03, "folds": 701.34, "folds_wide": 383.79, "parts_each": 13.16,
            "narrow": 32.21, "ends": 499.45, "windows": 920.3, "looped": 30.07,
        },
    ),
    "fma_registers": Fit(
        knee=None, rows=248, error=0.021,
        weights={
            "tile": 1.006, "part": 47.977, "points": 1.383, "sides": -1.244, "loads": -0.669,
            "newer": -2.663, "split": 1.78, "scratch": 3.406, "behind": 1.507, "in_front": 2.241,
            "parts": -0.095, "parts_part": -0.645, "short_part": -10.317, "called": -11.304, "families": 13.451,
        },
    ),
    "fma_code": Fit(
        knee=None, rows=248, error=0.127,
        weights={
            "one": 2598.82, "points": 51.33, "sides": 248.6, "behind": 20.42, "loads": 18.06,
            "parts": 221.36,
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
    (8, 64): (56.4, 65.9), (8, 128): (56.4, 49.0), (16, 32): (48.3, 53.0),
    (16, 64): (81.3, 75.8), (16, 128): (93.2, 91.2), (32, 16): (56.4, 49.4),
    (32, 32): (64.2, 73.2), (32, 64): (119.7, 92.5), (32, 128): (112.1, 102.0),
    (64, 8): (64.2, 33.1), (64, 16): (80.3, 54.0), (64, 32): (96.2, 109.9),
    (64, 64): (128.0, 126.1), (64, 96): (121.9, 126.0), (64, 128): (96.4, 122.3),
    (64, 192): (120.1, 94.0), (64, 256): (96.2, 101.7), (96, 64): (120.6, 126.2),
    (96, 128): (118.1, 119.2), (128, 8): (48.4, 57.0), (128, 16): (94.2, 90.9),
    (128, 32): (96.3, 92.1), (128, 64): (123.1, 109.8), (128, 96): (121.9, 118.7),
    (128, 128): (96.2, 110.7), (128, 160): (128.0, 96.0), (128, 192): (128.0, 137.9),
    (128, 224): (162.9, 137.1), (128, 256): (167.8, 156.3), (160, 128): (121.1, 128.7),
    (192, 64): (121.6, 123.4), (192, 128): (128.0, 160.6), (192, 192): (212.6, 168.0),
    (224, 128): (147.0, 162.6), (256, 64): (108.1, 114.6), (256, 128): (164.1, 147.4),
}
