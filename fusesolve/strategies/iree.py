"""`iree`: dispatch regions, a root with its consumers, then its producers."""

from fusesolve.ops.definition import OpKind
from fusesolve.strategies.context import Context, Members
from fusesolve.strategies.grouping import Grouping

OPERAND_LIMIT = 16  # operands and results of a dispatch

_ROOTS = frozenset({OpKind.CONTRACTION, OpKind.REDUCE, OpKind.WINDOW})


def form_dispatches(context: Context) -> list[Members]:
    """IREE's dispatch regions in default settings.

    First a softmax is raised to one operator, and elementwise operators join their readers where these are one group,
    elementwise over the same points or a reduction over them. Then each contraction, reduction or window, in order, is
    a root that takes its consumers one by one: the only reader of what is written last, with parallel loops only, no
    more loops than the root, at most OPERAND_LIMIT operands and results, and no use before definition. Elementwise
    operators that are left are roots of their own. Casts to wider types are copied into their readers; nothing else is
    computed twice. Rules read in IREE b48a5955, `FormDispatchRegions.cpp`, `FusionUtils.cpp`; the softmax is what its
    recorded partitions show. Left out: the aggressive mode (several consumers), horizontal contractions (off by
    default), the recomputation of small reductions that its partition of a Llama block shows.
    """
    grouping = Grouping(context)
    _fuse_elementwise(context, grouping, _raise_softmax(context, grouping))
    for index in range(len(context.operators)):
        if context.kind(index) in _ROOTS:
            _take_consumers(context, grouping, index)
    return _copy_casts(context, grouping.groups())


def _fits(context: Context, members: Members) -> bool:
    reads, writes = context.touched(members)
    return len(reads) + len(writes) <= OPERAND_LIMIT


def _raise_softmax(context: Context, grouping: Grouping) -> set[int]:
    """The five operators of a softmax are one operator; operators of all of them."""
    raised: set[int] = set()
    for index in range(len(context.operators)):
        if context.op(index) != "reduce_max":
            continue
        members = [index]
        for op in ("sub", "exp", "reduce_sum", "div"):
            following = [r for r in context.succs[members[-1]] if context.op(r) == op]
            if len(following) != 1 or context.required(members[-1]):
                break
            members.extend(following)
        if len(members) == 5 and members[2] in context.preds[members[4]] and len(context.succs[members[2]]) == 2:
            grouping.merge_all(members)
            raised.update(members)
    return raised


def _fuse_elementwise(context: Context, grouping: Grouping, raised: set[int]) -> None:
    """Elementwise operators join their readers, where these are one group over the same points; not a softmax."""
    for index in reversed(range(len(context.operators))):
        readers = context.succs[index]
        if context.kind(index) is not OpKind.ELEMENTWISE or context.required(index) or not readers:
            continue
        if index in raised or not raised.isdisjoint(readers):
            continue
        own, groups = grouping.of(index), {grouping.of(reader) for reader in readers}
        if len(groups) > 1 or own in groups or not all(_walks(context, index, reader) for reader in readers):
            continue
        pair = own, groups.pop()
        if _fits(context, grouping.union(*pair)) and not grouping.closes_cycle(*pair):
            grouping.merge(*pair)


def _walks(context: Context, index: int, reader: int) -> bool:
    """Whether the reader is elementwise over the same points, or folds them."""
    operator, points = context.operators[reader], context.operators[index].points
    if operator.kind is OpKind.REDUCE:
        return operator.points * operator.reduced == points
    return operator.kind is OpKind.ELEMENTWISE and operator.points == points


def _take_consumers(context: Context, grouping: Grouping, root: int) -> None:
    loops = _volume(context, root)
    while True:
        group = grouping.of(root)
        members = grouping.members[group]
        _, writes = context.touched(members)
        readers = {r for value in writes for r in context.program.storage[value].readers if r not in members}
        following = {grouping.of(r) for r in readers}
        if len(following) != 1 or any(context.program.storage[w].required for w in writes):
            return
        nearest = following.pop()
        if not _is_parallel(context, grouping.members[nearest], loops):
            return
        union = grouping.union(group, nearest)
        if not _fits(context, union) or grouping.closes_cycle(group, nearest):
            return
        grouping.merge(group, nearest)


def _is_parallel(context: Context, members: Members, loops: int) -> bool:
    elementwise = all(context.kind(m) is OpKind.ELEMENTWISE for m in members)
    return elementwise and all(context.operators[m].points <= loops for m in members)


def _volume(context: Context, root: int) -> int:
    """Points of the loops that a consumer may use: the result's, and the folded ones of a plain reduction."""
    operator = context.operators[root]
    return operator.points * (operator.reduced if operator.kind is OpKind.REDUCE else 1)


def _copy_casts(context: Context, groups: list[Members]) -> list[Members]:
    """Widening casts that stand alone move into every reader."""
    found = [set(group) for group in groups]
    home = {m: g for g, group in enumerate(groups) for m in group}
    for index in reversed(range(len(context.operators))):
        if groups[home[index]] != (index,) or not context.widens(index) or context.required(index):
            continue
        readers = {home[r] for r in context.succs[index]}
        if readers and all(_fits(context, tuple(sorted(found[g] | {index}))) for g in readers):
            found[home[index]].clear()
            for g in readers:
                found[g].add(index)
    return [tuple(sorted(members)) for members in found if members]

