"""The table of every key of a hardware profile: what it measures, where it is required, what it defaults to.

A new hardware number is one row in `LEAVES` and one field in `fusesolve.hardware`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from fusesolve.units import Dimension

FORMAT = "fusesolve-hardware/1"
KINDS = ("gpu", "npu", "cpu")

# Element types of the per-clock tables: those of the graph, and the tensor-only ones.
DTYPES = frozenset({
    "f64", "f32", "f16", "bf16", "f8e4m3", "f8e5m2", "i64", "i32", "i16", "i8", "u64", "u32", "u16", "u8", "bool",
    "tf32", "i4", "f4", "f6",
})  # fmt: skip


class Shape(StrEnum):
    """How a leaf is written."""

    WHOLE = "whole"  # a quantity that is an integer in its base unit
    REAL = "real"  # any quantity
    TEXT = "text"
    TEXTS = "texts"  # a list of texts
    WHOLES = "wholes"  # an ascending list of whole quantities
    EXTENTS = "extents"  # a list of whole quantities in any order
    FLAG = "flag"


class Need(StrEnum):
    """Where a leaf must be given."""

    ALWAYS = "always"
    GPU = "gpu"  # on every GPU, and wherever its block is given
    BLOCK = "block"  # wherever its block is given
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Leaf:
    """One key: its dimension, form and need; `zero` allows 0.

    `share_of` allows a percentage of that other leaf, `less` is taken off it first.
    """

    dimension: Dimension = Dimension.COUNT
    shape: Shape = Shape.REAL
    need: Need = Need.NEVER
    zero: bool = False
    share_of: str | None = None
    less: str | None = None


def _text(need: Need = Need.NEVER) -> Leaf:
    return Leaf(shape=Shape.TEXT, need=need)


def _whole(dimension: Dimension = Dimension.COUNT, need: Need = Need.GPU, *, zero: bool = False) -> Leaf:
    return Leaf(dimension, Shape.WHOLE, need, zero)


def _real(dimension: Dimension, need: Need = Need.BLOCK, *, zero: bool = False, share_of: str | None = None) -> Leaf:
    return Leaf(dimension, Shape.REAL, need, zero, share_of)


_B, _BW, _S, _HZ, _N, _R = (
    Dimension.BYTES, Dimension.BANDWIDTH, Dimension.SECONDS, Dimension.HERTZ, Dimension.COUNT, Dimension.RATIO,
)  # fmt: skip
_OPTIONAL = Need.NEVER

# Every leaf by dotted path, in the order of a definition; `*` is an element type.
LEAVES: Mapping[str, Leaf] = {
    "format": _text(Need.ALWAYS),
    "name": _text(Need.ALWAYS),
    "vendor": _text(Need.ALWAYS),
    "kind": _text(Need.ALWAYS),
    "description": _text(),
    "compute_capability": _text(),
    "compute.units": _whole(need=Need.ALWAYS),
    "compute.clock": _real(_HZ, Need.ALWAYS),
    "compute.sustained_clock": _real(_HZ, _OPTIONAL, share_of="compute.clock"),
    "compute.pipes.fma.per_clock.*": _real(_N, _OPTIONAL),
    "compute.pipes.alu.per_clock.*": _real(_N, _OPTIONAL),
    "compute.pipes.sfu.per_clock.*": _real(_N, _OPTIONAL),
    "compute.tensor.per_clock.*": _real(_N, _OPTIONAL),
    "compute.tensor.clock": _real(_HZ, _OPTIONAL, share_of="compute.clock"),
    "compute.tensor.alignment": _whole(_B, _OPTIONAL),
    "compute.tensor.layouts": Leaf(shape=Shape.TEXTS),
    "compute.tensor.tile": Leaf(shape=Shape.EXTENTS),
    "registers.per_unit": _whole(),
    "registers.per_thread_max": _whole(need=_OPTIONAL),
    "registers.per_block_max": Leaf(_N, Shape.WHOLE, share_of="registers.per_unit"),
    "registers.allocation_unit": _whole(need=_OPTIONAL),
    "registers.partitions": _whole(need=_OPTIONAL),
    "memory.shared.per_unit": _whole(_B),
    "memory.shared.per_block_max": Leaf(
        _B, Shape.WHOLE, share_of="memory.shared.per_unit", less="memory.shared.reserved_per_block"
    ),
    "memory.shared.reserved_per_block": _whole(_B, _OPTIONAL, zero=True),
    "memory.shared.granularity": _whole(_B, _OPTIONAL),
    "memory.shared.bytes_per_clock": _real(_N, _OPTIONAL),
    "memory.shared.carveouts": Leaf(_B, Shape.WHOLES, zero=True),
    "memory.l1.size": _whole(_B, Need.BLOCK),
    "memory.l1.latency": _real(_S, _OPTIONAL),
    "memory.l2.size": _whole(_B),
    "memory.l2.knee": Leaf(_B, Shape.WHOLE, share_of="memory.l2.size"),
    "memory.l2.bandwidth": _real(_BW, Need.GPU),
    "memory.l2.latency": _real(_S, _OPTIONAL),
    "memory.dram.size": _whole(_B, Need.ALWAYS),
    "memory.dram.bandwidth": _real(_BW, Need.ALWAYS),
    "memory.dram.sustained": _real(_BW, _OPTIONAL, share_of="memory.dram.bandwidth"),
    "memory.dram.latency": _real(_S, _OPTIONAL),
    "limits.threads_per_block": _whole(),
    "limits.threads_per_unit": _whole(),
    "limits.warps_per_unit": _whole(),
    "limits.blocks_per_unit": _whole(),
    "limits.warp_size": _whole(),
    "limits.argument_bytes": _whole(_B, _OPTIONAL),
    "limits.barriers": _whole(need=_OPTIONAL),
    "code.l0": _whole(_B, Need.BLOCK),
    "code.l1": _whole(_B, Need.BLOCK),
    "code.bytes_per_instruction": _whole(_B, _OPTIONAL),
    "launch.stream": _real(_S, Need.GPU),
    "launch.graph": _real(_S, _OPTIONAL),
    "launch.dispatch": _real(_S, _OPTIONAL),
    "dma.channels": _whole(need=Need.BLOCK),
    "dma.latency": _real(_S, zero=True),
    "dma.bandwidth": _real(_BW, share_of="memory.dram.bandwidth"),
    "fusion.chain_ops": _whole(need=Need.BLOCK),
    "fusion.external_inputs": _whole(need=_OPTIONAL),
}

# Calibrated constants (docs/SOURCES.md explains each): name -> dimension. Zero is a value for all of them.
CONSTANTS: Mapping[str, Dimension] = {
    "gemm_t0": _S,
    "gemm_efficiency": _R,
    "gemm_power": _R,
    "gemm_dram": _R,
    "gemm_l2_per_unit": _BW,
    "gemm_latency": _S,
    "gemm_stages_max": _N,
    "gemm_drain": _BW,
    "gemm_tail": _R,
    "gemm_prologue": _S,
    "gemm_split": _S,
    "gemm_multicast": _R,
    "attention_t0": _S,
    "attention_efficiency": _R,
    "attention_exponential": _R,
    "attention_block": _S,
    "attention_dram": _R,
    "transfer_error": _R,
    "stream_share": _R,
    "l2_stream": _BW,
    "row_latency": _S,
    "row_step": _S,
    "kernel_floor": _S,
    "host_free": _S,
    "stream_event": _S,
    "fma_efficiency": _R,
    "generated_share": _R,
    "warp_share": _R,
    "staging_share": _R,
    "port": _BW,
    "pointwise_block": _S,
    "opaque_block": _S,
    "split_stage": _S,
    "attention_step": _S,
    "attention_combine": _S,
    "gemm_fine_tiles": _N,
    "gemm_scaled": _S,
    "gemm_by_rows_t0": _S,
    "gemm_batched": _S,
    "fma_power": _R,
    "fma_edge": _N,
    "fma_long_rows": _R,
    "fma_alone": _R,
    "fma_feed": _BW,
    "fma_latency": _S,
    "fma_prologue": _S,
    "fma_drain": _BW,
    "fma_split": _S,
    "fma_tail": _R,
    "fma_dram": _R,
    "fma_tile_min": _N,
    "fma_tile_max": _N,
    "fma_batched_tile_min": _N,
    "fma_batched_tile_max": _N,
    "fma_batched_side": _N,
    "fma_batched_waves": _N,
    "fma_wide_tiles": _N,
    "attention_query": _S,
    "attention_feed": _BW,
    "attention_drain": _BW,
    "attention_first_hidden": _R,
    "attention_sequence": _S,
    "attention_combine_each": _S,
    "attention_tail": _R,
    "attention_rows": _N,
    "attention_packs": _N,
    "attention_lone_split": _N,
    "norm_latency": _S,
    "norm_step": _S,
    "reread_room": _R,
    "quantise_latency": _S,
    "quantise_step": _S,
    "scatter_latency": _S,
    "argument_byte": _S,
    "window_share": _R,
    "winograd_fused": _R,
    "winograd_block": _S,
    "winograd_product": _R,
    "winograd_transform": _R,
    "winograd_filter": _R,
    "thin_share": _R,
    "window_step": _N,
    "scratch_share": _R,
    "vector_overlap": _R,
    "cpu_region": _S,
    "cpu_core_cache": _B,
    "cpu_core_bandwidth": _BW,
    "cpu_write_factor": _R,
    "cpu_stream_factor": _R,
    "cpu_row_stream_factor": _R,
    "cpu_argument": _S,
    "cpu_stride_factor": _R,
    "cpu_overlap": _R,
    "cpu_window": _R,
    "cpu_row": _S,
    "cpu_contraction": Dimension.FLOPS,
    "cpu_gemm": Dimension.FLOPS,
    "cpu_library_call": _S,
}


@dataclass(frozen=True, slots=True)
class ConstantShare:
    """A constant that may be given as a percentage of the leaf `of`, divided by the leaf `per` where there is one."""

    of: str
    per: str | None = None


CONSTANT_SHARES: Mapping[str, ConstantShare] = {
    "gemm_l2_per_unit": ConstantShare("memory.l2.bandwidth", per="compute.units"),
    "l2_stream": ConstantShare("memory.l2.bandwidth"),
}

Values: TypeAlias = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Default:
    """What a leaf is where a block is given without it: the value from the other leaves, and the reason."""

    value: Callable[[Callable[[str], float]], float]
    source: str


_CYCLES = "family: typical load latency of NVIDIA GPUs in cycles of the clock (gpubench)"

# Applied in this order to blocks that are given; recorded in `HardwareProfile.sources` as `default: ...`.
DEFAULTS: Mapping[str, Default] = {
    "compute.sustained_clock": Default(lambda at: at("compute.clock"), "the peak clock"),
    "registers.per_thread_max": Default(lambda at: 255, "CUDA C++ Programming Guide, compute capability 5.0 and above"),
    "registers.per_block_max": Default(lambda at: at("registers.per_unit"), "all registers of a unit"),
    "registers.allocation_unit": Default(lambda at: 256, "occ_h: 256 registers per warp"),
    "registers.partitions": Default(lambda at: 4, "occ_h: four sub-partitions"),
    "memory.shared.reserved_per_block": Default(lambda at: 0, "nothing reserved"),
    "memory.shared.per_block_max": Default(
        lambda at: at("memory.shared.per_unit") - at("memory.shared.reserved_per_block"), "all that is not reserved"
    ),
    "memory.shared.granularity": Default(lambda at: 128, "occ_h: 128 bytes from compute capability 8.0"),
    "memory.shared.bytes_per_clock": Default(lambda at: 128, "32 banks of 4 bytes"),
    "memory.l1.latency": Default(lambda at: 34 / at("compute.clock"), _CYCLES + ": 34"),
    "memory.l2.knee": Default(lambda at: int(0.78 * at("memory.l2.size")), "prototype fit: 0.77 to 0.80 of the size"),
    "memory.l2.latency": Default(lambda at: 260 / at("compute.clock"), _CYCLES + ": 260"),
    "memory.dram.sustained": Default(lambda at: 0.88 * at("memory.dram.bandwidth"), "prototype fit: 0.88 of the spec"),
    "memory.dram.latency": Default(lambda at: 600 / at("compute.clock"), _CYCLES + ": 600"),
    "limits.argument_bytes": Default(lambda at: 4096, "CUDA C++ Programming Guide: 4 KiB before CUDA 12.1"),
    "code.bytes_per_instruction": Default(lambda at: 16, "128-bit instructions since compute capability 7.0"),
    "launch.graph": Default(lambda at: at("launch.stream"), "no gain from graphs assumed"),
}


def known_children(prefix: str) -> dict[str, bool]:
    """The keys that may stand at dotted `prefix` ("" for the top): name -> is it a block?"""
    start = f"{prefix}." if prefix else ""
    found: dict[str, bool] = {}
    for path in LEAVES:
        if path.startswith(start):
            head, _, rest = path[len(start) :].partition(".")
            found[head] = bool(rest)
    if not prefix:
        found["calibration"] = True
    return found
