"""From prices to block-level loads: what one block of each kernel takes from its unit and from memory.

A kernel of B blocks runs in F full waves of S = units x resident blocks, and a last one of R. The closed form gives
the kernel's totals; a block gets its share, and a wave of n blocks takes p(n x memory, latency, pipes) with the
exponents of the closed form. For whole waves the sum over waves is the closed form itself, as a p-norm is homogeneous:
F x p(a, b) = p(F x a, F x b).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fusesolve.cost.events.tables import BLOCK, KERNEL, UNIT, Counts, Records
from fusesolve.cost.gpu import attention
from fusesolve.cost.gpu import terms as t
from fusesolve.cost.gpu.main_loop import OVERLAP
from fusesolve.cost.gpu_occupancy import blocks_per_unit
from fusesolve.cost.table import Array, Columns, Flags, Prices
from fusesolve.errors import InputError
from fusesolve.group import Template
from fusesolve.hardware import HardwareProfile

ACCUMULATORS = 32_768.0  # of a unit's registers that tiles of a contraction may hold, in at most MOST_TILES tiles
MOST_TILES = 4.0
ROOM = ("registers", "threads", "shared_bytes")  # resources that a block holds on its unit
SMALLEST = 1e-15  # seconds: keeps the duration of a block above zero


def unit_room(profile: HardwareProfile) -> Records:
    """What one unit can hold, as a table with one row; InputError where the device is no GPU."""
    if profile.limits is None or profile.registers is None or profile.memory.shared is None:
        raise InputError(f"events need registers, memory.shared and limits: profile '{profile.name}' lacks one")
    limits = profile.limits
    registers, shared = profile.registers.per_unit, profile.memory.shared.per_unit
    return np.array([(limits.warps_per_unit, registers, shared, limits.blocks_per_unit, 0)], dtype=UNIT)


def read_loads(
    prices: Prices, index: NDArray[np.intp], templates: NDArray[np.int64], profile: HardwareProfile,
    hosts: NDArray[np.intp] | None = None,
) -> tuple[Records, Records]:  # fmt: skip
    """KERNEL rows (launches left open) and BLOCK rows of the priced rows `index`, each with a legal tiling.

    `templates[i]` counts in `Template`'s order. `hosts[i]`: the row whose start, registers, threads and shared memory
    the blocks of row i have (the pack that it is part of); None: its own.
    """
    terms = {name: column[index] for name, column in prices.terms.items()}
    res = {name: column[index] for name, column in prices.resources.items()}
    tiling = {name: column[index] for name, column in prices.tiling.items()}
    parts = _split_terms(terms, templates, prices.implementation[index] == 1)
    own = _shape_waves(res, tiling, terms, templates, profile)
    once = {name: prices.terms[name][index if hosts is None else hosts] for name in ("arguments", "floor", "code")}
    room = {name: prices.resources[name][index if hosts is None else hosts] for name in ROOM}
    waves = own if hosts is None else _shape_waves(res | room, tiling, terms, templates, profile)
    body = _body(prices, index)
    law = _whole(parts)
    scale = np.where(law > 0, body / np.maximum(law, SMALLEST), 1.0)  # 1 where the law is the closed form
    kernels = np.zeros(len(index), dtype=KERNEL)
    idle = np.where(waves.blocks < 1, body, 0.0)
    kernels["head"] = once["arguments"] + once["floor"] + once["code"] + idle
    kernels["post"] = terms["split"]
    kernels["blocks"], kernels["tail"], kernels["most"] = waves.blocks, waves.blocks - waves.rest, waves.resident
    count = np.maximum(waves.blocks, 1)
    kernels["dram"], kernels["l2"] = parts.dram / count * scale, parts.l2 / count * scale
    kernels["inner"], kernels["outer"] = parts.inner, parts.outer
    _set_room(kernels, room, profile)
    return kernels, _share_out(parts, own, waves, scale, float(profile.compute.units))


def explained_share(prices: Prices, index: NDArray[np.intp], templates: NDArray[np.int64]) -> Array:
    """Time of each row by the law of its terms over its price, both without what a kernel pays once.

    1 for a kernel with one stage. Below 1 where the price has further stages (the transforms of a Winograd
    convolution): the blocks of such a kernel are stretched evenly, so that their times add up to the price.
    """
    terms = {name: column[index] for name, column in prices.terms.items()}
    body = _body(prices, index)
    parts = _split_terms(terms, templates, prices.implementation[index] == 1)
    return np.where(body > 0, _whole(parts) / np.maximum(body, SMALLEST), 1.0)


def _body(prices: Prices, index: NDArray[np.intp]) -> Array:
    """Seconds of each price without launch, start, drain and the second stage of a split."""
    once = sum(prices.terms[name][index] for name in ("launch", "arguments", "floor", "code", "split"))
    return np.maximum(prices.latency[index] - once, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """Totals of a kernel in seconds, and the exponents with which they combine; `busy` contains pipes if outer is 0."""

    dram: Array
    l2: Array
    busy: Array
    vector: Array
    tensor: Array
    inner: Array
    outer: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """Blocks, blocks on one unit, full waves, blocks of the last wave, and its length as a share of a full wave's."""

    blocks: Counts
    resident: Counts
    full: Counts
    rest: Counts
    last: Array


def _split_terms(terms: Columns, templates: NDArray[np.int64], library: Flags) -> _Parts:
    """The parts of the closed forms of `cost.gpu.terms`, `contraction` and `attention`."""
    product = templates == list(Template).index(Template.CONTRACTION)
    head = templates == list(Template).index(Template.ATTENTION)
    whole = product | head
    pipes = np.maximum(terms["fma"], np.maximum(terms["alu"], terms["sfu"]))
    pipes = pipes + t.REST_OF_PIPES * (terms["fma"] + terms["alu"] + terms["sfu"] - pipes)
    busy = terms["latency"] + np.where(whole, terms["tensor"] + terms["fma"], 0.0)
    busy = busy + np.where(head, terms["sfu"], 0.0)
    busy = busy + np.where(whole & ~(product & library), terms["prologue"], 0.0)  # Winograd's are kernels of their own
    return _Parts(
        dram=terms["dram"] + terms["staging"],
        l2=terms["l2"] + terms["reread"] + terms["spill"],
        busy=busy,
        vector=np.where(
            whole, terms["fma"] + np.where(head, terms["sfu"], 0.0),
            t.pnorm(t.OVERLAP_ARITHMETIC, pipes, terms["shared"]),
        ),
        tensor=terms["tensor"],
        inner=np.where(product, OVERLAP, np.where(head, attention.OVERLAP, t.OVERLAP_LATENCY)),
        outer=np.where(whole, 0.0, t.OVERLAP_ARITHMETIC),
    )  # fmt: skip


def _whole(parts: _Parts) -> Array:
    """Seconds of the whole kernel by the closed form's law."""
    found = np.zeros_like(parts.busy)
    for inner in np.unique(parts.inner):
        body = t.pnorm(float(inner), parts.dram + parts.l2, parts.busy)
        both = t.pnorm(t.OVERLAP_ARITHMETIC, body, parts.vector)
        found = np.where(parts.inner == inner, np.where(parts.outer > 0, both, body), found)
    return found


def _shape_waves(
    res: Columns, tiling: Columns, terms: Columns, templates: NDArray[np.int64], profile: HardwareProfile
) -> _Shape:
    whole = {name: res[name].astype(np.int64) for name in ROOM}
    fit = np.maximum(blocks_per_unit(profile, whole["registers"], whole["threads"], whole["shared_bytes"]), 1)
    product = templates == list(Template).index(Template.CONTRACTION)
    head = templates == list(Template).index(Template.ATTENTION)
    area = np.maximum(tiling["tile_m"] * tiling["tile_n"], 1.0)
    tiles = np.clip(np.floor(ACCUMULATORS / area), 1.0, MOST_TILES).astype(np.int64)
    resident = np.where(head, 1, np.where(product, np.minimum(fit, tiles), fit))
    blocks = np.rint(res["blocks"]).astype(np.int64)
    slots = profile.compute.units * resident
    full, rest = blocks // slots, blocks % slots
    share = rest / slots
    tail = np.where(terms["tensor"] > 0, profile.constant("gemm_tail", 0.4), profile.constant("fma_tail", 0.1))
    blurred = t.waves(blocks.astype(np.float64), slots.astype(np.float64)) - full
    last = np.where(product, (1.0 - tail) + tail * share, np.where(head, 1.0, blurred))
    last = np.where(full < 1, 1.0, last)
    return _Shape(blocks=blocks, resident=resident, full=full, rest=rest, last=np.where(rest > 0, last, 0.0))


def _share_out(parts: _Parts, own: _Shape, waves: _Shape, scale: Array, units: float) -> Records:
    """BLOCK rows: a block's share of the kernel's busy time and pipes, in full waves and in the last one.

    `own`: the waves that the kernel was priced with; `waves`: those that it runs in.
    """
    count = np.maximum(waves.blocks, 1)
    rounds = np.maximum(own.full + own.last, SMALLEST)
    beside = np.where(own.full > 0, own.resident, np.ceil(count / units))  # blocks on a unit in a full wave
    crowd = np.maximum(np.ceil(waves.rest / units), 1.0)  # and in the last one
    inside = parts.outer == 0
    even = np.minimum(count, units) / count
    found = np.zeros((len(count), 2), dtype=BLOCK)
    found["latency"] = np.stack((parts.busy, parts.busy * waves.last), axis=1) * (scale / rounds)[:, None]
    for name, total in (("vector", parts.vector), ("tensor", parts.tensor)):
        full = np.where(inside, total / rounds / beside, total * even)
        last = np.where(inside, total * waves.last / rounds / crowd, total * even)
        found[name] = np.stack((full, last), axis=1) * scale[:, None]
    return found.reshape(-1)


def _set_room(kernels: Records, res: Columns, profile: HardwareProfile) -> None:
    """Warps, registers and shared bytes of one block of each kernel, rounded as the device gives them out."""
    limits, shared, registers = profile.limits, profile.memory.shared, profile.registers
    if limits is None or shared is None or registers is None:
        raise InputError(f"events need registers, memory.shared and limits: profile '{profile.name}' lacks one")
    warps = np.ceil(res["threads"] / limits.warp_size)
    unit, step = registers.allocation_unit, shared.granularity
    kernels["warps"] = warps
    kernels["registers"] = np.ceil(res["registers"] * limits.warp_size / unit) * unit * warps
    kernels["shared"] = np.ceil((res["shared_bytes"] + shared.reserved_per_block) / step) * step
