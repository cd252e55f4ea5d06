"""Weights of registers and code, fitted on compiled kernels. Written by benchmarks/fit_resources.py.

Compiler: CUDA 13.5 (NVVM, nvJitLink), Numba CUDA 0.30, sm_80 and sm_90.
"""

from collections.abc import Mapping

from fusesolve.cost.gpu.features import Fit
from fusesolve.cost.gpu.gemm_features import TileTable

FITTED: Mapping[str, Fit] = {
    "point_registers": Fit(
        knee=41.77, rows=297, error=0.052,
        weights={
            "one": 4.062, "arrays": 2.034, "scratch": 0.948, "newer": 0.805,
            "called": 6.542, "branches": -1.509, "branches_whole": 3.521, "rolled": -5.818,
            "window": 17.052, "window_called": -8.908, "window_full": -1.39, "window_short": -4.163,
            "window_long": -6.292, "windows": 13.8, "window_moved": -3.275, "doubled_wide": 0.82,
            "eight": 5.002, "eight_wide": -2.391, "reads": 0.942, "doubled_bound": 2.21,
            "staged": -3.09,
        },
    ),
    "point_code": Fit(
        knee=None, rows=297, error=0.110,
        weights={
            "body": 9.44, "once": 19.11, "moved": 12.85, "arrays": 132.26,
            "parts": 22.96, "narrow": 5.62, "ends": 13.26, "staged": 229.01,
            "windows": 202.43, "looped": 30.6, "window_moved": 428.39, "branches": 20.3,
            "branches_ends": 42.37, "window_branch": 68.11,
        },
    ),
    "row_registers": Fit(
        knee=41.06, rows=180, error=0.052,
        weights={
            "one": 18.94, "held": -4.084, "arrays": -0.571, "live": 3.202,
            "live_held": 2.459, "scratch": 0.375, "newer": 0.01, "apart": 3.669,
            "apart_held": -7.425, "parts": 4.198, "folds": 1.456, "split": 7.331,
            "warp": -0.085, "passes": -3.13, "strip": 2.328, "kept": 1.316,
            "kept_ends": 2.036, "alone": -17.237, "alone_held": 6.105, "flight": 0.556,
            "window": 1.996, "window_flight": 3.119, "shared": 1.011,
        },
    ),
    "row_code": Fit(
        knee=None, rows=180, error=0.060,
        weights={
            "held": 578.31, "body": 1.86, "once": 0.09, "moved": 100.2,
            "row_reads": 186.41, "folds": 1215.99, "folds_wide": 512.62, "parts_each": 12.52,
            "narrow": 22.26, "ends": 358.66, "ends_held": 362.59, "windows": 1238.47,
            "looped": 36.93,
        },
    ),
    "fma_registers": Fit(
        knee=None, rows=715, error=0.032,
        weights={
            "tile": 0.981, "part": 42.922, "points": 1.755, "sides": -2.18,
            "loads": -0.141, "newer": -2.349, "split": 3.251, "scratch": 0.969,
            "behind": 2.055, "in_front": 0.557, "parts": 0.117, "parts_part": -0.558,
            "short": -12.194, "short_part": -8.915, "called": -1.011, "families": 16.657,
        },
    ),
    "fma_code": Fit(
        knee=None, rows=715, error=0.120,
        weights={
            "one": 2742.03, "points": 71.75, "sides": 171.84, "behind": 20.05,
            "loads": 9.99, "parts": 245.82, "side_work": 12.01,
        },
    ),
    "tensor_registers": Fit(
        knee=None, rows=90, error=0.010,
        weights={
            "one": -11.519, "points": 0.267, "side": 15.011, "behind": -0.925,
            "scratch": -0.402, "newer": -0.876, "parts": -0.112, "split": 0.839,
            "in_front": -1.508, "strips": 0.843, "few": 1.529, "rows": 1.019,
        },
    ),
    "tensor_code": Fit(
        knee=None, rows=90, error=0.067,
        weights={
            "one": 4651.6, "points": 56.38, "behind": 0.26, "once": 43.21,
            "strips": 144.51, "points_parts": 1.53, "in_front": 467.19, "narrow": 19.12,
            "parts": 150.23, "split": 293.53,
        },
    ),
    "attention_registers": Fit(
        knee=None, rows=61, error=0.023,
        weights={
            "one": 31.463, "result": 0.053, "scores": -0.045, "head": 0.793,
            "live": 5.0, "newer": 0.747, "parts": 7.17, "split": 0.243,
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
            "one": 20.05, "head": 0.08, "held": 0.259, "wide": 0.714,
            "scores": -0.99, "both": 1.571, "newer": 3.253, "live": 7.582,
            "parts": -5.018, "ends": -9.676, "joined": 12.574, "split": -1.248,
        },
    ),
    "flash_code": Fit(
        knee=None, rows=36, error=0.028,
        weights={
            "head": 18.01, "inner": 11.15, "products": 18.54, "between": 1.54,
            "loads": 6.15, "parts": 603.62, "once": 70.46, "ends": 56.38,
            "joined": 3562.44, "in_front": 1239.39,
        },
    ),
}

# Registers of a bare product and of a bare convolution in f32 by tile.
TILES: TileTable = {
    (8, 64): (56.6, 65.1), (8, 128): (56.6, 47.7), (16, 32): (47.9, 52.5),
    (16, 64): (83.4, 93.4), (16, 128): (93.7, 90.4), (32, 16): (56.6, 56.2),
    (32, 32): (64.1, 77.0), (32, 64): (124.2, 93.9), (32, 128): (113.4, 96.5),
    (64, 8): (64.1, 32.6), (64, 16): (64.4, 55.8), (64, 32): (89.0, 96.9),
    (64, 64): (126.0, 125.3), (64, 96): (123.2, 124.7), (64, 128): (120.6, 124.4),
    (64, 192): (121.5, 94.0), (64, 256): (97.2, 119.7), (96, 64): (122.0, 126.7),
    (96, 128): (119.5, 118.6), (128, 8): (48.4, 48.0), (128, 16): (95.1, 92.4),
    (128, 32): (97.8, 93.8), (128, 64): (124.6, 116.2), (128, 96): (123.1, 119.6),
    (128, 128): (97.2, 114.0), (128, 160): (129.6, 96.0), (128, 192): (129.6, 138.5),
    (128, 224): (165.2, 136.9), (128, 256): (170.3, 157.6), (160, 128): (122.5, 129.8),
    (192, 64): (123.0, 106.5), (192, 128): (129.6, 162.2), (192, 192): (216.0, 168.0),
    (224, 128): (149.0, 164.2), (256, 64): (109.4, 114.9), (256, 128): (167.0, 148.5),
}
