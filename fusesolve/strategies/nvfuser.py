"""`nvfuser`: merge groups while one scheduler still takes the result; bigger is assumed to be better."""

from collections.abc import Iterator

from fusesolve.ops.definition import OpKind
from fusesolve.strategies.context import Context, Members
from fusesolve.strategies.grouping import Grouping


def fuse_accepted(context: Context) -> list[Members]:
    """NvFuser's segmentation: one group an operator, then merges of neighbours by level, then any merge that is left.

    A merge is accepted if and only if a scheduler takes the merged group: here, if it is a kernel within the device's
    limits. No times are compared. Contractions are no part of it (PyTorch's library runs them alone). Casts to a wider
    type are copied to each of their readers first. Rules read in nvFuser 81c4b22fd, `fusion_segmenter.cpp`: the level
    condition is that of Herrmann et al., "Multilevel algorithms for acyclic partitioning of directed acyclic graphs"
    (SIAM J. Sci. Comput. 41(4), 2019), Theorem 4.2, so that merges of one round never close a cycle.
    """
    grouping = Grouping(context)
    while _merge_round(context, grouping):
        pass
    while _merge_any(context, grouping):
        pass
    return _copy_upcasts(context, grouping.groups())


def _accepts(context: Context, members: Members) -> bool:
    if any(context.kind(m) in (OpKind.CONTRACTION, OpKind.OPAQUE) for m in members):
        return False
    return context.cost(members) is not None


def _levels(grouping: Grouping) -> dict[int, int]:
    """Longest path from a group without producers."""
    level: dict[int, int] = {}
    waiting = {group: len(grouping.preds[group]) for group in grouping.members}
    ready = sorted(group for group, count in waiting.items() if not count)
    while ready:
        group = ready.pop()
        level[group] = 1 + max((level[p] for p in grouping.preds[group]), default=-1)
        for reader in grouping.succs[group]:
            waiting[reader] -= 1
            if not waiting[reader]:
                ready.append(reader)
    return level


def _merge_round(context: Context, grouping: Grouping) -> bool:
    """One round: each group merges with its first neighbour one level away whose neighbours are all untouched."""
    level = _levels(grouping)
    touched: set[int] = set()
    pairs: list[tuple[int, int]] = []
    for group in sorted(grouping.members, key=lambda g: (level[g], g)):
        if group in touched:
            continue
        for near in grouping.neighbours(group):
            if near in touched or abs(level[near] - level[group]) > 1 or not _clear(grouping, near, touched):
                continue
            if _accepts(context, grouping.union(group, near)):
                pairs.append((group, near))
                touched.update((group, near))
                break
    merged = [grouping.merge(*pair) for pair in pairs if not grouping.closes_cycle(*pair)]
    return bool(merged)


def _clear(grouping: Grouping, group: int, touched: set[int]) -> bool:
    return touched.isdisjoint(grouping.neighbours(group))


def _merge_any(context: Context, grouping: Grouping) -> bool:
    for first, second in _edges(grouping):
        if _accepts(context, grouping.union(first, second)) and not grouping.closes_cycle(first, second):
            grouping.merge(first, second)
            return True
    return False


def _edges(grouping: Grouping) -> Iterator[tuple[int, int]]:
    for group in sorted(grouping.members):
        for reader in sorted(grouping.succs[group]):
            yield group, reader


def _copy_upcasts(context: Context, groups: list[Members]) -> list[Members]:
    """Give each group its own copy of the widening casts it reads, where every reader gets one."""
    found = {g: set(group) for g, group in enumerate(groups)}
    home = {m: g for g, group in enumerate(groups) for m in group}
    for index in reversed(range(len(context.operators))):
        if not context.widens(index) or context.required(index):
            continue
        users = {home[reader] for reader in context.succs[index]}
        grown = {g: tuple(sorted(found[g] | {index})) for g in users}
        if users and all(_accepts(context, members) for members in grown.values()):
            found[home[index]].discard(index)
            for g, members in grown.items():
                found[g] = set(members)
    return [tuple(sorted(members)) for members in found.values() if members]

