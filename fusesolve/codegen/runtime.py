"""Running and compiling generated files: the one home of numba.cuda, in processes of their own.

Numba's CUDA simulator is chosen by an environment variable before Numba is imported, so each use is a child process
that imports the file and then answers one request a line. Compiling needs neither a driver nor a device: Numba makes
LTO-IR, and the linker in the CUDA wheels makes the cubin and says what it takes.
"""

import contextlib
import importlib.util
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, TracebackType
from typing import IO, TYPE_CHECKING, Any, ClassVar, Self, TypeAlias

from fusesolve.errors import MissingError, ValidationError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array: TypeAlias = NDArray[Any]

POISON = 0xFF  # a byte that no kernel writes (NaN in floats), so that a point left out shows
EXTRA = "the extra cuda is missing (numba-cuda): install it with pip install 'fusesolve[cuda]'"


def check_extra(step: str) -> None:
    """MissingError where numba-cuda is not installed; `step` names what needs it."""
    if importlib.util.find_spec("numba_cuda") is None:
        raise MissingError(f"{step}: {EXTRA}")


LOAD = "load "  # the request to import another file, before its name


class KernelError(ValidationError):
    """A kernel that the simulator could not run or the compiler refused; the message ends with what it said."""


class _Child:
    """A process that imports one generated file and answers a line for a line; a context manager.

    `verb` is what it does: simulate or compile.
    """

    def __init__(self, text: str, verb: str) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="fusesolve-")
        self.path = Path(self.folder.name) / "plan.py"
        self.path.write_text(text, encoding="utf-8")
        self.loaded = 0  # files that were imported after the first
        self.log = (Path(self.folder.name) / "log").open("w+", encoding="utf-8")
        self.process = subprocess.Popen(  # noqa: S603  our own interpreter and module
            [sys.executable, "-W", "ignore", "-m", "fusesolve.codegen.runtime", verb, str(self.path)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True,
            env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1" if verb == "simulate" else "0"},
        )  # fmt: skip

    def load(self, text: str) -> None:
        """Import another file in place of the one before; KernelError where that fails."""
        self.loaded += 1  # a new name: Python keeps what it compiled of a file by its name, second and size
        path = self.path.with_stem(f"plan{self.loaded}")
        path.write_text(text, encoding="utf-8")
        self.ask(LOAD + path.name)

    @property
    def running(self) -> bool:
        """Whether the process has not ended."""
        return self.process.poll() is None

    def ask(self, request: str) -> str:
        """The answer to one request; KernelError with the child's last words where it has ended."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(request + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise KernelError(self._last_words())
        return answer

    def _last_words(self) -> str:
        self.process.wait()
        self.log.seek(0)
        lines = [line.strip() for line in self.log.read().splitlines() if line.strip()]
        errors = [line for line in lines if "Error" in line]
        return (errors or lines or ["the process ended and said nothing"])[-1]

    def close(self) -> None:
        """End the process and remove its folder."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.log):
            if stream is not None and not stream.closed:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        self.folder.cleanup()


class _Tool:
    """What runs or compiles the kernels of one generated file at a time; a context manager."""

    what: ClassVar[str]
    verb: ClassVar[str]

    def __init__(self, text: str) -> None:
        check_extra(self.what)
        self._child = _Child(text, self.verb)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._child.close()

    @property
    def running(self) -> bool:
        """Whether it can still be asked: a kernel that raises ends it."""
        return self._child.running

    def load(self, text: str) -> None:
        """Take another generated file; KernelError where it cannot be imported."""
        self._child.load(text)


class Simulator(_Tool):
    """Runs the groups of one generated file in the CUDA simulator."""

    what, verb = "the CUDA simulator", "simulate"

    def run(self, group: int, reads: "Sequence[Array]") -> "list[Array]":
        """What the launcher of a group writes, as flat byte arrays, from the arrays that it reads.

        KernelError where a kernel raises or the child ends.
        """
        import numpy as np

        folder = self._child.path.parent
        for number, array in enumerate(reads):
            np.save(folder / f"r{number}.npy", np.ascontiguousarray(array).reshape(-1).view(np.uint8))
        count = int(self._child.ask(f"{group} {len(reads)}"))
        return [np.load(folder / f"w{number}.npy") for number in range(count)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """What the CUDA compiler made of one kernel.

    Registers of a thread, bytes of a block's static shared memory, bytes of stack, spill stores and spill loads of a
    thread, bytes of code.
    """

    registers: int
    shared: int
    stack: int
    spill_stores: int
    spill_loads: int
    code: int


class Compiler(_Tool):
    """Compiles the kernels of one generated file with no device."""

    what, verb = "the CUDA compiler", "compile"

    def compile(self, name: str, types: Sequence[str], capability: tuple[int, int], registers: int = 0) -> Compiled:
        """The kernel function `name` for one-dimensional arrays of the element types, for a compute capability.

        `registers`: of a thread, at most, if that needs no local memory; 0: as many as the compiler likes.

        KernelError where the compiler refuses it.
        """
        request = {"name": name, "types": list(types), "capability": list(capability), "registers": registers}
        answer = json.loads(self._child.ask(json.dumps(request)))
        if "error" in answer:
            raise KernelError(str(answer["error"]))
        return Compiled(**answer)


def load_generated(path: Path, given: Mapping[str, object] | None = None) -> ModuleType:
    """Import a generated file as a module; `given` are names that it finds defined."""
    spec = importlib.util.spec_from_file_location("generated_plan", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    vars(module).update(given or {})
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def simulate(path: Path, requests: IO[str]) -> None:
    """Answer requests (`group count` a line) until the input ends; runs in the child."""
    import numpy as np

    cuda: Any = importlib.import_module("numba.cuda")
    module = load_generated(path)
    folder = path.parent
    for line in requests:
        if line.startswith(LOAD):
            module = _loaded(path, line)
            continue
        group, count = map(int, line.split())
        launcher, read_slots, write_slots = module.GROUPS[group]
        reads = [
            cuda.to_device(np.load(folder / f"r{number}.npy").view(np.dtype(read_slots[number][1])))
            for number in range(count)
        ]
        writes = [
            reads[base[0]] if base else cuda.to_device(poisoned(size, np.dtype(kind)))
            for size, kind, *base in write_slots
        ]
        launcher(*reads, *writes)
        for number, array in enumerate(writes):
            np.save(folder / f"w{number}.npy", array.copy_to_host().view(np.uint8))
        os.write(1, f"{len(writes)}\n".encode())


def _loaded(path: Path, request: str) -> ModuleType:
    """Import the file beside `path` that a request names, and answer."""
    module = load_generated(path.with_name(request.removeprefix(LOAD).strip()))
    os.write(1, b"0\n")
    return module


def poisoned(size: int, kind: Any) -> "Array":
    """A fresh result array full of `POISON`."""
    import numpy as np

    return np.full(size * kind.itemsize, POISON, np.uint8).view(kind)


def compile_kernels(path: Path, requests: IO[str]) -> None:
    """Answer requests (JSON, a kernel a line) until the input ends; runs in the child."""
    refusal: type[Exception] = importlib.import_module("numba.core.errors").NumbaError
    module = load_generated(path)
    for line in requests:
        if line.startswith(LOAD):
            module = _loaded(path, line)
            continue
        request = json.loads(line)
        function = getattr(module, request["name"]).py_func
        try:
            answer: dict[str, Any] = _compile(
                function, request["types"], tuple(request["capability"]), request["registers"] or None
            )
        except (refusal, TypeError, ValueError, RuntimeError, NotImplementedError) as error:
            lines = [item.strip() for item in str(error).splitlines() if item.strip()]
            answer = {"error": f"{type(error).__name__}: {lines[0] if lines else ''}"}
        os.write(1, (json.dumps(answer) + "\n").encode())


def _compile(function: Any, kinds: Sequence[str], capability: tuple[int, int], registers: int | None) -> dict[str, int]:
    """PTX-level code by Numba, then a cubin by the linker of the CUDA wheels; resources from the linker's log.

    As in generated files, `registers` of a thread are no limit where they do not suffice without local memory.
    """
    cuda, core = importlib.import_module("numba.cuda"), importlib.import_module("cuda.core")
    types = importlib.import_module("numba").types
    signature = tuple(types.Array(_numba_type(kind), 1, "C") for kind in kinds)
    made, _ = cuda.compile_all(function, signature, cc=capability, device=False, abi="numba", output="ltoir")
    parts = made if isinstance(made, list) else [made]
    objects = [core.ObjectCode.from_ltoir(part) if isinstance(part, bytes) else part for part in parts]
    found = _link(core, objects, capability, registers)
    if registers and (found["stack"] or found["spill_stores"]):
        found = _link(core, objects, capability, None)
    return found


def _link(core: Any, objects: Sequence[Any], capability: tuple[int, int], registers: int | None) -> dict[str, int]:
    """What the linker says of a kernel that it makes for at most so many registers of a thread."""
    options = core.LinkerOptions(
        arch=f"sm_{capability[0]}{capability[1]}", link_time_optimization=True, ptxas_options=["-v"], verbose=True,
        max_register_count=registers,
    )  # fmt: skip
    linker = core.Linker(*objects, options=options)
    cubin = linker.link("cubin").code
    return {**_read_log(linker.get_info_log()), "code": text_bytes(bytes(cubin))}


def _numba_type(kind: str) -> Any:
    types: Any = importlib.import_module("numba").types
    if kind == "bf16":
        return importlib.import_module("numba.cuda.types").bfloat16
    names = {"f": "float", "i": "int", "u": "uint"}
    return types.boolean if kind == "bool" else getattr(types, names[kind[0]] + kind[1:])


def _read_log(log: str) -> dict[str, int]:
    """Registers, shared memory, stack and spills in the text that ptxas -v writes."""

    def most(pattern: str) -> int:
        return max((int(found) for found in re.findall(pattern, log)), default=0)

    return {
        "registers": most(r"Used (\d+) registers"), "shared": most(r"(\d+) bytes smem"),
        "stack": most(r"(\d+) bytes stack frame"), "spill_stores": most(r"(\d+) bytes spill stores"),
        "spill_loads": most(r"(\d+) bytes spill loads"),
    }  # fmt: skip


def text_bytes(cubin: bytes) -> int:
    """Bytes of all code sections (`.text...`) of a cubin, a 64-bit ELF file."""
    (table,) = struct.unpack_from("<Q", cubin, 0x28)
    size, count, names = struct.unpack_from("<HHH", cubin, 0x3A)
    sections = [struct.unpack_from("<IIQQQQ", cubin, table + n * size) for n in range(count)]
    start = sections[names][4]
    total = 0
    for name, _, _, _, _, length in sections:
        end = cubin.index(b"\0", start + name)
        total += length if cubin[start + name : end].startswith(b".text") else 0
    return total


_VERBS: Mapping[str, Callable[[Path, IO[str]], None]] = {"simulate": simulate, "compile": compile_kernels}

if __name__ == "__main__":
    _VERBS[sys.argv[1]](Path(sys.argv[2]), sys.stdin)
