"""Attention: two contractions around an online softmax, keys streamed past a tile of query rows.

Structure from public FlashAttention latencies (prefill within 8 %, decode within 6 %): tiles of queries and keys, a
cost per block for loading queries and writing results, exponentials that the tensor pipe does not hide, splits over
keys where there are too few query tiles (decode).
"""

import numpy as np

from fusesolve.cost.gpu import terms as t
from fusesolve.cost.gpu.contraction import peak_rate
from fusesolve.cost.gpu.device import Device
from fusesolve.cost.table import Array, Columns, Flags

TILES = ((16, 64), (16, 128), (32, 64), (64, 32), (64, 64), (64, 128), (128, 64), (128, 128), (192, 128))
SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128)
PASSES = (1, 2)  # 2: maximum and sum first, then probabilities again; needed where the tail is not linear
OVERLAP = 2.0  # p-norm of compute and memory time
SHORT_HEAD, LONG_HEAD = 64.0, 128.0  # a library takes taller tiles up to the one, fewer keys above the other
POWER_TIME = 400e-6  # seconds after which a kernel runs at its sustained power


def tilings() -> dict[str, Array]:
    """All (query rows, keys, split over keys, passes) as (1, n) columns."""
    rows = [(m, n, s, p) for m, n in TILES for s in SPLITS for p in PASSES if s == 1 or p == 1]
    grid = np.array(rows, dtype=np.float64)
    return {
        "tile_m": grid[None, :, 0], "tile_n": grid[None, :, 1], "split": grid[None, :, 2], "mode": grid[None, :, 3]
    }  # fmt: skip


def evaluate(device: Device, w: Columns, tile: Columns, *, library: bool) -> tuple[dict[str, Array], dict[str, Array]]:
    """Resources and terms of (rows x tilings). `m` are query rows, `n` keys, `k` and `head` the two head widths."""
    queries, keys = tile["tile_m"], tile["tile_n"]
    inner, head = _padded(w["k"]), _padded(w["head"])
    packed = not library or device.constant("attention_packs", 1.0) > 0
    apart = np.where((w["m"] <= w["shared_heads"]) | packed, 1.0, w["shared_heads"])
    blocks = np.ceil(w["m"] / apart / queries) * apart * w["batch"] * tile["split"]
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
    if library:
        wrong = wrong | ~_offered(device, w, tile)
    res["missing_blocks"] = np.where(wrong, 1.0, res["missing_blocks"])
    found = _terms(device, w, tile, res, inner=inner, head=head, library=library)
    return res, t.overhead_terms(device, res) | found


def _padded(width: Array) -> Array:
    """Head widths are padded to a multiple of 32."""
    return np.ceil(np.maximum(width, 1.0) / 32.0) * 32.0


def _offered(device: Device, w: Columns, tile: Columns) -> Flags:
    """Whether a library has the kernel: one tile height, 128 keys (64 for wide heads); a lone head may not split."""
    tall = device.constant("attention_rows", 128.0)
    rows = np.where((tall > 64.0) & (w["head"] <= SHORT_HEAD), 192.0, tall)
    rows = np.where((w["head"] > LONG_HEAD) | (w["m"] <= 64.0), np.minimum(rows, 128.0), rows)
    keys = np.where(w["head"] > LONG_HEAD, 64.0, 128.0)
    alone = (w["m"] <= 1) & (device.constant("attention_lone_split", 1.0) <= 0)
    fitting: Flags = (tile["tile_m"] == rows) & (tile["tile_n"] == keys) & ~(alone & (tile["split"] > 1))
    return fitting


def _terms(
    device: Device, w: Columns, tile: Columns, res: Columns, *, inner: Array, head: Array, library: bool
) -> dict[str, Array]:  # fmt: skip
    units = float(device.units)
    queries, keys = tile["tile_m"], tile["tile_n"]
    share = device.constant("attention_efficiency", 0.9)
    share *= 1.0 if library else device.constant("generated_share", 0.95)
    rate = peak_rate(device, w) * share / units
    own = w["n"] / tile["split"]
    filled = np.clip(own / keys, 0.25, 1.0)
    most = np.ceil(own / keys)
    steps = np.where(w["causal"] > 0, 0.5 * (own / keys + np.minimum(1.0, own / keys)), most)  # of keys, the mean
    first = np.where(tile["mode"] > 1, 2.0, 1.0)
    mma = 2.0 * queries * keys * (first * inner + head) / rate * filled
    points = np.maximum(w["batch"] * w["m"] * w["n"], 1.0)
    each = queries * keys / points * first * filled * units
    sfu = w["sfu"] * each / device.sfu * device.constant("attention_exponential", 0.8)
    fma = 0.5 * w["fma"] * each / device.fma * (0.0 if library else 1.0)
    loading = keys * (inner + head) * w["operand_bytes"] * filled / device.constant("attention_feed", 90e9)
    step = np.maximum(mma + sfu + fma, loading) + _prologue(device, w, keys, inner + head)
    usual = device.constant("attention_step", 0.5e-6)
    lone = np.where((w["m"] <= 1) & library, device.constant("attention_step_lone", usual), usual)
    lone_step = np.maximum(step, lone * keys / 128.0 * filled)
    used = np.minimum(queries, w["m"]) / queries
    loads = device.constant("attention_query", 1.0e-6) * head / 128.0 * (0.5 + 0.5 * used)
    fixed = device.constant("attention_block", 2.4e-6) + loads
    rounds = res["blocks"] / units
    tail = device.constant("attention_tail", 0.6)
    rest = np.where(rounds > 1.0, np.ceil(rounds) - rounds, 0.0)
    smooth = rounds + np.where(w["causal"] > 0, 0.5, 1.0) * tail * rest
    average = steps * step + fixed
    busy = np.maximum(np.maximum(smooth, 1.0) * average, most * lone_step + fixed)
    work = rounds * steps
    ideal = 2.0 * w["mma"] / peak_rate(device, w)
    busy = busy * (1.0 + device.constant("attention_power", 0.1) * ideal / (ideal + POWER_TIME))
    partial = 4.0 * w["batch"] * w["m"] * (w["head"] + 2.0) * tile["split"]
    combining = device.constant("attention_combine", 2.0e-6) + 2.0 * partial / device.l2
    combining = combining + device.constant("attention_combine_each", 0.05e-6) * tile["split"]
    return _streams(device, w) | {
        "tensor": work * mma, "sfu": work * sfu, "fma": work * fma,
        "prologue": work * _prologue(device, w, keys, inner + head),
        "floor": np.full_like(mma, device.attention_floor),
        "latency": np.maximum(busy - work * step, 0.0) + work * np.maximum(loading - mma - sfu - fma, 0.0),
        "split": np.where(tile["split"] > 1, combining, 0.0) + np.zeros_like(mma),
    }  # fmt: skip


def _streams(device: Device, w: Columns) -> dict[str, Array]:
    """`dram` and `l2` seconds of queries, keys, values and results."""
    spec = device.profile.memory.dram.bandwidth
    found = t.stream_terms(device, w)
    share = device.constant("attention_dram", device.stream / spec)
    return {"dram": found["dram"] * device.stream / (share * spec), "l2": found["l2"]}


def _prologue(device: Device, w: Columns, keys: Array, width: Array) -> Array:
    """Seconds per step of operators fused in front of keys and values: every query tile computes them again."""
    return w["side_work"] * keys * width / (device.fma / device.units)


def combine(terms: Columns, off: frozenset[str]) -> Array:
    """Latency of attention: launch + floor + p2(compute, memory) + split; exponentials add to the tensor time."""

    def get(name: str) -> Array:
        part = terms.get(name)
        return np.zeros((1, 1)) if part is None or name in off else part

    compute = get("tensor") + get("sfu") + get("fma") + get("prologue") + get("latency")
    memory = get("dram") + get("l2") + get("spill")
    body = t.pnorm(OVERLAP, compute, memory) + get("split") + get("code")
    return get("launch") + get("arguments") + get("floor") + body
