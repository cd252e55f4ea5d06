"""One solve's clock, work meter, interrupt and best plan: what makes it anytime."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from fusesolve.solve.problem import Limits, Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Incumbent:
    """The best plan so far: cost in ns, sum of ties, columns of the problem in execution order."""

    cost: int
    tie: int
    selected: tuple[int, ...]


@dataclass(slots=True)
class Control:
    """Shared by the thread that solves and the one that waits.

    The solving thread writes every field, the waiting one `stopped`.
    `bound` is the greatest lower bound proven so far (ns), None before there is one. Plans above `ceiling` (ns) are of
    no use: the solve ends once its bound is above it.
    """

    limits: Limits
    report: Callable[[Progress], None] | None = None
    started: float = field(default_factory=time.perf_counter)
    work_used: float = 0.0
    stopped: threading.Event = field(default_factory=threading.Event)
    incumbent: Incumbent | None = None
    bound: int | None = None
    ceiling: int | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    stats: dict[str, int] = field(default_factory=dict)
    _stage: str = ""
    _interrupts: list[Callable[[], None]] = field(default_factory=list)

    def spawn(self) -> "Control":
        """A control for a sub-solve: the same clock, work meter and stop, its own plan and bound, no reports."""
        child = Control(limits=self.limits, started=self.started, work_used=self.work_used, stopped=self.stopped)
        child._interrupts = self._interrupts
        return child

    def elapsed_s(self) -> float:
        """Seconds since the solve began."""
        return time.perf_counter() - self.started

    def time_left_s(self) -> float | None:
        """Seconds to the wall-clock limit, at least 0, or None without one."""
        return None if self.limits.time_s is None else max(0.0, self.limits.time_s - self.elapsed_s())

    def work_left(self) -> float | None:
        """Units of deterministic work left, at least 0, or None without a limit."""
        return None if self.limits.work is None else max(0.0, self.limits.work - self.work_used)

    def must_stop(self) -> bool:
        """True once the clock, the work limit or an interrupt ends the solve."""
        useless = self.ceiling is not None and self.bound is not None and self.bound > self.ceiling
        return useless or self.clock_stopped() or self.work_left() == 0.0

    def clock_stopped(self) -> bool:
        """True once the clock or an interrupt ends the solve: what comes after is not reproducible."""
        return self.stopped.is_set() or self.time_left_s() == 0.0

    def stop(self) -> None:
        """Ask the solve to end soon; safe from any thread."""
        self.stopped.set()
        for interrupt in tuple(self._interrupts):
            interrupt()

    @contextmanager
    def interruptible(self, interrupt: Callable[[], None]) -> Iterator[None]:
        """While inside, `stop` also calls `interrupt` (which must be safe from any thread)."""
        self._interrupts.append(interrupt)
        try:
            if self.stopped.is_set():
                interrupt()
            yield
        finally:
            self._interrupts.remove(interrupt)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time what runs inside as part of the stage `name`, and report its begin and end."""
        before, self._stage = time.perf_counter(), name
        self._tell()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - before
            self._tell()

    def count(self, name: str, amount: int = 1) -> None:
        """Add `amount` to the statistic `name`."""
        self.stats[name] = self.stats.get(name, 0) + amount

    def offer(self, candidate: Incumbent) -> None:
        """Keep `candidate` if it is better than the best plan so far, by (cost, tie)."""
        best = self.incumbent
        if best is None or (candidate.cost, candidate.tie) < (best.cost, best.tie):
            self.incumbent = candidate
            self._tell()

    def raise_bound(self, bound: int) -> None:
        """Keep `bound` (ns) if it is above the bound so far."""
        if self.bound is None or bound > self.bound:
            self.bound = bound
            self._tell()

    def _tell(self) -> None:
        if self.report is not None:
            cost = None if self.incumbent is None else self.incumbent.cost
            self.report(Progress(stage=self._stage, seconds=self.elapsed_s(), incumbent=cost, bound=self.bound))


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """How a strategy ended beside its plan and bound.

    `infeasible` is a proof; `conflicts` are its reasons, or why this strategy found no plan.
    """

    infeasible: bool = False
    conflicts: tuple[str, ...] = ()
