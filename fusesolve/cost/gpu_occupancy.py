"""Occupancy: how many blocks of a kernel are resident on one unit (SM, compute unit) at a time.

Exact on NVIDIA devices: the rules of `cuda_occupancy.h` (CUDA 13.0) with the profile's numbers. On AMD CDNA the same
rules with a compute unit's numbers give LLVM's answer (AMDGPUBaseInfo.cpp): waves are warps of 64, vector registers
are divided among four SIMDs.
"""

from typing import TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from fusesolve.errors import InputError
from fusesolve.hardware import HardwareProfile, Limits, Registers, SharedMemory

Counts: TypeAlias = NDArray[np.int64]


@overload
def blocks_per_unit(
    profile: HardwareProfile,
    registers_per_thread: int,
    threads_per_block: int,
    shared_bytes: int,
    *,
    barriers: int = 1,
    carveout: int | None = None,
) -> int: ...
@overload
def blocks_per_unit(
    profile: HardwareProfile,
    registers_per_thread: int | Counts,
    threads_per_block: int | Counts,
    shared_bytes: int | Counts,
    *,
    barriers: int | Counts = 1,
    carveout: int | None = None,
) -> int | Counts: ...
def blocks_per_unit(
    profile: HardwareProfile,
    registers_per_thread: int | Counts,
    threads_per_block: int | Counts,
    shared_bytes: int | Counts,
    *,
    barriers: int | Counts = 1,
    carveout: int | None = None,
) -> int | Counts:
    """Resident blocks per unit, 0 where the kernel cannot run; arrays are broadcast, plain integers give an int.

    `registers_per_thread` >= 0 as the compiler reports them, `threads_per_block` >= 1, `shared_bytes` static plus
    dynamic, `barriers` per block. `carveout`: preferred share of the L1 for shared memory in per cent, None for the
    driver's default (all of it). Raises InputError where the profile has no GPU limits.
    """
    if profile.limits is None or profile.registers is None or profile.memory.shared is None:
        raise InputError(f"occupancy needs registers, memory.shared and limits: profile '{profile.name}' lacks one")
    registers, threads, shared, used_barriers = (
        np.asarray(item, dtype=np.int64) for item in (registers_per_thread, threads_per_block, shared_bytes, barriers)
    )
    warps = _ceil_div(threads, profile.limits.warp_size)
    found = np.minimum(
        _by_threads(profile.limits, threads, warps),
        np.minimum(
            _by_registers(profile.registers, profile.limits, registers, warps),
            _by_shared(profile.memory.shared, shared, carveout),
        ),
    )
    if profile.limits.barriers is not None:
        found = np.minimum(found, profile.limits.barriers // np.maximum(used_barriers, 1))
    return int(found) if found.ndim == 0 else found


def occupancy(
    profile: HardwareProfile, threads_per_block: int | Counts, blocks: int | Counts
) -> float | NDArray[np.float64]:
    """Resident warps over the most that fit a unit, 0 to 1, of `blocks` resident blocks of `threads_per_block`.

    Raises InputError where the profile has no GPU limits.
    """
    if profile.limits is None:
        raise InputError(f"occupancy needs limits: profile '{profile.name}' has none")
    warps = _ceil_div(np.asarray(threads_per_block, dtype=np.int64), profile.limits.warp_size)
    share = np.asarray(blocks * warps / profile.limits.warps_per_unit, dtype=np.float64)
    return float(share) if share.ndim == 0 else share


def _ceil_div(numerator: Counts, denominator: int) -> Counts:
    """Quotient rounded up."""
    return -(-numerator // denominator)


def _by_threads(limits: Limits, threads: Counts, warps: Counts) -> Counts:
    """The limit of warps and of blocks; 0 for a block that is too large or empty."""
    fit = np.minimum(limits.warps_per_unit // np.maximum(warps, 1), limits.blocks_per_unit)
    return np.where((threads < 1) | (threads > limits.threads_per_block), 0, fit)


def _by_registers(registers: Registers, limits: Limits, per_thread: Counts, warps: Counts) -> Counts:
    """The limit of the register file: each warp's registers are rounded up and stay in one partition.

    The check against the most registers of a block counts its warps rounded up to the partitions.
    """
    unit, parts = registers.allocation_unit, registers.partitions
    per_warp = _ceil_div(per_thread * limits.warp_size, unit) * unit
    per_block = per_warp * (_ceil_div(warps, parts) * parts)
    resident_warps = registers.per_unit // parts // np.maximum(per_warp, 1) * parts
    fit = resident_warps // np.maximum(warps, 1)
    refused = (per_block > registers.per_block_max) | (per_thread > registers.per_thread_max)
    return np.where(refused, 0, np.where(per_thread == 0, limits.blocks_per_unit, fit))


def _by_shared(shared: SharedMemory, used: Counts, carveout: int | None) -> Counts:
    """The limit of shared memory: what a block uses and the system's share of it, rounded up together."""
    step = shared.granularity
    per_block = _ceil_div(used + shared.reserved_per_block, step) * step
    available = shared.per_unit if carveout is None else _carved(shared, per_block, carveout)
    fit = np.where(per_block == 0, shared.per_unit, available // np.maximum(per_block, 1))
    return np.where(used > shared.per_block_max, 0, fit)


def _carved(shared: SharedMemory, per_block: Counts, carveout: int) -> Counts:
    """The configured size: the smallest step that holds `carveout` per cent of all and at least one block.

    The largest step is always all of the memory, whatever a what-if study made of it.
    """
    steps = np.asarray([*(step for step in shared.carveouts if step < shared.per_unit), shared.per_unit], np.int64)
    wanted = np.maximum(shared.per_unit * carveout // 100, per_block)
    index = np.minimum(np.searchsorted(steps, wanted), len(steps) - 1)
    return np.asarray(steps[index], dtype=np.int64)
