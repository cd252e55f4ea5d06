"""Access maps: how the index of an operand follows from the index of a result.

Each primitive relates every dimension of every operand to the iteration space of the operator, which is the
dimensions of its (first) result plus its own reduction axes. From these maps alone the planner finds what can
share a loop nest, what is re-read, and what is computed twice.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias


class AccessKind(StrEnum):
    """How one dimension of an operand is indexed."""

    SAME = "same"  # index = index of result dimension `out`
    BROADCAST = "broadcast"  # the operand's dimension is 1 (or absent): index 0
    REDUCED = "reduced"  # index = reduction axis `red`
    WINDOW = "window"  # index = affine in result dimension `out` and reduction axis `red` (convolution, pooling)
    SHIFTED = "shifted"  # injective affine in result dimension `out`, other extent (slice, pad, concat)
    INDIRECT = "indirect"  # depends on data (gather, scatter)
    WHOLE = "whole"  # every index is needed for each result element (sort, scan, opaque)


@dataclass(frozen=True, slots=True)
class Access:
    """One operand dimension: its kind, the result dimension and the reduction axis it follows (None: neither)."""

    kind: AccessKind
    out: int | None = None
    red: int | None = None


OperandMap: TypeAlias = tuple[Access, ...]


@dataclass(frozen=True, slots=True)
class AccessMap:
    """The maps of all operands of one node.

    `operands[i]` has one `Access` per dimension of operand i (`()` for literals and scalars).
    `reduced` gives the extent of each reduction axis, in the order that `Access.red` numbers them.
    """

    operands: tuple[OperandMap, ...]
    reduced: tuple[int, ...] = ()


def same(out: int) -> Access:
    """Index equal to that of result dimension `out`."""
    return Access(AccessKind.SAME, out=out)


def reduced(red: int) -> Access:
    """Index equal to reduction axis `red`."""
    return Access(AccessKind.REDUCED, red=red)


BROADCAST = Access(AccessKind.BROADCAST)
WHOLE = Access(AccessKind.WHOLE)
INDIRECT = Access(AccessKind.INDIRECT)
