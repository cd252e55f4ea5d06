"""Shared memory of generated kernels in elements and bytes: the one place that pricing and emission both ask.

Everything here is exact arithmetic on whole numbers or on arrays of them.
"""

from functools import cache
from typing import TypeVar

import numpy as np

from fusesolve.cost.table import Array

Number = TypeVar("Number", int, Array)

WARP = 32
STATIC_SHARED = 48 * 1024  # bytes of shared memory that a kernel may declare; more is asked for at launch
FMA_STEP = 8  # elements of a k-step on the FMA pipe
FMA_BUFFERS = 2  # operand strips in shared memory: one is read while the other is filled
STAGING_SIDE = 32  # points each way of a tile through which a transposed access goes
STAGING_TILE = STAGING_SIDE * (STAGING_SIDE + 1)  # its elements: rows are padded, so that columns meet different banks
STEP_BYTES = 128  # bytes of a k-step of one operand row on the tensor pipe
FRAGMENT = 16  # rows of an mma fragment, and its elements along the reduced axis
FLASH_ROWS = 64  # rows of results that the four warps of the smallest block of attention have
FLASH_HELD = 128  # elements of a query row up to which a warp keeps its queries in registers
FLASH_KEYS = 32  # keys of a warp and step of attention at most: 16 registers of scores
STAGES_MAX = 4  # k-steps in flight on the tensor pipe
HELD_ROWS = 8  # rows of a column that a thread sums where whole rows are held between two contractions


def warps_of(threads: Number) -> Number:
    """Warps of a block whose threads are whole warps."""
    return threads // WARP


def fold_bytes(lanes: Array, threads: Array, by_shuffle: Array, by_tree: Array) -> Array:
    """Shared bytes in which the lanes of rows join their folds.

    `by_shuffle`: bytes of one warp in all folds that shuffle (nothing is shared where a row is one warp or less);
    `by_tree`: bytes of one thread in all folds that go through a tree (nothing where a row has one lane).
    """
    shuffled = np.where(lanes > WARP, warps_of(threads) * by_shuffle, 0.0)
    return shuffled + np.where(lanes > 1, threads * by_tree, 0.0)


def gemm_bytes(tile_m: Number, tile_n: Number, step: Number, stages: Number, item: Number) -> Number:
    """Shared bytes of both operand strips of a contraction: `stages` of `step` elements of `item` bytes a row."""
    return stages * (tile_m + tile_n) * step * item


def gemm_threads(tile_m: Array, tile_n: Array) -> Array:
    """Threads of a block that has a tile of a contraction: one for 64 points, 32 to 256 of them."""
    return np.clip(tile_m * tile_n / 64.0, 32.0, 256.0)


@cache
def thread_grid(tile_m: int, tile_n: int, joined: int) -> tuple[int, int] | None:
    """Threads down and across a tile, each as near to square as they divide; None where they do not.

    `joined`: contractions that the columns are of, as many of each; a thread then has the same columns of all.
    """
    threads = min(256, max(32, tile_m * tile_n // 64))
    shapes = [
        (down, threads // down)
        for down in range(1, threads + 1)
        if threads % down == 0 and tile_m % down == 0 and tile_n % (threads // down * joined) == 0
    ]
    return min(shapes, key=lambda item: (abs(tile_m // item[0] - tile_n // item[1]), item[0]), default=None)


def thread_grids(tile_m: Array, tile_n: Array, joined: Array) -> tuple[Array, Array]:
    """`thread_grid` of (1 x tilings) tiles for (rows x 1) numbers of joined contractions, as two arrays.

    Where no grid divides the tile (such tilings have no source) it is a thread a row.
    """
    numbers, place = np.unique(joined.ravel(), return_inverse=True)
    pairs, tile = np.unique(np.stack([tile_m.ravel(), tile_n.ravel()]), axis=1, return_inverse=True)
    sizes = [(int(m), int(n)) for m, n in pairs.T]
    found = np.array(
        [[thread_grid(m, n, int(count)) or (m, 1) for m, n in sizes] for count in numbers],
        dtype=np.float64,
    )[place.ravel()][:, tile.ravel()]
    return found[..., 0], found[..., 1]


def attention_bytes(queries: Number, keys: Number, inner: Number, head: Number, item: Number) -> Number:
    """Shared bytes of an attention: a tile of queries, and a tile of keys with its values."""
    return item * (queries * inner + keys * (inner + head))


def held_bytes(queries: Number, inner: Number, keys: Number) -> Number:
    """Shared bytes of two contractions that hold whole rows of the first, in f32: a tile of queries, and all keys."""
    return 4 * queries * (inner + keys)


def flash_width(width: Number) -> Number:
    """Elements of a row of queries, keys or values in shared memory on the tensor pipe: whole fragments."""
    return -(-width // FRAGMENT) * FRAGMENT


def flash_keys(queries: Array, keys: Array) -> Array:
    """Keys of a warp and step: half its share of the tile, so that two steps fit, within 16 and `FLASH_KEYS`.

    Warps have 16 query rows; four warps or more share the rows, and the keys of a step where rows are fewer.
    """
    across = np.maximum(FLASH_ROWS / queries, 1.0)
    return np.clip(keys / across / 2.0, FRAGMENT, FLASH_KEYS)


def flash_bytes(queries: Array, keys: Array, inner: Array, head: Array) -> Array:
    """Shared bytes of an attention on the tensor pipe, operands of 16 bits.

    The results of all warps, 64 rows or more with a maximum and a sum each, take the place of the operands at the end.
    """
    strips = attention_bytes(queries, keys, flash_width(inner), flash_width(head), np.full_like(queries, 2.0))
    sums = 4.0 * np.maximum(queries, FLASH_ROWS) * (flash_width(head) + 2.0)
    return np.maximum(strips, sums)
