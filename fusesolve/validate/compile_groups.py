"""Groups through the CUDA compiler: source, resources, and a store of what was compiled, by source."""

import hashlib
import json
import os
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path

from fusesolve.candidates.program import Program
from fusesolve.codegen.module import GeneratedKernel, GeneratedPlan, generate
from fusesolve.codegen.planned import PlannedKernel, PlannedProgram
from fusesolve.codegen.preamble import PREAMBLE, PREAMBLE_BF16, PREAMBLE_BOUNDED, PREAMBLE_VECTORS
from fusesolve.codegen.runtime import Compiled, Compiler, KernelError
from fusesolve.codegen.tensor_source import tensor_preamble
from fusesolve.cost.gpu_occupancy import blocks_per_unit, occupancy
from fusesolve.errors import MissingError
from fusesolve.hardware import HardwareProfile

# What kernels use, beside device functions of their own.
PREAMBLES = (PREAMBLE, PREAMBLE_BF16, PREAMBLE_VECTORS, PREAMBLE_BOUNDED)
TOOLCHAIN = ("numba-cuda", "nvidia-nvvm", "nvidia-nvjitlink", "nvidia-cuda-nvrtc")  # packages of the extra cuda


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelResources:
    """What one kernel takes as compiled: registers of a thread, shared bytes of a block (static and at launch).

    `spill` and `stack` are bytes of a thread, `code` bytes; `occupancy` is the share of a unit's warps.
    """

    registers: int
    shared: int
    spill: int
    stack: int
    code: int
    threads: int
    occupancy: float


@dataclass(slots=True)
class CompileStore:
    """Compiled resources by source, types, compute capability and versions; kept in `folder` too where there is one."""

    folder: Path | None = None
    found: dict[str, Compiled] = field(default_factory=dict)

    def get(self, key: str) -> Compiled | None:
        """What was compiled under `key`, or None."""
        if key not in self.found and self.folder is not None and (path := self.folder / f"{key}.json").is_file():
            with suppress(ValueError, TypeError):  # not what this version writes: compiled again
                self.found[key] = Compiled(**json.loads(path.read_text(encoding="utf-8")))
        return self.found.get(key)

    def put(self, key: str, item: Compiled) -> None:
        """Remember a result."""
        self.found[key] = item
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            part = self.folder / f"{key}.{os.getpid()}.part"
            part.write_text(json.dumps(asdict(item)), encoding="utf-8")
            part.replace(self.folder / f"{key}.json")


class GroupCompiler:
    """Compiles groups of one program for one profile; each source once."""

    def __init__(
        self, program: Program, profile: HardwareProfile, capability: tuple[int, int], store: CompileStore
    ) -> None:
        self.program = program
        self.profile = profile
        self.capability = capability
        self.store = store
        self.compiled = 0  # kernels that went through the compiler

    def compile(
        self, kernels: Sequence[PlannedKernel], made: GeneratedPlan | None = None
    ) -> dict[int, tuple[KernelResources, ...]]:
        """The kernels of every group that has source, by the group's number; those without are left out.

        MissingError (exit 4) where the compiler refuses one.
        """
        if made is None:
            made = generate(PlannedProgram(program=self.program, kernels=tuple(kernels), where={}), runs=False)
        found: dict[int, tuple[KernelResources, ...]] = {}
        with ExitStack() as open_:
            lazy = _Lazy(made.text, open_)
            for kernel in kernels:
                items = made.kernels.get(kernel.id)
                if items is not None:
                    found[kernel.id] = tuple(self._one(lazy, made, kernel, item) for item in items)
        return found

    def _one(self, lazy: "_Lazy", made: GeneratedPlan, kernel: PlannedKernel, item: GeneratedKernel) -> KernelResources:
        kinds = self._kinds(made, kernel.id, item)
        key = self._key(item, kinds)
        result = self.store.get(key)
        if result is None:
            try:
                result = lazy.compiler().compile(item.name, kinds, self.capability, item.emitted.registers)
            except KernelError as error:
                names = ", ".join(kernel.nodes[:4])
                raise MissingError(f"group {kernel.id} ({names}) does not compile: {error}") from error
            self.compiled += 1
            self.store.put(key, result)
        threads, shared = item.emitted.threads, result.shared + item.emitted.shared
        resident = blocks_per_unit(self.profile, result.registers, threads, shared)
        return KernelResources(
            registers=result.registers, shared=shared, spill=result.spill_stores, stack=result.stack, code=result.code,
            threads=threads, occupancy=round(float(occupancy(self.profile, threads, resident)), 4),
        )  # fmt: skip

    def _kinds(self, made: GeneratedPlan, number: int, item: GeneratedKernel) -> list[str]:
        """Element types of the kernel's arrays."""
        space = made.workspaces.get(number)
        storage = self.program.storage
        return [
            storage[s].type.dtype.value if s >= 0 else "f32" if space is None else space.kind
            for s in item.emitted.arguments
        ]

    def _key(self, item: GeneratedKernel, kinds: Sequence[str]) -> str:
        emitted = item.emitted
        device = tensor_preamble(emitted.tensor_tiles, emitted.tensor_waits) if emitted.tensor_tiles else ""
        parts = (*PREAMBLES, device, emitted.text("k"), *kinds, self.capability, *toolchain())
        return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()


def toolchain() -> tuple[str, ...]:
    """Versions of what makes a cubin of a source: other ones may make another."""
    return tuple(version(name) for name in TOOLCHAIN)


class _Lazy:
    """The compiler's process, started when it is first needed."""

    def __init__(self, text: str, open_: ExitStack) -> None:
        self.text = text
        self.open = open_
        self.made: Compiler | None = None

    def compiler(self) -> Compiler:
        """The running compiler."""
        if self.made is None:
            self.made = self.open.enter_context(Compiler(self.text))
        return self.made
