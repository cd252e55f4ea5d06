"""Encodings: when two stretches of a program are the same up to renumbering.

Growth from an operator looks at a stretch of consecutive operators only. If two stretches have equal encodings, the
groups that grow in them are the same with shifted numbers, so a layer is walked once however often it repeats.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

from fusesolve.candidates.program import Program


@dataclass(frozen=True, slots=True)
class Place:
    """Storage in relative terms: result number `slot` of operator `offset`, or external storage number `slot`."""

    offset: int | None
    slot: int


class Encoder:
    """Encodes stretches `[low, high]` of a program; operators that look alike share a structure number.

    Whether an operator is in `separable` is part of its looks.
    """

    def __init__(self, program: Program, separable: frozenset[int] = frozenset()) -> None:
        self.program = program
        self.separable = separable
        interned: dict[Hashable, int] = {}
        self._structure = [
            interned.setdefault(self._shape(index), len(interned)) for index in range(len(program.operators))
        ]
        self._slot = {value: slot for op in program.operators for slot, value in enumerate(op.writes)}

    def _shape(self, index: int) -> Hashable:
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
        succs = tuple(succ - index for succ in program.succs[index])
        name = program.graph.nodes[op.node].op
        loops = (op.out, op.red, op.points, op.reduced)
        beside = tuple(other - index for other in program.siblings[index])
        alone = index in self.separable
        changes = program.overwrites.get(index)
        read = [read.storage for read in op.reads]
        destroyed = None if changes is None else (read.index(changes), -1) if changes in read else (-1, changes)
        return (op.kind, name, op.work, op.linear, op.is_double, alone, loops, reads, writes, succs, beside, destroyed)

    def encode(self, low: int, high: int) -> tuple[Hashable, ...] | None:
        """The encoding of operators `low..high`, or None where the stretch runs out of the program."""
        if low < 0 or high >= len(self._structure):
            return None
        external: dict[int, int] = {}
        program = self.program
        found: list[Hashable] = []
        for index in range(low, high + 1):
            found.append(self._structure[index])
            for read in program.operators[index].reads:
                made = program.storage[read.storage].producer
                if made is not None and made >= low:
                    found.append((index - made, self._slot[read.storage]))
                else:
                    found.append(external.setdefault(read.storage, len(external)))
        return tuple(found)

    def externals(self, low: int, high: int) -> dict[int, int]:
        """External storage read in the stretch, numbered by first use (the numbering inside `encode`)."""
        external: dict[int, int] = {}
        program = self.program
        for index in range(low, high + 1):
            for read in program.operators[index].reads:
                made = program.storage[read.storage].producer
                if made is None or made < low:
                    external.setdefault(read.storage, len(external))
        return external

    def place(self, storage: int, low: int, external: Mapping[int, int]) -> Place:
        """Storage number to relative place."""
        made = self.program.storage[storage].producer
        if made is not None and made >= low:
            return Place(made - low, self._slot[storage])
        return Place(None, external[storage])

    def resolve(self, place: Place, low: int, external: Mapping[int, int]) -> int:
        """Relative place to storage number; `external` maps numbers of first use to storage."""
        if place.offset is None:
            return external[place.slot]
        return self.program.operators[low + place.offset].writes[place.slot]
