"""Pointwise and movement kernels: one pass over the points, E of them per thread."""

import numpy as np

from fusesolve.cost.gpu import features
from fusesolve.cost.gpu import terms as t
from fusesolve.cost.gpu.device import Device
from fusesolve.cost.gpu.fitted import FITTED
from fusesolve.cost.gpu.layout import STAGING_SIDE, STAGING_TILE
from fusesolve.cost.gpu.library_rows import CHASE, CHASED
from fusesolve.cost.table import Array, Columns

THREADS = (128, 256, 512)
PER_THREAD = (1, 2, 4, 8)


def tilings() -> dict[str, Array]:
    """All (threads, elements per thread) pairs as (1, n) columns."""
    pairs = [(a, e) for a in THREADS for e in PER_THREAD]
    grid = np.array(pairs, dtype=np.float64)
    return {"threads": grid[None, :, 0], "per_thread": grid[None, :, 1]}


def evaluate(device: Device, w: Columns, tile: Columns) -> tuple[dict[str, Array], dict[str, Array]]:
    """Resources and terms of (rows x tilings)."""
    points = w["outer"] * w["inner"]
    blocks = np.ceil(points / (tile["threads"] * tile["per_thread"]))
    shared = np.ceil(w["staged"] * STAGING_TILE * w["element_bytes"]) + np.zeros_like(tile["threads"])
    vector = np.minimum(tile["per_thread"], 16.0 / w["element_bytes"])
    dram = w["read_bytes"] + w["write_bytes"]
    res = t.resources(
        device, w, demand=FITTED["point_registers"].of(features.point_registers(w, tile, device.newer)),
        threads=tile["threads"], blocks=blocks, shared=shared,
        code=FITTED["point_code"].of(features.point_code(w, tile)), dram_bytes=dram,
    )  # fmt: skip
    partial = (w["staged"] > 0) & (tile["threads"] * tile["per_thread"] != STAGING_SIDE**2)  # a block has one tile
    res["missing_blocks"] = np.where(partial, 1.0, res["missing_blocks"])
    slots = device.units * np.maximum(res["resident"], 1.0)
    found = t.stream_terms(device, w)
    index_work = 5.0 * points * (w["full_reads"] + w["full_writes"] + w["row_reads"]) / np.maximum(vector, 1.0)
    found |= t.pipe_terms(device, w, np.minimum(blocks, device.units), index_work)
    block_latency = t.load_latency(device, w) + device.constant("pointwise_block", 0.02e-6)
    found["latency"] = t.waves(blocks, slots) * block_latency
    found["staging"] = w["staged_bytes"] * device.constant("staging_share", 0.15) / device.stream
    found["shared"] = 2.0 * w["staged_bytes"] / device.shared_bytes_per_s
    found |= t.overhead_terms(device, res)
    found["floor"] = found["floor"] + np.where(w["row_kind"] == CHASED, device.l2_latency + CHASE, 0.0)
    return res, found
