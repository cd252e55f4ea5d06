"""Packed kernels: independent kernels in one launch, each in blocks of its own.

A block looks up which kernel it belongs to. All blocks get the registers, threads and shared memory of the greediest
part, so a part may lose occupancy; streams and instructions add up, blocks fill the units together, and the slowest
part's own blocks bound the whole from below.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fusesolve.cost.gpu import terms as t
from fusesolve.cost.gpu.device import Device, read_device
from fusesolve.cost.gpu.main_loop import OVERLAP
from fusesolve.cost.table import RESOURCES, TERMS, TILING, Allowed, Array, Columns, PriceOptions, Prices
from fusesolve.hardware import HardwareProfile

LOOK_UP_CODE = 192.0  # code bytes per part: compare the block's number, set up its arguments
LOOK_UP_CYCLES = 10.0  # per part before the block's own: a compare and a branch that wait for each other (an estimate)
LOOK_UP_REGISTERS = 8.0  # beside those of the greediest part, where it has more than a thread may have anyway
PIPES = ("fma", "alu", "sfu", "tensor")


def price_packs(
    prices: Prices, parts: NDArray[np.intp], profile: HardwareProfile, options: PriceOptions, allowed: Allowed
) -> Prices:
    """Prices of packs: `parts[i]` are rows of `prices`, each with a legal tiling that one kernel runs; -1 fills up.

    Each part keeps the tiling that it was priced with. `allowed` judges the resources of the pack; latency is inf
    where it refuses.
    """
    device = read_device(profile, options.launch)
    present = parts >= 0
    rows = np.where(present, parts, 0)

    def column(table: Columns, name: str) -> Array:
        return np.where(present, table[name][rows], 0.0)

    part_terms = {name: column(prices.terms, name) for name in TERMS}
    part_res = {name: column(prices.resources, name) for name in RESOURCES}
    res = _resources(device, part_res, present)
    own = column(prices.tiling, "max_registers")
    free = (present & (own <= 0)).any(axis=1)  # a part is compiled for any number
    tiling = {"threads": res["threads"], "max_registers": np.where(free, 0.0, res["max_registers"])}
    found = _terms(device, part_terms, part_res, res, present)
    look_up = LOOK_UP_CYCLES * (present.sum(axis=1) - 1) / device.clock
    found["code"] = found["code"] + look_up
    whole = np.where(present, prices.latency[rows], 0.0).max(axis=1) + (0.0 if "code" in options.without else look_up)
    latency = np.maximum(_combine(found, options.without), whole)
    latency = np.where(allowed(res), latency, np.inf)
    zero = np.zeros(len(parts))
    return Prices(
        latency=latency, implementation=np.zeros(len(parts), dtype=np.int8),
        tiling={name: tiling.get(name, zero) for name in TILING},
        resources={name: res.get(name, zero) + zero for name in RESOURCES},
        terms={name: found.get(name, zero) + zero for name in TERMS}, tilings=len(parts),
    )  # fmt: skip


def _resources(device: Device, part: Columns, present: NDArray[np.bool_]) -> dict[str, Array]:
    """Threads, registers and shared memory of the greediest part; blocks, code and arguments of all."""
    count = present.sum(axis=1)
    threads = part["threads"].max(axis=1)
    wanted = (part["registers"] + part["spill_bytes"] / 4.0).max(axis=1)
    wanted = np.where(wanted > t.FREE_REGISTERS, wanted + LOOK_UP_REGISTERS, wanted)
    arrays = (part["argument_bytes"].sum(axis=1) - t.FIXED_ARGUMENT_BYTES * count) / t.ARGUMENT_BYTES
    found = t.resources(
        device, {"arrays": arrays}, demand=wanted, threads=threads, blocks=part["blocks"].sum(axis=1),
        shared=part["shared_bytes"].max(axis=1), code=part["code_bytes"].sum(axis=1) + LOOK_UP_CODE * count,
        dram_bytes=part["dram_bytes"].sum(axis=1),
    )  # fmt: skip
    return found | {"argument_bytes": found["argument_bytes"] + 8.0 * count}


def _terms(
    device: Device, part: Columns, part_res: Columns, res: Columns, present: NDArray[np.bool_]
) -> dict[str, Array]:
    slots = device.units * np.maximum(res["resident"], 1.0)
    found: dict[str, Array] = {
        name: part[name].sum(axis=1) for name in ("dram", "l2", "reread", "staging", "shared")
    }
    found["latency"] = _latency(device, part, part_res, res, slots)
    units = float(device.units)
    share = np.minimum(part_res["blocks"], units) / units
    filled = np.minimum(res["blocks"], units) / units
    for name in PIPES:
        together = (part[name] * share).sum(axis=1) / np.maximum(filled, 1.0 / units)
        found[name] = np.maximum(part[name].max(axis=1), together)
    found |= t.overhead_terms(device, res)
    found["spill"] = np.maximum(found["spill"], part["spill"].sum(axis=1))
    found["floor"] = part["floor"].max(axis=1)
    return found


def _latency(device: Device, part: Columns, part_res: Columns, res: Columns, slots: Array) -> Array:
    """Waves of all blocks times their mean time, at least the waves of each part alone at the pack's residency.

    What a part computes in front of its operands is time of its blocks like any latency.
    """
    own = np.maximum(_resident(device, part_res), 1.0)
    blocks = part_res["blocks"]
    each = (part["latency"] + part["prologue"]) / t.waves(blocks, device.units * own)
    alone = (each * t.waves(blocks, slots[:, None])).max(axis=1)
    mean = (each * blocks).sum(axis=1) / np.maximum(res["blocks"], 1.0)
    together: Array = np.maximum(alone, mean * t.waves(res["blocks"], slots))
    return together


def _resident(device: Device, part_res: Mapping[str, Array]) -> Array:
    """Blocks of each part on one unit, when it runs alone."""
    found = t.resources(
        device, {"arrays": np.ones_like(part_res["blocks"])}, demand=part_res["registers"],
        threads=np.maximum(part_res["threads"], 1.0), blocks=part_res["blocks"], shared=part_res["shared_bytes"],
        code=part_res["code_bytes"], dram_bytes=part_res["dram_bytes"],
    )  # fmt: skip
    return found["resident"]


def _combine(terms: Columns, off: frozenset[str]) -> Array:
    """As the parts' own laws: the streaming law, with matrix work at the overlap of contractions where there is any."""
    plain = {name: value for name, value in terms.items() if name not in off}
    matrix = plain.get("tensor", np.zeros(1))
    streaming = t.combine(plain, frozenset()).ravel()
    without = t.combine({name: value for name, value in plain.items() if name not in _ONCE}, frozenset()).ravel()
    overlapped = streaming - without + t.pnorm(OVERLAP, without, matrix)
    return np.where(matrix > 0, overlapped, streaming)


_ONCE = frozenset({"launch", "arguments", "floor", "code", "split"})
