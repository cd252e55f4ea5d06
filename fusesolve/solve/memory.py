"""A limit on live memory: whether a selection has an order within it, and why not in a form that excludes others too.

A value is live from the first kernel that touches it (writes it, or reads it where no kernel of the set writes it) to
the last one. The memory in use while a kernel runs is the sum of all live values, its own reads and writes included.

Why the cuts hold: let a set of *needs* (kernels with some of their reads and writes) have no order within the limit, in
which a value that one of them writes and another reads is written first. Take a plan with a column for every need (one
that reads and writes at least that), in which whatever writes such a value serves a need that writes it. Let each need
run when the first column that serves it does: a value is then written in time, since the first to write it in the plan
serves a need, and no value is live longer than in the plan; one column may stand for two needs, which run one after
the other in its place. So the plan is above the limit: every plan lacks a column for some need, or has another writer
of a value that the needs hand to each other.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from fusesolve.solve.order import Order
from fusesolve.solve.problem import Column, PartitionProblem

SEARCH_NODES = 200_000  # sets of finished kernels that one search for an order may visit
SHRINK_NODES = 3_000  # the same for one question while a cut is made smaller


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """A kernel as far as memory goes: values that it must read and write."""

    reads: frozenset[int]
    writes: frozenset[int]

    @property
    def touched(self) -> frozenset[int]:
        """All values live while it runs on its own account."""
        return self.reads | self.writes

    def served_by(self, column: Column) -> bool:
        """Whether `column` reads and writes at least this."""
        return self.reads.issubset(column.reads) and self.writes.issubset(column.writes)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCut:
    """No plan has a column for every one of `needs`, unless a column that serves none writes a value of `handed`."""

    needs: tuple[Need, ...]

    @property
    def handed(self) -> frozenset[int]:
        """Values that one need writes and another reads."""
        written = frozenset[int]().union(*(need.writes for need in self.needs))
        return written & frozenset[int]().union(*(need.reads for need in self.needs))


class Fit(Enum):
    """Answer of a search for an order."""

    FITS = auto()
    NEVER = auto()  # proven: every order needs more
    UNKNOWN = auto()  # the search was given up


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrangement:
    """`order`: positions in the given sequence, () unless it FITS."""

    fit: Fit
    order: tuple[int, ...] = ()


def needs_of(columns: Iterable[Column]) -> tuple[Need, ...]:
    """The columns as needs."""
    return tuple(Need(reads=frozenset(c.reads), writes=frozenset(c.writes)) for c in columns)


def peak_of(columns: Sequence[Column], live_bytes: Sequence[int]) -> int:
    """Most bytes live at once while the columns run in this order."""
    left: dict[int, int] = {}
    for column in columns:
        for value in (*column.reads, *column.writes):
            left[value] = left.get(value, 0) + 1
    live: set[int] = set()
    current = most = 0
    for column in columns:
        touched = (*column.reads, *column.writes)
        fresh = [value for value in touched if value not in live]
        live.update(fresh)
        current += sum(live_bytes[value] for value in fresh)
        most = max(most, current)
        for value in touched:
            left[value] -= 1
            if not left[value]:
                current -= live_bytes[value]
    return most


def own_bytes(column: Column, live_bytes: Sequence[int]) -> int:
    """Bytes that are live in any plan while `column` runs."""
    return sum(live_bytes[value] for value in (*column.reads, *column.writes))


def arrange(needs: Sequence[Need], live_bytes: Sequence[int], room: int, nodes: int = SEARCH_NODES) -> Arrangement:
    """An order of `needs` with at most `room` bytes live, a proof that there is none, or neither after `nodes` steps.

    Depth first over sets of finished kernels, each set once. A kernel that can run now and leaves no more live than
    before is run without trying others: moved to the front of any order that fits, it takes nothing from the rest.
    """
    if any(sum(live_bytes[v] for v in need.touched) > room for need in needs):
        return Arrangement(fit=Fit.NEVER)
    return _Search(needs=needs, live_bytes=live_bytes, room=room).run(nodes)


@dataclass(slots=True, kw_only=True)
class _Search:
    """State of the depth-first search: `left[v]` kernels still touch v, `blocked[i]` values of i are not written."""

    needs: Sequence[Need]
    live_bytes: Sequence[int]
    room: int
    left: dict[int, int] = field(default_factory=dict)
    writers: dict[int, int] = field(default_factory=dict)
    readers: dict[int, list[int]] = field(default_factory=dict)
    blocked: list[int] = field(default_factory=list)
    started: dict[int, int] = field(default_factory=dict)
    live: int = 0
    ready: set[int] = field(default_factory=set)

    def run(self, nodes: int) -> Arrangement:
        """Search with at most `nodes` sets of finished kernels."""
        self._start()
        goal = len(self.needs)
        seen = {0}
        done = 0
        path: list[int] = []
        stack = [self._choices()]
        while stack:
            if len(path) == goal:
                return Arrangement(fit=Fit.FITS, order=tuple(path))
            if len(seen) > nodes:
                return Arrangement(fit=Fit.UNKNOWN)
            if not stack[-1]:
                stack.pop()
                if path:
                    undone = path.pop()
                    done ^= 1 << undone
                    self._undo(undone)
                continue
            chosen = stack[-1].pop()
            if done | 1 << chosen in seen:
                continue
            done |= 1 << chosen
            seen.add(done)
            path.append(chosen)
            self._do(chosen)
            stack.append(self._choices())
        return Arrangement(fit=Fit.NEVER)

    def _start(self) -> None:
        for need in self.needs:
            for value in need.touched:
                self.left[value] = self.left.get(value, 0) + 1
            for value in need.writes:
                self.writers[value] = self.writers.get(value, 0) + 1
        for index, need in enumerate(self.needs):
            waits = [value for value in need.reads if value in self.writers]
            self.blocked.append(len(waits))
            for value in waits:
                self.readers.setdefault(value, []).append(index)
            if not waits:
                self.ready.add(index)

    def _choices(self) -> list[int]:
        """Kernels to try next, the best last; a single one where running it now cannot be wrong."""
        ranked: list[tuple[int, int]] = []
        for index in self.ready:
            fresh = freed = 0
            for value in self.needs[index].touched:
                size = self.live_bytes[value]
                fresh += 0 if value in self.started else size
                freed += size if self.left[value] == 1 else 0
            if self.live + fresh <= self.room:
                if fresh <= freed:
                    return [index]
                ranked.append((freed - fresh, -index))
        return [-index for _, index in sorted(ranked)]

    def _do(self, index: int) -> None:
        self.ready.discard(index)
        need = self.needs[index]
        for value in need.touched:
            if value not in self.started:
                self.started[value] = index
                self.live += self.live_bytes[value]
            self.left[value] -= 1
            if not self.left[value]:
                self.live -= self.live_bytes[value]
        for value in need.writes:
            if self.started[value] == index:
                for reader in self.readers.get(value, ()):
                    self.blocked[reader] -= 1
                    if not self.blocked[reader]:
                        self.ready.add(reader)

    def _undo(self, index: int) -> None:
        need = self.needs[index]
        for value in need.writes:
            if self.started[value] == index:
                for reader in self.readers.get(value, ()):
                    self.ready.discard(reader)
                    self.blocked[reader] += 1
        for value in need.touched:
            if not self.left[value]:
                self.live += self.live_bytes[value]
            self.left[value] += 1
            if self.started[value] == index:
                del self.started[value]
                self.live -= self.live_bytes[value]
        self.ready.add(index)


def shrink(needs: Sequence[Need], live_bytes: Sequence[int], room: int) -> MemoryCut:
    """A small set of needs, each as weak as possible, that still has no order within `room`.

    Deletion filter: kernels in halving blocks, then single reads and writes. What a short search cannot prove stays,
    and so does every writer of a value that the set hands on, so that the cut excludes what it came from.
    """
    return _Filter(needs=needs, live_bytes=live_bytes, room=room).run()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Filter:
    """The deletion filter of one set of needs."""

    needs: Sequence[Need]
    live_bytes: Sequence[int]
    room: int

    def run(self) -> MemoryCut:
        """The filtered set."""
        core = self._without_kernels(list(self.needs))
        for place in range(len(core)):
            for value in sorted(core[place].touched, key=lambda v: (self.live_bytes[v], v)):
                weaker = Need(reads=core[place].reads - {value}, writes=core[place].writes - {value})
                trial = [*core[:place], weaker, *core[place + 1 :]]
                if self._holds(trial):
                    core = trial
        return MemoryCut(needs=tuple(dict.fromkeys(need for need in core if need.touched)))

    def _without_kernels(self, core: list[Need]) -> list[Need]:
        size = len(core)
        while size >= 1:
            place = 0
            while place < len(core):
                trial = core[:place] + core[place + size :]
                if trial and self._holds(trial):
                    core = trial
                else:
                    place += size
            size //= 2
        return core

    def _holds(self, trial: Sequence[Need]) -> bool:
        """Whether `trial` is still a cut: no order fits, and all writers of the values that it hands on are in it."""
        read = frozenset[int]().union(*(need.reads for need in trial))
        kept = Counter(value for need in trial for value in need.writes if value in read)
        whole = Counter(value for need in self.needs for value in need.writes if value in kept)
        return kept == whole and arrange(trial, self.live_bytes, self.room, SHRINK_NODES).fit is Fit.NEVER


def order_within(problem: PartitionProblem, order: Order, columns: Sequence[Column]) -> tuple[Order, Fit]:
    """`order` (of positions in `columns`) where it keeps the problem's memory limit, else another order that does.

    UNKNOWN and NEVER come with the order as it was.
    """
    room = problem.max_live
    if room is None or order.stuck:
        return order, Fit.FITS
    columns = [columns[index] for index in order.done]
    if peak_of(columns, problem.live_bytes) <= room:
        return order, Fit.FITS
    found = arrange(needs_of(columns), problem.live_bytes, room)
    if found.fit is not Fit.FITS:
        return order, found.fit
    return replace(order, done=tuple(order.done[place] for place in found.order)), Fit.FITS
