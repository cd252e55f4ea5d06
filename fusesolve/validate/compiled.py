"""Step 3 of the ladder: the generated source through the CUDA compiler, predicted resources against compiled ones."""

from collections.abc import Sequence
from typing import Any

from fusesolve.codegen.module import generate
from fusesolve.codegen.planned import PlannedKernel, PlannedProgram
from fusesolve.errors import InputError
from fusesolve.hardware import HardwareProfile
from fusesolve.validate.compile_groups import CompileStore, GroupCompiler, KernelResources
from fusesolve.validate.result import KernelResult

# When a predicted number counts as right: registers within 4 or 15 %, code within 30 %, the others exactly.
REGISTERS_NEAR, REGISTERS_SHARE, CODE_SHARE = 4, 0.15, 0.30


def capability_of(profile: HardwareProfile) -> tuple[int, int]:
    """Major and minor compute capability; InputError for a profile that is no NVIDIA GPU of 7.5 or later."""
    text = profile.compute_capability
    major, _, minor = (text or "").partition(".")
    if text is None or not (major.isdigit() and minor.isdigit()):
        raise InputError(f"the CUDA compiler needs an NVIDIA GPU; profile {profile.name} has no compute capability")
    if (int(major), int(minor)) < (7, 5):
        raise InputError(f"CUDA 13 compiles for compute capability 7.5 and later, profile {profile.name} is {text}")
    return int(major), int(minor)


def compile_plan(
    planned: PlannedProgram, profile: HardwareProfile, store: CompileStore | None = None
) -> tuple[KernelResult, ...]:
    """Every group that has source, compiled for the profile; groups without it are not judged.

    `store`: what was compiled before, by source; None keeps nothing.

    A group fails where it spills although the plan says that it does not, and where its kernel cannot run on the
    device. MissingError (exit 4) where the compiler refuses a kernel.
    """
    compiler = GroupCompiler(planned.program, profile, capability_of(profile), store or CompileStore())
    made = generate(planned, runs=False)
    found = compiler.compile(planned.kernels, made)
    return tuple(
        _row(kernel, found[kernel.id]) if kernel.id in found else _without_source(kernel, made.refused[kernel.id])
        for kernel in planned.kernels
    )


def _without_source(kernel: PlannedKernel, why: str) -> KernelResult:
    return KernelResult(
        id=kernel.id, nodes=kernel.nodes, ok=None, generated=False, predicted=kernel.predicted, note=why
    )


def _numbers(item: KernelResources) -> dict[str, Any]:
    return {
        "registers_per_thread": item.registers, "shared_bytes": item.shared, "spill_bytes": item.spill,
        "code_bytes": item.code, "occupancy": item.occupancy, "latency_ns": None, "stack_bytes": item.stack,
    }  # fmt: skip


def _row(kernel: PlannedKernel, found: Sequence[KernelResources]) -> KernelResult:
    """The row of a group: its main kernel (the first), and what is wrong with any of them."""
    notes = []
    spilled = sum(item.spill for item in found)
    if spilled and not kernel.predicted.get("spill_bytes"):
        notes.append(f"spills {spilled} bytes a thread, none are predicted")
    if any(item.occupancy == 0.0 for item in found):
        notes.append("does not fit the device")
    stack = max(item.stack for item in found)
    remark = f"{stack} bytes of stack a thread" if stack and not notes else None
    return KernelResult(
        id=kernel.id, nodes=kernel.nodes, ok=not notes, generated=True, predicted=kernel.predicted,
        compiled=_numbers(found[0]), note="; ".join(notes) or remark,
    )  # fmt: skip


def agreement(rows: Sequence[KernelResult]) -> dict[str, Any] | None:
    """Shares of the compiled kernels whose predicted numbers are right; None where nothing was compiled."""
    pairs = [(row.predicted, row.compiled) for row in rows if row.compiled is not None and row.predicted is not None]
    if not pairs:
        return None

    def share(name: str, limit: Any) -> float | None:
        both = [(p[name], c[name]) for p, c in pairs if p.get(name) is not None]
        return None if not both else sum(limit(p, c) for p, c in both) / len(both)

    return {
        "kernels": len(pairs),
        "registers": share("registers_per_thread", lambda p, c: abs(p - c) <= max(REGISTERS_NEAR, REGISTERS_SHARE * c)),
        "shared": share("shared_bytes", lambda p, c: p == c),
        "occupancy": share("occupancy", lambda p, c: abs(p - c) < 1e-3),
        "code": share("code_bytes", lambda p, c: abs(p - c) <= CODE_SHARE * c),
    }
