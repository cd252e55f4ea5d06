"""Row kernels as libraries have them: one launch shape per operator, rows over blocks in waves.

Structure from public latencies (layer norm, softmax, rms norm, rotary embedding, per-token quantisation): a block takes
l0 + l1 per trip of its loop over the row, blocks run in waves, a row of several passes comes from the cache again while
the rows in flight fit in it.
"""

import numpy as np

from fusesolve.cost.gpu import terms as t
from fusesolve.cost.gpu.device import Device
from fusesolve.cost.gpu.rows import THREADS_IN_FLIGHT
from fusesolve.cost.table import Array, Columns

# Kinds of rows (`Workload.row_kind`): layer norm; rows written where an index says; quantised by rows; reduced to one
# number by all blocks; rotated by pairs; indices walked one after the other.
NORM, SCATTERED, QUANTISED, MERGED, ROTARY, CHASED = 1, 2, 3, 4, 5, 6
ATOMIC = 1.35e-9  # seconds of an atomic update where all blocks update one address: about two clocks of the L2 cache
NORM_REGISTERS = 64.0  # per thread of PyTorch's layer norm in 16 bits: half as many blocks as its threads would allow
WAITING = 0.6  # of the DRAM's latency: what a trip to DRAM waits beyond one to the L2 cache (0.5 to 0.62 on five GPUs)
CHASE = 0.45e-6  # seconds of an index's divisions and their wait, beyond the loads that wait for each other
ROTARY_STEP = 0.6  # a trip of a rotation (four independent loads, no chain of arithmetic) over one of the other rows
SCATTER_FLOOR = 0.7e-6  # the same of a KV-cache write, whose other constant was fitted with it
FLOOR = 0.2e-6  # seconds in which a kernel starts and drains, its first loads not counted
STREAMED = 0.5e-6  # the same of a kernel without a reduction: its first loads are counted
ROOM = 0.18  # share of the L2 cache that the rows of THREADS_IN_FLIGHT may fill before they push each other out
SHARPNESS = 6.0  # exponent of that knee
SINGLE = 0.5  # a trip of single elements over one of wide loads, in rows that start between two of these


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
    if device.profile.registers is not None:
        fitting = np.maximum(np.floor(device.profile.registers.per_unit / (NORM_REGISTERS * threads)), 1.0)
        narrow = (w["row_kind"] == NORM) & (w["element_bytes"] < 4)
        per_unit = np.where(narrow, np.minimum(per_unit, fitting), per_unit)
    slots = device.units * np.where(threads > 32.0, np.minimum(per_unit, 32.0), per_unit)
    found = t.stream_terms(device, w)
    found["reread"] = _reread(device, w, threads, found["dram"] + found["l2"])
    found["latency"] = t.waves(w["outer"] + nothing, slots) * _block(device, w, threads)
    found |= t.pipe_terms(device, w, np.minimum(w["outer"], device.units), nothing)
    floor = np.where((w["row_kind"] == 0) & (w["reductions"] <= 0), STREAMED, FLOOR)
    floor = np.where(w["row_kind"] == SCATTERED, SCATTER_FLOOR, floor)
    floor = np.where(w["row_kind"] == QUANTISED, 0.0, floor)
    floor = np.where(w["row_kind"] == MERGED, w["outer"] * ATOMIC, floor)
    floor = np.where(w["row_kind"] == CHASED, device.floor, floor)
    return res, found | t.overhead_terms(device, res) | {"floor": nothing + floor}


def _reread(device: Device, w: Columns, threads: Array, streams: Array) -> Array:
    """Seconds of the further passes: from DRAM where the rows in flight push each other out of the cache.

    Every byte passes the L2 cache once per pass, and quantisers are bound by that; other kernels' last pass finds its
    row nearer.
    """
    again = (w["passes"] - 1.0) * w["reread_bytes"]
    held = np.minimum(w["outer"], THREADS_IN_FLIGHT / threads) * w["reread_bytes"] / np.maximum(w["outer"], 1.0)
    cache = device.profile.memory.l2
    room = device.constant("reread_room", ROOM) * float(cache.size) if cache is not None else 1.0
    lost = 1.0 / (1.0 + np.minimum(room / np.maximum(held, 1.0), 1e3) ** SHARPNESS)
    seconds: Array = again * lost / device.stream
    through = (w["read_bytes"] + w["write_bytes"] + again) / device.l2
    short = np.maximum(through - streams - seconds, 0.0)
    return seconds + np.where(w["row_kind"] == QUANTISED, short, 0.0)


def _block(device: Device, w: Columns, threads: Array) -> Array:
    """Seconds of one block: start, combination across threads, trips.

    A trip that goes to DRAM waits longer than one that finds its row in the L2 cache.
    """
    trips = _trips(w, threads, np.maximum(1.0, w["row_load_bytes"] / w["element_bytes"]))
    trips = np.where((w["row_kind"] == 0) & (threads <= 32.0), 1.0, trips)  # a row that a warp holds: all loads at once
    norm = w["row_kind"] == NORM
    start = np.where(norm, device.constant("norm_latency", 4.0e-6), device.constant("row_latency", 0.9e-6))
    start = np.where((w["reductions"] > 0) | (w["row_kind"] == ROTARY), start, 0.0)
    start = np.where(w["row_kind"] == SCATTERED, device.constant("scatter_latency", 2.0e-6), start)
    step = np.where(norm, device.constant("norm_step", 0.5e-6), device.constant("row_step", 0.5e-6))
    step = step * np.where(w["row_kind"] == ROTARY, ROTARY_STEP, 1.0)
    quantised = (w["row_kind"] == QUANTISED) | (w["row_kind"] == MERGED)
    combined = 1.0 + (w["reductions"] > 0)  # a block that reduces waits for its loads, and then for its other threads
    start = np.where(quantised, device.constant("quantise_latency", 0.5e-6) * combined, start)
    step = np.where(quantised, device.constant("quantise_step", 0.2e-6), step)
    walks = np.where(norm, 1.0, w["passes"])
    step = np.where(w["row_kind"] == CHASED, 2.0 * device.l2_latency + CHASE, step)  # an index, then the row it names
    waiting = WAITING * device.dram_latency * (1.0 - t.warm_share(device, w))
    each = np.where(w["row_kind"] == SCATTERED, 0.0, step + waiting)  # a copy without a loop: all its loads at once
    seconds: Array = start + trips * walks * each
    return seconds


def _trips(w: Columns, threads: Array, wide: Array) -> Array:
    """Trips of a block over its row: wide loads, and what they leave one by one.

    Layer norms and quantisers have wide loads only, some threads idle in the last one. A softmax whose rows do not
    start where a wide load may takes its first elements one by one as well.
    """
    whole_only = (w["row_kind"] == NORM) | (w["row_kind"] == QUANTISED)
    shifted = np.where(w["row_kind"] == 0, 1.0 - np.gcd(w["inner"].astype(np.int64), wide.astype(np.int64)) / wide, 0.0)
    later = np.maximum(w["inner"] - threads + wide / 2.0, 0.0)  # a shifted row is half a wide load off in the mean
    peeled = SINGLE + _wide_and_single(later, threads, wide, SINGLE)
    found = (1.0 - shifted) * _wide_and_single(w["inner"], threads, wide, 1.0) + shifted * peeled
    return np.where(whole_only, np.ceil(w["inner"] / (threads * wide)), found)


def _wide_and_single(elements: Array, threads: Array, wide: Array, single: float) -> Array:
    """Trips of wide loads over so many elements, and `single` for each trip over the rest."""
    trips = np.floor(elements / (threads * wide))
    rest = np.ceil((elements - trips * threads * wide) / threads)
    found: Array = trips + np.where(wide > 1.0, single * np.minimum(rest, wide), rest)
    return found
