"""Step 3 of the ladder: the generated source through the CUDA compiler, predicted resources against compiled ones."""

from collections.abc import Mapping, Sequence
from typing import Any

from fusesolve.codegen.module import GeneratedPlan, generate
from fusesolve.codegen.planned import PlannedKernel, PlannedProgram
from fusesolve.codegen.runtime import Compiled, Compiler, KernelError
from fusesolve.cost.gpu_occupancy import blocks_per_unit, occupancy
from fusesolve.errors import InputError, MissingError
from fusesolve.hardware import HardwareProfile
from fusesolve.validate.result import KernelResult

# When a predicted number counts as right: registers within 4 or 15 %, code within 30 %, the others exactly.
REGISTERS_NEAR, REGISTERS_SHARE, CODE_SHARE = 4, 0.15, 0.30


def capability_of(profile: HardwareProfile) -> tuple[int, int]:
    """Major and minor compute capability; InputError for a profile that is no NVIDIA GPU of 7.5 or later."""
    text = profile.compute_capability
    major, _, minor = (text or "").partition(".")
    if text is None or not (major.isdigit() and minor.isdigit()):
        raise InputError(f"--on compile needs an NVIDIA GPU; profile {profile.name} has no compute capability")
    if (int(major), int(minor)) < (7, 5):
        raise InputError(f"--on compile: CUDA 13 compiles for 7.5 and later, profile {profile.name} is {text}")
    return int(major), int(minor)


def compile_plan(planned: PlannedProgram, profile: HardwareProfile) -> tuple[KernelResult, ...]:
    """Every group that has source, compiled for the profile; groups without it are not judged.

    A group fails where it spills although the plan says that it does not, and where its kernel cannot run on the
    device. MissingError (exit 4) where the compiler refuses a kernel.
    """
    capability = capability_of(profile)
    made = generate(planned)
    with Compiler(made.text) as compiler:
        return tuple(_group(planned, made, compiler, kernel, profile, capability) for kernel in planned.kernels)


def _group(
    planned: PlannedProgram, made: GeneratedPlan, compiler: Compiler, kernel: PlannedKernel, profile: HardwareProfile,
    capability: tuple[int, int],
) -> KernelResult:  # fmt: skip
    items = made.kernels.get(kernel.id)
    if items is None:
        return KernelResult(
            id=kernel.id, nodes=kernel.nodes, ok=None, generated=False, predicted=kernel.predicted,
            note=made.refused[kernel.id],
        )  # fmt: skip
    storage = planned.program.storage
    found: list[tuple[Compiled, Mapping[str, Any]]] = []
    for item in items:
        space = made.workspaces.get(kernel.id)
        kinds = [
            storage[s].type.dtype.value if s >= 0 else "f32" if space is None else space.kind
            for s in item.emitted.arguments
        ]
        try:
            result = compiler.compile(item.name, kinds, capability)
        except KernelError as error:
            names = ", ".join(kernel.nodes[:4])
            raise MissingError(f"group {kernel.id} ({names}) does not compile: {error}") from error
        found.append((result, _numbers(result, profile, item.emitted.threads, item.emitted.shared)))
    return _row(kernel, found)


def _numbers(result: Compiled, profile: HardwareProfile, threads: int, dynamic: int) -> dict[str, Any]:
    shared = result.shared + dynamic
    resident = blocks_per_unit(profile, result.registers, threads, shared)
    return {
        "registers_per_thread": result.registers, "shared_bytes": shared, "spill_bytes": result.spill_stores,
        "code_bytes": result.code, "occupancy": round(float(occupancy(profile, threads, resident)), 4),
        "latency_ns": None, "stack_bytes": result.stack,
    }  # fmt: skip


def _row(kernel: PlannedKernel, found: Sequence[tuple[Compiled, Mapping[str, Any]]]) -> KernelResult:
    """The row of a group: its main kernel (the first), and what is wrong with any of them."""
    notes = []
    spilled = sum(result.spill_stores for result, _ in found)
    if spilled and not kernel.predicted.get("spill_bytes"):
        notes.append(f"spills {spilled} bytes a thread, none are predicted")
    if any(numbers["occupancy"] == 0.0 for _, numbers in found):
        notes.append("does not fit the device")
    stack = max(result.stack for result, _ in found)
    remark = f"{stack} bytes of stack a thread" if stack and not notes else None
    return KernelResult(
        id=kernel.id, nodes=kernel.nodes, ok=not notes, generated=True, predicted=kernel.predicted,
        compiled=found[0][1], note="; ".join(notes) or remark,
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
