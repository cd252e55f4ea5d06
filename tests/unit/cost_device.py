"""A made-up GPU and NPU with round numbers, so that prices can be worked out by hand."""

from typing import Any

import numpy as np

from fusesolve.cost.table import Columns, WorkloadTable
from fusesolve.group import TEMPLATES, Template, Workload
from fusesolve.hardware import (
    Code,
    Compute,
    Dma,
    Dram,
    HardwareProfile,
    L2Cache,
    Launch,
    Limits,
    Memory,
    Pipe,
    Pipes,
    Registers,
    SharedMemory,
    Tensor,
)

US, MB = 1e-6, 10**6
PIPES = Pipes(fma=Pipe(per_clock={"f32": 64}), alu=Pipe(per_clock={"i32": 64}), sfu=Pipe(per_clock={"f32": 16}))

# 100 units at 1 GHz: 6.4e12 FMA/s, 6.4e12 ALU/s, 1.6e12 SFU/s, 1.024e14 FLOP/s of f16 on the tensor pipe.
# DRAM streams 1e12 B/s and L2 2e12 B/s (half of its read bandwidth); shared memory 1e13 B/s; the L2 knee is at 20 MB.
GPU = HardwareProfile(
    name="round-gpu", vendor="nobody", kind="gpu", definition={}, sha256="0" * 64,
    compute=Compute(units=100, clock=1e9, sustained_clock=1e9, pipes=PIPES, tensor=Tensor(per_clock={"f16": 512.0})),
    registers=Registers(
        per_unit=65536, per_thread_max=255, per_block_max=65536, allocation_unit=256, partitions=4
    ),
    memory=Memory(
        dram=Dram(size=10**10, bandwidth=2e12, sustained=1e12, latency=0.5 * US),
        l2=L2Cache(size=40 * MB, knee=20 * MB, bandwidth=4e12, latency=0.2 * US),
        shared=SharedMemory(
            per_unit=163_840, per_block_max=131_072, reserved_per_block=1024, granularity=128, bytes_per_clock=100.0
        ),
    ),
    limits=Limits(
        threads_per_block=1024, threads_per_unit=2048, warps_per_unit=64, blocks_per_unit=32, warp_size=32,
        argument_bytes=4096,
    ),
    code=Code(l0=32_768, l1=131_072, bytes_per_instruction=16),
    launch=Launch(stream=3 * US, graph=1 * US),
)  # fmt: skip

# One engine at 1 GHz with 1 MB of scratchpad: 6.4e10 FMA/s, 1.024e12 FLOP/s of f16; DMA moves 1e10 B/s.
NPU = HardwareProfile(
    name="round-npu", vendor="nobody", kind="npu", definition={}, sha256="1" * 64,
    compute=Compute(units=1, clock=1e9, sustained_clock=1e9, pipes=PIPES, tensor=Tensor(per_clock={"f16": 512.0})),
    memory=Memory(
        dram=Dram(size=10**9, bandwidth=2e10, sustained=1e10, latency=0.1 * US),
        shared=SharedMemory(
            per_unit=MB, per_block_max=MB, reserved_per_block=0, granularity=1, bytes_per_clock=100.0
        ),
    ),
    dma=Dma(channels=2, latency=1 * US, bandwidth=1e10),
    launch=Launch(dispatch=5 * US),
)  # fmt: skip


def workload(template: Template, **numbers: Any) -> Workload:
    return Workload(template=TEMPLATES.index(template), **numbers)


def columns(item: Workload) -> Columns:
    """The workload as (1, 1) columns."""
    return WorkloadTable([item]).rows(np.array([0]))


def tiling(**numbers: float) -> Columns:
    """One tiling as (1, 1) columns."""
    return {name: np.array([[float(value)]]) for name, value in numbers.items()}


def value(columns: Columns, name: str) -> float:
    return float(np.asarray(columns[name]).reshape(-1)[0])
