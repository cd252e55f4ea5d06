"""Memory of a plan: what is live while its kernels run in order."""

from collections.abc import Sequence

from fusesolve.candidates.program import Program
from fusesolve.candidates.space import Kernel


def constant_bytes(program: Program) -> int:
    """Bytes of inputs, weights and outputs, which are in memory throughout; what is written in place counts once."""
    changed = _changed(program)
    lasting = (s for s in program.storage if s.producer is None or s.required)
    return sum(s.type.nbytes for s in lasting if s.index not in changed)


def live_bytes(program: Program, storage: int) -> int:
    """Bytes that storage takes while it is live: 0 for what is there throughout or is written in place."""
    item = program.storage[storage]
    lasting = item.producer is None or item.required or storage in _changed(program)
    return 0 if lasting else item.type.nbytes


def _changed(program: Program) -> frozenset[int]:
    """Storage that is written in place of an older value."""
    return frozenset(value for op in program.overwrites for value in program.operators[op].writes)


def peak_memory(program: Program, order: Sequence[Kernel]) -> int:
    """Bytes of inputs, weights and outputs plus the largest sum of live intermediates, kernels run in `order`.

    An intermediate is live from the kernel that first writes it to the last kernel that reads it; what is written in
    place of an older value takes no memory of its own.
    """
    changed = _changed(program)
    last: dict[int, int] = {}
    for step, kernel in enumerate(order):
        for storage in (*kernel.reads, *kernel.writes):
            last[storage] = step
    live: set[int] = set()
    most = current = 0
    for step, kernel in enumerate(order):
        for storage in kernel.writes:
            if storage not in live and not program.storage[storage].required and storage not in changed:
                live.add(storage)
                current += program.storage[storage].type.nbytes
        most = max(most, current)
        for storage in [s for s in (*kernel.reads, *kernel.writes) if s in live and last[s] == step]:
            if storage in live:
                live.remove(storage)
                current -= program.storage[storage].type.nbytes
    return constant_bytes(program) + most
