"""`iree`: dispatch regions, a root with its consumers, then its producers."""

from fusesolve.ops.definition import OpKind
from fusesolve.strategies.context import Context, Members
from fusesolve.strategies.grouping import Grouping

OPERAND_LIMIT = 16  # operands and results of a dispatch

_ROOTS = frozenset({OpKind.CONTRACTION, OpKind.REDUCE, OpKind.WINDOW})


def form_dispatches(context: Context) -> list[Members]:
    """IREE's dispatch regions in default settings.

    First elementwise operators with one reader join that reader if it is elementwise over the same points or a
    reduction over them. Then each contraction, reduction or window, in order, is a root that takes its consumers one by
    one: the only reader of what is written last, with parallel loops only, no more loops than the root, at most
    OPERAND_LIMIT operands and results, and no use before definition. Elementwise operators that are left are roots of
    their own. Casts to wider types are copied into their readers; nothing else is computed twice. Rules read in IREE
    b48a5955, `FormDispatchRegions.cpp`, `FusionUtils.cpp`. Left out: raising of a softmax to one operator, the
    aggressive mode (several consumers), horizontal contractions (off by default).
    """
    grouping = Grouping(context)
    _fuse_elementwise(context, grouping)
    for index in range(len(context.operators)):
        if context.kind(index) in _ROOTS:
            _take_consumers(context, grouping, index)
    return _copy_casts(context, grouping.groups())


def _fits(context: Context, members: Members) -> bool:
    reads, writes = context.touched(members)
    return len(reads) + len(writes) <= OPERAND_LIMIT


def _fuse_elementwise(context: Context, grouping: Grouping) -> None:
    for index in reversed(range(len(context.operators))):
        readers = context.succs[index]
        if context.kind(index) is not OpKind.ELEMENTWISE or context.required(index) or len(readers) != 1:
            continue
        reader = context.operators[readers[0]]
        points = context.operators[index].points
        folds = reader.kind is OpKind.REDUCE and reader.points * reader.reduced == points
        if not folds and not (reader.kind is OpKind.ELEMENTWISE and reader.points == points):
            continue
        pair = grouping.of(index), grouping.of(reader.index)
        if _fits(context, grouping.union(*pair)) and not grouping.closes_cycle(*pair):
            grouping.merge(*pair)


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

