"""The generated CPU file of a plan: kernels, and one function per group that runs its tasks on all cores.

Nothing from the graph's file is in it but extents and numbers: arrays go by position, groups by number.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fusesolve import __version__
from fusesolve.candidates.program import Program
from fusesolve.codegen.cpu.kernels import emit_cpu
from fusesolve.codegen.cpu.preamble import PREAMBLE
from fusesolve.codegen.cpu.tasks import CpuKernel
from fusesolve.codegen.planned import PlannedKernel
from fusesolve.codegen.scalars import UnsupportedError


@dataclass(frozen=True, kw_only=True)
class CpuModule:
    """The file's text, the kernels of each group that has source, and why the other groups have none."""

    text: str
    kernels: Mapping[int, tuple[CpuKernel, ...]]
    refused: Mapping[int, str]


def generate_cpu(program: Program, groups: Sequence[PlannedKernel]) -> CpuModule:
    """Write the CPU source of groups, by their number. Library calls and opaque operators have none."""
    kernels: dict[int, tuple[CpuKernel, ...]] = {}
    refused: dict[int, str] = {}
    for group in groups:
        try:
            kernels[group.id] = emit_cpu(program, group)
        except UnsupportedError as error:
            refused[group.id] = str(error)
    head = (
        f'"""CPU kernels of a plan, written by fusesolve {__version__}. GROUPS: number -> function of its arrays."""\n'
    )
    parts = [head, PREAMBLE, *(_group(number, items) for number, items in kernels.items()), _table(kernels)]
    return CpuModule(text="\n\n".join(part.rstrip("\n") + "\n" for part in parts), kernels=kernels, refused=refused)


def _group(number: int, items: Sequence[CpuKernel]) -> str:
    """The kernels of one group and the function that runs them."""
    parts, names = [], []
    for n, item in enumerate(items):
        name = f"k{number}" if len(items) == 1 else f"k{number}_{n}"
        parts.append(f'@njit(error_model="numpy", fastmath={{"contract"}}, nogil=True)\n{item.text(name)}')
        names.append(f"all_{name}")
        arguments = ", ".join(item.names)
        flags = 'error_model="numpy", parallel=True' if item.tasks > 1 else 'error_model="numpy"'
        head = f"@njit({flags})\ndef all_{name}({arguments}):\n"
        loop = f"    for t in prange({item.tasks}):\n        {name}(i64(t), {arguments})\n"
        parts.append(head + (loop if item.tasks > 1 else f"    {name}(i64(0), {arguments})\n"))
    parts.append(_launcher(number, items, names))
    return "\n\n".join(part.rstrip("\n") + "\n" for part in parts)


def _launcher(number: int, items: Sequence[CpuKernel], names: Sequence[str]) -> str:
    arguments = [name for name in items[0].names if name != "w0"]
    lines = [f"def g{number}({', '.join(arguments)}):"]
    lines += [f"    check_start({name})" for name in sorted({name for item in items for name in item.whole})]
    space = next((item.workspace for item in items if item.workspace is not None), None)
    if space is not None:
        lines.append(f"    w0 = np.empty({space[0]}, {space[1]})")
    lines += [f"    {name}({', '.join(item.names)})" for name, item in zip(names, items, strict=True)]
    return "\n".join(lines) + "\n"


def _table(kernels: Mapping[int, object]) -> str:
    return "GROUPS = {" + ", ".join(f"{number}: g{number}" for number in kernels) + "}\n"
