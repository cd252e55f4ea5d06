"""The closed-form model of engines with a scratchpad.

A kernel is cut into tiles that fit the scratchpad; DMA brings tile i + 1 while tile i is computed. Where neither the
weights nor the activations stay resident, the weights are fetched again for every tile. Time = dispatch + the longer of
DMA and compute, plus what the first tile cannot hide.
"""

import numpy as np

from fusesolve.cost.sweep import Family, sweep
from fusesolve.cost.table import Allowed, Array, Columns, PriceOptions, Prices, WorkloadTable
from fusesolve.group import TEMPLATES, TENSOR_TYPES, Template
from fusesolve.hardware import HardwareProfile, launch_overhead, per_clock

TILES = tuple(2**i for i in range(17))
DOUBLE_BUFFER = 2.0  # the tile that is computed and the tile that arrives


def price(table: WorkloadTable, profile: HardwareProfile, options: PriceOptions, allowed: Allowed) -> Prices:
    """The fastest legal tiling of every row on an NPU; see `Prices`."""
    engine = _Engine(profile)
    grid: Columns = {"tiles": np.array([[float(t) for t in TILES]])}
    families = [
        Family(
            template=TEMPLATES.index(template), tilings=grid, library=False, wants=None,
            evaluate=engine.evaluate, combine=engine.combine,
        )
        for template in Template
        if template is not Template.BLOCK  # a device without blocks
    ]  # fmt: skip
    return sweep(table, families, options, allowed)


class _Engine:
    """Rates of the whole device: multiply-adds, vector, integer and special operations per second; bytes per second."""

    def __init__(self, profile: HardwareProfile) -> None:
        compute, memory = profile.compute, profile.memory
        scale = compute.units * compute.sustained_clock
        pipes = compute.pipes

        def vector(pipe: object, default: float) -> float:
            rates = getattr(pipe, "per_clock", {})
            return scale * float(max(rates.values(), default=default))

        self.fma = vector(pipes.fma, 1.0)
        self.alu = vector(pipes.alu, 1.0) if pipes.alu is not None else self.fma
        self.sfu = vector(pipes.sfu, 1.0) if pipes.sfu is not None else self.fma / 16.0
        rates = [per_clock(compute.tensor, name) or 0.0 for name in TENSOR_TYPES]
        self.mma = np.array(rates) * scale
        dma = profile.dma
        self.dram = memory.dram.sustained if dma is None else min(memory.dram.sustained, dma.bandwidth)
        self.scratch = float(memory.shared.per_unit * compute.units) if memory.shared is not None else _cache(profile)
        share = profile.constant("scratch_share", 1.0)
        self.scratch_rate = share * memory.shared.bytes_per_clock * scale if memory.shared else 4.0 * self.dram
        self.thin = profile.constant("thin_share", 0.0) * float(self.mma.max())
        self.window_step = profile.constant("window_step", 1.0)
        self.rest = 1.0 - profile.constant("vector_overlap", 0.0)
        self.dma_latency = profile.dma.latency if profile.dma is not None else memory.dram.latency
        self.channels = float(profile.dma.channels) if profile.dma is not None else 1.0
        self.dispatch = launch_overhead(profile, "stream")
        self.shared_limit = memory.shared is not None
        self.capacity = float(memory.shared.per_block_max) if memory.shared is not None else self.scratch

    def evaluate(self, w: Columns, tile: Columns) -> tuple[dict[str, Array], dict[str, Array]]:
        """Resources and terms of (rows x numbers of tiles)."""
        tiles = tile["tiles"]
        moving = w["read_bytes"] + w["write_bytes"] - w["weight_bytes"]
        buffers = np.where(tiles > 1, DOUBLE_BUFFER, 1.0)
        live, fetched = self._placed(w, moving, tiles, buffers)
        too_fine = (tiles > 1) & (tiles > np.maximum(w["outer"], w["batch"] * w["m"]) * np.maximum(w["n"], w["inner"]))
        rate = np.where(w["tensor_rate"] >= 0, self.mma[w["tensor_rate"].astype(np.int64)], 0.0)
        thin = w["thin_fma"] if self.thin > 0 else 0.0
        res = {
            "threads": np.zeros_like(live), "blocks": tiles + np.zeros_like(live), "shared_bytes": np.ceil(live),
            "missing_blocks": np.where(too_fine, 1.0, 0.0) + np.zeros_like(live),
            "dram_bytes": fetched, "argument_bytes": 8.0 * w["arrays"] + np.zeros_like(live),
            "occupancy": np.ones_like(live),
        }  # fmt: skip
        if not self.shared_limit:
            res["shared_bytes"] = np.zeros_like(live)
        terms = {
            "launch": np.full_like(live, self.dispatch),
            "dma": tiles * self.dma_latency / self.channels + np.zeros_like(live),
            "dram": fetched / self.dram,
            "tensor": self._array(w, rate) + np.zeros_like(live),
            "fma": (w["fma"] - thin + np.where(rate > 0, 0.0, w["mma"])) / self.fma + np.zeros_like(live),
            "alu": w["alu"] / self.alu + np.zeros_like(live),
            "sfu": w["sfu"] / self.sfu + np.zeros_like(live),
            "shared": (fetched + w["staged_bytes"]) / self.scratch_rate,
            "exposed": fetched / self.dram / tiles,
        }
        return res, terms

    def _array(self, w: Columns, rate: Array) -> Array:
        """Seconds on the matrix array: windows in whole steps of it; a share of it where no channels are summed."""
        whole = np.ceil(w["taps"] / self.window_step) * self.window_step / w["taps"]
        steps = np.where(w["taps"] > 1, whole, 1.0)
        dense = np.where(rate > 0, w["mma"] * steps / np.maximum(rate, 1.0), 0.0)
        return dense + w["thin_mma"] / self.thin if self.thin > 0 else dense

    def _placed(self, w: Columns, moving: Array, tiles: Array, buffers: Array) -> tuple[Array, Array]:
        """Bytes of scratchpad and bytes fetched: the first placement that fits the scratchpad.

        Weights stay while tiles of activations pass; or activations stay while tiles of weights pass; or both pass,
        and every tile of activations fetches all weights again.
        """
        weights, held = w["weight_bytes"], w["held_bytes"] * w["inner"]
        once = moving + weights
        stay_weights = moving / tiles * buffers + weights + held
        stay_activations = moving + weights / tiles * buffers + held
        both_pass = once / tiles * buffers + held
        fits = np.minimum(stay_weights, stay_activations)
        live = np.where(fits <= self.capacity, fits, both_pass)
        return live, np.where(fits <= self.capacity, once, moving + weights * tiles)

    def combine(self, terms: Columns, off: frozenset[str]) -> Array:
        """Dispatch + DMA set-up + max(bytes, compute) + the part of the first and last tile that nothing overlaps.

        `exposed` is the DMA time of one tile: it is exposed in full for one tile, and shrinks as tiles get smaller.
        Vector stages run one after the other, or side by side as far as the engine pipelines them.
        """

        def get(name: str) -> Array:
            part = terms.get(name)
            return np.zeros((1, 1)) if part is None or name in off else part

        longest = np.maximum(np.maximum(get("fma"), get("alu")), get("sfu"))
        vector = longest + self.rest * (get("fma") + get("alu") + get("sfu") - longest)
        compute = np.maximum(np.maximum(get("tensor"), vector), get("shared"))
        exposed = np.minimum(get("exposed"), compute)
        return get("launch") + get("dma") + np.maximum(get("dram"), compute) + exposed


def _cache(profile: HardwareProfile) -> float:
    cache = profile.memory.l2
    return float(cache.size) if cache is not None else 1.0 * (1 << 20)
