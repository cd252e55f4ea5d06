"""Links: what the operands of an operator say about its loops, worked out once for all sets that hold the operator."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fusesolve.access import AccessKind

if TYPE_CHECKING:
    from fusesolve.candidates.program import Operator, Program, Read

SOURCE_LIMIT = 6  # sources of a concat that others may compute in place: each element tests every boundary


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One operand of an operator, and the operator that makes it (`producer`, -1: an input or a weight).

    Where both are in one set: `blocked` if no loops carry the value from one to the other, `cut` if one block does not
    either; else `pairs` are the result loops of the producer and the loops of the reader that become one, and
    `in_place` tells whether the reader computes the producer at its own points.
    """

    read: "Read"
    producer: int
    blocked: bool
    cut: bool
    in_place: bool
    pairs: tuple[tuple[int, int], ...]


class Links(dict[int, tuple[Link, ...]]):
    """The links of each operator of a program, made when they are first asked for."""

    def __init__(self, program: "Program") -> None:
        super().__init__()
        self.program = program

    def __missing__(self, index: int) -> tuple[Link, ...]:
        found = self[index] = tuple(self._link(read) for read in self.program.operators[index].reads)
        return found

    def _link(self, read: "Read") -> Link:
        made = self.program.storage[read.storage].producer
        if made is None:
            return Link(read=read, producer=-1, blocked=False, cut=False, in_place=False, pairs=())
        producer = self.program.operators[made]
        blocked = read.barrier or read.closed or joins_many(producer) or producer.in_place
        pairs = () if blocked else tuple((atom, walk) for atom, walk in enumerate(read.walks) if walk >= 0)
        return Link(
            read=read, producer=made, blocked=blocked, cut=blocked and not _through_block(read, producer),
            in_place=read.apart and not blocked, pairs=pairs,
        )  # fmt: skip


def joins_many(op: "Operator") -> bool:
    """Whether the operator concatenates more sources than may be computed at another operator's points."""
    return len(op.reads) > SOURCE_LIMIT and all(read.apart for read in op.reads)


def _through_block(read: "Read", producer: "Operator") -> bool:
    """Whether a block passes a value on although no loops do: it is computed at the index that the reader asks for."""
    whole = any(axis.kind is AccessKind.WHOLE for axis in read.axes)
    return not whole and not joins_many(producer) and not producer.in_place
