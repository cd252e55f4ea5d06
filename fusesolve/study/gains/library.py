"""What PyTorch and its libraries do with a kernel of a plan, as prices of the same simulator.

Convolutions on tensor cores round f32 operands to TF32 and want channels last: the image is converted before, the
result after, except where a compiler keeps channels last. A convolution is an implicit GEMM whose k-tile does not
cross filter taps, so its channels are padded to one k-tile. Row kernels have the library's launch shapes. The factors
below belong to the software, not to a device; docs/ACCURACY.md says which rows each was fitted on.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from fusesolve.candidates.pricing import price_workloads
from fusesolve.cost.table import PriceOptions
from fusesolve.group import TEMPLATES, TENSOR_TYPES, Template, Workload
from fusesolve.hardware import HardwareProfile
from fusesolve.study.gains.aten import Call
from fusesolve.study.operators import LIBRARY_ROWS, ROW_KINDS
from fusesolve.study.predict import Array

K_TILE = 32  # input channels that a k-step of a TF32 convolution takes: 128 bytes
PACKED = 4  # channels are read four at a time (16 bytes): fewer run on the FMA pipe
# Fitted with a soft-L1 loss on all rows of v0.1 and level 1 of v0.2 (453 programs of seven hosts, five devices); no row
# of level 2 of v0.2 was used.
FORWARD = 1.32  # a forward 1-D or 2-D convolution over the GEMM of its size
GRADIENT = 1.55  # transposed and 3-D convolutions over the GEMM of their size
SPREAD = 1.57  # an elementwise kernel with a broadcast operand: no wide loads, an index division an element
FOLDED = 1.02  # a reduction kernel
MOMENTS = 1.61  # statistics of batch and group norm
WINDOWED = 17.0  # integer instructions per tap of eager pooling and depthwise kernels: index arithmetic, no wide loads
STRIDED_SOFTMAX = 1.46  # a softmax over an axis that is not the last, over one that is


class Mode(StrEnum):
    """How a program runs."""

    EAGER = "eager"
    COMPILED = "compiled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """One kernel of a plan with the library calls that its operators came from.

    `mixed`: it holds operators of other sources too, which are plain kernels. `launch` numbers the launches of a plan;
    several parts may share one, and then take `share` of what they take alone.
    """

    workload: Workload
    calls: tuple[Call, ...]
    mixed: bool = False
    launch: int = 0
    share: float = 1.0

    @property
    def convolution(self) -> Call | None:
        """The convolution in it, if there is one."""
        return next((call for call in self.calls if call.channels), None)

    @property
    def is_epilogue(self) -> bool:
        """Whether it is only what a library's matrix product does behind itself (its bias)."""
        gemm = bool(self.calls) and all(call.kind == "gemm" for call in self.calls)
        return gemm and not self.mixed and self.workload.template != TEMPLATES.index(Template.CONTRACTION)


def library_seconds(kernels: Sequence[Placed], profile: HardwareProfile, mode: Mode) -> Array:
    """Seconds of each kernel on the device as the library runs it, launches not counted; inf where none is legal."""
    options = PriceOptions(implementation="library", without=frozenset({"launch"}))
    plain = price_workloads([_as_called(kernel, mode) for kernel in kernels], profile, options).latency
    factors = np.array([_factor(kernel, mode) * kernel.share for kernel in kernels])
    seconds: Array = plain * factors
    seconds[[i for i, kernel in enumerate(kernels) if kernel.is_epilogue]] = 0.0
    convolved = [
        (i, call)
        for i, kernel in enumerate(kernels)
        if (call := kernel.convolution) is not None and (call.dense or call.channels > 1)
    ]
    if convolved:
        places = [i for i, _ in convolved]
        calls = [call for _, call in convolved]
        seconds[places] = _convolutions([kernels[i].workload for i in places], calls, profile, mode)
    return seconds


def _as_called(kernel: Placed, mode: Mode) -> Workload:
    """The workload as eager PyTorch launches it; compiled kernels are the simulator's own."""
    w = kernel.workload
    depthwise = kernel.convolution
    if depthwise is not None and depthwise.channels == 1 and not depthwise.dense:
        return replace(w, alu=w.alu + WINDOWED * w.outer * w.inner * depthwise.taps)
    if mode is not Mode.EAGER or len(kernel.calls) != 1:
        return w
    (call,) = kernel.calls
    if call.kind in ("maxpool", "avgpool"):
        taps = WINDOWED * w.outer * w.inner * call.taps
        return replace(w, alu=w.alu + taps, write_bytes=w.write_bytes + call.extra_write)
    rule = LIBRARY_ROWS.get(call.kind)
    if rule is None or w.template != TEMPLATES.index(Template.ROW):
        return w
    threads, load, passes = rule(w.inner, w.element_bytes)
    return replace(
        w, contiguous=1, passes=passes, row_threads=threads, row_load_bytes=load, row_kind=ROW_KINDS.get(call.kind, 0),
        reread_bytes=float(w.outer * w.inner * w.element_bytes),
    )  # fmt: skip


_FACTORS = {
    "broadcast": SPREAD, **{f"conv{rank}d{t}-bias": SPREAD for rank in (1, 2, 3) for t in ("", "t")},
    "batch-moments": MOMENTS, "row-moments": MOMENTS, "softmax-strided": STRIDED_SOFTMAX,
}  # fmt: skip


def _factor(kernel: Placed, mode: Mode) -> float:
    if mode is not Mode.EAGER:
        return 1.0
    if len(kernel.calls) == 1 and kernel.calls[0].kind in _FACTORS:
        return _FACTORS[kernel.calls[0].kind]
    return FOLDED if kernel.workload.reductions else 1.0


def _convolutions(workloads: Sequence[Workload], calls: Sequence[Call], profile: HardwareProfile, mode: Mode) -> Array:
    """Seconds of convolutions with the layout conversions around them."""
    options = PriceOptions(implementation="library", without=frozenset({"launch"}))
    rounded = with_tf32(profile)
    padded = [_padded(w, call) for w, call in zip(workloads, calls, strict=True)]
    found: Array = price_workloads(padded, rounded, options).latency * np.array([_slower(call) for call in calls])
    passes = np.array([layout_passes(call, mode) for call in calls])
    images = [_copy(w.read_bytes - w.weight_bytes) for w in workloads]
    results = [_copy(w.write_bytes) for w in workloads]
    for column, copies in enumerate((images, results)):
        found = found + passes[:, column] * price_workloads(copies, profile, options).latency
    return found


def with_tf32(profile: HardwareProfile) -> HardwareProfile:
    """The profile with its TF32 rate in the place of bf16: for operands of four bytes that the pipe rounds."""
    tensor = profile.compute.tensor
    rate = tensor.per_clock.get("tf32") if tensor is not None else None
    if tensor is None or rate is None:
        return profile
    rates = {**tensor.per_clock, "bf16": rate}
    return replace(profile, compute=replace(profile.compute, tensor=replace(tensor, per_clock=rates)))


def _padded(w: Workload, call: Call) -> Workload:
    if call.channels % PACKED:
        return replace(w, tensor_rate=-1, plain=1)
    taps = max(1, w.k // call.channels)
    k = taps * -(-call.channels // K_TILE) * K_TILE
    return replace(w, tensor_rate=TENSOR_TYPES.index("bf16"), k=k, mma=w.mma * k / max(1, w.k), plain=1)


def _slower(call: Call) -> float:
    if call.taps == 1:
        return 1.0
    return FORWARD if call.kind in ("conv1d", "conv2d") else GRADIENT


def layout_passes(call: Call, mode: Mode) -> tuple[float, float]:
    """Conversions of the image and of the result, in copies of each.

    A compiler keeps a dense 2-D convolution channels last: the image of the first one is converted, and the result
    where it leaves the program. Elsewhere a kernel that wants channels last converts the image before itself, and a
    transposed or 3-D one its result; a forward kernel writes channels first, and one over single points reads so too.
    """
    if mode is Mode.COMPILED and call.kind.startswith("conv2d") and call.dense:
        return float(call.first), float(call.last)
    if not call.dense or call.taps == 1:
        return 0.0, 0.0
    if call.kind in ("conv1d", "conv2d", "conv3d") and call.channels % PACKED:
        return 0.0, 0.0
    return 1.0, 0.0 if call.kind in ("conv1d", "conv2d") else 1.0


def _copy(size: int) -> Workload:
    """A kernel that reads and writes `size` bytes."""
    return Workload(
        template=TEMPLATES.index(Template.MOVEMENT), inner=max(1, size // 4), full_reads=1, full_writes=1, arrays=2,
        read_bytes=size, write_bytes=size, footprint_bytes=2 * size,
    )  # fmt: skip
