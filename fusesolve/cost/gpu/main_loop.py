"""The main loop of a contraction: seconds of all units' work from those of a step, for the best number of tiles."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from fusesolve.cost.gpu import terms as t
from fusesolve.cost.gpu.device import Device
from fusesolve.cost.gpu.prologue import filling
from fusesolve.cost.table import Array, Columns, Flags

OVERLAP = 2.7  # p-norm of compute and memory time
RESIDENT = (1.0, 2.0, 4.0)  # tiles on a unit at once: 32,768 accumulators of a unit's registers, at most four tiles
EXPOSED = 0.6  # share of a tile's epilogue that the next tile's main loop does not hide
BY_ROWS_STAGES = 9.0  # such a library fills shared memory (13 steps of a 64 x 64 tile): so many hide a load's latency


@dataclass(frozen=True, slots=True, kw_only=True)
class MainLoop:
    """The loop over k of every row and tiling, all (rows x tilings): `steps` of a tile, and seconds of one step.

    `mma`: the products alone, `each`: the pipes of a unit for one tile, `feed`: a tile's operands from L2, `alone`: a
    tile that is alone on its unit. Of all steps: `chain`, a tile's steps one after the other where nothing hides how
    its strips are filled, times the waves of tiles; `l2_time`, all operands through L2. `drain`: a tile's epilogue and
    stores. `tensor`: which pipe, `resident`: tiles that fit on a unit, `tail`: smoothing of the last wave, 0 to 1.
    """

    steps: Array
    mma: Array
    each: Array
    feed: Array
    alone: Array
    chain: Array
    l2_time: Array
    drain: Array
    tensor: Flags
    resident: Array
    tail: Array

    def busy(self, device: Device, w: Columns, res: Columns, strip: Array) -> tuple[Array, Array]:
        """Seconds of all units' work, and those of the products in it; `strip` are bytes of both operands in a step.

        A kernel may keep fewer tiles on a unit than fit: it takes the best number.
        """
        busy, only_mma = np.full_like(self.mma * self.steps, np.inf), np.zeros_like(self.mma * self.steps)
        step = np.maximum(self.each, self.feed)
        for count in RESIDENT:
            order = _Waves(device, res["blocks"], count, self.tail)
            interval = np.maximum(_interval(device, w, strip, self.tensor, count), self.alone)
            loop = order.over(partial(_loop, self.steps, step, interval))
            drains = order.over(lambda tiles: EXPOSED * self.drain * tiles) + (1.0 - EXPOSED) * self.drain
            found = np.maximum(np.maximum(loop, self.chain), self.l2_time) + drains
            found = np.where(count <= self.resident, found, np.inf)
            only_mma = np.where(found < busy, order.over(lambda tiles: self.steps * self.mma * tiles), only_mma)
            busy = np.minimum(busy, found)
        return busy, only_mma

    def filled(self, device: Device, w: Columns, res: Columns, left: Array, right: Array) -> "MainLoop":
        """The same with `left` and `right` elements of a step computed by the kernel, as far as they are.

        On the tensor pipe a tile fills its strips and then multiplies; tiles on one unit overlap as compute and memory
        do. On the FMA pipe both are instructions of the same threads and pipe.
        """
        fill = filling(device, w, left, right, res["threads"])
        waves = np.maximum(res["blocks"] / (device.units * np.maximum(res["resident"], 1.0)), 1.0)
        chain = np.where(self.tensor & (fill.busy > 0), self.steps * (self.mma + fill.alone) * waves, 0.0)
        each = np.where(self.tensor, t.pnorm(OVERLAP, self.each, fill.busy), self.each + fill.added)
        alone = np.where(self.tensor, self.alone, self.alone + fill.added)
        return replace(self, each=each, alone=alone, chain=chain)


def _interval(device: Device, w: Columns, strip: Array, tensor: Flags, count: float) -> Array:
    """Seconds between two k-steps of a lone tile: a load's latency over the steps in flight in shared memory."""
    shared = device.profile.memory.shared
    room = float(shared.per_unit) if shared is not None else 65536.0
    depth = np.floor(room / (count * strip))
    most = np.where(w["tile_by_rows"] > 0, BY_ROWS_STAGES, max(2.0, device.constant("gemm_stages_max", 3.0)))
    stages = np.clip(depth, 2.0, most)
    return np.where(tensor, device.constant("gemm_latency", 0.8e-6) / stages, device.constant("fma_latency", 0.3e-6))


def _loop(steps: Array, each: Array, interval: Array, tiles: Array) -> Array:
    """Seconds of the main loops of `tiles` tiles side by side on a unit: throughput, or the latency of a step."""
    seconds: Array = steps * np.maximum(tiles * each, np.minimum(tiles, 1.0) * interval)
    return seconds


class _Waves:
    """Tiles over units in waves of `count` tiles a unit: full waves, and a last one smoothed by `gemm_tail`.

    A single partial wave is sharp: its units work on one tile more or less.
    """

    def __init__(self, device: Device, blocks: Array, count: float, tail: Array) -> None:
        self.count = np.full((1, 1), count)
        slots = device.units * count
        self.full = np.floor(blocks / slots)
        rest = blocks - self.full * slots
        self.last = np.ceil(rest / device.units)
        self.tail = np.where(self.full > 0, tail, 0.0)
        self.share = rest / slots

    def over(self, seconds: Callable[[Array], Array]) -> Array:
        """Seconds of the busiest unit, from the seconds that it takes for a number of tiles side by side."""
        full = seconds(self.count)
        alone = seconds(self.last)
        total: Array = self.full * full + (1.0 - self.tail) * alone + self.tail * self.share * full
        return total
