"""Reductions: rows (reduced axes innermost) and strips of columns (any other axes).

`lanes` threads share one row; a block has `rows` of them. A row is held in registers (whole: a row that spills is not
held), held in shared memory, or read again on each further pass; a reduction of one pass can be split over blocks.
"""

import numpy as np

from fusesolve.cost.gpu import features, layout
from fusesolve.cost.gpu import terms as t
from fusesolve.cost.gpu.device import Device
from fusesolve.cost.gpu.features import HELD_LIMIT
from fusesolve.cost.gpu.fitted import FITTED
from fusesolve.cost.table import HELD_IN_REGISTERS, HELD_IN_SHARED, READ_AGAIN, Array, Columns

ROW_SHAPES = ((32, 4), (64, 2), (128, 1), (256, 1), (512, 1), (1024, 1))
STRIP_SHAPES = ((1, 128), (4, 32), (8, 32), (16, 32), (32, 32))
MODES = (HELD_IN_REGISTERS, HELD_IN_SHARED, READ_AGAIN)
SPLITS = (1, 2, 4, 8, 16, 32, 64, 128)
FULL_BLOCK = 1024.0  # threads of a block that is not bound to 32 registers: one such norm spilled 12 bytes
THREADS_IN_FLIGHT = 65_536  # x 16 bytes = 1 MiB: bandwidth times latency of the fastest memories (3 TB/s x 0.35 us)


def tilings(*, contiguous: bool) -> dict[str, Array]:
    """All (lanes, rows, mode, split) as (1, n) columns; only a row that is read again is split."""
    shapes = ROW_SHAPES if contiguous else STRIP_SHAPES
    rows = [
        (lanes * rows, lanes, rows, mode, split)
        for lanes, rows in shapes
        for mode in MODES
        for split in (SPLITS if mode == READ_AGAIN else (1,))
    ]
    grid = np.array(rows, dtype=np.float64)
    names = ("threads", "lanes", "rows", "mode", "split")
    return {name: grid[None, :, position] for position, name in enumerate(names)}


def evaluate(device: Device, w: Columns, tile: Columns) -> tuple[dict[str, Array], dict[str, Array]]:
    """Resources and terms of (rows x tilings)."""
    single = w["passes"] <= 1
    length = np.ceil(w["inner"] / tile["split"])
    per_thread = np.ceil(length / tile["lanes"])
    held = tile["mode"] == HELD_IN_REGISTERS
    in_shared = tile["mode"] == HELD_IN_SHARED
    blocks = np.ceil(w["outer"] / tile["rows"]) * tile["split"]
    folds = layout.fold_bytes(tile["lanes"], tile["threads"], w["fold_bytes"], w["tree_bytes"])
    shared = np.ceil(folds + np.where(in_shared, w["held_bytes"] * w["inner"] * tile["rows"], 0.0))
    extra = _reread(device, w, tile)
    dram = w["read_bytes"] + w["write_bytes"] + extra["dram_bytes"]
    parts = features.row_parts(w, tile)
    res = t.resources(
        device, w, demand=FITTED["row_registers"].of(features.row_registers(w, tile, device.newer, parts)),
        threads=tile["threads"], blocks=blocks, shared=shared,
        code=FITTED["row_code"].of(features.row_code(w, tile, parts)), dram_bytes=dram,
    )  # fmt: skip
    full = (tile["threads"] >= FULL_BLOCK) & (res["registers"] <= t.FREE_REGISTERS)
    res["max_registers"] = np.where(full, 0.0, res["max_registers"])
    useless = (held & ((per_thread > HELD_LIMIT) | (res["spill_bytes"] > 0))) | ((tile["split"] > 1) & ~single)
    useless |= single & (tile["mode"] != READ_AGAIN)
    res["missing_blocks"] = np.where(useless, 1.0, res["missing_blocks"])
    found = t.stream_terms(device, w) | {"reread": extra["seconds"]}
    found |= t.pipe_terms(device, w, np.minimum(blocks, device.units), 3.0 * w["outer"] * w["inner"] * w["full_reads"])
    rounds = t.waves(blocks, device.units * np.maximum(res["resident"], 1.0))
    found["latency"] = rounds * _block_latency(device, w, tile, length)
    through_shared = np.where(in_shared, (1.0 + w["passes"]) * w["held_bytes"], 0.0) * w["outer"] * w["inner"]
    found["shared"] = through_shared / device.shared_bytes_per_s
    found["staging"] = w["staged_bytes"] * device.constant("staging_share", 0.15) / device.stream
    found["split"] = np.where(tile["split"] > 1, device.constant("split_stage", 2.0e-6), 0.0)
    return res, found | t.overhead_terms(device, res)


def _block_latency(device: Device, w: Columns, tile: Columns, length: Array) -> Array:
    """Seconds that one block takes alone: l0 + l1 per trip of its loop over the row, per pass that reads memory."""
    vector = np.where(w["contiguous"] > 0, np.maximum(1.0, 16.0 / w["element_bytes"]), 1.0)
    trips = np.ceil(length / (tile["lanes"] * vector))
    again = tile["mode"] == READ_AGAIN
    walks = np.where(again, w["passes"], 1.0 + 0.15 * (w["passes"] - 1.0))
    start = device.constant("row_latency", 0.9e-6) + 0.1e-6 * w["reductions"]
    return start + device.constant("row_step", 0.2e-6) * trips * walks


def _reread(device: Device, w: Columns, tile: Columns) -> dict[str, Array]:
    """Bytes and seconds of reading rows again: from L2 while the rows in flight fit, else from DRAM.

    A kernel needs THREADS_IN_FLIGHT threads at 16 bytes each to keep DRAM busy, and no more rows at once than that.
    """
    again = np.where(tile["mode"] == READ_AGAIN, (w["passes"] - 1.0) * w["reread_bytes"], 0.0)
    resident_rows = np.minimum(w["outer"], THREADS_IN_FLIGHT / tile["threads"] * tile["rows"])
    working_set = resident_rows * w["reread_bytes"] / np.maximum(w["outer"], 1.0)
    cold = t.cold_share(device, working_set)
    return {"dram_bytes": again * cold, "seconds": again * (cold / device.stream + (1.0 - cold) / device.l2)}
