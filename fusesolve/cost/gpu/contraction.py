"""Contractions: one matmul or convolution (as implicit GEMM) with prologue and epilogue, by library or generated.

The structure (tiles, pipeline latency per k-step, output drain, waves with a smoothed tail, split-K at a price, p-norm
of compute and memory) was fitted on public GEMM latencies: mean error 5 % on H100 and H200, 8 % on A100 (bf16). The
tile is the one that the model finds fastest, as a library's heuristic would.
"""

import math
from dataclasses import dataclass

import numpy as np

from fusesolve.cost.gpu import gemm_features
from fusesolve.cost.gpu import terms as t
from fusesolve.cost.gpu.device import Device
from fusesolve.cost.gpu.fitted import FITTED, TILES
from fusesolve.cost.gpu.layout import FMA_BUFFERS, FMA_STEP, STAGES_MAX, STEP_BYTES, gemm_bytes, gemm_threads
from fusesolve.cost.gpu.main_loop import OVERLAP, MainLoop
from fusesolve.cost.table import Array, Columns, Flags

_SQUARE = (
    (16, 32), (16, 64), (16, 128), (32, 32), (32, 64), (32, 128), (64, 64), (64, 128), (64, 256), (128, 128),
    (128, 256),
)  # fmt: skip
# Further tiles of devices with asynchronous matrix instructions (`gemm_fine_tiles`).
_FINE = ((64, 96), (64, 192), (128, 96), (128, 160), (128, 192), (128, 224), (192, 192), (8, 64), (8, 128))
SPLITS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96)
LEAST_WIDTH = 8  # columns of each contraction in a tile of several that meet in an epilogue
LONG_ROW = 131_072  # bytes of an operand row from which an f32 library of its generation loses a share of its rate
CLUSTERED_ROWS = 64.0  # up to so many rows the same library's clusters lie along the columns, its tiles start anew
BY_ROWS_START = 1.4e-6  # seconds of each further wave of those: no tile loads while the one before still stores
RAGGED = 1.2  # k-steps of the same library where its last tile reaches beyond the rows: measured, the cause not known
POWER_TIME = 300e-6  # seconds after which a kernel runs at its sustained power


def tilings(device: Device) -> dict[str, Array]:
    """All (tile_m, tile_n, split) as (1, n) columns, tiles both ways; fine widths where the device has them."""
    squares = (*_SQUARE, *(_FINE if device.constant("gemm_fine_tiles", 0.0) > 0 else ()))
    tiles = sorted({*squares, *((n, m) for m, n in squares)})
    grid = np.array([(m, n, s) for m, n in tiles for s in SPLITS], dtype=np.float64)
    return {"tile_m": grid[None, :, 0], "tile_n": grid[None, :, 1], "split": grid[None, :, 2]}


def on_tensor_pipe(device: Device, w: Columns) -> Array:
    """Which rows run on the tensor pipe: its type, and rows of both operands aligned to the pipe's fragment."""
    rate = np.where(w["tensor_rate"] >= 0, device.tensor[w["tensor_rate"].astype(np.int64)], 0.0)
    tensor = device.profile.compute.tensor
    alignment = float(tensor.alignment or 16) if tensor is not None else 16.0
    aligned = (w["k"] * w["operand_bytes"]) % alignment == 0
    eligible: Array = (rate > 0) & aligned
    return eligible


def peak_rate(device: Device, w: Columns) -> Array:
    """FLOP/s of the pipe that each row runs on."""
    rate = np.where(w["tensor_rate"] >= 0, device.tensor[w["tensor_rate"].astype(np.int64)], 0.0)
    fma = np.where(w["double"] > 0, device.fma64, device.fma)
    return np.where(on_tensor_pipe(device, w), rate, 2.0 * fma)


def evaluate(device: Device, w: Columns, tile: Columns, *, library: bool) -> tuple[dict[str, Array], dict[str, Array]]:
    """Resources and terms of (rows x tilings), for a library kernel or a generated one."""
    tensor = on_tensor_pipe(device, w)
    step, blocks, steps = _work(w, tile, tensor)
    threads = gemm_threads(tile["tile_m"], tile["tile_n"]) + 0.0 * tensor
    most = math.ceil(min(device.constant("gemm_stages_max", 3.0), STAGES_MAX))
    stages = np.where(tensor, float(most), float(FMA_BUFFERS))
    item = w["operand_bytes"] if library else np.where(tensor, w["operand_bytes"], w["sum_bytes"])
    made = _library_made(w, tile, threads, tensor) if library else _made(device, w, tile, threads, tensor)
    res = t.resources(
        device, w, demand=made.registers, threads=threads, blocks=blocks,
        shared=gemm_bytes(tile["tile_m"], tile["tile_n"], step, stages, item),
        code=made.code, dram_bytes=w["read_bytes"] + w["write_bytes"],
    )  # fmt: skip
    res |= {"tile_k": step, "stages": stages}
    apart = w["parts"] > w["joined"]  # several copies of a tile's code: what they take is not known well enough
    res["max_registers"] = np.where(apart, 0.0, res["max_registers"])
    res["missing_blocks"] = np.where(worth(device, w, tile, library=library), res["missing_blocks"], 1.0)
    found = _terms(device, w, tile, res, steps=steps, step=step, tensor=tensor, library=library)
    return res, t.overhead_terms(device, res) | found


def _work(w: Columns, tile: Columns, tensor: Array) -> tuple[Array, Array, Array]:
    """Elements of k in a step, blocks of the grid, and k-steps of a block."""
    step = np.where(tensor, STEP_BYTES / w["operand_bytes"], float(FMA_STEP))
    own = w["n"] * w["joined"] / w["parts"]  # columns that tiles divide among them
    across = w["parts"] / w["joined"] * np.ceil(own / tile["tile_n"])
    tiles = _tile_rows(w, tile) * across * w["batch"]
    return step, tiles * tile["split"], np.ceil(np.ceil(w["k"] / tile["split"]) / step)


def worth(device: Device, w: Columns, tile: Columns, *, library: bool) -> Flags:
    """Which tilings make sense for a row by its shape alone: work in each part of a split k, and a library's choice."""
    tensor = on_tensor_pipe(device, w)
    _, blocks, steps = _work(w, tile, tensor)
    few = (tile["split"] > 1) & ((steps < 2) | (blocks > 4 * device.units))
    few = few | (tile["tile_n"] / w["joined"] < LEAST_WIDTH) | (tile["tile_n"] % w["joined"] > 0) & (w["joined"] > 1)
    each = tile["tile_m"] * tile["tile_n"] / gemm_threads(tile["tile_m"], tile["tile_n"])
    few = few | (tensor <= 0) & (w["sum_bytes"] > 4) & (each > gemm_features.MOST_SUMS) & (not library)
    if library:
        few = few | ~_offered(device, w, tile, tensor) | (w["tile_by_rows"] > 0) & ~_by_rows(w, tile)
    found: Flags = ~few
    return found


def _offered(device: Device, w: Columns, tile: Columns, tensor: Array) -> Flags:
    """Whether a library has the kernel: f32 libraries keep few tiles, fewer for batches; these and windows whole k."""
    area = tile["tile_m"] * tile["tile_n"]
    batched = (w["batch"] > 1) | (w["parts"] > 1)
    least = np.where(batched, device.constant("fma_batched_tile_min", 1024.0), device.constant("fma_tile_min", 1024.0))
    most = np.where(batched, device.constant("fma_batched_tile_max", 32768.0), device.constant("fma_tile_max", 32768.0))
    side = np.where(batched, device.constant("fma_batched_side", 32.0), 32.0)
    narrow = np.minimum(tile["tile_m"], tile["tile_n"]) < side
    narrow = narrow | (np.log2(area) % 1.0 > 0)  # the fine widths are those of asynchronous matrix instructions
    narrow = narrow | (tile["tile_m"] == 2.0 * tile["tile_n"]) & _older(device, w)
    whole = batched | (w["taps"] > 1)
    fitting = (area >= least) & (area <= most) & ~narrow & ~(whole & (tile["split"] > 1))
    counted = device.constant("fma_batched_waves", 0.0)
    fitting = fitting & (~(batched & _older(device, w)) | _by_waves(w, tile, counted)) if counted > 0 else fitting
    offered: Flags = (tensor > 0) | fitting
    return offered


def _by_waves(w: Columns, tile: Columns, units: float) -> Flags:
    """The one batched f32 tile of Volta's library, read off 289 kernel names of `units` units: 93 % of them are right.

    32 x 128 where that is about one tile a unit; else whole waves decide between 128 x 32 (256 threads, 4 tiles on a
    unit) and 64 x 64 (64 threads, 8 tiles); the last of w waves of 128 x 32 must be 0.7 / sqrt(w) full.
    """

    def each(rows: float, cols: float) -> Array:
        tiles: Array = w["batch"] * np.ceil(w["m"] / rows) * np.ceil(w["n"] / cols)
        return tiles / units

    tall = each(128.0, 32.0) / 4.0
    waves = np.ceil(tall)
    full = tall - waves + 1.0 >= 0.7 / np.sqrt(waves)
    rows = np.where((waves < 2.0 * np.ceil(each(64.0, 64.0) / 8.0)) & full, 128.0, 64.0)
    rows = np.where(each(32.0, 128.0) <= 1.2, 32.0, rows)
    found: Flags = (tile["tile_m"] == rows) & (tile["tile_n"] == 4096.0 / rows)
    return found


def _by_rows(w: Columns, tile: Columns) -> Flags:
    """The one tile of a library of templates, from the number of rows: 16 x 64, 64 x 64, 64 x 128, 128 x 128."""
    rows = np.where(w["m"] <= 16.0, 16.0, np.where(w["m"] <= 128.0, 64.0, 128.0))
    cols = np.where(w["m"] <= 64.0, 64.0, 128.0)
    found: Flags = (tile["tile_m"] == rows) & (tile["tile_n"] == cols) & (tile["split"] == 1)
    return found


def _tile_rows(w: Columns, tile: Columns) -> Array:
    """Rows of tiles; a library of templates runs pairs of tiles down the rows as clusters, so an odd one has a twin."""
    down = np.ceil(w["m"] / tile["tile_m"])
    paired = (w["tile_by_rows"] > 0) & (w["m"] > CLUSTERED_ROWS)
    return np.where(paired, np.ceil(down / 2.0) * 2.0, down)


def _ragged(w: Columns, tile: Columns) -> Array:
    """By how much a library of templates is slower where its last tile reaches beyond the rows."""
    beyond = (w["tile_by_rows"] > 0) & (w["m"] > CLUSTERED_ROWS) & (w["m"] % tile["tile_m"] > 0)
    return np.where(beyond, RAGGED, 1.0)


def _floor(device: Device, w: Columns, tensor: Array, blocks: Array) -> Array:
    """Seconds that a contraction adds to its work: a batch, scales of 8-bit operands, another library's own starts."""
    scaled = np.where((tensor > 0) & (w["operand_bytes"] < 2), device.constant("gemm_scaled", 0.0), 0.0)
    called = (w["batch"] > 1) | (w["parts"] > 1) | (w["batched"] > 0)
    batch = np.where(called, device.constant("gemm_batched", 0.0), 0.0)
    waves = np.where(w["m"] <= CLUSTERED_ROWS, np.ceil(blocks / device.units), 1.0)
    by_rows = device.constant("gemm_by_rows_t0", device.gemm_floor) + BY_ROWS_START * (waves - 1.0)
    return np.where(w["tile_by_rows"] > 0, by_rows, device.gemm_floor + batch + scaled)


@dataclass(frozen=True, slots=True)
class _Made:
    """Register demand and code bytes of a kernel."""

    registers: Array
    code: Array


def _made(device: Device, w: Columns, tile: Columns, threads: Array, tensor: Array) -> _Made:
    """What the compiler makes of the generated kernel, on either pipe."""
    share = gemm_features.fma_share(w, tile)
    registers = gemm_features.fma_registers(w, tile, device.newer, TILES, share)
    demand = gemm_features.bounded(FITTED["fma_registers"].of(registers), w, share)
    fma_code = FITTED["fma_code"].of(gemm_features.fma_code(w, share))
    registers = gemm_features.tensor_registers(w, tile, threads, device.newer)
    code = gemm_features.tensor_code(w, tile, threads)
    return _Made(
        np.where(tensor, FITTED["tensor_registers"].of(registers), demand),
        np.where(tensor, FITTED["tensor_code"].of(code), fma_code),
    )  # fmt: skip


def _library_made(w: Columns, tile: Columns, threads: Array, tensor: Array) -> _Made:
    """A library's kernel: accumulators, fragments and addresses; 3 KB and 110 bytes of code per accumulator."""
    per_thread = tile["tile_m"] * tile["tile_n"] / threads
    fragments = np.where(tensor, 24.0, 2.0 * np.sqrt(np.maximum(per_thread, 1.0)))
    return _Made(per_thread + fragments + 16.0 + 0.0 * w["live"], 3000.0 + 110.0 * np.minimum(per_thread, 64.0))


def generated_share(device: Device, share: Array | float) -> Array:
    """Of the matrix peak, the share of a generated kernel where a library's kernel reaches `share`.

    Its products are instructions of one warp, which do not reach the peak of every device (`warp_share`).
    """
    reached: Array = np.minimum(share, device.constant("warp_share", 1.0)) * device.constant("generated_share", 0.95)
    return reached


def _rate(device: Device, w: Columns, tensor: Array, *, library: bool) -> Array:
    """Sustained FLOP/s: the pipe's share that kernels reach, derated for long kernels that run into the power limit."""
    share = np.where(tensor, device.constant("gemm_efficiency", 0.93), device.constant("fma_efficiency", 0.95))
    peak = peak_rate(device, w)
    ideal = 2.0 * w["mma"] / peak
    long = library & (tensor <= 0) & (w["batch"] <= 1) & (w["k"] * w["operand_bytes"] >= LONG_ROW)
    share = share * np.where(long, device.constant("fma_long_rows", 1.0), 1.0)
    power = np.where(tensor, device.constant("gemm_power", 0.2), device.constant("fma_power", 0.0))
    share = share / (1.0 + power * ideal / (ideal + POWER_TIME))
    if not library:
        share = np.where(tensor, generated_share(device, share), share * device.constant("generated_share", 0.95))
    windowed = (w["taps"] > 1) & ~(tensor > 0)  # operands of a window are gathered, index by index
    share = share * np.where(windowed, device.constant("window_share", 0.9), 1.0)
    return peak * share


def _terms(
    device: Device, w: Columns, tile: Columns, res: Columns, *, steps: Array, step: Array, tensor: Array, library: bool
) -> dict[str, Array]:  # fmt: skip
    loop = _main_loop(device, w, tile, res, steps=steps, step=step, tensor=tensor, library=library)
    strip = (tile["tile_m"] + tile["tile_n"]) * step * w["operand_bytes"]
    busy, only_mma = loop.busy(device, w, res, strip)
    prologue = np.zeros_like(busy)
    if not library and ((w["left_made"] > 0) | (w["right_made"] > 0)).any():
        whole, _ = loop.filled(device, w, res, tile["tile_m"] * step, tile["tile_n"] * step).busy(device, w, res, strip)
        prologue = np.maximum(whole - busy, 0.0)
    streams = _streams(device, w, tensor)
    stage = device.constant("gemm_split", 3.0e-6)  # a generated kernel adds partial sums in a second stage of its own
    once = stage if not library else np.where(tensor, stage, device.constant("fma_split", 6.0e-6))
    partial_sums = 0.4 * w["batch"] * w["m"] * w["n"] * tile["split"] / (_l2_per_unit(device) * device.units)
    split = np.where(tile["split"] > 1, once + partial_sums, 0.0)
    spill = t.spill_terms(device, res, steps)
    return streams | spill | {
        "tensor": np.where(tensor, only_mma, 0.0), "fma": np.where(tensor, 0.0, only_mma), "prologue": prologue,
        "floor": np.zeros_like(busy) + _floor(device, w, tensor, res["blocks"]),
        "latency": np.maximum(busy - only_mma, 0.0), "split": split + np.zeros_like(busy),
        "staging": w["staged_bytes"] * device.constant("staging_share", 0.15) / device.stream + np.zeros_like(busy),
    }  # fmt: skip


def _main_loop(
    device: Device, w: Columns, tile: Columns, res: Columns, *, steps: Array, step: Array, tensor: Array, library: bool
) -> MainLoop:  # fmt: skip
    """The loop over k where operands lie as they are read."""
    units = float(device.units)
    rate = _rate(device, w, tensor, library=library) / (units * _ragged(w, tile))
    m, n = tile["tile_m"], tile["tile_n"]
    edge = np.where(tensor, 0.5, device.constant("fma_edge", 8.0))
    mma = 2.0 * np.maximum(m, 16.0) * np.maximum(n, 8.0) * step / (rate / (1.0 + edge / m + edge / n))
    rows, cols = np.minimum(m, w["m"]), np.minimum(n, w["n"] * w["joined"] / w["parts"])
    useful = (rows + cols) * step * w["operand_bytes"]
    saved = 0.5 * device.constant("gemm_multicast", 0.0) * np.maximum(rows, cols) * step * w["operand_bytes"]
    operands = (m + n) * step * w["operand_bytes"] / device.constant("fma_feed", 14e9)
    each = np.where(tensor, mma, np.sqrt(np.hypot(mma**2, operands**2)))  # p4: both pipes of a unit, partly at a time
    drain = np.where(tensor, device.constant("gemm_prologue", 0.5e-6), device.constant("fma_prologue", 1.0e-6)) + (
        rows * cols * np.where(tile["split"] > 1, 4.0, w["element_bytes"])
        / np.where(tensor, device.constant("gemm_drain", 20e9), device.constant("fma_drain", 30e9))
    )  # fmt: skip
    tail = np.where(tensor, device.constant("gemm_tail", 0.4), device.constant("fma_tail", 0.1))
    lone = device.constant("fma_alone", 1.1) * _idle(device, w, tile, library=library)
    return MainLoop(
        steps=steps, mma=mma, each=each, feed=useful / device.constant("port", 160e9),
        alone=np.where(tensor, 0.0, each * lone), chain=np.zeros_like(mma),
        l2_time=res["blocks"] * steps * (useful - np.where(tensor, saved, 0.0)) / (_l2_per_unit(device) * units),
        drain=drain + _epilogue(device, w, m, n), tensor=tensor > 0,
        resident=np.clip(np.minimum(np.floor(32768.0 / (m * n)), res["resident"]), 1.0, 4.0),
        tail=np.where(w["tile_by_rows"] > 0, 0.0, tail),
    )  # fmt: skip


def _older(device: Device, w: Columns) -> Flags:
    """Which products run on the f32 kernels of the generations to Volta; convolutions are another library's."""
    found: Flags = (w["taps"] <= 1) & (w["image_rows"] <= 0) & (device.constant("fma_wide_tiles", 0.0) > 0)
    return found


def _idle(device: Device, w: Columns, tile: Columns, *, library: bool) -> Array:
    """By how much a lone tile is slower because its warps do not reach all partitions of a unit, at least 1.

    In older f32 kernels a thread holds 64 points, or 256 threads share the steps of k where a side is 32: the two warps
    of a 64 x 64 tile fill half of a unit with four partitions.
    """
    rows, cols = tile["tile_m"], tile["tile_n"]
    registers = device.profile.registers
    if not library or registers is None:
        return np.ones_like(rows)
    threads = np.where(np.minimum(rows, cols) <= 32.0, 256.0, gemm_threads(rows, cols))
    return np.where(_older(device, w), np.maximum(32.0 * registers.partitions / threads, 1.0), 1.0)


def _streams(device: Device, w: Columns, tensor: Array) -> dict[str, Array]:
    """`dram` and `l2` seconds of the compulsory bytes, at the share of the DRAM rate that contractions reach."""
    spec = device.profile.memory.dram.bandwidth
    found = t.stream_terms(device, w)
    usual = device.stream / spec
    share = np.where(tensor, device.constant("gemm_dram", usual), device.constant("fma_dram", usual))
    cached = found["l2"] * device.l2 / (_l2_per_unit(device) * device.units)
    return {"dram": found["dram"] * device.stream / (share * spec), "l2": cached}


def _l2_per_unit(device: Device) -> float:
    cache = device.profile.memory.l2
    default = (cache.bandwidth if cache is not None else device.stream) / device.units
    return max(device.constant("gemm_l2_per_unit", default), 1.0)


def _epilogue(device: Device, w: Columns, m: Array, n: Array) -> Array:
    """Seconds per tile of the operators fused behind: each point once, on its unit's pipes."""
    points = np.maximum(w["batch"] * w["m"] * w["n"], 1.0)
    cycles = w["fma"] / device.fma + w["alu"] / device.alu + w["sfu"] / device.sfu
    return cycles * device.units * np.minimum(m, w["m"]) * np.minimum(n, w["n"]) / points


def combine(terms: Columns, off: frozenset[str]) -> Array:
    """Latency of a contraction: launch + floor + p2.7(compute + latency, memory) + split + what nothing hides."""

    def get(name: str) -> Array:
        part = terms.get(name)
        return np.zeros((1, 1)) if part is None or name in off else part

    compute = get("tensor") + get("fma") + get("prologue") + get("latency")
    memory = get("dram") + get("l2") + get("staging") + get("spill")
    body = t.pnorm(OVERLAP, compute, memory) + get("split") + get("code")
    return get("launch") + get("arguments") + get("floor") + body
