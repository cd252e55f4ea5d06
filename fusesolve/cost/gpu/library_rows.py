"""Row kernels as libraries have them: one launch shape per operator, rows over blocks in waves.

Structure from public latencies (layer norm, softmax, rms norm, rotary embedding, per-token quantisation): a block takes
l0 + l1 per trip of its loop over the row, blocks run in waves, a row of several passes comes from the cache again while
the rows in flight fit in it.
"""

import numpy as np

from fusesolve.cost.gpu import terms as t
from fusesolve.cost.gpu.device import Device
from fusesolve.cost.table import Array, Columns

NORM, SCATTERED, QUANTISED = 1, 2, 3  # kinds of rows: `Workload.row_kind`
FLOOR = 0.7e-6  # seconds in which a kernel starts and drains, its first loads not counted
COLD_STEP = 1.5  # a trip that waits for DRAM takes this much longer than one that finds its row in the L2 cache
ROOM = 0.45  # share of the L2 cache that rows in flight may fill before they push each other out
SHARPNESS = 6.0  # exponent of that knee


def tilings() -> dict[str, Array]:
    """One shape, which the workload names."""
    return {"threads": np.array([[0.0]]), "rows": np.array([[1.0]])}


def evaluate(device: Device, w: Columns, tile: Columns) -> tuple[dict[str, Array], dict[str, Array]]:
    """Resources and terms of (rows x 1)."""
    threads = np.maximum(w["row_threads"], 32.0) + np.zeros_like(tile["threads"])
    nothing = np.zeros_like(threads)
    res = t.resources(
        device, w, demand=nothing + 32.0, threads=threads, blocks=w["outer"] + nothing, shared=nothing + 128.0,
        code=nothing + 4096.0, dram_bytes=w["read_bytes"] + w["write_bytes"],
    )  # fmt: skip
    limits = device.profile.limits
    per_unit = np.floor(float(limits.threads_per_unit) / threads) if limits is not None else np.ones_like(threads)
    slots = device.units * np.where(threads > 32.0, np.minimum(per_unit, 32.0), per_unit)
    found = t.stream_terms(device, w)
    warm = (w["warm_read_bytes"] + w["warm_write_bytes"]) / np.maximum(w["read_bytes"] + w["write_bytes"], 1.0)
    again = (w["passes"] - 1.0) * w["reread_bytes"]
    held = np.minimum(w["outer"], slots) * w["reread_bytes"] / np.maximum(w["outer"], 1.0)
    cache = device.profile.memory.l2
    room = device.constant("reread_room", ROOM) * float(cache.size) if cache is not None else 1.0
    lost = 1.0 / (1.0 + np.minimum(room / np.maximum(held, 1.0), 1e3) ** SHARPNESS)
    found["reread"] = again * lost / device.stream
    found["latency"] = t.waves(w["outer"] + nothing, slots) * _block(device, w, threads, 1.0 - warm)
    found |= t.pipe_terms(device, w, np.minimum(w["outer"], device.units), nothing)
    return res, found | t.overhead_terms(device, res) | {"floor": nothing + FLOOR}


def _block(device: Device, w: Columns, threads: Array, cold: Array) -> Array:
    """Seconds of one block: start, combination across threads, trips (the remainder of wide loads runs one by one)."""
    wide = np.maximum(1.0, w["row_load_bytes"] / w["element_bytes"])
    whole = np.floor(w["inner"] / (threads * wide))
    rest = np.ceil((w["inner"] - whole * threads * wide) / threads)
    trips = whole + np.where(wide > 1.0, np.minimum(rest, wide), rest)
    norm = w["row_kind"] == NORM
    start = np.where(norm, device.constant("norm_latency", 4.0e-6), device.constant("row_latency", 0.9e-6))
    start = np.where(w["reductions"] > 0, start, 0.0)
    start = np.where(w["row_kind"] == SCATTERED, device.constant("scatter_latency", 2.0e-6), start)
    step = np.where(norm, device.constant("norm_step", 0.5e-6), device.constant("row_step", 0.5e-6))
    step = np.where(w["row_kind"] == SCATTERED, 0.0, step)  # a copy without a loop: all loads at once
    quantised = w["row_kind"] == QUANTISED
    start = np.where(quantised, device.constant("quantise_latency", 0.6e-6), start)
    step = np.where(quantised, device.constant("quantise_step", 0.2e-6), step)
    walks = np.where(norm, 1.0, w["passes"])
    seconds: Array = start + step * trips * walks * (1.0 + (COLD_STEP - 1.0) * cold)
    return seconds
