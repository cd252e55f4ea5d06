"""Attention: two contractions around an online softmax, keys streamed past a tile of query rows.

Structure from public FlashAttention latencies (prefill within 8 %, decode within 6 %): tiles of queries and keys, a
cost per block for loading queries and writing results, exponentials that the tensor pipe does not hide, splits over
keys where there are too few query tiles (decode).
"""

import numpy as np

from fusesolve.cost.gpu import features
from fusesolve.cost.gpu import terms as t
from fusesolve.cost.gpu.contraction import generated_share, peak_rate
from fusesolve.cost.gpu.device import Device
from fusesolve.cost.gpu.fitted import FITTED
from fusesolve.cost.gpu.layout import HELD_ROWS, attention_bytes, flash_bytes, held_bytes
from fusesolve.cost.gpu.prologue import filling
from fusesolve.cost.table import Array, Columns, Flags

TILES = ((16, 64), (16, 128), (32, 64), (64, 32), (64, 64), (64, 128), (128, 64), (128, 128), (192, 128))
LIBRARY_TILES = ((64, 128), (64, 96), (64, 80), (64, 64), (128, 128), (128, 96), (128, 80), (128, 64), (192, 128))
SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128)
LIBRARY_SPLITS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 64, 80, 96, 128)
HELD_TILES = (8, 16, 32, 64)  # query rows where whole rows are held
HELD_REGISTERS = 52.0  # median of 8 kernels that plans choose (32 to 72), sm_80 and sm_90, CUDA 13.5, Numba CUDA 0.30
HELD_CODE = 18_000.0  # bytes, of the same (15,000 to 48,000)
OVERLAP = 2.0  # p-norm of compute and memory time
PREPARED = 992  # sequences that FlashAttention-3's scheduler looks at ahead of the kernel; more go without


def tilings(*, library: bool) -> dict[str, Array]:
    """All (query rows, keys, split over keys, mode) as (1, n) columns; `mode` 2 holds whole rows, no library does."""
    if library:
        rows = [(m, n, s, 1) for m, n in LIBRARY_TILES for s in LIBRARY_SPLITS]
    else:
        rows = [(m, n, s, 1) for m, n in TILES for s in SPLITS] + [(m, 64, 1, 2) for m in HELD_TILES]
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
    tiles = np.ceil(w["m"] / apart / queries)
    threads = np.where(queries >= 64, 2.0 * queries, 128.0)
    made = _library_made(w, tile, threads, head) if library else _made(device, w, tile, threads)
    size = (queries, keys, inner, head) if library else (queries, keys, w["k"], w["head"])
    shared = attention_bytes(*size, w["operand_bytes"])
    held = tile["mode"] > 1
    if not library:
        shared = np.where(_flash(w), flash_bytes(*size), shared)
        shared = np.where(held, held_bytes(queries, w["k"], w["n"]), shared)
    res = t.resources(
        device, w, demand=made[0], threads=threads, blocks=tiles * apart * w["batch"] * tile["split"],
        shared=shared, code=made[1],
        dram_bytes=w["read_bytes"] + w["write_bytes"],
    )  # fmt: skip
    wrong = (w["linear_tail"] < 1) != held
    wrong |= (tile["split"] > 1) & (tile["split"] > np.ceil(w["n"] / keys))
    if library:
        wrong = wrong | ~_offered(device, w, tile)
    res["missing_blocks"] = np.where(wrong, 1.0, res["missing_blocks"])
    rows = np.minimum(w["m"] / apart, queries)
    blocks = _key_blocks(w, tile, tiles, held)
    found = _terms(device, w, tile, res, blocks, rows=rows, inner=inner, head=head, library=library)
    return res, t.overhead_terms(device, res) | found


def _flash(w: Columns) -> Flags:
    """Which rows the generated kernel computes on the tensor pipe: operands of one 16-bit type."""
    found: Flags = (w["operand_bytes"] == 2) & (w["tensor_rate"] >= 0)
    return found


def _made(device: Device, w: Columns, tile: Columns, threads: Array) -> tuple[Array, Array]:
    """Register demand and code bytes of the generated kernel."""
    registers = features.attention_registers(w, tile, threads, device.newer)
    flash = features.flash_registers(w, tile, device.newer)
    code, flash_code = features.attention_code(w, tile, threads), features.flash_code(w, tile)
    taken = np.where(_flash(w), FITTED["flash_registers"].of(flash), FITTED["attention_registers"].of(registers))
    size = np.where(_flash(w), FITTED["flash_code"].of(flash_code), FITTED["attention_code"].of(code))
    held = tile["mode"] > 1
    return np.where(held, HELD_REGISTERS, taken), np.where(held, HELD_CODE, size)


def _library_made(w: Columns, tile: Columns, threads: Array, head: Array) -> tuple[Array, Array]:
    """Register demand and code bytes of a library's kernel: its part of results and scores, and 40 more."""
    scores = tile["tile_m"] * tile["tile_n"] / threads
    code = 6000.0 + t.INSTRUCTION_CODE * w["instructions"] * np.minimum(scores, 64.0)
    return tile["tile_m"] * head / threads + scores + 40.0 + 0.5 * w["scratch"], code


def _padded(width: Array) -> Array:
    """Head widths are padded to a multiple of 32."""
    return np.ceil(np.maximum(width, 1.0) / 32.0) * 32.0


def _offered(device: Device, w: Columns, tile: Columns) -> Flags:
    """Whether a library has the kernel: a tile for each head width, one group of warps for up to 64 rows.

    FlashAttention-3 over a paged cache: 192 x 128 up to a head of 64, 128 x 128 up to 128, 96 keys up to 192, 80 above;
    FlashAttention-2: 64 x 128, 64 keys above a head of 128. Some versions split keys only for a single query whose
    heads share them.
    """
    tall, head = device.constant("attention_rows", 128.0), w["head"]
    rows = np.where((tall > 64.0) & (head <= 64.0), 192.0, tall)
    rows = np.where(w["m"] <= 64.0, np.minimum(rows, 64.0), rows)
    keys = np.where(head <= 128.0, 128.0, np.where(tall <= 64.0, 64.0, np.where(head <= 192.0, 96.0, 80.0)))
    alone = (w["shared_heads"] <= 1) | (w["m"] > w["shared_heads"])
    alone = alone & (device.constant("attention_lone_split", 1.0) <= 0)
    fitting: Flags = (tile["tile_m"] == rows) & (tile["tile_n"] == keys) & ~(alone & (tile["split"] > 1))
    return fitting


class _KeyBlocks:
    """Blocks of keys that a tile of query rows walks through: the `mean` over tiles and the `most` of one tile.

    `filled` is the share of a block that has keys, where there is only one.
    """

    def __init__(self, mean: Array, most: Array, filled: Array) -> None:
        self.mean, self.most, self.filled = mean, most, filled


def _held_products(device: Device, products: Array) -> Array:
    """Seconds of one unit for products of held rows: each is one word of shared memory for a warp.

    A unit serves a warp as long as it takes 32 words, 128 bytes; the right operand's load comes on top once for
    `HELD_ROWS` rows.
    """
    return products * 4.0 * (1.0 + 1.0 / HELD_ROWS) / (device.shared_bytes_per_s / device.units)


def _key_blocks(w: Columns, tile: Columns, tiles: Array, held: Flags) -> _KeyBlocks:
    """A causal call skips the blocks behind each tile: of x blocks the i-th of q tiles sees ceil(x i / q).

    Their mean is x (1 + 1/q) / 2, and (1 - x/q) / 2 from rounding up while a tile is shorter than a block. Where whole
    rows are held, all keys are one block.
    """
    blocks = np.where(held, 1.0, w["n"] / tile["tile_n"])
    most = np.ceil(np.ceil(blocks) / tile["split"])
    tiles = np.maximum(tiles, 1.0)
    causal = 0.5 * blocks * (1.0 + 1.0 / tiles) + 0.5 * np.maximum(1.0 - blocks / tiles, 0.0)
    mean = np.where(w["causal"] > 0, np.clip(causal / tile["split"], 1.0, most), most)
    return _KeyBlocks(mean, most, np.clip(blocks, 0.25, 1.0))


def _terms(
    device: Device, w: Columns, tile: Columns, res: Columns, blocks: _KeyBlocks, *, rows: Array, inner: Array,
    head: Array, library: bool,
) -> dict[str, Array]:  # fmt: skip
    units = float(device.units)
    held = tile["mode"] > 1
    queries, keys = tile["tile_m"], np.where(held, w["n"], tile["tile_n"])
    share = device.constant("attention_efficiency", 0.9)
    reached = share if library else generated_share(device, share)
    mma = 2.0 * queries * keys * (inner + head) / (peak_rate(device, w) * reached / units)
    mma = np.where(held, _held_products(device, queries * keys * (w["k"] + w["head"])), mma)
    points = np.maximum(w["batch"] * w["m"] * w["n"], 1.0)
    each = queries * keys / points * units
    sfu = w["sfu"] * each / device.sfu * device.constant("attention_exponential", 0.8)
    fma = 0.5 * w["fma"] * each / device.fma * (0.0 if library else 1.0)
    fill = filling(device, w, np.zeros_like(keys), keys * (inner + head), res["threads"])
    flash = _flash(w) & ~held  # elsewhere keys and values go through registers anyway
    side, lone_side = np.where(flash, fill.busy, fill.added), np.where(flash, fill.alone, fill.added)
    bytes_of_keys = keys * (inner + head) * w["operand_bytes"]
    loading = bytes_of_keys * blocks.filled / device.constant("attention_feed", 90e9)
    computed = np.maximum(mma + sfu + fma, loading)
    step = computed + side
    lone_step = np.maximum(computed + lone_side, device.constant("attention_step", 0.5e-6) * keys / 128.0)
    moved = rows * (inner + head) * w["operand_bytes"]  # queries in, results out
    fixed = device.constant("attention_block", 2.4e-6) + moved / device.constant("attention_drain", 30e9)
    fixed = fixed + device.constant("attention_query", 0.9e-6) * head / 128.0
    hidden = device.constant("attention_first_hidden", 0.0)
    rounds = res["blocks"] / units
    average = (blocks.mean - hidden) * step + np.maximum(fixed, hidden * step)
    longest = (blocks.most - hidden) * lone_step + np.maximum(fixed, hidden * step)
    busy = np.maximum(_rounds(device, w, rounds) * average, longest)
    work = rounds * blocks.mean
    partial = 4.0 * w["batch"] * w["m"] * (w["head"] + 2.0) * tile["split"]
    combining = device.constant("attention_combine", 2.0e-6) + 2.0 * partial / device.l2
    combining = combining + device.constant("attention_combine_each", 0.05e-6) * tile["split"]
    return _streams(device, w) | t.spill_terms(device, res, blocks.mean) | {
        "tensor": work * mma, "sfu": work * sfu, "fma": work * fma, "prologue": work * side,
        "floor": np.zeros_like(busy) + _start(device, w, library=library),
        "latency": np.maximum(busy - work * (mma + sfu + fma + side), 0.0),
        "split": np.where(tile["split"] > 1, combining, 0.0) + np.zeros_like(mma),
    }  # fmt: skip


def _rounds(device: Device, w: Columns, rounds: Array) -> Array:
    """Rounds of tiles over units: whole ones for equal tiles, half an average tile more or less for causal ones."""
    uneven = np.where(rounds > 1.0, rounds + 0.5 * device.constant("attention_tail", 0.6), 1.0)
    return np.where(w["causal"] > 0, uneven, np.maximum(np.ceil(rounds), 1.0))


def _start(device: Device, w: Columns, *, library: bool) -> Array:
    """Seconds before the first tile: the shortest kernel, and a scheduler that looks at each sequence of a batch."""
    looks = library and device.constant("attention_packs", 1.0) > 0
    ahead = np.where(w["sequences"] <= PREPARED, w["sequences"], 0.0)
    return device.attention_floor + (ahead * device.constant("attention_sequence", 0.0) if looks else 0.0 * ahead)


def _streams(device: Device, w: Columns) -> dict[str, Array]:
    """`dram` and `l2` seconds of queries, keys, values and results."""
    spec = device.profile.memory.dram.bandwidth
    found = t.stream_terms(device, w)
    share = device.constant("attention_dram", device.stream / spec)
    return {"dram": found["dram"] * device.stream / (share * spec), "l2": found["l2"]}


def combine(terms: Columns, off: frozenset[str]) -> Array:
    """Latency of attention: launch + floor + p2(compute, memory) + split; exponentials add to the tensor time."""

    def get(name: str) -> Array:
        part = terms.get(name)
        return np.zeros((1, 1)) if part is None or name in off else part

    compute = get("tensor") + get("sfu") + get("fma") + get("prologue") + get("latency")
    memory = get("dram") + get("l2") + get("spill")
    body = t.pnorm(OVERLAP, compute, memory) + get("split") + get("code")
    return get("launch") + get("arguments") + get("floor") + body
