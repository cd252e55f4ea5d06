"""Pointwise and movement kernels: one pass over the points, E of them per thread."""

import numpy as np

from fusesolve.cost.gpu import terms as t
from fusesolve.cost.gpu.device import Device
from fusesolve.cost.table import Array, Columns

THREADS = (128, 256, 512)
PER_THREAD = (1, 2, 4, 8)
STAGING_TILE = 33 * 32  # elements: a 32 x 32 tile padded by one column, so that columns hit different banks


def tilings() -> dict[str, Array]:
    """All (threads, elements per thread) pairs as (1, n) columns."""
    pairs = [(a, e) for a in THREADS for e in PER_THREAD]
    grid = np.array(pairs, dtype=np.float64)
    return {"threads": grid[None, :, 0], "per_thread": grid[None, :, 1]}


def register_demand(w: Columns, per_thread: Array) -> Array:
    """Register demand of a pointwise kernel; notes: 480 compiled kernels, mean error 3.1 registers.

    8.6 + 1.19 min(pk, 20) + 0.52 max(pk - 20, 0) + 1.22 scratch + 0.84 writes, with pk the peak of values held: all
    loads of E elements first, or the live values of one element beside the rest.
    """
    half = np.where(w["element_bytes"] < 4, 0.5, 1.0)
    loads = per_thread * w["full_reads"] * half + w["row_reads"]
    held = (per_thread - 1.0) * np.maximum(w["full_reads"], w["full_writes"]) * half + w["live"]
    peak = np.maximum(np.maximum(loads + w["live"] - w["full_reads"] - w["row_reads"], held), per_thread * half)
    scratch = w["scratch"] * (1.0 + 0.25 * (per_thread - 1.0))
    values = 1.19 * np.minimum(peak, 20.0) + 0.52 * np.maximum(peak - 20.0, 0.0)
    return 8.6 + values + 1.22 * scratch + 0.84 * w["full_writes"]


def evaluate(device: Device, w: Columns, tile: Columns) -> tuple[dict[str, Array], dict[str, Array]]:
    """Resources and terms of (rows x tilings)."""
    points = w["outer"] * w["inner"]
    blocks = np.ceil(points / (tile["threads"] * tile["per_thread"]))
    shared = np.ceil(w["staged"] * STAGING_TILE * w["element_bytes"]) + np.zeros_like(tile["threads"])
    vector = np.minimum(tile["per_thread"], 16.0 / w["element_bytes"])
    accesses = (w["full_reads"] + w["full_writes"]) * tile["per_thread"] / np.maximum(vector, 1.0)
    code = (
        t.FIXED_CODE + t.INSTRUCTION_CODE * w["instructions"] * tile["per_thread"]
        + t.LOAD_CODE * (accesses + w["row_reads"]) + t.ARRAY_CODE * w["arrays"]
    )  # fmt: skip
    dram = w["read_bytes"] + w["write_bytes"]
    demand = t.plateau(register_demand(w, tile["per_thread"]), 40.0)
    res = t.resources(
        device, w, demand=demand, threads=tile["threads"], blocks=blocks, shared=shared, code=code, dram_bytes=dram
    )
    slots = device.units * np.maximum(res["resident"], 1.0)
    found = t.stream_terms(device, w)
    index_work = 5.0 * points * (w["full_reads"] + w["full_writes"] + w["row_reads"]) / np.maximum(vector, 1.0)
    found |= t.pipe_terms(device, w, np.minimum(blocks, device.units), index_work)
    block_latency = device.dram_latency + device.constant("pointwise_block", 0.25e-6)
    found["latency"] = t.waves(blocks, slots) * block_latency
    found["staging"] = w["staged_bytes"] * device.constant("staging_share", 0.15) / device.stream
    found["shared"] = 2.0 * w["staged_bytes"] / device.shared_bytes_per_s
    return res, found | t.overhead_terms(device, res)
