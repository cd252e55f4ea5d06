"""What registers and code of a generated contraction depend on; see `features.py` for what columns are.

On the FMA pipe every loop over the points of a thread is unrolled, so that the compiler's result follows the tile: the
registers of a bare product and of a bare convolution in each tile are a table (`fitted.TILES`), and the columns say
what a kernel adds to it. Points of a thread that lie outside a matrix smaller than its tile are no instructions.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fusesolve.cost.gpu.features import SLOW_PATH, Features
from fusesolve.cost.gpu.layout import FMA_STEP, thread_grids
from fusesolve.cost.table import Array, Columns

TileTable = Mapping[tuple[int, int], tuple[float, float]]  # registers of a product and of a convolution in a tile
UNKNOWN_TILE = (110.0, 110.0)  # between the compiler's usual 96 and 128 of 64 points a thread

BESIDE_SUMS = 32.0  # registers of operands, addresses and loads in flight beside a thread's sums
BEHIND_SUM = 0.375  # more for each sum where what is behind them is long: with a division 64 spill at 104
LIGHT = 8.0  # instructions behind a sum that need no more
ALLOCATED = 8.0  # registers of a thread are allocated in steps
MOST = 255.0  # registers that an instruction can name
MOST_SUMS = 96.0  # sums of 8 bytes that they hold


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A thread's share of a tile on the FMA pipe, each (rows x tilings).

    `points` and `sides`: its points and its rows plus columns, as far as the matrix has them; `whole` is 1 where it
    has all; `loads`: elements of the operand strips that it loads a step; `families`: copies of the tile's code, one
    for each contraction side by side that shares no tile; `plain` is 0 where the sum is split over blocks (what is
    behind it is then in a kernel of its own); `called` is 1 where it has an operator with a called slow path.
    """

    points: Array
    sides: Array
    whole: Array
    loads: Array
    families: Array
    plain: Array
    called: Array


def fma_share(w: Columns, tile: Columns) -> Share:
    """See `Share`. The compiler drops columns that lie outside the matrix, and rows where the matrix is one row."""
    down, across = thread_grids(tile["tile_m"], tile["tile_n"], w["joined"])
    high, wide = tile["tile_m"] / down, tile["tile_n"] / across
    own = w["n"] * w["joined"] / w["parts"]  # columns that tiles divide among them
    rows = np.where(w["m"] > 1, high, 1.0)
    columns = np.where(own <= tile["tile_n"], np.minimum(wide, np.ceil(own / across)), wide)
    threads = down * across
    plain = np.where(tile["split"] > 1, 0.0, 1.0) * np.ones_like(rows)
    return Share(
        points=rows * columns, sides=rows + columns, whole=np.where(rows * columns == high * wide, 1.0, 0.0),
        loads=np.ceil(FMA_STEP * tile["tile_m"] / threads) + np.ceil(FMA_STEP * tile["tile_n"] / threads),
        families=w["parts"] / w["joined"] * np.ones_like(rows), plain=plain,
        called=np.where(w["once"] > SLOW_PATH, plain, 0.0),
    )  # fmt: skip


def bounded(demand: Array, w: Columns, share: Share) -> Array:
    """The registers that a kernel on the FMA pipe is compiled for: what it asks for, in the steps of their allocation.

    At least the sums and what goes with them: with fewer the compiler spills (64 sums: none at 96, 16 bytes at 80).
    """
    beside = BESIDE_SUMS + np.where(w["instructions"] > LIGHT, BEHIND_SUM * share.points, 0.0) * share.plain
    least = share.points * np.where(w["sum_bytes"] > 4, 2.0, 1.0) + beside
    return np.minimum(np.ceil(np.maximum(demand, least) / ALLOCATED) * ALLOCATED, MOST)


def tile_registers(w: Columns, tile: Columns, table: TileTable) -> Array:
    """Registers of a bare contraction in the tile: a product's, or a convolution's where its index is taken apart."""
    pairs = [(int(m), int(n)) for m, n in zip(tile["tile_m"].ravel(), tile["tile_n"].ravel(), strict=True)]
    both = np.array([table.get(pair, UNKNOWN_TILE) for pair in pairs], dtype=np.float64)
    shape = tile["tile_m"].shape
    return np.where(w["index_parts"] > 0, both[:, 1].reshape(shape), both[:, 0].reshape(shape))


def fma_registers(w: Columns, tile: Columns, newer: float, table: TileTable, share: Share) -> Features:
    """The FMA pipe; `newer` is 1 from compute capability 9.0 on."""
    whole, part = share.whole, 1.0 - share.whole
    one = np.ones_like(whole)
    behind = np.maximum(w["live"] / share.families - 3.0, 0.0) * share.plain
    in_front = np.where(w["side_work"] > 0, one, 0.0)
    short = np.where(w["k"] / tile["split"] <= FMA_STEP, one, 0.0)  # one step: no loop
    return {
        "tile": whole * tile_registers(w, tile, table), "part": part, "points": part * share.points,
        "sides": part * share.sides, "loads": part * np.minimum(share.loads, 16.0), "newer": newer * one,
        "split": 1.0 - share.plain, "scratch": w["scratch"] * share.plain, "behind": behind,
        "in_front": in_front * whole, "parts": w["index_parts"] * whole, "parts_part": w["index_parts"] * part,
        "short": short * whole, "short_part": short * part, "joined": (w["joined"] - 1.0) * one, "called": share.called,
        "families": np.where(share.families > 1, one, 0.0), "double": np.where(w["sum_bytes"] > 4, share.points, 0.0),
    }  # fmt: skip


def fma_code(w: Columns, share: Share) -> Features:
    """The FMA pipe."""
    copies, plain = share.families, share.plain
    points, loads = copies * share.points, copies * share.loads
    extra = np.maximum(w["full_reads"] + w["row_reads"] - 1.0 - copies, 0.0)
    return {
        "one": copies, "points": points, "sides": copies * share.sides, "strips": loads,
        "behind": plain * share.points * w["instructions"], "once": plain * w["once"],
        "loads": plain * share.points * extra, "strips_parts": loads * w["index_parts"],
        "points_parts": points * w["index_parts"], "parts": copies * w["index_parts"],
        "in_front": loads * np.where(w["side_work"] > 0, 1.0, 0.0), "side_work": loads * w["side_work"],
        "split": copies * (1.0 - plain), "called": share.called * share.points,
        "double": np.where(w["sum_bytes"] > 4, points, 0.0), "narrow": np.where(w["element_bytes"] < 4, points, 0.0),
    }  # fmt: skip


def tensor_registers(w: Columns, tile: Columns, threads: Array, newer: float) -> Features:
    """The tensor pipe: accumulators, operand fragments, addresses, and what is behind the sum."""
    points = tile["tile_m"] * tile["tile_n"] / threads
    one = np.ones_like(points)
    behind = np.maximum(w["live"] - 3.0, 0.0) * one
    return {
        "one": one, "points": points, "side": np.sqrt(points), "behind": behind, "scratch": w["scratch"] * one,
        "newer": newer * one, "parts": w["index_parts"] * one, "split": np.where(tile["split"] > 1, one, 0.0),
        "double": np.where(w["sum_bytes"] > 4, points, 0.0), "in_front": np.where(w["side_work"] > 0, one, 0.0),
        "strips": (tile["tile_m"] + tile["tile_n"]) / threads, "few": np.where(points <= 16, one, 0.0),
        "rows": w["row_reads"] * one,
    }  # fmt: skip


def tensor_code(w: Columns, tile: Columns, threads: Array) -> Features:
    """The tensor pipe; contractions side by side that share no tile have a copy each."""
    points = tile["tile_m"] * tile["tile_n"] / threads
    one = np.ones_like(points) * w["parts"] / w["joined"]
    plain = np.where(tile["split"] > 1, 0.0, 1.0)  # what is behind a split sum is in a kernel of its own
    strips = one * (tile["tile_m"] + tile["tile_n"]) / threads
    return {
        "one": one, "points": one * points, "behind": plain * points * w["instructions"], "once": plain * w["once"],
        "loads": plain * points * np.maximum(w["full_reads"] + w["row_reads"] - 2.0, 0.0),
        "strips": strips, "strips_parts": strips * w["index_parts"], "points_parts": one * points * w["index_parts"],
        "in_front": np.where(w["side_work"] > 0, strips, 0.0), "double": np.where(w["sum_bytes"] > 4, points, 0.0),
        "narrow": np.where(w["element_bytes"] < 4, points, 0.0), "parts": w["index_parts"] * one,
        "split": one * (1.0 - plain), "called": np.where(w["once"] > SLOW_PATH, plain * points, 0.0),
    }  # fmt: skip
