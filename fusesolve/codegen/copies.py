"""Operands that a kernel copies as they lie in memory, 16 bytes at a time."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from fusesolve.codegen.affine import Affine
from fusesolve.codegen.kernel import Task, TaskSource
from fusesolve.codegen.tensor_source import CHUNK
from fusesolve.graph import DType


@dataclass(frozen=True, slots=True)
class Copy:
    """An operand that is copied as it lies: its argument and the position of an element, by loop variables."""

    array: str
    offset: Affine


def copied(
    task: Task, element: Callable[[TaskSource, ExitStack], str], loops: Sequence[int], dtype: DType
) -> Copy | None:
    """The operand that `element` writes, where chunks of eight along `loops` can be copied as they lie, else None.

    It is one load without arithmetic or test, of the type that the pipe takes, and every chunk is contiguous and
    aligned.
    """
    probe = _Probe(task)
    with ExitStack() as open_:
        text = element(probe, open_)
    if text != _Probe.LOADED or probe.lines or len(probe.loads) != 1:
        return None
    storage, offset = probe.loads[0]
    real = [loop for loop in loops if task.nest.extent[loop] > 1]
    if task.program.storage[storage].type.dtype is not dtype or not real:
        return None
    inner = probe.vars[real[-1]]
    steps = {var.name: step for var, step in offset.terms}
    others = [step for name, step in steps.items() if name != inner.name]
    fits = steps.get(inner.name) == 1 and inner.extent % CHUNK == 0 and offset.const % CHUNK == 0
    return Copy(probe.arrays[storage], offset) if fits and all(step % CHUNK == 0 for step in others) else None


class _Probe(TaskSource):
    """A body that records loads."""

    LOADED = "loaded"

    def __init__(self, task: Task) -> None:
        storages = (*task.kernel.reads, *task.kernel.writes)
        super().__init__(task, {s: f"a{n}" for n, s in enumerate(storages)}, workspace=False)
        self.loads: list[tuple[int, Affine]] = []

    def fetch(self, storage: int, offset: Affine) -> str:
        """Record, and stand for the element."""
        self.loads.append((storage, offset))
        return self.LOADED
