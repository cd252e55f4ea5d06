"""`mincut`: weighted fusion as graph partitioning, cut where the fewest bytes cross."""

from collections import deque

from fusesolve.ops.definition import OpKind
from fusesolve.strategies.context import Context, Members


def fuse_by_cuts(context: Context) -> list[Members]:
    """Split the graph by minimum cuts until every part is a kernel.

    An edge weighs the bytes of the tensor that stays on chip if both ends share a kernel. A part that is no kernel
    is cut in two: operators that may not meet (contractions, a contraction and reductions, then reductions, else the
    first and the last operator) go to different sides, those that come first to the first, at the least weight, and no
    edge leads back.
    Source: weighted loop fusion by maximum flow, Gao, Olsen, Sarkar, Thekkath, "Collective loop fusion for array
    contraction" (LCPC 1992), in the formulation of Megiddo and Sarkar (SPAA 1997). Its edge weights count a tensor
    once for each reader: the known overstatement of static edge weights (Kristensen et al., PACT 2016). Nothing is
    computed twice.
    """
    done: list[Members] = []
    waiting = _components(context, range(len(context.operators)))
    while waiting:
        part = waiting.pop()
        if len(part) == 1 or context.cost(part) is not None:
            done.append(part)
            continue
        for side in _cut(context, part):
            waiting.extend(_components(context, side))
    return sorted(done)


def _components(context: Context, members: Members | range) -> list[Members]:
    """Parts that exchange data."""
    left, found = set(members), []
    while left:
        stack, part = [min(left)], set()
        while stack:
            item = stack.pop()
            if item in left:
                left.discard(item)
                part.add(item)
                stack.extend((*context.preds[item], *context.succs[item]))
        found.append(tuple(sorted(part)))
    return found


def _terminals(context: Context, part: Members) -> tuple[set[int], set[int]]:
    """Operators forced to the first side and to the second: half of those that may not meet, each."""
    heavy = [m for m in part if context.kind(m) in (OpKind.CONTRACTION, OpKind.OPAQUE)]
    folds = [m for m in part if context.kind(m) is OpKind.REDUCE]
    if len(heavy) == 1 and folds:
        before = {m for m in folds if m < heavy[0]}
        return (before, {heavy[0]}) if before else ({heavy[0]}, set(folds))
    several = heavy if len(heavy) > 1 else folds
    if len(several) < 2:
        return {part[0]}, {part[-1]}
    half = len(several) // 2
    return set(several[:half]), set(several[half:])


def _cut(context: Context, part: Members) -> tuple[Members, Members]:
    """The two sides of the least cut; all that leads to the first side's terminals belongs to it."""
    first, second = _terminals(context, part)
    flow = _Flow(context, part, first, second)
    flow.saturate(context)
    side = flow.reached()
    return tuple(m for m in part if m in side), tuple(m for m in part if m not in side)


class _Flow:
    """Maximum flow by shortest augmenting paths; edges against the data have no limit, so no cut goes back."""

    def __init__(self, context: Context, part: Members, sources: set[int], sinks: set[int]) -> None:
        self.sources, self.sinks = sources, sinks
        self.room: dict[int, dict[int, float]] = {member: {} for member in part}
        for member in part:
            for read in context.operators[member].reads:
                made = context.made_in(read)
                if made is not None and made in self.room:
                    forward = self.room[made]
                    forward[member] = forward.get(member, 0.0) + context.bytes_of(read.storage)
                    self.room[member][made] = float("inf")

    def saturate(self, context: Context) -> None:
        """Push flow until no path from a source to a sink has room; OutOfTimeError where the clock comes first."""
        while True:
            context.check_time()
            path = self._path()
            if path is None:
                return
            amount = min(self.room[a][b] for a, b in path)
            for a, b in path:
                self.room[a][b] -= amount
                self.room[b][a] = self.room[b].get(a, 0.0) + amount

    def _path(self) -> list[tuple[int, int]] | None:
        before: dict[int, int] = {}
        queue = deque(sorted(self.sources))
        seen = set(self.sources)
        while queue:
            item = queue.popleft()
            if item in self.sinks:
                return self._trace(item, before)
            for near, room in self.room[item].items():
                if room > 0 and near not in seen:
                    seen.add(near)
                    before[near] = item
                    queue.append(near)
        return None

    def _trace(self, sink: int, before: dict[int, int]) -> list[tuple[int, int]]:
        path = []
        item = sink
        while item in before:
            path.append((before[item], item))
            item = before[item]
        return path

    def reached(self) -> set[int]:
        """Operators that a source still reaches: the first side."""
        seen, stack = set(self.sources), list(self.sources)
        while stack:
            for near, room in self.room[stack.pop()].items():
                if room > 0 and near not in seen:
                    seen.add(near)
                    stack.append(near)
        return seen
