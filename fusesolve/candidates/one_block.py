"""One block: small sets of operators that no loop nest carries, done by the threads of one block.

Every reduction, and every value that is written, has loops of its own over all threads; a barrier stands between them.
Results of reductions wait in shared memory; everything else is computed again where it is read, at whatever index.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fusesolve.candidates.program import Operator, Program
from fusesolve.legality import ONE_BLOCK_POINTS
from fusesolve.ops.definition import OpKind

if TYPE_CHECKING:
    from fusesolve.candidates.loops import Nest

# Kinds by names of their own: members of an enumeration take long to look up in inner loops.
_REDUCE = OpKind.REDUCE

_KINDS = frozenset({OpKind.ELEMENTWISE, OpKind.REDUCE, OpKind.MOVEMENT, OpKind.GATHER, OpKind.GENERATE})


def fits_block(ops: Sequence[Operator]) -> bool:
    """Whether one block may do all of these operators: few points each, few results of reductions together."""
    kept = sum(op.points for op in ops if op.kind is _REDUCE)
    return kept <= ONE_BLOCK_POINTS and all(
        op.kind in _KINDS and op.points * max(1, op.reduced) <= ONE_BLOCK_POINTS for op in ops
    )


class BlockWork:
    """The part of a workload that only kernels of one block have."""

    def __init__(self, program: Program, nest: "Nest") -> None:
        self.nest = nest
        self.ops: list[Operator] = [program.operators[m] for m in nest.members]
        storage = program.storage
        self.points = max(op.points * max(1, op.reduced) for op in self.ops)
        self.roots = [
            op.kind is _REDUCE
            or any(storage[w].required or not set(storage[w].readers) <= nest.position.keys() for w in op.writes)
            for op in self.ops
        ]

    def fields(self, result_bytes: int) -> Mapping[str, int]:
        """Numbers of the loops over the block: `passes` counts them, `inner` are the points of the longest.

        `result_bytes`: bytes of one result of every reduction in shared memory, all points.
        """
        return {
            "outer": 1, "inner": max(1, self.points), "passes": max(1, sum(self.roots)), "kept_bytes": result_bytes,
            "contiguous": 1,
        }  # fmt: skip

    def evaluations(self) -> list[float]:
        """How often each operator is computed: at every point of each loop that needs it."""
        counts = [0.0] * len(self.ops)
        for i in reversed(range(len(self.ops))):
            own = float(self.ops[i].points * max(1, self.ops[i].reduced))
            if self.ops[i].kind is _REDUCE or not counts[i]:
                counts[i] = own
            elif self.roots[i]:
                counts[i] += own
            for producer in {producer for producer, consumer in self.nest.edges if consumer == i}:
                counts[producer] += counts[i] if self.ops[i].kind is not _REDUCE else own
        return counts


def fold_lanes(outputs: int, length: int, threads: int) -> int:
    """Threads that fold one result of a reduction: all of the block for few long ones, else a warp or less."""
    if is_wide(outputs, length):
        return threads
    lanes = 1
    while lanes < min(length, 32):
        lanes *= 2
    return lanes


def is_wide(outputs: int, length: int) -> bool:
    """Whether the whole block folds each result."""
    return outputs < 4 and length > 64
