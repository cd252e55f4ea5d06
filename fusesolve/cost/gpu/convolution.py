"""f32 convolutions by Winograd's minimal filtering (Lavin and Gray 2015), which libraries take beside implicit GEMM.

Two forms of a 3 x 3 window with stride 1. *Fused*, F(2 x 2): one kernel after the filters' transform; a block makes
4 x 8 tiles of 2 x 2 results of one image for 32 channels (the shape in cuDNN's kernel names, 128x128 and tile148), one
block on a unit at a time. *Apart*, F(4 x 4): image and filters are transformed, 36 products are one batched GEMM, the
results are transformed back. A library that tries its algorithms takes the fastest; so does the sweep.
"""

import numpy as np

from fusesolve.cost.gpu import contraction
from fusesolve.cost.gpu import terms as t
from fusesolve.cost.gpu.device import Device
from fusesolve.cost.table import Array, Columns

WINDOW = 9.0  # points of the window that both forms are for
FUSED_POINTS, FUSED_ROWS, FUSED_COLS, FUSED_CHANNELS = 16.0, 8.0, 16.0, 32.0
FUSED_TILES = FUSED_ROWS * FUSED_COLS / 4.0
FUSED_THREADS, FUSED_REGISTERS = 256.0, 128.0
STEP = 8.0  # input channels that a block multiplies at once
POINTS, SIDE = 36.0, 4.0  # F(4 x 4): products of a tile, and the side of its results
BATCH = 16.0  # images that F(4 x 4) takes at a time: a batch of 33 takes as long as one of 48
SIZE = 4.0  # bytes of an f32


def fused_tilings() -> dict[str, Array]:
    """The one block shape, as a (1, 1) column: channels by tiles."""
    return {"tile_m": np.array([[FUSED_CHANNELS]]), "tile_n": np.array([[FUSED_TILES]])}


def evaluate_fused(device: Device, w: Columns, tile: Columns) -> tuple[dict[str, Array], dict[str, Array]]:
    """Resources and terms of (rows x 1): the fused form F(2 x 2)."""
    channels = np.ceil(w["k"] / WINDOW)
    images = w["m"] / np.maximum(w["image_rows"] * w["image_cols"], 1.0)
    areas = np.ceil(w["image_rows"] / FUSED_ROWS) * np.ceil(w["image_cols"] / FUSED_COLS)
    blocks = images * areas * np.ceil(w["n"] / FUSED_CHANNELS) + np.zeros_like(tile["tile_m"])
    nothing = np.zeros_like(blocks)
    shared = nothing + FUSED_POINTS * (FUSED_TILES + FUSED_CHANNELS) * STEP * SIZE
    res = t.resources(
        device, w, demand=nothing + FUSED_REGISTERS, threads=nothing + FUSED_THREADS, blocks=blocks, shared=shared,
        code=nothing + 8192.0, dram_bytes=w["read_bytes"] + w["write_bytes"],
    )  # fmt: skip
    products = FUSED_POINTS * FUSED_TILES * FUSED_CHANNELS * np.ceil(channels / STEP) * STEP
    rate = device.fma / device.units * device.constant("winograd_fused", 0.7)
    block = products / rate + device.constant("winograd_block", 3.0e-6)
    found = t.stream_terms(device, w)
    found["fma"] = w["mma"] * FUSED_POINTS / (4.0 * WINDOW) / device.fma + nothing
    found["latency"] = np.maximum(t.waves(blocks, nothing + device.units) * block - found["fma"], 0.0)
    found["prologue"] = nothing + _filters(device, (WINDOW + FUSED_POINTS) * channels * w["n"] * SIZE)
    return res, t.overhead_terms(device, res) | found | {"floor": nothing + 2.0 * device.floor}


def evaluate_apart(device: Device, w: Columns, tile: Columns) -> tuple[dict[str, Array], dict[str, Array]]:
    """Resources and terms of (rows x tilings of a contraction): F(4 x 4) with transforms of their own."""
    channels = np.ceil(w["k"] / WINDOW)
    images = w["m"] / np.maximum(w["image_rows"] * w["image_cols"], 1.0)
    tiles = np.ceil(images / BATCH) * BATCH * np.ceil(w["image_rows"] / SIDE) * np.ceil(w["image_cols"] / SIDE)
    image, filters, result = (POINTS * SIZE * part for part in (channels * tiles, channels * w["n"], tiles * w["n"]))
    warm = 1.0 - t.cold_share(device, image + filters + result)
    nothing = np.zeros_like(tiles)
    product = dict(w) | {
        "batch": nothing + POINTS, "m": tiles, "k": channels, "mma": POINTS * tiles * channels * w["n"],
        "read_bytes": image + filters, "write_bytes": result, "warm_read_bytes": warm * (image + filters),
        "warm_write_bytes": warm * result, "footprint_bytes": nothing + 1.0, "staged_bytes": nothing,
        "taps": nothing + 1.0,
    }  # fmt: skip
    res, found = contraction.evaluate(device, product, tile, library=True)
    share = device.constant("winograd_product", 0.8)
    images_moved = image + result + SIZE * w["m"] * (channels + w["n"])
    filters_moved = filters + SIZE * WINDOW * channels * w["n"]
    found |= {
        "fma": found["fma"] / share, "latency": found["latency"] / share,
        "prologue": _images(device, images_moved) + _filters(device, filters_moved) + np.zeros_like(found["fma"]),
        "floor": found["floor"] + 3.0 * device.floor,
    }  # fmt: skip
    return res, found


def _images(device: Device, moved: Array) -> Array:
    """Seconds of the transforms of image and result, which move so many bytes: a share of a stream's rate."""
    return _moved(device, moved) / device.constant("winograd_transform", 0.6)


def _filters(device: Device, moved: Array) -> Array:
    """Seconds of the filters' transform: nine values of a filter lie together, the next filter's follow."""
    return _moved(device, moved) / device.constant("winograd_filter", 0.5)


def _moved(device: Device, moved: Array) -> Array:
    cold = t.cold_share(device, moved)
    seconds: Array = moved * (cold / device.stream + (1.0 - cold) / device.l2)
    return seconds


def combine(terms: Columns, off: frozenset[str]) -> Array:
    """Latency: the contraction's, and the transforms before and after it."""
    body = contraction.combine(terms, off | {"prologue"})
    return body if "prologue" in off else body + terms["prologue"]
