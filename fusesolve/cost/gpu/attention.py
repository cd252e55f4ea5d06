"""Attention: two contractions around an online softmax, keys streamed past a tile of query rows.

Structure from public FlashAttention latencies (prefill within 8 %, decode within 6 %): tiles of queries and keys, a
cost per block for loading queries and writing results, exponentials that the tensor pipe does not hide, splits over
keys where there are too few query tiles (decode).
"""

import numpy as np

from fusesolve.cost.gpu import terms as t
from fusesolve.cost.gpu.contraction import peak_rate
from fusesolve.cost.gpu.device import Device
from fusesolve.cost.table import Array, Columns

TILES = ((16, 64), (16, 128), (32, 64), (64, 32), (64, 64), (64, 128), (128, 64), (128, 128))
SPLITS = (1, 2, 4, 8, 16, 32)
PASSES = (1, 2)  # 2: maximum and sum first, then probabilities again; needed where the tail is not linear


def tilings() -> dict[str, Array]:
    """All (query rows, keys, split over keys, passes) as (1, n) columns."""
    rows = [(m, n, s, p) for m, n in TILES for s in SPLITS for p in PASSES]
    grid = np.array(rows, dtype=np.float64)
    return {
        "tile_m": grid[None, :, 0], "tile_n": grid[None, :, 1], "split": grid[None, :, 2], "mode": grid[None, :, 3]
    }  # fmt: skip


def evaluate(device: Device, w: Columns, tile: Columns, *, library: bool) -> tuple[dict[str, Array], dict[str, Array]]:
    """Resources and terms of (rows x tilings). `m` are query rows, `n` keys, `k` and `head` the two head widths."""
    queries, keys = tile["tile_m"], tile["tile_n"]
    inner, head = _padded(w["k"]), _padded(w["head"])
    blocks = np.ceil(w["m"] / queries) * w["batch"] * tile["split"]
    threads = np.where(queries >= 64, 2.0 * queries, 128.0)
    size = w["operand_bytes"]
    shared = np.ceil(size * (queries * inner + keys * inner + keys * head) + 4.0 * queries * 2.0)
    demand = queries * head / threads + queries * keys / threads + 40.0 + 0.5 * w["scratch"]
    res = t.resources(
        device, w, demand=demand, threads=threads, blocks=blocks, shared=shared,
        code=6000.0 + t.INSTRUCTION_CODE * w["instructions"] * np.minimum(queries * keys / threads, 64.0),
        dram_bytes=w["read_bytes"] + w["write_bytes"],
    )  # fmt: skip
    wrong = (w["linear_tail"] < 1) & (tile["mode"] < 2) | (tile["split"] > 1) & (tile["mode"] > 1)
    wrong |= (tile["split"] > 1) & (w["n"] / tile["split"] < 2 * keys)
    res["missing_blocks"] = np.where(wrong, 1.0, res["missing_blocks"])
    found = _terms(device, w, tile, res, inner=inner, head=head, library=library)
    return res, t.overhead_terms(device, res) | found


def _padded(width: Array) -> Array:
    """Head widths are padded to a multiple of 32."""
    return np.ceil(np.maximum(width, 1.0) / 32.0) * 32.0


def _terms(
    device: Device, w: Columns, tile: Columns, res: Columns, *, inner: Array, head: Array, library: bool
) -> dict[str, Array]:  # fmt: skip
    units = float(device.units)
    queries, keys = tile["tile_m"], tile["tile_n"]
    share = device.constant("attention_efficiency", 0.9)
    share *= 1.0 if library else device.constant("generated_share", 0.95)
    rate = peak_rate(device, w) * share / units
    steps = np.ceil(w["n"] / tile["split"] / keys)
    first = np.where(tile["mode"] > 1, 2.0, 1.0)
    filled = np.clip(w["n"] / tile["split"] / keys, 0.25, 1.0)
    mma = 2.0 * queries * keys * (first * inner + head) / rate * filled
    points = np.maximum(w["batch"] * w["m"] * w["n"], 1.0)
    scores = queries * keys * first * filled
    exposed = device.constant("attention_exponential", 0.8)
    sfu = w["sfu"] / points * scores / (device.sfu / units) * exposed
    fma = w["fma"] / points * scores / (device.fma / units)
    fixed = device.constant("attention_block", 2.4e-6)
    rounds = t.waves(res["blocks"], np.full_like(res["blocks"], units))
    lone = device.constant("attention_step", 0.5e-6) * keys / 128.0
    step_time = np.maximum(mma, lone)
    streams = t.stream_terms(device, w)
    combining = np.where(tile["split"] > 1, device.constant("attention_combine", 2.0e-6), 0.0)
    return streams | {
        "tensor": rounds * steps * step_time, "sfu": rounds * steps * sfu, "fma": rounds * steps * fma,
        "prologue": rounds * steps * _prologue(device, w, keys, inner + head),
        "floor": np.full_like(mma, device.gemm_floor), "latency": rounds * fixed + np.zeros_like(mma),
        "split": combining + np.zeros_like(mma),
    }  # fmt: skip


def _prologue(device: Device, w: Columns, keys: Array, width: Array) -> Array:
    """Seconds per step of operators fused in front of keys and values: every query tile computes them again."""
    return w["side_work"] * keys * width / (device.fma / device.units)


def combine(terms: Columns, off: frozenset[str]) -> Array:
    """Latency of attention: launch + floor + p2(compute, memory) + split; exponentials add to the tensor time."""

    def get(name: str) -> Array:
        part = terms.get(name)
        return np.zeros((1, 1)) if part is None or name in off else part

    compute = get("tensor") + get("sfu") + 0.5 * get("fma") + get("prologue") + get("latency")
    memory = get("dram") + get("l2") + get("spill")
    body = t.pnorm(2.0, compute, memory) + get("split") + get("code")
    return get("launch") + get("arguments") + get("floor") + body
