"""Weights of registers and code, fitted on compiled kernels. Written by benchmarks/fit_resources.py.

Compiler: CUDA 13.5 (NVVM, nvJitLink), Numba CUDA 0.30, sm_80 and sm_90.
"""

from collections.abc import Mapping

from fusesolve.cost.gpu.features import Fit
from fusesolve.cost.gpu.gemm_features import TileTable

FITTED: Mapping[str, Fit] = {
    "point_registers": Fit(
        knee=36.87, rows=165, error=0.077,
        weights={
            "one": 5.001, "arrays": 2.906, "live": -0.94, "scratch": 1.511, "newer": 0.557,
            "called": 3.154, "branches": 2.929, "window": 4.906, "window_called": 2.205, "window_branch": 5.685,
            "window_two": 5.939, "parts": -0.716, "free": -0.455, "doubled": 2.244, "doubled_wide": -0.009,
            "eight": 2.467, "eight_wide": -0.018, "reads": 0.455, "doubled_bound": -0.282,
        },
    ),
    "point_code": Fit(
        knee=None, rows=165, error=0.096,
        weights={
            "one": 163.93, "body": 10.02, "once": 20.91, "moved": 10.39, "arrays": 68.57,
            "parts": 1.03, "narrow": 2.94, "ends": 6.4, "windows": 193.33, "looped": 28.5,
            "branches": 29.22, "window_branch": 95.1,
        },
    ),
    "row_registers": Fit(
        knee=39.53, rows=186, error=0.055,
        weights={
            "one": 17.775, "held": -2.929, "arrays": -0.586, "live": 3.12, "live_held": 2.381,
            "scratch": 0.468, "newer": 1.538, "apart": 0.352, "apart_held": 0.655, "parts": 4.308,
            "folds": 4.015, "split": 2.773, "warp": 3.685, "passes": -4.384, "strip": -14.149,
            "kept": 0.994, "kept_ends": 0.08, "alone": 0.21, "alone_held": -6.643, "flight": 0.249,
            "window": 14.004, "window_flight": 0.183, "shared": 3.075,
        },
    ),
    "row_code": Fit(
        knee=None, rows=186, error=0.122,
        weights={
            "held": 945.23, "body_held": 8.49, "body": 13.6, "once": 5.23, "moved": 96.9,
            "row_reads": 87.94, "folds": 961.16, "folds_wide": 326.26, "parts": 128.22, "narrow": 22.2,
            "ends": 511.89, "ends_held": 57.76, "split": 286.52, "windows": 2403.6, "looped": 14.65,
        },
    ),
    "fma_registers": Fit(
        knee=None, rows=248, error=0.017,
        weights={
            "tile": 0.988, "part": 41.123, "points": 1.392, "sides": -1.161, "loads": -0.238,
            "newer": -1.997, "split": 3.354, "scratch": 4.868, "behind": 1.859, "in_front": 2.103,
            "parts": -0.261, "parts_part": -0.765, "short_part": -9.493, "called": -17.518, "families": 13.57,
        },
    ),
    "fma_code": Fit(
        knee=None, rows=248, error=0.110,
        weights={
            "one": 2632.63, "points": 58.87, "sides": 213.39, "strips": 6.63, "behind": 20.17,
            "loads": 6.13, "points_parts": 0.82, "parts": 209.69,
        },
    ),
    "tensor_registers": Fit(
        knee=None, rows=54, error=0.011,
        weights={
            "one": 12.178, "points": 0.406, "side": 11.329, "behind": -0.272, "scratch": -1.459,
            "newer": 2.092, "parts": 0.264, "split": 0.306, "in_front": -3.692, "strips": -0.78,
            "few": 19.381, "rows": -1.025,
        },
    ),
    "tensor_code": Fit(
        knee=None, rows=54, error=0.034,
        weights={
            "one": 3421.08, "points": 86.61, "behind": 0.02, "once": 43.08, "strips": 637.47,
            "in_front": 193.2, "narrow": 0.86, "parts": 281.4,
        },
    ),
    "attention_registers": Fit(
        knee=None, rows=61, error=0.023,
        weights={
            "one": 31.463, "result": 0.053, "scores": -0.045, "head": 0.793, "live": 5.0,
            "newer": 0.747, "parts": 7.17, "split": 0.243,
        },
    ),
    "attention_code": Fit(
        knee=None, rows=61, error=0.068,
        weights={
            "head": 183.44, "scores": 3.07, "body": 120.05, "once": 55.88,
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
    (8, 64): (56.1, 67.8), (8, 128): (56.1, 49.1), (16, 32): (47.6, 52.2),
    (16, 64): (81.5, 76.4), (16, 128): (92.8, 86.6), (32, 16): (56.1, 59.6),
    (32, 32): (63.6, 74.4), (32, 64): (120.7, 93.4), (32, 128): (112.3, 101.9),
    (64, 8): (63.6, 33.7), (64, 16): (63.8, 53.8), (64, 32): (96.2, 123.7),
    (64, 64): (128.3, 129.4), (64, 96): (121.8, 128.4), (64, 128): (119.2, 123.3),
    (64, 192): (120.3, 94.0), (64, 256): (96.2, 102.1), (96, 64): (120.8, 127.4),
    (96, 128): (118.3, 120.4), (128, 8): (48.1, 57.7), (128, 16): (94.2, 90.8),
    (128, 32): (96.8, 89.5), (128, 64): (123.3, 110.8), (128, 96): (121.7, 119.8),
    (128, 128): (96.2, 111.6), (128, 160): (128.3, 96.0), (128, 192): (128.3, 138.5),
    (128, 224): (163.4, 137.2), (128, 256): (168.4, 157.0), (160, 128): (121.3, 129.8),
    (192, 64): (121.8, 108.6), (192, 128): (128.3, 161.9), (192, 192): (213.5, 168.0),
    (224, 128): (147.3, 163.9), (256, 64): (108.3, 115.7), (256, 128): (165.1, 148.0),
}
