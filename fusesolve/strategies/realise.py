"""From groups to kernels: each group as one kernel where it is one, as its own sub-plans where it is not."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from fusesolve.candidates.grow import chain_units
from fusesolve.candidates.pricing import Priced, add_free, extend_priced
from fusesolve.candidates.program import Program, build_program
from fusesolve.candidates.space import Kernel, enumerate_kernels
from fusesolve.graph import Graph
from fusesolve.group import FusionGroup, Refusal
from fusesolve.legality import LIMIT_RULES
from fusesolve.ops import OPS
from fusesolve.ops.definition import OpKind
from fusesolve.strategies.context import Context, Members

_LIMITS = frozenset({rule.name for rule in LIMIT_RULES} | {"no-tiling"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Illegal:
    """A group that is no kernel: its place in the partition, its operators, and the rule with its message."""

    group: int
    members: Members
    rule: str
    message: str

    @property
    def breaks_limit(self) -> bool:
        """True where the profile's limits refuse it, False where it is no kernel of the space."""
        return self.rule in _LIMITS


@dataclass(frozen=True, slots=True, kw_only=True)
class Realised:
    """A partition as kernels of `priced` (the prices of the space, with the partition's kernels beside it).

    `whole`: one kernel a legal group. `parts`: kernels inside illegal groups, from which a solver chooses, first the
    single operators. `free`: views that some kernel reads from memory; each costs 1 ns too much.
    """

    priced: Priced
    whole: tuple[Kernel, ...]
    parts: tuple[Kernel, ...]
    free: tuple[Kernel, ...]
    illegal: tuple[Illegal, ...]


def realise(
    context: Context, groups: Sequence[Members], *, views: frozenset[int] = frozenset(),
    split: frozenset[int] = frozenset(),
) -> Realised:  # fmt: skip
    """Price the groups of a partition; an operator may be in several of them, or in `views`.

    A value that other groups need is written by the smallest group that holds its producer; a group that then has
    nothing to write is left out. `views` cost nothing: their readers read through them where that is a kernel, else
    as if they lay in memory. The groups in `split` (places) are taken apart although they are kernels: they wait for
    each other.
    """
    settled = _settle(context, groups, views)
    legal: list[FusionGroup] = []
    illegal: list[Illegal] = []
    for place, (members, writes) in enumerate(zip(settled.groups, settled.writes, strict=True)):
        if not writes:
            continue
        found = _CIRCLE if place in split else _fit(context, members, writes)
        if isinstance(found, Refusal):
            reason = settled.refused.get(place, found)
            illegal.append(Illegal(group=place, members=groups[place], rule=reason.rule, message=reason.message))
        else:
            legal.append(found)
    inside = [_through(context, item.members, views) for item in illegal]
    parts = [part for members in inside for part in _parts(context, members)]
    priced, kernels = extend_priced(context.priced, [*legal, *dict.fromkeys(parts)])
    cut = len(legal)
    known = [kernel for members in inside for kernel in _in_space(context, members)]
    whole = tuple(dict.fromkeys(kernels[:cut]))
    parts_found = tuple(dict.fromkeys((*known, *kernels[cut:])))
    priced, free = add_free(priced, _seen_views(context, views, (*whole, *parts_found)))
    return Realised(priced=priced, whole=whole, parts=parts_found, free=free, illegal=tuple(illegal))


def _through(context: Context, members: Members, views: frozenset[int]) -> Members:
    """The group and the views that it reads through."""
    found, stack = set(members), list(members)
    while stack:
        for maker in context.preds[stack.pop()]:
            if maker in views and maker not in found:
                found.add(maker)
                stack.append(maker)
    return tuple(sorted(found))


def _seen_views(context: Context, views: frozenset[int], kernels: Sequence[Kernel]) -> list[FusionGroup]:
    """Views whose result a kernel reads from memory or the graph delivers, and the views before them."""
    read = {s for kernel in kernels for s in kernel.reads}
    found = []
    for view in sorted(views, reverse=True):
        wanted = context.required(view) or not read.isdisjoint(context.operators[view].writes)
        group = context.judge((view,)) if wanted else None
        if isinstance(group, FusionGroup):
            read.update(group.reads)
            found.append(group)
    return found


_CIRCLE = Refusal(
    rule="acyclic", message="the group and another one wait for each other's results", lever="split one of the two"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Settled:
    """Each group with the views that it reads through, and what it writes; `refused`: why one cannot read through."""

    groups: tuple[Members, ...]
    writes: tuple[frozenset[int], ...]
    refused: dict[int, Refusal]


def _settle(context: Context, groups: Sequence[Members], views: frozenset[int]) -> _Settled:
    """Let groups read through views; one that is no kernel that way reads them from memory, which others then fill."""
    wide = [_through(context, members, views) for members in groups]
    refused: dict[int, Refusal] = {}
    lying = views.difference(*wide) | {view for view in views if context.required(view)}
    while True:
        chosen = [groups[place] if place in refused else wide[place] for place in range(len(groups))]
        writes = _assign_writes(context, [*chosen, *((view,) for view in sorted(lying))])[: len(groups)]
        failing: dict[int, Refusal] = {}
        for place, members in enumerate(chosen):
            if place not in refused and members != groups[place] and writes[place]:
                found = _fit(context, members, writes[place])
                failing.update({place: found} if isinstance(found, Refusal) else {})
        if not failing:
            return _Settled(groups=tuple(chosen), writes=tuple(writes), refused=refused)
        refused.update(failing)
        lying = lying.union(*(views.intersection(wide[place]) for place in failing))


def _fit(context: Context, members: Members, writes: frozenset[int]) -> FusionGroup | Refusal:
    found = context.judge(members, writes)
    return found if isinstance(found, Refusal) else context.limits(found) or found


def _assign_writes(context: Context, groups: Sequence[Members]) -> list[frozenset[int]]:
    """What each group must write: each value that is needed elsewhere, by the smallest group that makes it."""
    holders: dict[int, list[int]] = {}
    inside = [set(members) for members in groups]
    for place, members in enumerate(groups):
        for member in members:
            holders.setdefault(member, []).append(place)
    found: list[set[int]] = [set() for _ in groups]
    for producer, places in holders.items():
        home = min(places, key=lambda place: (len(groups[place]), place))
        for value in context.operators[producer].writes:
            storage = context.program.storage[value]
            if storage.required or any(
                producer not in inside[place] for reader in storage.readers for place in holders.get(reader, ())
            ):
                found[home].add(value)
    return [frozenset(values) for values in found]


def _in_space(context: Context, members: Members) -> Iterator[Kernel]:
    """Kernels of the space that lie inside the group."""
    inside = set(members)
    return (k for k in context.priced.space.kernels if inside.issuperset(k.members))


def _parts(context: Context, members: Members) -> Iterator[FusionGroup]:
    """Kernels inside the group that the space lacks because a chain that it keeps whole leaves the group."""
    inside = set(members)
    units = chain_units(context.program, frozenset())
    if all(inside.issuperset(units[m]) for m in members):
        return
    part = build_program(_part_graph(context.program, members))
    number = {context.name(m): m for m in members}
    storage = {s.value: s.index for s in context.program.storage}
    for kernel in enumerate_kernels(part, recompute=True).kernels:
        names = (part.graph.nodes[part.operators[m].node].name for m in kernel.members)
        found = context.judge(
            tuple(sorted(number[name] for name in names)),
            frozenset(storage[part.storage[w].value] for w in kernel.writes),
        )
        if isinstance(found, FusionGroup):
            yield found


def _part_graph(program: Program, members: Members) -> Graph:
    """The operators of a group as a graph of their own, with the views that they read through."""
    graph = program.graph
    inside = {program.operators[m].node for m in members}
    wanted = set(inside)
    stack = sorted(inside)
    while stack:
        for name in graph.nodes[stack.pop()].reads:
            made = graph.producer.get(name)
            if made is not None and made not in wanted and OPS[graph.nodes[made].op].kind is OpKind.VIEW:
                wanted.add(made)
                stack.append(made)
    nodes = tuple(graph.nodes[i] for i in sorted(wanted))
    made_here = {name for node in nodes for name in node.outputs}
    read = dict.fromkeys(name for node in nodes for name in node.reads if name not in made_here)
    written = (w for m in members for w in program.operators[m].writes if _leaves(program, w, members))
    needed = {program.storage[w].value for w in written}
    weights = set(graph.weights)
    return replace(
        graph, nodes=nodes, inputs=tuple(n for n in read if n not in weights),
        weights=tuple(n for n in read if n in weights), outputs=tuple(sorted(needed)),
        values={name: graph.values[name] for name in (*read, *made_here)},
    )  # fmt: skip


def _leaves(program: Program, value: int, members: Members) -> bool:
    storage = program.storage[value]
    return storage.required or not set(members).issuperset(storage.readers)
