"""Which constants of a profile are fitted, on which measured operators, between which bounds.

A bound is physical: outside it the term would mean something else. Constants that say what a library has (tile sizes,
whether it packs heads) are facts, not fits, and are not here.
"""

from collections.abc import Callable
from dataclasses import dataclass

from fusesolve.study.samples import Sample, Timing


@dataclass(frozen=True, slots=True)
class Fitted:
    """One constant in base units: where the fit starts if the profile does not give it, and its bounds."""

    name: str
    start: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Constants that are fitted together, on the samples that `takes` accepts."""

    name: str
    takes: Callable[[Sample], bool]
    constants: tuple[Fitted, ...]


_PRODUCTS = frozenset({"matmul", "bmm", "product_by_rows"})
_NARROW = frozenset({"f16", "bf16", "f8e4m3"})
_ROWS = frozenset({"layernorm", "softmax", "rmsnorm", "silu_mul", "rope"})
_CACHED = frozenset({"wide_silu_mul", "wide_add_rmsnorm", "rmsnorm", "rope"})
_QUANTISED = frozenset({"token_quantise", "row_quantise", "largest"})
_STREAMS = frozenset({"add", "mul", "div", "addu", "mulu", "divu", "relu", "gelu", "tanh", "quantise"})


def _last(sample: Sample) -> str:
    return sample.kernels[-1].op


def _streaming(sample: Sample) -> bool:
    return len(sample.kernels) == 1 and _last(sample) in _STREAMS and sample.timing in (Timing.EAGER, Timing.GRAPH)


def _rows(sample: Sample) -> bool:
    rows = any(kernel.op in _ROWS for kernel in sample.kernels)
    return sample.timing is not Timing.WALL and rows and _last(sample) not in _PRODUCTS


def _cached_rows(sample: Sample) -> bool:
    """Row kernels of one profiled layer, whose tensors stay in a large cache: times are finer than a microsecond."""
    return sample.timing is Timing.KERNEL and sample.resolution == 0 and _last(sample) in _CACHED


def _quantised(sample: Sample) -> bool:
    return sample.kernels[0].op in _QUANTISED and _last(sample) not in _PRODUCTS


def _tensor(sample: Sample) -> bool:
    alone = len(sample.kernels) == 1 and _last(sample) in ("matmul", "bmm")
    timed = sample.timing is Timing.GRAPH or (sample.timing is Timing.KERNEL and sample.library != "")
    return alone and timed and sample.kernels[0].dtype in _NARROW


def _scaled(sample: Sample) -> bool:
    """Products of 8-bit operands with the quantisation in front of them."""
    return _last(sample) in _PRODUCTS and sample.kernels[-1].dtype == "f8e4m3" and sample.timing is Timing.GRAPH


def _f32(sample: Sample) -> bool:
    return _last(sample) in ("matmul", "bmm") and sample.kernels[0].dtype == "f32" and sample.timing is Timing.EAGER


def _images(sample: Sample) -> bool:
    return _last(sample) == "conv2d" and sample.kernels[0].dtype == "f32" and sample.timing is Timing.EAGER


def _cached_attention(sample: Sample) -> bool:
    return _last(sample) == "attention" and len(sample.kernels) > 1


US, GB = 1e-6, 1e9

# In the order of fitting: later groups see what earlier ones found.
GROUPS: tuple[Group, ...] = (
    Group(name="streams", takes=_streaming, constants=(
        Fitted("kernel_floor", 1.2 * US, 0.1 * US, 3 * US),
        Fitted("stream_share", 0.88, 0.6, 1.0),
        Fitted("l2_stream", 4000 * GB, 300 * GB, 14000 * GB),
    )),
    Group(name="rows", takes=_rows, constants=(
        Fitted("row_latency", 0.9 * US, 0.05 * US, 4 * US),
        Fitted("row_step", 0.5 * US, 0.01 * US, 2 * US),
        Fitted("norm_latency", 5 * US, 0.3 * US, 14 * US),
        Fitted("norm_step", 0.5 * US, 0.01 * US, 3 * US),
        Fitted("reread_room", 0.18, 0.05, 1.2),
    )),
    Group(name="cached rows", takes=_cached_rows, constants=(
        Fitted("l2_stream", 4000 * GB, 300 * GB, 14000 * GB),
        Fitted("row_latency", 0.9 * US, 0.05 * US, 4 * US),
        Fitted("row_step", 0.5 * US, 0.01 * US, 2 * US),
    )),
    Group(name="quantised rows", takes=_quantised, constants=(
        Fitted("quantise_latency", 0.6 * US, 0.02 * US, 4 * US),
        Fitted("quantise_step", 0.2 * US, 0.01 * US, 2 * US),
    )),
    Group(name="tensor contractions", takes=_tensor, constants=(
        Fitted("gemm_t0", 0.9 * US, 0.1 * US, 2.5 * US),
        Fitted("gemm_efficiency", 0.93, 0.6, 1.1),
        Fitted("gemm_power", 0.2, 0.0, 0.6),
        Fitted("gemm_dram", 0.8, 0.5, 1.0),
        Fitted("gemm_l2_per_unit", 50 * GB, 10 * GB, 160 * GB),
        Fitted("gemm_latency", 0.7 * US, 0.1 * US, 3 * US),
        Fitted("gemm_drain", 20 * GB, 2 * GB, 150 * GB),
        Fitted("gemm_tail", 0.4, 0.0, 1.0),
        Fitted("gemm_prologue", 0.2 * US, 0.0, 3 * US),
        Fitted("gemm_split", 2.7 * US, 0.5 * US, 8 * US),
        Fitted("gemm_batched", 1.0 * US, 0.0, 5 * US),
    )),
    Group(name="8-bit contractions", takes=_scaled, constants=(
        Fitted("gemm_scaled", 1.1 * US, 0.0, 4 * US),
        Fitted("gemm_by_rows_t0", 1.1 * US, 0.1 * US, 3 * US),
    )),
    Group(name="f32 contractions", takes=_f32, constants=(
        Fitted("fma_efficiency", 0.95, 0.6, 1.05),
        Fitted("fma_edge", 4.0, 0.0, 32.0),
        Fitted("fma_alone", 1.2, 1.0, 2.0),
        Fitted("fma_feed", 14 * GB, 4 * GB, 80 * GB),
        Fitted("fma_prologue", 1.0 * US, 0.05 * US, 5 * US),
        Fitted("fma_split", 6 * US, 1 * US, 12 * US),
        Fitted("fma_tail", 0.1, 0.0, 1.0),
        Fitted("fma_dram", 0.85, 0.5, 1.0),
        Fitted("fma_long_rows", 0.95, 0.2, 1.0),
    )),
    Group(name="convolutions", takes=_images, constants=(
        Fitted("window_share", 0.9, 0.5, 1.1),
        Fitted("winograd_fused", 0.7, 0.4, 1.0),
        Fitted("winograd_block", 3 * US, 0.2 * US, 10 * US),
        Fitted("winograd_product", 0.8, 0.4, 1.1),
        Fitted("winograd_transform", 0.6, 0.2, 1.0),
        Fitted("winograd_filter", 0.5, 0.1, 1.0),
    )),
    Group(name="attention", takes=_cached_attention, constants=(
        Fitted("attention_t0", 5 * US, 1 * US, 12 * US),
        Fitted("attention_efficiency", 0.9, 0.4, 1.08),
        Fitted("attention_exponential", 1.0, 0.2, 3.0),
        Fitted("attention_block", 2.2 * US, 0.3 * US, 6 * US),
        Fitted("attention_query", 0.9 * US, 0.0, 4 * US),
        Fitted("attention_drain", 30 * GB, 5 * GB, 100 * GB),
        Fitted("attention_dram", 0.9, 0.4, 1.0),
        Fitted("attention_feed", 90 * GB, 20 * GB, 250 * GB),
        Fitted("attention_step", 0.5 * US, 0.05 * US, 4 * US),
        Fitted("attention_combine", 2 * US, 0.1 * US, 10 * US),
        Fitted("attention_combine_each", 0.1 * US, 0.0, 0.6 * US),
        Fitted("attention_sequence", 0.02 * US, 0.0, 0.1 * US),
        Fitted("attention_tail", 0.7, 0.0, 2.0),
        Fitted("scatter_latency", 2.5 * US, 0.2 * US, 6 * US),
    )),
)  # fmt: skip
