"""The numbers of a GPU that pricing uses, taken from the profile once: rates of the whole device, in base units."""

from dataclasses import dataclass

import numpy as np

from fusesolve.cost.table import Array
from fusesolve.group import TENSOR_TYPES
from fusesolve.hardware import HardwareProfile, launch_overhead, per_clock, tensor_peak

CODE_LINES = 16  # instruction lines of 128 bytes that a unit has in flight to the L2 cache
NEWER = frozenset({"9", "10", "11", "12"})  # major compute capabilities for which the compiler takes more registers
FLOOR = 1.2e-6  # seconds in which a kernel starts and drains: shortest kernels in CUDA graphs less the node's dispatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """Rates (per second, whole device), sizes (bytes) and latencies (s) of one GPU.

    `fma`, `fma64`, `alu`, `sfu`: instructions per second. `tensor[i]`: FLOP/s for operands of TENSOR_TYPES[i],
    0 where the matrix pipe has no such type. `stream`: sustained DRAM bytes/s of a streaming kernel; `l2`: bytes/s
    of a kernel whose tensors stay in the L2 cache (read and write mixed). `code_fetch`: bytes/s at which one unit
    fetches instructions that its cache does not hold. `launch` is paid once per kernel; `floor` is the shortest kernel
    on the device itself, `gemm_floor` and `attention_floor` what a contraction or attention adds to its work. No floor
    contains the launch or the dispatch of a graph node. `newer` is 1 from compute capability 9.0 on, else 0.
    """

    profile: HardwareProfile
    units: int
    clock: float
    fma: float
    fma64: float
    alu: float
    sfu: float
    tensor: Array
    stream: float
    l2: float
    knee: float
    dram_latency: float
    l2_latency: float
    code_fetch: float
    shared_bytes_per_s: float
    launch: float
    floor: float
    gemm_floor: float
    attention_floor: float
    newer: float

    def constant(self, name: str, default: float) -> float:
        """A calibrated constant of the profile, or its default (docs/MODEL.md says where defaults come from)."""
        return self.profile.constant(name, default)


def read_device(profile: HardwareProfile, launch: str) -> Device:
    """The device of a GPU profile in a launch mode ("stream" or "graph")."""
    compute, memory = profile.compute, profile.memory
    clock = compute.sustained_clock
    scale = compute.units * clock

    def rate(pipe: str, dtype: str) -> float:
        found = per_clock(getattr(compute.pipes, pipe), dtype)
        return scale * (found if found is not None else 1.0)

    derate = clock / compute.clock
    tensor = np.array([(tensor_peak(profile, name) or 0.0) * derate for name in TENSOR_TYPES])
    tensor[TENSOR_TYPES.index("f32")] = 0.0  # f32 stays f32: TF32 rounds the operands, which is the user's choice
    spec = memory.dram.bandwidth
    share = profile.constant("stream_share", memory.dram.sustained / spec)
    stream = share * spec
    cache = memory.l2
    l2 = max(stream, profile.constant("l2_stream", 0.5 * cache.bandwidth)) if cache is not None else stream
    shared = memory.shared.bytes_per_clock * scale if memory.shared is not None else stream
    return Device(
        profile=profile, units=compute.units, clock=clock,
        fma=rate("fma", "f32"), fma64=rate("fma", "f64"), alu=rate("alu", "i32"), sfu=rate("sfu", "f32"),
        tensor=tensor, stream=stream, l2=l2, knee=float(cache.knee) if cache is not None else 0.0,
        dram_latency=memory.dram.latency,
        l2_latency=min(cache.latency, memory.dram.latency) if cache is not None else memory.dram.latency,
        code_fetch=CODE_LINES * 128.0 / (cache.latency if cache is not None else memory.dram.latency),
        shared_bytes_per_s=shared,
        launch=launch_overhead(profile, "graph" if launch == "graph" else "stream"),
        floor=profile.constant("kernel_floor", FLOOR),
        gemm_floor=profile.constant("gemm_t0", FLOOR),
        attention_floor=profile.constant("attention_t0", 3.0 * FLOOR),
        newer=1.0 if (profile.compute_capability or "").split(".")[0] in NEWER else 0.0,
    )  # fmt: skip
