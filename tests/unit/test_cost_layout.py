"""Shared memory of generated kernels, and how features become registers and code."""

import numpy as np
import pytest

from fusesolve.candidates.loops import build_nest
from fusesolve.candidates.program import build_program
from fusesolve.candidates.space import inspect_group
from fusesolve.cost.gpu.features import Fit, plateau
from fusesolve.cost.gpu.fitted import FITTED
from fusesolve.cost.gpu.gemm_features import bounded, fma_share, tile_registers
from fusesolve.cost.gpu.layout import (
    attention_bytes,
    flash_bytes,
    flash_keys,
    fold_bytes,
    gemm_bytes,
    thread_grid,
    thread_grids,
)
from fusesolve.group import FusionGroup
from tests.cudasim.graphs import native_graph


def column(*values):
    return np.array([values], dtype=np.float64)


def test_folds_share_memory_only_beyond_a_warp():
    """Two f32 folds: 8 bytes a warp. 256 lanes are 8 warps, 32 lanes one; a tree has 12 bytes a thread (argmax)."""
    found = fold_bytes(column(256, 32, 64), column(256, 128, 128), column(8, 8, 8), column(0, 0, 12))
    assert found.tolist() == [[8 * 8, 0, 4 * 8 + 128 * 12]]
    assert fold_bytes(column(1), column(128), column(0), column(4)).tolist() == [[0]]  # one lane: nothing to join


def test_strips_of_a_contraction_and_of_attention():
    assert gemm_bytes(128, 128, 64, 3, 2) == 3 * 256 * 64 * 2  # 96 KiB: three stages of both strips
    assert gemm_bytes(64, 32, 8, 2, 4) == 6144
    assert attention_bytes(64, 128, 40, 80, 2) == 2 * (64 * 40 + 128 * 120)
    sizes = [column(128, 64, 16), column(128, 32, 64), column(40), column(80)]
    operands = [2 * (128 * 48 + 128 * 128), 2 * (64 * 48 + 32 * 128), 2 * (16 * 48 + 64 * 128)]  # rows of 48 and 80
    results = [4 * 128 * 82, 4 * 64 * 82, 4 * 64 * 82]  # four warps at least, a maximum and a sum a row
    assert flash_bytes(*sizes).tolist() == [[max(pair) for pair in zip(operands, results, strict=True)]]
    assert flash_keys(column(128, 64, 32, 16, 16), column(128, 32, 64, 64, 128)).tolist() == [[32, 16, 16, 16, 16]]


def test_demand_is_bent_at_the_plateau():
    assert plateau(column(20.0, 33.0, 40.0, 50.0), 40.0).tolist() == [[20.0, 32.0, 32.0, 42.0]]
    fit = Fit(weights={"a": 2.0, "b": 0.5}, knee=40.0, rows=1, error=0.0)
    assert fit.of({"a": column(25.0), "b": column(4.0), "c": column(9.0)}).tolist() == [[44.0]]  # 52


def test_every_family_has_weights_fitted_on_compiled_kernels():
    assert {name.rsplit("_", 1)[1] for name in FITTED} == {"registers", "code"}
    assert all(item.rows >= 10 for item in FITTED.values())


def test_a_tile_has_a_grid_of_threads_and_the_registers_of_its_kind():
    """16 x 64 points over 32 threads: 2 down and 16 across have 8 x 4 points each; joined columns divide too."""
    assert thread_grid(64, 64, 1) == (8, 8) and thread_grid(16, 64, 1) == (2, 16)
    down, across = thread_grids(column(64, 16, 8), column(64, 64, 9), np.array([[1.0], [2.0]]))
    assert down.tolist() == [[8, 2, 8], [8, 2, 8]]  # nothing divides 8 x 9: such a tile has no source
    assert across.tolist() == [[8, 16, 1]] * 2
    table = {(64, 64): (128.0, 96.0)}
    found = tile_registers(
        {"index_parts": np.array([[0.0], [6.0]])}, {"tile_m": column(64, 32), "tile_n": column(64, 8)}, table
    )
    assert found.tolist() == [[128, 110], [96, 110]]


def test_points_outside_a_matrix_are_no_instructions_of_its_tile():
    """64 x 64 over 8 x 8 threads, 8 x 8 points each: a matrix of 20 columns has 3 of a thread's, one row has one."""
    tile = {"tile_m": column(64), "tile_n": column(64), "split": column(1)}
    names = {"parts": 1.0, "joined": 1.0, "once": 0.0, "k": 64.0}
    sizes = [(256.0, 256.0), (256.0, 20.0), (1.0, 256.0)]
    w = {name: np.full((3, 1), value) for name, value in names.items()}
    w |= {"m": np.array([[m] for m, _ in sizes]), "n": np.array([[n] for _, n in sizes])}
    share = fma_share(w, tile)
    assert share.points.tolist() == [[64], [24], [8]]
    assert share.whole.tolist() == [[1], [0], [0]]
    assert share.loads.tolist() == [[16], [16], [16]]
    w |= {"sum_bytes": np.full((3, 1), 4.0), "instructions": np.array([[0.0], [20.0], [0.0]])}
    assert bounded(column(50.0).T, w, share).tolist() == [[96], [72], [56]]  # 64 + 32; 24 + 32 + 9; 50


def workload_of(inputs: str, *ops: str):
    graph = native_graph(inputs, *ops)
    program = build_program(graph)
    found = inspect_group(program, build_nest(program, tuple(range(len(program.operators)))))
    assert isinstance(found, FusionGroup)
    return found.workload


@pytest.mark.parametrize(
    ("inputs", "ops", "wanted"),
    [
        ("x: f32[8,64]", ["s = softmax(x; axis=1)"], {"fold_bytes": 8, "tree_bytes": 0, "held_loads": 1}),
        ("x: f64[8,64]", ["s = reduce_sum(x; axis=1)"], {"fold_bytes": 8, "tree_bytes": 0}),
        ("x: f16[8,64]", ["i = argmax(x; axis=1)"], {"fold_bytes": 0, "tree_bytes": 12}),
        ("x: f32[8,64]", ["s = reduce_sum(x; axis=0)"], {"fold_bytes": 0, "tree_bytes": 4}),
        ("x: bool[8,64]", ["s = reduce_max(x; axis=1)"], {"fold_bytes": 0, "tree_bytes": 1}),
        ("x: f32[8,64]; y: f32[64]", ["s = add(x, y)"], {"index_parts": 1, "windows": 0, "branches": 0}),
        ("x: f32[8,64]", ["t = transpose(x; perm=1-0)"], {"index_parts": 2}),
        ("x: f32[8,64]", ["r = relu(x)"], {"index_parts": 0, "once": 0.0}),
        ("x: f32[8,64]; y: f32[8,64]", ["c = concat(x, y; axis=1)"], {"branches": 1}),
        ("x: f32[1,2,8,8]", ["p = maxpool(x; k=2-2, stride=2-2)"], {"windows": 1}),
        ("a: f16[8,16]; b: f16[16,8]", ["m = matmul(a, b)"], {"sum_bytes": 4, "index_parts": 0}),
        ("a: f64[8,16]; b: f64[16,8]", ["m = matmul(a, b)"], {"sum_bytes": 8}),
    ],
)  # fmt: skip
def test_workloads_say_what_resources_depend_on(inputs, ops, wanted):
    found = workload_of(inputs, *ops)
    assert {name: getattr(found, name) for name in wanted} == wanted


def test_an_operator_with_a_slow_path_is_counted_once():
    found = workload_of("x: f32[8,64]; y: f32[8,64]", "d = div(x, y)", "e = div(d, y)")
    assert found.once == 103  # the called division, whatever the number of its uses
