"""Running generated files: the one home of numba.cuda, here in the CUDA simulator of a process of its own.

The simulator is chosen by an environment variable before Numba is imported, so the file runs in a child process. The
child imports the file, then answers one request a line: the number of a group and a folder with what it reads.
"""

import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, TracebackType
from typing import IO, TYPE_CHECKING, Any, TypeAlias

from fusesolve.errors import MissingError, ValidationError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array: TypeAlias = NDArray[Any]

EXTRA = "the extra cuda is missing (numba-cuda): install it with pip install 'fusesolve[cuda]'"


def check_extra(step: str) -> None:
    """MissingError where numba-cuda is not installed; `step` names what needs it."""
    if importlib.util.find_spec("numba_cuda") is None:
        raise MissingError(f"{step}: {EXTRA}")


class SimulatorError(ValidationError):
    """A kernel that the simulator could not run; the message ends with what the simulator said."""


class Simulator:
    """A child process that runs the groups of one generated file in the CUDA simulator; a context manager."""

    def __init__(self, text: str) -> None:
        check_extra("the CUDA simulator")
        self._folder = tempfile.TemporaryDirectory(prefix="fusesolve-")
        self.path = Path(self._folder.name) / "plan.py"
        self.path.write_text(text, encoding="utf-8")
        self._log = (Path(self._folder.name) / "log").open("w+", encoding="utf-8")
        self._child = self._start()

    def _start(self) -> "subprocess.Popen[str]":
        return subprocess.Popen(  # noqa: S603  our own interpreter and module
            [sys.executable, "-W", "ignore", "-m", "fusesolve.codegen.runtime", str(self.path)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True,
            env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1"},
        )  # fmt: skip

    def __enter__(self) -> "Simulator":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._child.stdin is not None:
            self._child.stdin.close()
        self._child.kill()
        self._child.wait()
        if self._child.stdout is not None:
            self._child.stdout.close()
        self._log.close()
        self._folder.cleanup()

    def run(self, group: int, reads: "Sequence[Array]") -> "list[Array]":
        """What the launcher of a group writes, as flat byte arrays, from the arrays that it reads.

        SimulatorError where a kernel raises or the child ends.
        """
        import numpy as np

        folder = Path(self._folder.name)
        for number, array in enumerate(reads):
            np.save(folder / f"r{number}.npy", np.ascontiguousarray(array).reshape(-1).view(np.uint8))
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        try:
            self._child.stdin.write(f"{group} {len(reads)}\n")
            self._child.stdin.flush()
        except BrokenPipeError:
            raise SimulatorError(self._last_words()) from None
        answer = self._child.stdout.readline().split()
        if len(answer) != 1:
            raise SimulatorError(self._last_words())
        return [np.load(folder / f"w{number}.npy") for number in range(int(answer[0]))]

    def _last_words(self) -> str:
        self._child.wait()
        self._log.seek(0)
        lines = [line.strip() for line in self._log.read().splitlines() if line.strip()]
        errors = [line for line in lines if "Error" in line]
        return f"the simulator stopped: {(errors or lines or ['it said nothing'])[-1]}"


def load_generated(path: Path) -> ModuleType:
    """Import a generated file as a module."""
    spec = importlib.util.spec_from_file_location("generated_plan", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def serve(path: Path, requests: IO[str]) -> None:
    """Answer requests (`group count` a line) until the input ends; runs in the child."""
    import numpy as np
    from numba import cuda

    module = load_generated(path)
    folder = path.parent
    for line in requests:
        group, count = map(int, line.split())
        launcher, read_slots, write_slots = module.GROUPS[group]
        reads = [
            cuda.to_device(np.load(folder / f"r{number}.npy").view(np.dtype(read_slots[number][1])))
            for number in range(count)
        ]
        writes = [cuda.to_device(_poison(size, np.dtype(kind))) for size, kind in write_slots]
        launcher(*reads, *writes)
        for number, array in enumerate(writes):
            np.save(folder / f"w{number}.npy", array.copy_to_host().view(np.uint8))
        os.write(1, f"{len(writes)}\n".encode())


def _poison(size: int, kind: Any) -> "Array":
    """A fresh result array full of bytes that no kernel writes (NaN in floats), so that a point left out shows."""
    import numpy as np

    return np.full(size * kind.itemsize, 0xFF, np.uint8).view(kind)


if __name__ == "__main__":
    serve(Path(sys.argv[1]), sys.stdin)
