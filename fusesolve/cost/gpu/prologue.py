"""Operands that a generated kernel computes: what filling their strips in shared memory costs.

On the tensor pipe an operand that is read as it lies is copied past the registers while earlier steps are multiplied.
One that the kernel computes goes through registers: the same threads that issue the products first find each element's
place, load what it is made of, compute, convert and store it. So every step of every tile that reads the operand takes
these instructions, and the latency of their loads is hidden only by other tiles on the unit.

Instructions were counted in compiled kernels (sm_80, CUDA 13.5, Numba CUDA 0.30): 20 an element for a ReLU in front, 30
for scale, bias and ReLU; the loop has four elements in flight.
"""

from dataclasses import dataclass

import numpy as np

from fusesolve.cost.gpu.device import Device
from fusesolve.cost.table import Array, Columns

SLOT = 14.0  # instructions of an element beside loads and arithmetic: index, bounds, place, conversion, store
LOAD = 4.0  # instructions of an element for each array that it is made of: address, load, conversion
IN_FLIGHT = 4.0  # elements of a thread whose loads are under way at once


@dataclass(frozen=True, slots=True)
class Filling:
    """Seconds in which the computed elements of one step are made, (rows x tilings); 0 where none are computed.

    `busy`: of a unit whose schedulers are full; `alone`: of a tile that is alone on its unit; `added`: what arithmetic
    and further loads add where all operands go through registers anyway (the FMA pipe).
    """

    busy: Array
    alone: Array
    added: Array


def filling(device: Device, w: Columns, left: Array, right: Array, threads: Array) -> Filling:
    """Making `left` and `right` elements of the operands, as far as they are computed, with `threads` threads.

    Rate: an instruction a clock for each scheduler of a unit and lane of a warp; of the arithmetic, the FMA pipe's.
    """
    registers, limits = device.profile.registers, device.profile.limits
    if registers is None or limits is None:
        raise ValueError("a GPU profile has registers and limits")
    lanes = float(registers.partitions * limits.warp_size)
    made = np.where(w["left_made"] > 0, left, 0.0) + np.where(w["right_made"] > 0, right, 0.0)
    loads = LOAD * (left * w["left_made"] + right * w["right_made"])
    arithmetic = made * w["side_work"] * device.units / device.fma
    issued = lanes * device.clock
    busy = np.maximum((made * (SLOT + w["side_work"]) + loads) / issued, arithmetic)
    waiting = np.ceil(made / threads / IN_FLIGHT) * device.l2_latency
    alone = np.maximum(busy * np.maximum(lanes / threads, 1.0), waiting)
    return Filling(busy, alone, arithmetic + (loads - LOAD * made) / issued)
