"""Step 4 of the ladder: the groups of a plan as CPU kernels, checked against the reference, then timed.

Every group that has CPU source runs fused and as its source operators one by one. Their times are compared with the
prediction where the plan's profile is a CPU's; on any other profile only fused against unfused means something.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fusesolve.codegen.cpu.module import CpuModule, generate_cpu
from fusesolve.codegen.cpu.runtime import CpuKernelError, CpuRunner, Timing, aligned, timed
from fusesolve.codegen.planned import PlannedKernel, PlannedProgram
from fusesolve.codegen.runtime import POISON
from fusesolve.graph import DType
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
    planned: PlannedProgram, progress: Callable[[int, int], None] | None = None
) -> dict[int, MeasuredKernel]:
    """Times of every group that has CPU source, at the extents of `planned`, on random arrays that fit its types.

    `progress` is told (groups done, groups) after each. A group and its source operators are timed in turn.
    """
    found: dict[int, MeasuredKernel] = {}
    for done, kernel in enumerate(planned.kernels):
        bound = bind_group(planned, kernel, Arrays(), apart=True)
        if bound is not None:
            found[kernel.id] = bound.measured(timed(bound.calls))
        if progress is not None:
            progress(done + 1, len(planned.kernels))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundGroup:
    """A group as a call, its source operators behind it where all of them have source; `operators`: 0 if not asked."""

    calls: tuple[Callable[[], object], ...]
    operators: int

    def measured(self, times: Sequence[Timing]) -> MeasuredKernel:
        """The group's times from those of its calls; one operator is the same apart."""
        parts = times if self.operators == 1 else times[1:]
        return MeasuredKernel(fused=times[0], unfused=sum(item.median for item in parts) if parts else None)


def bind_group(
    planned: PlannedProgram, kernel: PlannedKernel, arrays: "Arrays", *, apart: bool
) -> BoundGroup | None:
    """A group as calls on `arrays`, with its source operators where `apart`; None where it has no CPU source."""
    parts = split_group(planned, kernel, 1 + max(item.id for item in planned.kernels)) if apart else ()
    made = generate_cpu(planned.program, [kernel, *(parts if len(parts) > 1 else ())])
    if kernel.id not in made.kernels:
        return None
    whole = len(parts) > 1 and all(part.id in made.kernels for part in parts)
    kernels, runner = [kernel, *(parts if whole else ())], CpuRunner(made)
    held = arrays.of(planned, kernels)
    calls = (runner.bound(k.id, [held[s] for s in k.reads], [held[s] for s in k.writes]) for k in kernels)
    return BoundGroup(calls=tuple(calls), operators=len(parts))


class Arrays:
    """Flat arrays for kernels that are timed in turn; those of several groups share them.

    Read from outside a group: random floats, zeros for integers (an index must lie in its tensor). What a group writes
    is of another array than what any reads from outside.
    """

    def __init__(self) -> None:
        self.held: dict[tuple[bool, int, DType, int], Any] = {}

    def of(self, planned: PlannedProgram, kernels: Sequence[PlannedKernel]) -> "dict[int, Array]":
        """An array for each storage that these kernels read or write, no two the same."""
        made = {s for kernel in kernels for s in kernel.writes}
        taken: Counter[tuple[bool, int, DType]] = Counter()
        found = {}
        for s in sorted({*made, *(s for kernel in kernels for s in kernel.reads)}):
            kind = planned.program.storage[s].type
            key = (s in made, kind.size, kind.dtype)
            place = (*key, taken[key])
            if place not in self.held:
                self.held[place] = _random(kind.size, kind.dtype, taken[key])
            found[s] = self.held[place]
            taken[key] += 1
        return found


def _random(size: int, dtype: DType, seed: int) -> "Array":
    import numpy as np

    array = aligned(size, numpy_dtype(dtype))
    if dtype.is_float:
        block = np.random.Generator(np.random.PCG64(seed)).standard_normal(min(size, 65_536), np.float32)
        array[:] = np.resize(block.astype(array.dtype), size)
    return array


def _ns(seconds: float) -> float:
    return round(1e9 * seconds, 1)
