"""What registers and code of a generated kernel depend on: the columns that are fitted on compiled kernels.

Each function gives named (rows x tilings) columns; a number of registers is a weighted sum of one set of them, bent at
the compiler's plateau, a number of code bytes a weighted sum of another. The weights are in `fitted.py`, which
`benchmarks/fit_resources.py` writes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from fusesolve.cost.gpu.layout import FLASH_HELD, FLASH_ROWS, flash_keys, flash_width
from fusesolve.cost.table import HELD_IN_REGISTERS, HELD_IN_SHARED, Array, Columns

Features: TypeAlias = Mapping[str, Array]

PLATEAU = 32.0  # registers that the compiler fills before it takes more
SLOW_PATH = 40.0  # instructions of first use above which an operator has a called slow path, which ends interleaving
UNROLLED = 4.0  # elements of a loop over a row that the compiler has in flight
WRITTEN_OUT = 64.0  # instructions of a window's loops that the compiler writes out
WRITTEN_OUT_LOADS = 44.0  # loads of a thread's elements behind branches, likewise
SHORT_LOOP = 28.0  # instructions of a window below which few are in flight
LONG_BODY = 50.0  # instructions beside a window's loops above which these are not written out
HELD_LIMIT = 64.0  # elements per thread that the compiler keeps in registers before it falls to local memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Weights of features. `knee`: demand at which the compiler leaves its plateau (None: no plateau).

    `rows` compiled kernels were fitted; `error` is the median relative error over them.
    """

    weights: Mapping[str, float]
    knee: float | None
    rows: int
    error: float

    def of(self, features: Features) -> Array:
        """The weighted sum, bent at the plateau: demand below 32, then 32 until the knee, then what is above it."""
        total = sum((self.weights[name] * column for name, column in features.items() if self.weights.get(name)), 0.0)
        demand = np.asarray(total, dtype=np.float64)
        return demand if self.knee is None else plateau(demand, self.knee)


def plateau(demand: Array, knee: float) -> Array:
    """Registers from register demand: the compiler stays at 32 until demand passes `knee`, then follows it."""
    return np.where(demand < PLATEAU, demand, np.where(demand < knee, PLATEAU, PLATEAU + demand - knee))


def _arrays(w: Columns) -> Array:
    return w["full_reads"] + w["row_reads"] + w["full_writes"]


def _looped(w: Columns) -> Array:
    """Instructions that the loops of windows repeat at a point, as many as the compiler writes out; 0: no such loop."""
    points = np.maximum(w["outer"] * w["inner"], 1.0)
    each = (w["fma"] + w["alu"] + w["sfu"]) / points
    return np.where(w["windows"] > 0, np.clip(each - w["instructions"], 0.0, WRITTEN_OUT), 0.0)


def _rolled(w: Columns, tile: Columns) -> Array:
    """1.0 where the loop over a thread's elements stays a loop: too many loads behind branches."""
    loads = (w["full_reads"] + w["row_reads"]) * tile["per_thread"]
    return np.where((w["branches"] > 0) & (w["windows"] <= 0) & (loads > WRITTEN_OUT_LOADS), 1.0, 0.0)


def _ends(w: Columns, tile: Columns) -> Array:
    """1.0 where the last block has fewer elements than others, so that each element is checked."""
    return np.where(w["outer"] * w["inner"] % (tile["threads"] * tile["per_thread"]) > 0, 1.0, 0.0)


def point_registers(w: Columns, tile: Columns, newer: float) -> Features:
    """Pointwise and movement: E elements a thread; `newer` is 1 from compute capability 9.0 on."""
    each = tile["per_thread"]
    many = np.where(each > 1, 1.0, 0.0)
    wide = np.where(w["element_bytes"] >= 4, 1.0, 0.0)
    looped = _looped(w)
    window = np.where(looped > 0, 1.0, 0.0)
    called = np.where(w["once"] > SLOW_PATH, 1.0, 0.0)
    rolled = _rolled(w, tile)
    branches = w["branches"] * many * (1.0 - rolled)
    free = (1.0 - window) * (1.0 - called) * np.where(w["branches"] > 0, 0.0, 1.0)  # copies of the body interleave
    eight = free * np.where(each == 8, 1.0, 0.0)
    return {
        "one": np.ones_like(each), "arrays": _arrays(w), "scratch": w["scratch"], "newer": np.full_like(each, newer),
        "called": called * many, "branches": branches, "branches_whole": newer * branches * (1.0 - _ends(w, tile)),
        "rolled": rolled, "window": window, "window_called": window * called, "window_full": window * w["full_reads"],
        "window_short": window * np.where(looped < SHORT_LOOP, 1.0, 0.0),
        "window_long": window * np.where(w["instructions"] > LONG_BODY, 1.0, 0.0),
        "windows": window * np.where(w["windows"] > 1, 1.0, 0.0),
        "window_moved": np.where((looped <= 0) & (w["windows"] > 0), 1.0, 0.0),
        "doubled_wide": free * wide * np.log2(each), "eight": eight, "eight_wide": eight * wide,
        "reads": free * np.minimum(each, 4.0) * w["full_reads"],
        "doubled_bound": (1.0 - free) * (1.0 - rolled) * np.log2(each), "double": w["double"] * each,
        "staged": w["staged"] * np.ones_like(each),
    }  # fmt: skip


def point_code(w: Columns, tile: Columns) -> Features:
    """Pointwise and movement; bodies with a loop are copied up to twice, others for each element of a thread."""
    each, looped = tile["per_thread"], _looped(w)
    long = (looped > SHORT_LOOP) | (w["instructions"] > LONG_BODY)
    single = (looped > 0) & ((each > 4) | ((each > 2) & long))
    each = np.where(single | (_rolled(w, tile) > 0), 1.0, each)
    moved = w["full_reads"] + w["full_writes"]
    moving = np.where((looped <= 0) & (w["windows"] > 0), each, 0.0)
    return {
        "one": np.ones_like(each), "body": w["instructions"] * each, "once": w["once"], "moved": moved * each,
        "row_reads": w["row_reads"] * each, "arrays": _arrays(w), "parts": w["index_parts"],
        "parts_each": w["index_parts"] * each, "narrow": np.where(w["element_bytes"] < 4, moved * each, 0.0),
        "ends": _ends(w, tile) * each, "staged": w["staged"] * each, "windows": w["windows"] * each,
        "looped": looped * each, "window_moved": moving,
        "branches": w["branches"] * (w["full_reads"] + w["row_reads"]) * each,
        "branches_ends": w["branches"] * (w["full_reads"] + w["row_reads"]) * each * _ends(w, tile),
        "window_branch": w["branches"] * w["windows"] * w["full_reads"] * each,
    }  # fmt: skip


@dataclass(frozen=True, slots=True)
class RowParts:
    """A row's share of a thread: elements, which of them the compiler has in flight, and how the row is kept."""

    elements: Array
    in_flight: Array
    held: Array
    ends: Array


def row_parts(w: Columns, tile: Columns) -> RowParts:
    """See `RowParts`; a row of one pass is walked, not held."""
    length = np.ceil(w["inner"] / tile["split"])
    elements = np.ceil(length / tile["lanes"])
    held = (tile["mode"] == HELD_IN_REGISTERS) & (w["passes"] > 1)
    in_flight = np.where(held, np.minimum(elements, HELD_LIMIT), np.minimum(elements, UNROLLED))
    return RowParts(elements, in_flight, held, np.where(length % tile["lanes"] > 0, 1.0, 0.0))


def row_registers(w: Columns, tile: Columns, newer: float, parts: RowParts) -> Features:
    """Rows and columns that are reduced."""
    held = np.where(parts.held, 1.0, 0.0)
    walked = 1.0 - held
    one = np.ones_like(parts.elements)
    loads = np.maximum(w["held_loads"], 1.0)
    called = np.where(w["once"] > SLOW_PATH, one, 0.0)
    alone = np.where(parts.elements <= 1, one, 0.0)
    window = np.where(_looped(w) > 0, one, 0.0)
    return {
        "one": one, "held": held, "arrays": _arrays(w) * one, "live": w["live"] * walked, "live_held": w["live"] * held,
        "scratch": w["scratch"] * walked, "newer": newer * one, "apart": called * walked, "apart_held": called * held,
        "parts": w["index_parts"] * one, "folds": w["reductions"] * one, "split": np.where(tile["split"] > 1, one, 0.0),
        "warp": np.where(tile["lanes"] <= 32, one, 0.0), "passes": w["passes"] * one,
        "strip": (1.0 - w["contiguous"]) * one, "kept": held * loads * np.minimum(parts.elements, HELD_LIMIT),
        "kept_ends": held * parts.ends * parts.in_flight, "alone": alone * walked, "alone_held": alone * held,
        "flight": walked * parts.in_flight * w["full_reads"], "window": window,
        "window_flight": window * parts.in_flight,
        "shared": np.where(tile["mode"] == HELD_IN_SHARED, walked, 0.0), "double": w["double"] * parts.in_flight,
    }  # fmt: skip


def row_code(w: Columns, tile: Columns, parts: RowParts) -> Features:
    """Rows and columns that are reduced; the body with a window is written once."""
    held = np.where(parts.held, 1.0, 0.0)
    walked = 1.0 - held
    one = np.ones_like(parts.elements)
    flight = np.where(_looped(w) > 0, one, parts.in_flight)
    moved = (w["full_reads"] + w["full_writes"]) * flight
    wide = np.where(tile["lanes"] > 32, w["reductions"], 0.0)
    again = np.where(parts.held, one, w["passes"])
    return {
        "one": one, "held": held, "body_held": held * w["instructions"] * flight,
        "body": walked * w["instructions"] * flight, "body_once": w["instructions"] * one,
        "once": w["once"] * one, "moved": walked * moved * w["passes"], "moved_held": held * moved,
        "arrays": _arrays(w) * one, "row_reads": w["row_reads"] * flight, "folds": w["reductions"] * one,
        "folds_wide": wide, "folds_warps": wide * np.minimum(tile["lanes"] / 32.0, 8.0),
        "parts": w["index_parts"] * one, "parts_each": w["index_parts"] * flight * again,
        "narrow": np.where(w["element_bytes"] < 4, moved, 0.0), "ends": walked * parts.ends * flight,
        "ends_held": held * parts.ends * flight, "split": np.where(tile["split"] > 1, one, 0.0),
        "strip": (1.0 - w["contiguous"]) * one, "tree": np.where(w["tree_bytes"] > 0, w["reductions"], 0.0) * one,
        "windows": w["windows"] * one, "looped": _looped(w) * one,
    }  # fmt: skip


def attention_registers(w: Columns, tile: Columns, threads: Array, newer: float) -> Features:
    """Attention on the FMA pipe: the result's columns, scores, and what is behind."""
    head = np.maximum(w["head"], 1.0)
    one = np.ones_like(threads) * np.ones_like(head)
    return {
        "one": one, "result": tile["tile_m"] * head / threads, "scores": tile["tile_m"] * tile["tile_n"] / threads,
        "head": head * one, "scratch": w["scratch"] * one, "live": w["live"] * one, "newer": newer * one,
        "parts": w["index_parts"] * one, "split": np.where(tile["split"] > 1, one, 0.0),
    }  # fmt: skip


def attention_code(w: Columns, tile: Columns, threads: Array) -> Features:
    """Attention on the FMA pipe."""
    head = np.maximum(w["head"], 1.0)
    inner = np.maximum(w["k"], 1.0)
    one = np.ones_like(threads) * np.ones_like(head)
    result = tile["tile_m"] * head / threads
    scores = tile["tile_m"] * tile["tile_n"] / threads
    return {
        "one": one, "head": head * one, "inner": inner * one, "result": result, "scores": scores,
        "between": scores * w["instructions"], "behind": w["instructions"] * result, "body": w["instructions"] * one,
        "parts": w["index_parts"] * one, "split": np.where(tile["split"] > 1, one, 0.0), "once": w["once"] * one,
    }  # fmt: skip


def flash_registers(w: Columns, tile: Columns, newer: float) -> Features:
    """Attention on the tensor pipe: results (16 rows of a warp), queries that are held, scores, what is between."""
    one = np.ones_like(tile["tile_m"]) * np.ones_like(w["head"])
    keys = flash_keys(tile["tile_m"], tile["tile_n"])
    head, inner = flash_width(w["head"]), flash_width(w["k"])
    return {
        "one": one, "head": head * one, "held": np.where(inner <= FLASH_HELD, inner, 0.0) * one,
        "wide": np.maximum(head - 128.0, 0.0) * one, "scores": keys * one, "both": keys * head / 64.0,
        "newer": newer * one, "live": w["live"] * one,
        "parts": w["index_parts"] * one, "ends": np.where(w["n"] % tile["tile_n"] > 0, one, 0.0),
        "joined": np.where(tile["tile_m"] < FLASH_ROWS, one, 0.0), "split": np.where(tile["split"] > 1, one, 0.0),
    }  # fmt: skip


def flash_code(w: Columns, tile: Columns) -> Features:
    """Attention on the tensor pipe: products, and what is computed once a score."""
    one = np.ones_like(tile["tile_m"]) * np.ones_like(w["head"])
    keys = flash_keys(tile["tile_m"], tile["tile_n"])
    head, inner = flash_width(w["head"]), flash_width(w["k"])
    return {
        "one": one, "head": head * one, "inner": inner * one, "products": keys * (head + inner) / 16.0,
        "scores": keys * one, "between": keys * w["instructions"], "loads": keys * (w["full_reads"] + w["row_reads"]),
        "parts": w["index_parts"] * one, "parts_each": keys * w["index_parts"], "once": w["once"] * one,
        "ends": np.where(w["n"] % tile["tile_n"] > 0, keys * one, 0.0),
        "joined": np.where(tile["tile_m"] < FLASH_ROWS, one, 0.0), "split": np.where(tile["split"] > 1, one, 0.0),
        "in_front": np.where(w["side_work"] > 0, one, 0.0),
    }  # fmt: skip
