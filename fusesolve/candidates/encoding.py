"""Encodings: when two stretches of a program are the same up to renumbering.

Growth from an operator looks at a stretch of consecutive operators only. If two stretches have equal encodings, the
groups that grow in them are the same with shifted numbers, so a layer is walked once however often it repeats.

A read is told by how far back its storage was touched before (made, or read by an earlier operand) and by what: reads
of one storage so form a chain, and two stretches in which all chains look alike have the same storage in the same
places. A read whose chain leaves the stretch is *external*; its storage is numbered by first use.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fusesolve.candidates.program import Program
from fusesolve.ragged import Ints

_FAR = 1 << 40  # distance to the touch before the first one
_EXTERNAL = -1  # token of a read whose storage was not touched in the stretch


@dataclass(frozen=True, slots=True)
class Place:
    """Storage in relative terms: result number `slot` of operator `offset`, or external storage number `slot`."""

    offset: int | None
    slot: int


@dataclass(frozen=True, slots=True)
class Encoding:
    """What two equal stretches have in common: the looks of the operators, and the chains of the reads."""

    looks: bytes
    chains: bytes


class Encoder:
    """Encodes stretches `[low, high]` of a program; operators that look alike share a structure number.

    Whether an operator is in `separable`, and how its unit (`units[i]`) lies around it, is part of its looks. So is how
    far its readers are, but for those that nothing else joins (`alone`): growth never goes there, wherever they are.
    """

    def __init__(
        self, program: Program, separable: frozenset[int] = frozenset(), units: Sequence[tuple[int, ...]] = (),
        alone: frozenset[int] = frozenset(),
    ) -> None:  # fmt: skip
        self.program = program
        self.separable = separable
        self.units = units
        self.alone = alone
        interned: dict[Hashable, int] = {}
        looks = [interned.setdefault(self._look(index), len(interned)) for index in range(len(program.operators))]
        self.looks = np.array(looks, dtype=np.int32)
        self._slot = {value: slot for op in program.operators for slot, value in enumerate(op.writes)}
        self._bytes = self.looks.tobytes()
        self.first_write = np.array([op.writes[0] if op.writes else 0 for op in program.operators], dtype=np.int64)
        self._chain()

    def _look(self, index: int) -> Hashable:
        program = self.program
        op = program.operators[index]
        reads = tuple(
            (
                read.axes, read.elements, read.barrier, read.apart, program.storage[read.storage].type,
                program.storage[read.storage].weight, program.storage[read.storage].producer is None,
            )
            for read in op.reads
        )  # fmt: skip
        writes = tuple((program.storage[v].type, program.storage[v].required) for v in op.writes)
        succs = tuple(None if succ in self.alone else succ - index for succ in program.succs[index])
        name = program.graph.nodes[op.node].op
        loops = (op.out, op.red, op.points, op.reduced)
        beside = tuple(other - index for other in program.siblings[index])
        unit = tuple(other - index for other in self.units[index]) if self.units else ()
        if index in self.alone and unit[0] < 0:
            unit = ()  # growth begins at the first of the unit and does not come to the others
        single = index in self.separable
        changes = program.overwrites.get(index)
        read = [read.storage for read in op.reads]
        destroyed = None if changes is None else (read.index(changes), -1) if changes in read else (-1, changes)
        return (
            op.kind, name, op.work, op.linear, op.is_double, single, loops, reads, writes, succs, beside, unit,
            destroyed,
        )  # fmt: skip

    def _chain(self) -> None:
        """For each read of each operator: its storage, how far back it was touched before, and by what."""
        starts, storage, owner, distance, token = [0], [], [], [], []
        last: dict[int, tuple[int, int]] = {}
        for index, op in enumerate(self.program.operators):
            for position, read in enumerate(op.reads):
                touch, code = last.get(read.storage, (index - _FAR, 0))
                storage.append(read.storage)
                owner.append(index)
                distance.append(index - touch)
                token.append((index - touch) << 12 | code)
                last[read.storage] = (index, 2 * position + 1)
            last.update((value, (index, 2 * slot)) for slot, value in enumerate(op.writes))
            starts.append(len(storage))
        self._starts = starts
        self._firsts = np.array(starts, dtype=np.int64)
        self._storage, self._owner, self._distance, self._token = (
            np.array(items, dtype=np.int64) for items in (storage, owner, distance, token)
        )

    def look(self, index: int) -> int:
        """The structure number of an operator."""
        return int(self.looks[index])

    def encode(self, low: int, high: int) -> Encoding | None:
        """The encoding of operators `low..high`, or None where the stretch runs out of the program."""
        looks = self._looks_of(low, high)
        return None if looks is None else Encoding(looks, self._chains_of(low, high))

    def matches(self, encoding: Encoding, low: int, high: int) -> bool:
        """Whether operators `low..high` have this encoding."""
        return self._looks_of(low, high) == encoding.looks and self._chains_of(low, high) == encoding.chains

    def _looks_of(self, low: int, high: int) -> bytes | None:
        return None if low < 0 or high >= len(self.looks) else self._bytes[4 * low : 4 * (high + 1)]

    def _chains_of(self, low: int, high: int) -> bytes:
        first, last = self._starts[low], self._starts[high + 1]
        inside = self._distance[first:last] <= self._owner[first:last] - low
        return np.where(inside, self._token[first:last], _EXTERNAL).tobytes()

    def externals(self, low: int, high: int) -> Ints:
        """External reads of a stretch in order of first use, counted over all reads from its first operator on."""
        first, last = self._starts[low], self._starts[high + 1]
        found: Ints = np.nonzero(self._distance[first:last] > self._owner[first:last] - low)[0]
        return found

    def external_storage(self, lows: Ints, externals: Ints) -> NDArray[np.int64]:
        """Row i: the storage behind `externals` of the stretch that begins at `lows[i]`."""
        found: NDArray[np.int64] = self._storage[self._firsts[lows][:, None] + externals[None, :]]
        return found

    def place(self, storage: int, low: int, numbers: dict[int, int]) -> Place:
        """Storage number to relative place; `numbers`: those of external storage."""
        made = self.program.storage[storage].producer
        if made is not None and made >= low:
            return Place(made - low, self._slot[storage])
        return Place(None, numbers[storage])
