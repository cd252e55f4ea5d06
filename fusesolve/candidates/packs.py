"""Packs: kernels that need nothing of each other, side by side in one launch.

The parts of a pack start at one level: the longest data path to what each of them reads has the same number of
operators. So no part waits for another's operands much longer than it would alone, and none of them can need another.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fusesolve.candidates.pricing import Priced, join_prices, nanoseconds
from fusesolve.candidates.program import Program
from fusesolve.candidates.space import Kernel
from fusesolve.cost import PACKERS
from fusesolve.group import TEMPLATES, Template, Workload
from fusesolve.legality import allowed

MOST_PARTS = 64
STEPS = (*range(2, 17), 24, 32, 48, MOST_PARTS)  # lengths of runs of kernels that are packed
_PARTS = frozenset({Template.POINTWISE, Template.MOVEMENT, Template.ROW, Template.REDUCTION, Template.CONTRACTION})
_SUMS = ("fma", "alu", "sfu", "mma", "thin_fma", "thin_mma", "read_bytes", "write_bytes", "warm_read_bytes",
         "weight_bytes", "arrays", "staged", "staged_bytes", "full_reads", "full_writes", "row_reads")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Part:
    """A kernel that may be packed, or a pack that may grow: kernels, operators and all that depends on them, as masks.

    `level`: where it starts; `slack`: ns by which it is dearer than what the best plan pays for its operators.
    """

    kernels: tuple[Kernel, ...]
    mask: int
    below: int
    level: int
    cost: int
    slack: float

    def independent(self, other: "Part") -> bool:
        """Whether neither needs the other and no operator is in both."""
        return not (self.mask | self.below) & other.mask and not other.below & self.mask


class Packer:
    """Looks for packs among priced kernels."""

    def __init__(self, priced: Priced) -> None:
        self.priced = priced
        program = priced.space.program
        self.descendants = _dependants(program)
        depth = [0] * len(program.operators)
        for index, before in enumerate(program.preds):
            depth[index] = 1 + max((depth[p] for p in before), default=0)
        made = [storage.producer for storage in program.storage]
        self.depth_of = [0 if producer is None else depth[producer] for producer in made]

    def part(self, kernel: Kernel, slack: float) -> Part | None:
        """The kernel as a part, None where it has no price, leaves writes to others or is none that can be packed."""
        priced, row = self.priced, kernel.unique
        cost = priced.cost_ns[row]
        plain = row not in priced.space.packs and priced.space.templates[row] in _PARTS
        if cost is None or not kernel.full or not plain:
            return None
        if priced.prices.implementation[row] or priced.prices.tiling["split"][row] > 1:
            return None
        mask = below = 0
        for member in kernel.members:
            mask |= 1 << member
            below |= self.descendants[member]
        level = max((self.depth_of[s] for s in kernel.reads), default=0)
        return Part((kernel,), mask, below, level, cost, slack)


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


def join_parts(parts: Sequence[Part]) -> Part:
    """Parts in one launch, before anything is known of its price."""
    mask = below = 0
    for part in parts:
        mask |= part.mask
        below |= part.below
    kernels = sorted((kernel for part in parts for kernel in part.kernels), key=lambda k: k.members)
    cost, slack = sum(part.cost for part in parts), sum(part.slack for part in parts)
    return Part(tuple(kernels), mask, below, parts[0].level, cost, slack)


def pairs(parts: Sequence[Part]) -> Iterator[Part]:
    """Pairs of independent parts of one level that could save more than their slack: at most all of the cheaper one."""
    ranked = sorted(parts, key=lambda part: (part.slack, part.kernels[0].members))
    for place, first in enumerate(ranked):
        for second in ranked[place + 1 :]:
            if first.slack + second.slack >= first.cost:
                break
            if first.slack + second.slack < second.cost and first.independent(second):
                yield join_parts((first, second))


def runs(parts: Sequence[Part]) -> Iterator[Part]:
    """Runs of three and more independent parts that follow each other in the order of the graph."""
    ranked = sorted(parts, key=lambda part: part.kernels[0].members)
    for start in range(len(ranked)):
        chosen = [ranked[start]]
        joined = ranked[start]
        for part in ranked[start + 1 :]:
            if len(chosen) == MOST_PARTS:
                break
            if joined.independent(part):
                chosen.append(part)
                joined = join_parts((joined, part))
                if len(chosen) > 2 and len(chosen) in STEPS:
                    yield join_parts(chosen)


def add_packs(priced: Priced, packs: Sequence[Part]) -> Priced:
    """The priced space with those packs beside its kernels that save more than the slack of their parts."""
    if not packs:
        return priced
    widest = max(len(pack.kernels) for pack in packs)
    rows = np.full((len(packs), widest), -1, dtype=np.intp)
    for place, pack in enumerate(packs):
        rows[place, : len(pack.kernels)] = [kernel.unique for kernel in pack.kernels]
    profile = priced.profile
    price = PACKERS[profile.kind]
    prices = price(priced.prices, rows, profile, priced.options, lambda resources: allowed(resources, profile))
    gain = np.array([pack.cost - pack.slack for pack in packs]) * 1e-9
    kept = np.flatnonzero(prices.latency < gain)
    if not len(kept):
        return priced
    start = len(priced.space.workloads)
    chosen = [packs[place] for place in kept.tolist()]
    workloads = [_workload(priced, pack) for pack in chosen]
    space = replace(
        priced.space, kernels=(*priced.space.kernels, *(_kernel(pack, start + i) for i, pack in enumerate(chosen))),
        workloads=(*priced.space.workloads, *workloads),
        templates=(*priced.space.templates, *(Template.PACKED for _ in chosen)),
        packs={**priced.space.packs, **{start + i: pack.kernels for i, pack in enumerate(chosen)}},
    )  # fmt: skip
    joined = join_prices(priced.prices, prices.rows(kept))
    return replace(priced, space=space, prices=joined, cost_ns=nanoseconds(joined))


def cost_of_packs(priced: Priced, packs: Sequence[Sequence[Kernel]]) -> tuple[int | None, ...]:
    """Cost in ns of packs of the space's own kernels, whether or not they joined it; None where one cannot be."""
    price = PACKERS.get(priced.profile.kind)
    if not packs or price is None:
        return (None,) * len(packs)
    rows = np.full((len(packs), max(map(len, packs))), -1, dtype=np.intp)
    for place, kernels in enumerate(packs):
        rows[place, : len(kernels)] = [kernel.unique for kernel in kernels]
    sound = [_can_pack(priced, kernels) for kernels in packs]
    prices = price(priced.prices, rows, priced.profile, priced.options, lambda res: allowed(res, priced.profile))
    return tuple(cost if ok else None for cost, ok in zip(nanoseconds(prices), sound, strict=True))


def _can_pack(priced: Priced, kernels: Sequence[Kernel]) -> bool:
    packer = Packer(priced)
    return all(packer.part(kernel, 0.0) is not None for kernel in kernels)


def _kernel(pack: Part, unique: int) -> Kernel:
    kernels = pack.kernels
    return Kernel(
        members=tuple(sorted(m for k in kernels for m in k.members)),
        reads=tuple(sorted({s for k in kernels for s in k.reads})),
        writes=tuple(sorted({s for k in kernels for s in k.writes})), full=True, unique=unique,
    )  # fmt: skip


def _workload(priced: Priced, pack: Part) -> Workload:
    """The sums over the parts, for reports: a pack is priced from its parts' prices."""
    workloads = [priced.space.workloads[k.unique] for k in pack.kernels]
    sums: Mapping[str, float] = {name: sum(getattr(w, name) for w in workloads) for name in _SUMS}
    return Workload(template=TEMPLATES.index(Template.PACKED), **sums)  # type: ignore[arg-type]  # sums of its own fields
