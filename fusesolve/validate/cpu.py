"""Step 4 of the ladder: the groups of a plan as CPU kernels, checked against the reference, then timed.

Every group that has CPU source runs fused and as its source operators one by one. Their times are compared with the
prediction where the plan's profile is a CPU's; on any other profile only fused against unfused means something.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fusesolve.codegen.cpu.module import CpuModule, generate_cpu
from fusesolve.codegen.cpu.runtime import CpuKernelError, CpuRunner, Timing, aligned
from fusesolve.codegen.planned import PlannedKernel, PlannedProgram
from fusesolve.codegen.runtime import POISON
from fusesolve.ops.numpy_reference import numpy_dtype
from fusesolve.validate.memory import KernelFaultError, ReferenceKernel
from fusesolve.validate.parts import split_group

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]


class CpuKernels:
    """Computes a kernel of a plan by its CPU source, or by the reference where it has none."""

    def __init__(self, planned: PlannedProgram) -> None:
        self.planned = planned
        self.made: CpuModule = generate_cpu(planned.program, planned.kernels)
        self.runner = CpuRunner(self.made)
        self.reference = ReferenceKernel(planned)

    def __call__(self, kernel: PlannedKernel, read: "Mapping[int, Array]") -> "dict[int, Array]":
        """The kernel's writes by storage; KernelFaultError where Numba refuses it."""
        if kernel.id not in self.made.kernels:
            return self.reference(kernel, read)
        import numpy as np

        types = [self.planned.program.storage[s].type for s in kernel.writes]
        writes = [aligned(kind.size, numpy_dtype(kind.dtype), POISON) for kind in types]
        try:
            self.runner.run(kernel.id, [np.ascontiguousarray(read[s]).reshape(-1) for s in kernel.reads], writes)
        except CpuKernelError as error:
            raise KernelFaultError(kernel.id, f"group {kernel.id}: {error}") from error
        return {s: a.reshape(kind.shape) for s, a, kind in zip(kernel.writes, writes, types, strict=True)}


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredKernel:
    """Times of one group in seconds; `unfused` is the sum over its source operators, None where one has no source."""

    fused: Timing
    unfused: float | None

    def to_dict(self) -> dict[str, Any]:
        """Nanoseconds, as in the document."""
        return {
            "latency_ns": _ns(self.fused.median), "p20_ns": _ns(self.fused.p20), "p80_ns": _ns(self.fused.p80),
            "unfused_latency_ns": None if self.unfused is None else _ns(self.unfused),
        }  # fmt: skip


def measure_groups(
    planned: PlannedProgram, progress: Callable[[int, int], None] | None = None, *, apart: bool = True
) -> dict[int, MeasuredKernel]:
    """Times of every group that has CPU source, at the extents of `planned`, on random arrays that fit its types.

    `progress` is told (groups done, groups) after each; `apart`: time their source operators too.
    """
    found: dict[int, MeasuredKernel] = {}
    for done, kernel in enumerate(planned.kernels):
        parts = split_group(planned, kernel, 1 + max(item.id for item in planned.kernels)) if apart else ()
        made = generate_cpu(planned.program, [kernel, *(parts if len(parts) > 1 else ())])
        if kernel.id in made.kernels:
            found[kernel.id] = _measure(planned, made, kernel, parts)
        if progress is not None:
            progress(done + 1, len(planned.kernels))
    return found


def _measure(
    planned: PlannedProgram, made: CpuModule, kernel: PlannedKernel, parts: Sequence[PlannedKernel]
) -> MeasuredKernel:
    runner, arrays = CpuRunner(made), _Arrays(planned)
    fused = runner.time(kernel.id, arrays.of(kernel.reads), arrays.of(kernel.writes))
    if not parts:
        return MeasuredKernel(fused=fused, unfused=None)
    if len(parts) == 1:
        return MeasuredKernel(fused=fused, unfused=fused.median)
    if any(part.id not in made.kernels for part in parts):
        return MeasuredKernel(fused=fused, unfused=None)
    times = [runner.time(part.id, arrays.of(part.reads), arrays.of(part.writes)).median for part in parts]
    return MeasuredKernel(fused=fused, unfused=sum(times))


class _Arrays:
    """One flat array per storage: random floats, zeros for integers (an index must lie in its tensor)."""

    def __init__(self, planned: PlannedProgram) -> None:
        self.storage = planned.program.storage
        self.held: dict[int, Any] = {}

    def of(self, storages: Sequence[int]) -> "list[Array]":
        """The arrays of these storages, made on first use."""
        return [self.held[s] if s in self.held else self._make(s) for s in storages]

    def _make(self, s: int) -> "Array":
        import numpy as np

        kind = self.storage[s].type
        made = aligned(kind.size, numpy_dtype(kind.dtype))
        if kind.dtype.is_float:
            block = np.random.Generator(np.random.PCG64(s)).standard_normal(min(kind.size, 65_536), np.float32)
            made[:] = np.resize(block.astype(made.dtype), kind.size)
        self.held[s] = made
        return made


def _ns(seconds: float) -> float:
    return round(1e9 * seconds, 1)
