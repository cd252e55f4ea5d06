"""The kernel space of a program: every candidate kernel, its writes, and what was refused.

A candidate is a group with a choice of writes: what its members make and others need. In an exact partition a group
writes all of it; with recomputation up to two of these writes may be left to other kernels that compute the value
again. Candidates that differ in nothing but position share one entry of `unique`.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

import numpy as np

from fusesolve.candidates.encoding import Encoder, Encoding, Place
from fusesolve.candidates.grow import Grower, Grown, closure
from fusesolve.candidates.loops import Nest
from fusesolve.candidates.program import Program
from fusesolve.candidates.table import Kernel, Placements, Shape
from fusesolve.candidates.workload import Measure
from fusesolve.group import TEMPLATES, FusionGroup, Refusal, Template, Workload
from fusesolve.legality import check_structure
from fusesolve.ops.definition import OpKind

__all__ = ["INTERRUPTED", "Kernel", "Space", "convex_hull", "enumerate_kernels", "inspect_group"]

DROPPED_WRITES = 2
RETURNING_OPERATORS = 128  # operators of a graph up to which such sets are looked for; more make the relaxation loose
RETURNING_VALUES = 2  # values that a set may compute for itself although what they lead to outside comes back to it
INTERRUPTED = "interrupted"
STORED_KERNELS = 30_000  # kernels that are kept as objects; more are blocks


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """All candidates of a program: a tuple, or `KernelBlocks` or a `KernelTable` where there are very many.

    `cut_by`: the limits that truncated it, with where. `packs`: for rows of `workloads` that are several kernels in one
    launch, those kernels.
    """

    program: Program
    kernels: Sequence[Kernel]
    workloads: tuple[Workload, ...]
    templates: tuple[Template, ...]
    cut_by: tuple[str, ...]
    walked: int
    packs: Mapping[int, tuple[Kernel, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Entry:
    encoding: Encoding
    low: int  # relative to the anchor
    high: int
    number: int  # of its shapes, in the placements
    sets: frozenset[tuple[int, ...]]  # operators of its groups, relative to the anchor
    cut: bool


def enumerate_kernels(
    program: Program,
    *,
    recompute: bool,
    separable: frozenset[int] = frozenset(),
    late: Callable[[], bool] | None = None,
) -> Space:
    """Every candidate kernel of the program; with `recompute` also those that leave writes to others.

    Operators in `separable` are not kept in chains. Once `late` returns True only single operators and whole source
    operators are added, and the space says that time cut it.
    """
    return _Enumerator(program, recompute, separable, late or _never).run()


def _never() -> bool:
    return False


def inspect_group(program: Program, nest: Nest, writes: frozenset[int] | None = None) -> FusionGroup | Refusal:
    """One set of operators as a group, or why it is none.

    `writes`: storage that it must write; None for all that its members make and others need.
    """
    needed = _needed(program, nest) if writes is None else set(writes)
    facts = replace(
        nest.facts,
        interior_writes=len(needed & _interior(program, nest)),
        components=_components(program, nest.members),
    )
    refusal = check_structure(facts)
    if refusal is not None:
        return refusal
    reads, written = _reads(program, nest), tuple(sorted(needed))
    workload = Measure(program, nest).workload(written)
    return FusionGroup(
        members=nest.members, reads=reads, writes=written, template=nest.template, facts=facts,
        workload=workload,
    )  # fmt: skip


def convex_hull(program: Program, members: Sequence[int]) -> tuple[int, ...]:
    """The operators and all that lies on data paths between them, ascending."""
    ancestors, descendants = closure(program)
    above = below = mask = 0
    for member in members:
        above |= ancestors[member]
        below |= descendants[member]
        mask |= 1 << member
    hull = mask | above & below
    return tuple(index for index in range(len(program.operators)) if hull >> index & 1)


def _components(program: Program, members: Sequence[int]) -> int:
    left = set(members)
    count = 0
    while left:
        count += 1
        stack = [left.pop()]
        while stack:
            item = stack.pop()
            near = left.intersection((*program.preds[item], *program.succs[item], *program.siblings[item]))
            left -= near
            stack.extend(near)
    return count


class _Places(dict[int, Place]):
    """The place of each storage relative to a stretch that begins at `low`; `numbers`: those of external storage."""

    def __init__(self, encoder: Encoder, low: int, numbers: dict[int, int]) -> None:
        super().__init__()
        self.encoder = encoder
        self.low = low
        self.numbers = numbers

    def __missing__(self, storage: int) -> Place:
        found = self[storage] = self.encoder.place(storage, self.low, self.numbers)
        return found


class _Enumerator:
    def __init__(
        self, program: Program, recompute: bool, separable: frozenset[int], late: Callable[[], bool]
    ) -> None:
        self.program = program
        self.recompute = recompute
        self.late = late
        returning = recompute and len(program.operators) <= RETURNING_OPERATORS
        self.grower = Grower(program, separable, RETURNING_VALUES if returning else 0)
        self.encoder = Encoder(program, separable, self.grower.unit, self.grower.alone)
        self.placements = Placements(self.encoder)
        self.workloads: dict[Workload, int] = {}
        self.memo: dict[tuple[Hashable, ...], list[_Entry]] = {}
        self.placed: dict[tuple[int, ...], _Entry] = {}  # by start: a root, or the two contractions of an attention
        self.cut: list[str] = []
        self.walked = 0

    def run(self) -> Space:
        """Grow all groups; then add what is missing, so that every graph has a plan, however short the time.

        That is single operators, source operators and chains, where no growth (or one that time cut) reached them.
        """
        try:
            self._grow_all()
        except KeyboardInterrupt:  # the plan over what is there is worth more than none
            self.cut.append(INTERRUPTED)
        singles = ((op.index,) for op in self.program.operators)
        for members in dict.fromkeys((*singles, *self._sources(), *self.grower.unit)):
            if not self._is_grown(members):
                self._from(members, self.grower.exactly, "exactly")
        return Space(
            program=self.program, kernels=self._kernels(), workloads=tuple(self.workloads),
            templates=tuple(TEMPLATES[workload.template] for workload in self.workloads),
            cut_by=tuple(self.cut), walked=self.walked,
        )  # fmt: skip

    def _kernels(self) -> Sequence[Kernel]:
        """A tuple; above STORED_KERNELS blocks, which make kernels when they are asked for."""
        found = self.placements.kernels()
        return found if len(found) > STORED_KERNELS else tuple(found)

    def _is_grown(self, members: tuple[int, ...]) -> bool:
        """Whether a growth has reached this set: the one from its first operator, or from its two contractions."""
        heads = tuple(m for m in members if self.program.operators[m].kind is OpKind.CONTRACTION)
        for start in (members[:1], heads):
            entry = self.placed.get(start)
            if entry is not None and tuple(m - start[0] for m in members) in entry.sets:
                return True
        return False

    def _grow_all(self) -> None:
        for pair in self.grower.attention_pairs():
            if self.late():
                self.cut.append("time-limit before all attention was grown")
                return
            self._from(pair, lambda start: self.grower.from_attention(*start), "attention")
        for root, unit in enumerate(self.grower.unit):
            if root == unit[0]:
                if self.late():
                    self.cut.append(f"time-limit at {self._name(root)}")
                    return
                self._from((root,), lambda start: self.grower.from_root(*start), "grow")

    def _name(self, index: int) -> str:
        return self.program.graph.nodes[self.program.operators[index].node].name

    def _sources(self) -> Iterator[tuple[int, ...]]:
        """Operators of each source operator that became several."""
        found: dict[str, list[int]] = {}
        for op in self.program.operators:
            found.setdefault(self.program.graph.nodes[op.node].source, []).append(op.index)
        return (tuple(members) for members in found.values() if len(members) > 1)

    def _from(self, start: tuple[int, ...], grow: Callable[[tuple[int, ...]], Grown], how: str) -> None:
        """Place what grows from `start` as `how` says, out of the memo where a stretch alike was walked before."""
        anchor = start[0]
        entries = self.memo.setdefault((how, self.encoder.look(anchor), *(s - anchor for s in start)), [])
        entry = next((e for e in entries if self.encoder.matches(e.encoding, anchor + e.low, anchor + e.high)), None)
        if entry is None:
            entry = self._walk(anchor, grow(start))
            entries.insert(0, entry)
        if how != "exactly":
            self.placed[start] = entry
        self.placements.put(entry.number, anchor + entry.low)
        if entry.cut:
            self.cut.append(f"groups-per-operator at {self._name(anchor + entry.low)}")

    def _walk(self, anchor: int, grown: Grown) -> _Entry:
        """The memo's entry of what has grown around `anchor`."""
        low, high = grown.low, grown.high
        self.walked += len(grown.nests)
        encoding = self.encoder.encode(low, high)
        if encoding is None:
            raise IndexError(high)
        externals = self.encoder.externals(low, high)
        storage = self.encoder.external_storage(np.array([low], dtype=np.int64), externals)[0]
        numbers = {value: slot for slot, value in enumerate(storage.tolist())}
        places = _Places(self.encoder, low, numbers)
        shapes = tuple(shape for nest in grown.nests for shape in self._shapes(nest, low, places))
        number = self.placements.open(shapes, externals)
        sets = frozenset(tuple(m - anchor for m in nest.members) for nest in grown.nests)
        return _Entry(encoding, low - anchor, high - anchor, number, sets, grown.cut)

    def _shapes(self, nest: Nest, low: int, places: "_Places") -> Iterator[Shape]:
        choices = tuple(_write_choices(self.program, nest, self.recompute))
        if not choices:
            return
        measure = Measure(self.program, nest)
        members = tuple(m - low for m in nest.members)
        reads = tuple(places[s] for s in _reads(self.program, nest))
        for writes, full in choices:
            unique = self.workloads.setdefault(measure.workload(writes), len(self.workloads))
            yield Shape(members, reads, tuple(places[s] for s in writes), full, unique)


def _reads(program: Program, nest: Nest) -> tuple[int, ...]:
    found = {
        read.storage
        for m in nest.members
        for read in program.operators[m].reads
        if program.storage[read.storage].producer not in nest.position
    }
    return tuple(sorted(found))


def _needed(program: Program, nest: Nest) -> set[int]:
    """Storage made in the group that someone outside reads or that the graph must deliver."""
    found: set[int] = set()
    inside = nest.position.keys()
    for m in nest.members:
        for value in program.operators[m].writes:
            storage = program.storage[value]
            if storage.required or not inside >= set(storage.readers):
                found.add(value)
    return found


def _interior(program: Program, nest: Nest) -> set[int]:
    """Storage that the kernel cannot write, because it never holds it whole or because others need it before.

    Not whole: prologues, values computed in place, attention's scores.
    """
    hidden = set(nest.returning)
    score = _attention_interior(nest)
    for i, m in enumerate(nest.members):
        if i in nest.inlined or i in nest.upstream or i in score:
            hidden.update(program.operators[m].writes)
    return hidden


def _attention_interior(nest: Nest) -> set[int]:
    """Positions whose loops include the keys, before the second contraction."""
    if nest.template is not Template.ATTENTION:
        return set()
    second = nest.heads[1]
    keys = frozenset(nest.red[second])
    return {i for i in range(len(nest.members)) if i != second and (nest.loops(i) & keys or nest.red[i])}


def _write_choices(program: Program, nest: Nest, recompute: bool) -> Iterator[tuple[tuple[int, ...], bool]]:
    """Choices of writes, fullest first; `full` where nothing that others need is left out."""
    needed = _needed(program, nest)
    hidden = needed & _interior(program, nest)
    base = tuple(sorted(needed - hidden))
    if not base or (hidden and not recompute) or check_structure(nest.facts) is not None:
        return
    if not hidden:
        yield base, True
    if not recompute:
        return
    last = _last_results(program, nest)
    if hidden and len(hidden) <= DROPPED_WRITES and all(not made.isdisjoint(base) for made in last):
        yield base, False
    for count in range(1, DROPPED_WRITES + 1 - len(hidden)):
        for dropped in combinations(base, count):
            rest = tuple(value for value in base if value not in dropped)
            if rest and all(not made.isdisjoint(rest) for made in last):
                yield rest, False


def _last_results(program: Program, nest: Nest) -> list[frozenset[int]]:
    """Results of each member that no member reads: every member is of use if each of these sets has a written one."""
    read = {producer for producer, _ in nest.edges}
    return [frozenset(program.operators[m].writes) for i, m in enumerate(nest.members) if i not in read]



