"""Packs: kernels that need nothing of each other, side by side in one launch.

The parts of a pack start at one level: the longest data path to what each of them reads has the same number of
operators. So no part waits for another's operands much longer than it would alone, and none of them can need another.
A part is generated: where a library call does the work best, the pack runs its generated twin.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fusesolve.candidates.pricing import Priced, join_prices, nanoseconds, price_workloads
from fusesolve.candidates.program import Program
from fusesolve.candidates.table import Kernel, KernelBlocks, KernelTable, block_of, make_blocks, stack_tables, table_of
from fusesolve.cost import PACKERS
from fusesolve.cost.table import Prices
from fusesolve.group import TEMPLATES, Template, Workload
from fusesolve.legality import allowed
from fusesolve.ragged import Ints, Ragged, ragged, stack

MOST_PARTS = 64
STEPS = (*range(2, 17), 24, 32, 48, MOST_PARTS)  # lengths of runs of kernels that are packed
LONGEST = 12.0  # launches: beside a longer kernel the saving of one is within the model's error
REAL = 0.1  # launches that a pack saves at least for each launch that it spares; less is no gain that one could measure
_PARTS = frozenset({Template.POINTWISE, Template.MOVEMENT, Template.ROW, Template.REDUCTION, Template.CONTRACTION})
_SUMS = ("fma", "alu", "sfu", "vector", "mma", "thin_fma", "thin_mma", "read_bytes", "write_bytes", "warm_read_bytes",
         "weight_bytes", "arrays", "staged", "staged_bytes", "full_reads", "full_writes", "row_reads")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Part:
    """A kernel that may be packed: its position in the table, its operators and all that depends on them, as masks.

    `level`: where it starts; `cost`: ns alone; `slack`: ns by which it is dearer than what the best plan pays for its
    operators.
    """

    kernel: Kernel
    place: int
    mask: int
    below: int
    level: int
    cost: int
    slack: float

    def independent(self, other: "Part") -> bool:
        """Whether neither needs the other and no operator is in both."""
        return not (self.mask | self.below) & other.mask and not other.below & self.mask


@dataclass(frozen=True, slots=True, kw_only=True)
class Packs:
    """Sets of kernels with the prices of their launches; `parts`: positions of the kernels in the table."""

    kernels: tuple[tuple[Kernel, ...], ...]
    parts: Ragged
    prices: Prices

    def __len__(self) -> int:
        return len(self.kernels)

    def take(self, rows: NDArray[np.intp]) -> "Packs":
        """The packs at these positions."""
        chosen = tuple(self.kernels[row] for row in rows.tolist())
        return Packs(kernels=chosen, parts=self.parts.take(rows), prices=self.prices.rows(rows))

    def kinds(self) -> Ints:
        """A number for each pack, equal where the parts have the same work and lie alike."""
        numbers: dict[tuple[tuple[int, tuple[int, ...]], ...], int] = {}
        found = []
        for pack in self.kernels:
            base = pack[0].members[0]
            key = tuple((kernel.unique, tuple(member - base for member in kernel.members)) for kernel in pack)
            found.append(numbers.setdefault(key, len(numbers)))
        return np.array(found, dtype=np.int64)

    def below(self, other: "Packs") -> "Packs":
        """These packs with others below them."""
        return Packs(
            kernels=(*self.kernels, *other.kernels), parts=stack((self.parts, other.parts)),
            prices=join_prices(self.prices, other.prices),
        )  # fmt: skip


def add_twins(priced: Priced) -> Priced:
    """The priced space with a generated twin beside every contraction that a library call does best, if one may be."""
    space = priced.space
    library = np.flatnonzero(priced.prices.implementation).tolist()
    rows = [row for row in library if space.templates[row] in _PARTS and row not in priced.twins]
    if not rows or priced.options.implementation == "library":
        return priced
    workloads = [space.workloads[row] for row in rows]
    made = price_workloads(workloads, priced.profile, replace(priced.options, implementation="generated"))
    start = len(space.workloads)
    prices = join_prices(priced.prices, made)
    extended = replace(
        space, workloads=(*space.workloads, *workloads),
        templates=(*space.templates, *(space.templates[row] for row in rows)),
    )  # fmt: skip
    twins = {**priced.twins, **{row: start + place for place, row in enumerate(rows)}}
    return replace(priced, space=extended, prices=prices, cost_ns=nanoseconds(prices), twins=twins)


class Packer:
    """Looks for parts among priced kernels. `priced` comes from `add_twins`; `launch`: ns that one launch costs."""

    def __init__(self, priced: Priced) -> None:
        self.priced = priced
        program, prices = priced.space.program, priced.prices
        self.launch = 1e9 * float((prices.terms["launch"] + prices.terms["floor"]).max(initial=0.0))
        self.descendants = _dependants(program)
        depth = [0] * len(program.operators)
        for index, before in enumerate(program.preds):
            depth[index] = 1 + max((depth[p] for p in before), default=0)
        made = [storage.producer for storage in program.storage]
        self.depth_of = np.array([0 if producer is None else depth[producer] for producer in made], dtype=np.int64)
        self.sound = self._sound()

    def _sound(self) -> NDArray[np.bool_]:
        """Whether kernels of a workload may be parts: of a template that packs, with a price, not split, not long."""
        priced, prices = self.priced, self.priced.prices
        packed = np.array([priced.packed_row(row) for row in range(len(prices.latency))], dtype=np.intp)
        plain = np.array([template in _PARTS for template in priced.space.templates], dtype=np.bool_)
        fits = (prices.implementation == 0) & (prices.tiling["split"] <= 1) & np.isfinite(prices.latency)
        short = prices.latency * 1e9 <= LONGEST * self.launch
        found: NDArray[np.bool_] = plain & fits[packed] & short & np.isfinite(prices.latency)
        return found

    def rows(self, table: KernelTable) -> Ints:
        """Positions of the kernels that may be parts: they write all that others need, and are sound."""
        return np.flatnonzero(table.full & self.sound[table.unique])

    def levels(self, table: KernelTable) -> Ints:
        """Where each kernel starts."""
        found = np.zeros(len(table), dtype=np.int64)
        np.maximum.at(found, table.reads.owners(), self.depth_of[table.reads.items])
        return found

    def part(self, kernel: Kernel, slack: float, place: int = 0) -> Part | None:
        """The kernel as a part, None where it may be none."""
        cost = self.priced.cost_ns[kernel.unique]
        if cost is None or not kernel.full or not self.sound[kernel.unique]:
            return None
        mask = below = 0
        for member in kernel.members:
            mask |= 1 << member
            below |= self.descendants[member]
        level = max((int(self.depth_of[s]) for s in kernel.reads), default=0)
        return Part(kernel, place, mask, below, level, cost, slack)

    def parts(self, table: KernelTable, slack: NDArray[np.float64] | None = None) -> dict[int, list[Part]]:
        """The parts among kernels with their slack (ns, inf: none; None: 0), by level, those with the least first.

        A part whose slack is its cost or more is left out: a pack saves at most all but its longest part.
        """
        cost = np.array([-1 if c is None else c for c in self.priced.cost_ns], dtype=np.int64)
        slack = np.zeros(len(table)) if slack is None else slack
        rows = self.rows(table)
        rows = rows[slack[rows] < cost[table.unique[rows]]]
        rows = rows[np.argsort(slack[rows], kind="stable")]
        found: dict[int, list[Part]] = {}
        for row in rows.tolist():
            part = self.part(table[row], float(slack[row]), row)
            if part is not None:
                found.setdefault(part.level, []).append(part)
        return {level: sorted(parts, key=_rank) for level, parts in sorted(found.items())}


def _rank(part: Part) -> tuple[float, tuple[int, ...]]:
    return part.slack, part.kernel.members


def _dependants(program: Program) -> list[int]:
    """Operators that must run after each one, as bit masks: by their data, or because they destroy what it reads."""
    after: dict[int, list[int]] = {}
    for reader, writer in program.orders:
        after.setdefault(reader, []).append(writer)
    found = [0] * len(program.operators)
    for index in reversed(range(len(found))):
        for later in (*program.succs[index], *after.get(index, ())):
            found[index] |= found[later] | 1 << later
    return found


def independent_sets(parts: Sequence[Part], most: int) -> list[tuple[Part, ...]] | None:
    """Every set of two to MOST_PARTS independent parts; None where there are more than `most`."""
    beside = [
        sum(1 << place for place in range(start + 1, len(parts)) if first.independent(parts[place]))
        for start, first in enumerate(parts)
    ]
    found: list[tuple[Part, ...]] = []
    stack: list[tuple[tuple[Part, ...], int]] = [((part,), beside[place]) for place, part in enumerate(parts)]
    while stack:
        chosen, free = stack.pop()
        while free and len(chosen) < MOST_PARTS:
            place = (free & -free).bit_length() - 1
            free &= free - 1
            wider = (*chosen, parts[place])
            found.append(wider)
            stack.append((wider, free & beside[place]))
        if len(found) > most:
            return None
    return found


def pairs(parts: Sequence[Part]) -> Iterator[tuple[Part, Part]]:
    """Pairs of independent parts of one level that could save more than their slack: at most all of the cheaper one."""
    ranked = sorted(parts, key=_rank)
    for place, first in enumerate(ranked):
        for second in ranked[place + 1 :]:
            if first.slack + second.slack >= first.cost:
                break
            if first.slack + second.slack < second.cost and first.independent(second):
                yield first, second


def runs(parts: Sequence[Part]) -> Iterator[tuple[Part, ...]]:
    """Runs of three and more independent parts that follow each other in the order of the graph."""
    ranked = sorted(parts, key=lambda part: part.kernel.members)
    for start in range(len(ranked)):
        chosen = [ranked[start]]
        for part in ranked[start + 1 :]:
            if len(chosen) == MOST_PARTS:
                break
            if all(part.independent(other) for other in chosen):
                chosen.append(part)
                if len(chosen) > 2 and len(chosen) in STEPS:
                    yield tuple(chosen)


def price_packs(packer: Packer, packs: Sequence[Sequence[Part]]) -> Packs:
    """Those of the packs that are kernels of the space, with prices.

    A pack that saves less than `REAL` launches for each launch that it spares, or against one kernel of the same
    operators, is none.
    """
    ordered = [sorted(parts, key=lambda part: part.kernel.members) for parts in packs]
    kernels = tuple(tuple(part.kernel for part in parts) for parts in ordered)
    found = Packs(
        kernels=kernels, parts=ragged([[part.place for part in parts] for parts in ordered]),
        prices=_price(packer.priced, kernels),
    )  # fmt: skip
    latency = 1e9 * found.prices.latency
    apart = np.array([sum(part.cost for part in parts) for parts in ordered])
    real = REAL * packer.launch
    saves = apart - latency > real * (found.parts.lengths - 1)
    return found.take(np.flatnonzero(saves & (latency < _cost_as_one(packer.priced, kernels) - real)))


def add_packs(priced: Priced, packs: Packs) -> Priced:
    """The priced space with those packs beside its kernels."""
    if not len(packs):
        return priced
    space, start = priced.space, len(priced.space.workloads)
    fresh = [_kernel(pack, start + place) for place, pack in enumerate(packs.kernels)]
    wider = replace(
        space, kernels=_append(space.kernels, fresh),
        workloads=(*space.workloads, *(_workload(priced, pack) for pack in packs.kernels)),
        templates=(*space.templates, *(Template.PACKED for _ in fresh)),
        packs={**space.packs, **{start + place: pack for place, pack in enumerate(packs.kernels)}},
    )  # fmt: skip
    joined = join_prices(priced.prices, packs.prices)
    return replace(priced, space=wider, prices=joined, cost_ns=nanoseconds(joined))


def _cost_as_one(priced: Priced, packs: Sequence[Sequence[Kernel]]) -> NDArray[np.float64]:
    """Cost (ns) of the kernel that has the operators of each pack and writes all, inf where there is none."""
    table = table_of(priced.space.kernels)
    count = len(priced.space.program.operators)
    key = table.members.hashes(count)
    full = np.flatnonzero(table.full)
    full = full[np.argsort(key[full], kind="stable")]
    wanted = ragged([[m for kernel in pack for m in kernel.members] for pack in packs]).hashes(count)
    near = full[np.minimum(np.searchsorted(key[full], wanted), len(full) - 1)]
    return np.where(key[near] == wanted, 1e9 * priced.prices.latency[table.unique[near]], np.inf)


def _append(kernels: Sequence[Kernel], fresh: Sequence[Kernel]) -> Sequence[Kernel]:
    """The kernels with others below them; a table stays one, and blocks stay blocks."""
    if isinstance(kernels, tuple):
        return (*kernels, *fresh)
    if isinstance(kernels, KernelBlocks):
        return make_blocks([*kernels.blocks, block_of(table_of(fresh))])
    return stack_tables([table_of(kernels), table_of(fresh)])


def _price(priced: Priced, packs: Sequence[Sequence[Kernel]]) -> Prices:
    """Prices of packs, each part with the tiling of its generated form."""
    rows = np.full((len(packs), max(map(len, packs), default=1)), -1, dtype=np.intp)
    for place, kernels in enumerate(packs):
        rows[place, : len(kernels)] = [priced.packed_row(kernel.unique) for kernel in kernels]
    profile = priced.profile
    price = PACKERS[profile.kind]
    return price(priced.prices, rows, profile, priced.options, lambda resources: allowed(resources, profile))


def cost_of_packs(priced: Priced, packs: Sequence[Sequence[Kernel]]) -> tuple[int | None, ...]:
    """Cost in ns of packs of the space's own kernels, whether or not they joined it; None where one cannot be."""
    if not packs or priced.profile.kind not in PACKERS:
        return (None,) * len(packs)
    packer = Packer(add_twins(priced))
    sound = [all(packer.part(kernel, 0.0) is not None for kernel in kernels) for kernels in packs]
    prices = _price(packer.priced, packs)
    return tuple(cost if ok else None for cost, ok in zip(nanoseconds(prices), sound, strict=True))


def _kernel(kernels: Sequence[Kernel], unique: int) -> Kernel:
    return Kernel(
        members=tuple(sorted(m for k in kernels for m in k.members)),
        reads=tuple(sorted({s for k in kernels for s in k.reads})),
        writes=tuple(sorted({s for k in kernels for s in k.writes})), full=True, unique=unique,
    )  # fmt: skip


def _workload(priced: Priced, kernels: Sequence[Kernel]) -> Workload:
    """The sums over the parts, for reports: a pack is priced from its parts' prices."""
    workloads = [priced.space.workloads[k.unique] for k in kernels]
    sums: Mapping[str, float] = {name: sum(getattr(w, name) for w in workloads) for name in _SUMS}
    return Workload(template=TEMPLATES.index(Template.PACKED), **sums)  # type: ignore[arg-type]  # sums of its own fields
