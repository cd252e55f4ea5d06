"""`dp`: dynamic programming over stretches of the operators' order; optimal on chains."""

from fusesolve.candidates.loops import build_nest
from fusesolve.legality import MEMBER_LIMIT, may_grow
from fusesolve.strategies.context import Context, Members


def fuse_chains(context: Context) -> list[Members]:
    """The cheapest cut of the operators' topological order into stretches that are kernels.

    best(j) = min over i < j of best(i) + cost(i..j-1), each stretch a kernel of at most MEMBER_LIMIT operators.
    On a chain every connected convex group is a stretch, so this is the cheapest partition there; on other graphs the
    order decides what can be neighbours. Source: the step of Collage's placement search (arXiv 2111.00655; RFC 62 of
    TVM), where each kernel must cover the next operator that is not covered, here with whole stretches; costs are the
    simulator's. Nothing is computed twice.
    """
    count = len(context.operators)
    stretches = [stretch for end in range(count) for stretch in _stretches(context, end)]
    cost = dict(zip(stretches, context.costs(stretches), strict=True))
    best: list[tuple[int, Members] | None] = [None] * count
    for stretch in stretches:
        price, start, end = cost[stretch], stretch[0], stretch[-1]
        before = best[start - 1] if start else None
        if price is None or (start and before is None):
            continue
        total = price + (before[0] if before is not None else 0)
        held = best[end]
        if held is None or total < held[0]:
            best[end] = (total, stretch)
    return _walk_back(best)


def _stretches(context: Context, end: int) -> list[Members]:
    """Stretches that end at `end` and may be kernels, longest last; a rule that no larger set escapes ends them.

    A single operator is always one, so that every order has a cut.
    """
    found: list[Members] = [(end,)]
    context.check_time()
    for start in range(end - 1, max(-1, end - MEMBER_LIMIT), -1):
        stretch = tuple(range(start, end + 1))
        facts = build_nest(context.program, stretch).facts
        if facts.opaque or facts.blocked or facts.conflicts or facts.contractions > 2:
            break
        if may_grow(facts):
            found.append(stretch)
    return found


def _walk_back(best: list[tuple[int, Members] | None]) -> list[Members]:
    groups: list[Members] = []
    end = len(best) - 1
    while end >= 0:
        held = best[end]
        stretch = (end,) if held is None else held[1]
        groups.append(stretch)
        end = stretch[0] - 1
    return groups[::-1]
