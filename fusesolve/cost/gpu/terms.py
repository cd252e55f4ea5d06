"""Terms that all GPU templates share: memory streams, waves, pipes, registers, code, and how terms combine.

Sources: the structure (p-norms of stream, latency and arithmetic time; the sharp L2 knee; blurred waves) was fitted on
public kernel latencies of A100, H100, H200, V100 and others; docs/MODEL.md lists each term with its error.
"""

import numpy as np

from fusesolve.cost.gpu.device import Device
from fusesolve.cost.gpu_occupancy import blocks_per_unit, occupancy
from fusesolve.cost.table import Array, Columns
from fusesolve.hardware import HardwareProfile, Limits, Registers

KNEE_SHARPNESS = 12.0  # exponent of the L2 knee: fitted on bf16-to-fp8 quantisation, H100 and H200
OVERLAP_LATENCY = 3.0  # p-norm of stream time and row latency: real overlap is partial
OVERLAP_ARITHMETIC = 6.0  # p-norm of memory and arithmetic time
REST_OF_PIPES = 0.15  # share of the lesser pipes' time that the greatest one does not hide
ARGUMENT_BYTES = 56  # a 1-D array argument of a Numba kernel (7 fields of 8 bytes)
FIXED_ARGUMENT_BYTES = 16  # of each kernel
LEAST_REGISTERS = 8.0
REGISTER_STEP = 8.0  # registers of a thread are allocated in steps
ROOM = 1.15  # of the registers that a kernel asks for: as far as it may go where no block is lost
FREE_REGISTERS = 32.0  # with so many a unit holds as many threads as it can: a generated kernel may always have them
LEAST_CODE = 384.0  # bytes
INSTRUCTION_CODE = 16.5  # code bytes per instruction of the body


def pnorm(power: float, *parts: Array) -> Array:
    """(a^p + b^p + ...)^(1/p), scaled so that it cannot overflow; every part >= 0, in seconds."""
    top = parts[0]
    for part in parts[1:]:
        top = np.maximum(top, part)
    safe = np.where(top > 0, top, 1.0)
    total = sum((part / safe) ** power for part in parts)
    return np.where(top > 0, safe * total ** (1.0 / power), 0.0)


def waves(units_of_work: Array, slots: Array) -> Array:
    """Effective waves: whole waves are sharp while few and blur when many (never less than 1).

    waves + (ceil(waves) - waves) * exp(-(ceil(waves) - 1) / 6); rises with the work and falls with the slots.
    """
    exact = units_of_work / np.maximum(slots, 1.0)
    whole = np.ceil(exact)
    return np.maximum(1.0, exact + (whole - exact) * np.exp(-np.maximum(whole - 1.0, 0.0) / 6.0))


def cold_share(device: Device, working_set: Array) -> Array:
    """Share of a working set (bytes) that must come from DRAM although another kernel touched it before.

    1 / (1 + (knee / w)^12): 0 well inside the cache, 1 well above its knee.
    """
    if device.knee <= 0:
        return np.ones_like(working_set)
    ratio = np.clip(device.knee / np.maximum(working_set, 1.0), 1e-6, 1e6)
    return 1.0 / (1.0 + ratio**KNEE_SHARPNESS)


def stream_terms(device: Device, w: Columns) -> dict[str, Array]:
    """`dram` and `l2` seconds of the compulsory bytes: what another kernel wrote and is still cached comes from L2."""
    cold = cold_share(device, w["footprint_bytes"])
    warm = w["warm_read_bytes"] * (1.0 - cold)
    warm = warm + w["warm_write_bytes"]
    dram = (w["read_bytes"] + w["write_bytes"] - warm) / device.stream
    return {"dram": dram, "l2": warm / device.l2}


def warm_share(device: Device, w: Columns) -> Array:
    """Share of the bytes read that the L2 cache has: 0 to 1."""
    warm = w["warm_read_bytes"] * (1.0 - cold_share(device, w["footprint_bytes"]))
    return np.clip(warm / np.maximum(w["read_bytes"], 1.0), 0.0, 1.0)


def load_latency(device: Device, w: Columns) -> Array:
    """Seconds of a first load: from DRAM, or from the L2 cache as far as it has the operands."""
    return device.dram_latency - (device.dram_latency - device.l2_latency) * warm_share(device, w)


def pipe_terms(device: Device, w: Columns, active: Array, extra_alu: Array) -> dict[str, Array]:
    """`fma`, `alu`, `sfu` seconds with `active` units at work (1 to all of them); instructions over the pipe's rate."""
    share = np.clip(active / device.units, 1.0 / device.units, 1.0)
    fma = np.where(w["double"] > 0, device.fma64, device.fma)
    return {
        "fma": w["fma"] / (fma * share),
        "alu": (w["alu"] + extra_alu) / (device.alu * share),
        "sfu": w["sfu"] / (device.sfu * share),
    }


def resources(
    device: Device, w: Columns, *, demand: Array, threads: Array, blocks: Array, shared: Array, code: Array,
    dram_bytes: Array,
) -> dict[str, Array]:  # fmt: skip
    """The resource columns of a block of tilings.

    A kernel is compiled for `register_bound` of its demand (`max_registers`), or for `ROOM` of it where as many of its
    blocks fit a unit; at most for what a thread may have and what lets its block fit. What it wants above that becomes
    spills (4 bytes each, per thread).
    """
    profile = device.profile
    registers, limits = _registers_of(profile)
    most = register_limit(profile, threads)
    wanted = np.ceil(np.maximum(demand, LEAST_REGISTERS))
    bound = np.minimum(_roomy_bound(profile, wanted, threads, shared), most)
    held = _as_compiled(w, "registers", np.minimum(wanted, bound))
    shared = _as_compiled(w, "shared_bytes", shared)
    unit = registers.allocation_unit / limits.warp_size
    shape = np.broadcast_shapes(held.shape, threads.shape, shared.shape)
    held, threads, shared = (np.broadcast_to(item, shape) for item in (held, threads, shared))
    resident = _resident(profile, held, threads, shared)
    filled = np.asarray(occupancy(profile, threads.astype(np.int64), resident.astype(np.int64)), np.float64)
    return {
        "registers": held,
        "max_registers": np.broadcast_to(bound, shape),
        "block_registers": np.ceil(held / unit) * unit * threads,
        "threads": threads,
        "blocks": np.broadcast_to(blocks, shape),
        "shared_bytes": shared,
        "spill_bytes": np.broadcast_to(_as_compiled(w, "spill_bytes", 4.0 * np.maximum(wanted - most, 0.0)), shape),
        "occupancy": filled,
        "resident": resident,
        "missing_blocks": np.where(resident < 1, 1.0, 0.0),
        "code_bytes": np.broadcast_to(
            _as_compiled(w, "code_bytes", np.ceil(np.maximum(code, LEAST_CODE) / 128.0) * 128.0), shape
        ),
        "argument_bytes": np.broadcast_to(ARGUMENT_BYTES * w["arrays"] + float(FIXED_ARGUMENT_BYTES), shape),
        "barriers": np.ones(shape),
        "dram_bytes": np.broadcast_to(dram_bytes, shape),
    }


def _as_compiled(w: Columns, name: str, predicted: Array) -> Array:
    """A predicted resource, or what the compiler made of it where that is known."""
    found = w.get(f"compiled_{name}")
    return predicted if found is None else np.where(np.isnan(found), predicted, found)


def _registers_of(profile: HardwareProfile) -> tuple[Registers, Limits]:
    if profile.registers is None or profile.limits is None:
        raise ValueError("a GPU profile has registers and limits")
    return profile.registers, profile.limits


def _resident(profile: HardwareProfile, registers: Array, threads: Array, shared: Array) -> Array:
    whole = (np.asarray(item).astype(np.int64) for item in (registers, threads, shared))
    return np.asarray(blocks_per_unit(profile, *whole), np.float64)


def _roomy_bound(profile: HardwareProfile, wanted: Array, threads: Array, shared: Array) -> Array:
    """`register_bound`, or more where that costs no block: to take fewer than the compiler likes gains nothing then."""
    near = register_bound(wanted)
    wide = np.maximum(np.floor(ROOM * wanted / REGISTER_STEP) * REGISTER_STEP, near)
    shape = np.broadcast_shapes(near.shape, threads.shape, shared.shape)
    near, wide, threads, shared = (np.broadcast_to(item, shape) for item in (near, wide, threads, shared))
    free = _resident(profile, wide, threads, shared) == _resident(profile, near, threads, shared)
    return np.where(free, wide, near)


def register_bound(wanted: Array) -> Array:
    """The registers of a thread that a kernel is compiled for where it wants so many: the nearest step of allocation.

    The compiler does with four fewer without spills (none in the kernels of docs/MODEL.md); fewer than
    `FREE_REGISTERS` gain nothing.
    """
    return np.maximum(np.floor(wanted / REGISTER_STEP + 0.5) * REGISTER_STEP, FREE_REGISTERS)


def register_limit(profile: HardwareProfile, threads: Array) -> Array:
    """Most registers of a thread: what an instruction can name, and with what a block of `threads` just fits."""
    registers, limits = _registers_of(profile)
    return np.minimum(float(registers.per_thread_max), _block_share(registers, limits, threads))


def _block_share(registers: Registers, limits: Limits, threads: Array) -> Array:
    """Registers of a thread with which a block of `threads` just fits: an equal share, rounded down to whole units.

    Warps are counted rounded up to the partitions of a unit, as in `blocks_per_unit`.
    """
    warps = np.ceil(np.ceil(threads / limits.warp_size) / registers.partitions) * registers.partitions
    most = min(registers.per_block_max, registers.per_unit)
    units = np.floor(most / np.maximum(warps, 1.0) / registers.allocation_unit)
    share: Array = units * registers.allocation_unit / limits.warp_size
    return share


def overhead_terms(device: Device, res: Columns) -> dict[str, Array]:
    """`spill`, `code`, `arguments`, `launch`, `floor`: what a kernel pays beside its work.

    Spills go out and come back through the L2 cache. Code beyond the instruction cache of a unit is fetched again by
    each unit for each wave of its blocks (`Device.code_fetch`). Arguments beyond the first 4 KiB need a second
    parameter copy.
    """
    total_threads = res["threads"] * res["blocks"]
    code = device.profile.code
    cache = float(code.l1) if code is not None else np.inf
    over = np.maximum(res["code_bytes"] - cache, 0.0)
    rounds = waves(res["blocks"], device.units * np.maximum(res["resident"], 1.0))
    shape = res["blocks"].shape
    return {
        "spill": 2.0 * res["spill_bytes"] * total_threads / device.l2,
        "code": over * rounds / device.code_fetch,
        "arguments": np.maximum(res["argument_bytes"] - 4096.0, 0.0) * device.constant("argument_byte", 0.1e-9),
        "launch": np.full(shape, device.launch),
        "floor": np.full(shape, device.floor),
    }


def spill_terms(device: Device, res: Columns, rounds: Array) -> dict[str, Array]:
    """`spill` seconds of a kernel whose loop runs `rounds` times: what does not fit in registers goes out and back.

    Sums are used in every round. A block's stay in the L1 cache as far as it has room beside the block's shared memory,
    at the rate of the path that both share; what is beyond it goes through the L2 cache.
    """
    cache = device.profile.memory.l1
    live = res["spill_bytes"] * res["threads"]
    room = np.maximum((float(cache.size) if cache is not None else 0.0) - res["shared_bytes"], 0.0)
    beyond = 1.0 - np.minimum(room / np.maximum(live, 1.0), 1.0)
    moved = 2.0 * res["spill_bytes"] * res["threads"] * res["blocks"] * np.maximum(rounds, 1.0)
    near = device.shared_bytes_per_s * np.clip(res["blocks"] / device.units, 1.0 / device.units, 1.0)
    seconds = moved * (beyond / device.l2 + (1.0 - beyond) / np.maximum(near, device.l2))
    return {"spill": seconds}


def combine(terms: Columns, off: frozenset[str]) -> Array:
    """Latency from terms: launch + floor + p6(p3(stream, latency), pipes) + what nothing hides.

    `stream` is dram + l2 + reread + staging + spill. A term named in `off` counts as 0.
    """

    def get(name: str) -> Array:
        part = terms.get(name)
        return _ZERO if part is None or name in off else part

    stream = get("dram") + get("l2") + get("reread") + get("staging") + get("spill")
    body = pnorm(OVERLAP_LATENCY, stream, get("latency"))
    arithmetic = np.maximum(get("fma"), np.maximum(get("alu"), get("sfu")))
    rest = REST_OF_PIPES * (get("fma") + get("alu") + get("sfu") - arithmetic)
    body = pnorm(OVERLAP_ARITHMETIC, body, arithmetic + rest, get("shared"))
    body = body + get("code") + get("split")
    return get("launch") + get("arguments") + get("floor") + body


_ZERO: Array = np.zeros((1, 1))
