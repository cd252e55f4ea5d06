"""The exact strategy: a tight linear relaxation, reduced-cost fixing, CP-SAT on what is left, a proof.

The gap that the relaxation leaves decides everything else: with the pair rows of `rows` it is mostly zero, so nearly
every column is excluded by its reduced cost, and every row with a positive price holds with equality.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fusesolve.solve.baselines import offer_columns, solve_greedy
from fusesolve.solve.control import Control, Finding
from fusesolve.solve.halves import find_half_cuts
from fusesolve.solve.instance import Instance, prepare_instance
from fusesolve.solve.linear import Certificate, LinearPoint, Relaxation
from fusesolve.solve.memory import MemoryCut
from fusesolve.solve.order import order_columns
from fusesolve.solve.problem import PartitionProblem
from fusesolve.solve.rows import Row, cut_cycles, find_violated, make_base_rows
from fusesolve.solve.searching import Cap, Outcome, Task, Verdict, search
from fusesolve.solve.ties import least_of_relaxation

MAX_ROUNDS = 40
MAX_HALF_ROUNDS = 10
ROWS_PER_ROUND = 1000
STALL_ROUNDS, STALL_GAIN = 4, 1e-4
TRIAL_COLUMNS = 500  # at least, doubled from one trial search to the next
SMALL_GAP = 0.0005  # below it the search needs no more cuts
FAR_GAP = 0.005  # above it the exact partition is tried as a plan with recomputation
TIE_WORK = 3.0  # units of deterministic work to settle ties
TRIAL_WORK = 2.0  # units of deterministic work of one trial search
INTEGRAL = 1e-5
LEAN_FACTORS = (0.1, 1.0, 10.0, 100.0)


def solve_cpsat(instance: Instance, control: Control) -> Finding:
    """Least cost, then least sum of ties, with a proof; stops early with the best plan and bound so far."""
    solve_greedy(instance, control)
    if control.must_stop():
        return Finding()
    with control.stage("relax"):
        frame = frame_of(instance, control)
    with control.stage("search"):
        frame, infeasible = _search(frame, control)
    if infeasible:
        return Finding(infeasible=True, conflicts=_explain(instance))
    if control.incumbent is not None and control.incumbent.cost == control.bound:
        with control.stage("ties"):
            _settle_ties(frame, control)
    return Finding()


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """The rows and memory cuts found so far and the certificate of the rows' relaxation (None if there is none)."""

    instance: Instance
    rows: tuple[Row, ...]
    certificate: Certificate | None
    memory: tuple[MemoryCut, ...] = ()

    def restrict(self, limit: int | None) -> tuple[Sequence[int], Sequence[bool]]:
        """Columns and equalities that every plan of at most `limit` ns obeys (all columns for None)."""
        if self.certificate is None or limit is None:
            return range(len(self.instance.columns)), [False] * len(self.rows)
        room = self.certificate.room(limit)
        kept: NDArray[np.int64] = np.nonzero(self.certificate.reduced <= room)[0]
        priced = len(self.certificate.prices)
        tight = (self.certificate.prices > room).tolist() + [False] * (len(self.rows) - priced)
        return kept.tolist(), tight


def frame_of(instance: Instance, control: Control) -> Frame:
    """Solve the relaxation, add what its optimum violates, until nothing is violated or the gap is closed."""
    relaxation = Relaxation(cost=instance.cost, max_kernels=instance.problem.max_kernels, control=control)
    relaxation.add(make_base_rows(instance))
    best: Certificate | None = None
    bounds: list[int] = []
    for _ in range(MAX_ROUNDS):
        point = None if control.must_stop() else relaxation.solve()
        if point is None:
            break
        control.count("relaxations")
        certificate = relaxation.certify(point)
        if best is None or certificate.bound >= best.bound:
            best = certificate
        bounds.append(best.bound)
        if best.lower > 0:
            control.raise_bound(best.lower)
        if not point.optimal or _is_late(control):
            break
        fresh = find_violated(instance, point.x, ROWS_PER_ROUND) or _round_up(instance, control, point)
        if not fresh and _may_tighten(control, bounds):
            control.count("half_rounds")
            fresh = find_half_cuts(instance, point.x, relaxation.rows, ROWS_PER_ROUND)
            control.count("half_cuts", len(fresh))
        if not fresh or (control.incumbent is not None and control.incumbent.cost == control.bound):
            break
        known = set(relaxation.rows)
        relaxation.add([row for row in dict.fromkeys(fresh) if row not in known])
    control.stats["rows"] = len(relaxation.rows)
    return Frame(instance=instance, rows=tuple(relaxation.rows), certificate=best)


def _is_late(control: Control) -> bool:
    """True once half of the wall-clock limit is gone: the rest belongs to the search for plans."""
    left = control.time_left_s()
    return left is not None and left < control.elapsed_s()


def _may_tighten(control: Control, bounds: Sequence[int]) -> bool:
    """False once the gap is small, half cuts have had MAX_HALF_ROUNDS rounds, or STALL_ROUNDS rounds gained little."""
    if not _is_far(control, SMALL_GAP) or control.stats.get("half_rounds", 0) >= MAX_HALF_ROUNDS:
        return False
    if len(bounds) <= STALL_ROUNDS:
        return True
    return bounds[-1] - bounds[-1 - STALL_ROUNDS] >= STALL_GAIN * bounds[-1]


def _round_up(instance: Instance, control: Control, point: LinearPoint) -> list[Row]:
    """Offer an integral point as a plan; if it has a cycle, return the rows that cut it off."""
    if np.abs(point.x - np.rint(point.x)).max(initial=0.0) > INTEGRAL:
        return []
    chosen = np.nonzero(point.x > 0.5)[0].tolist()
    order = order_columns(instance.columns, chosen)
    if order.stuck:
        fresh = cut_cycles(instance, order)
        control.count("cycle_cuts", len(fresh))
        return fresh
    offer_columns(instance.problem, control, [instance.origin[index] for index in chosen])
    return []


def _search(frame: Frame, control: Control) -> tuple[Frame, bool]:
    """Search under growing limits until the bound meets the incumbent; True if there is provably no plan.

    Every plan of at most `limit` ns uses only the columns of `restrict(limit)`; so a search there finds the optimum,
    if it is within the limit, or proves that no plan is. The first limit is the bound itself. A search that is not
    yet the last gets little effort: it is to find a better plan, and with it a smaller last one.
    """
    step = 0
    while not control.must_stop():
        best = control.incumbent
        if best is not None and best.cost == control.bound:
            break
        scope = _choose_scope(frame, control, step)
        task = _task(frame, scope, [int(cost) for cost in frame.instance.cost], control)
        control.stats["kept"] = len(task.kept)
        outcome = search(task, control, None if scope.last else TRIAL_WORK)
        frame = _learn(frame, outcome)
        if outcome.selected:
            offer_columns(frame.instance.problem, control, [frame.instance.origin[i] for i in outcome.selected])
        _raise_bound(control, outcome, scope.limit)
        if outcome.verdict is Verdict.EMPTY and scope.limit is None:
            return frame, True
        if outcome.unsure and scope.last:
            break
        if step == 0 and control.incumbent is None and frame.instance.problem.max_live is not None:
            frame = _seek_lean(frame, control)
        if step == 1 and frame.instance.problem.recompute and _is_far(control, FAR_GAP):
            _offer_partition(frame.instance.problem, control)
        step += 1
    return frame, False


def _seek_lean(frame: Frame, control: Control) -> Frame:
    """Look for some plan within the memory limit: bytes that are written get a price, which rises tenfold each time."""
    instance = frame.instance
    written = np.array([sum(instance.problem.live_bytes[v] for v in c.writes) for c in instance.columns])
    base = float(instance.cost.sum()) / max(1.0, float(written.sum()))
    for factor in LEAN_FACTORS:
        if control.incumbent is not None or control.must_stop():
            break
        weight = np.rint(instance.cost + factor * base * written).astype(np.int64)
        task = _task(frame, _Scope(limit=None, tight=False, last=False), weight.tolist(), control)
        outcome = search(task, control, TRIAL_WORK)
        frame = _learn(frame, outcome)
        if outcome.selected:
            offer_columns(instance.problem, control, [instance.origin[i] for i in outcome.selected])
    return frame


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scope:
    """One search, over plans of at most `limit` ns (None: all).

    `tight`: also use the equalities that such plans obey, which makes the proof easier and plans above the limit
    invisible. `last`: nothing is left to search afterwards.
    """

    limit: int | None
    tight: bool
    last: bool


def _choose_scope(frame: Frame, control: Control, step: int) -> _Scope:
    """Step 0 allows no more than the bound. Each later step doubles the columns, up to what the incumbent allows."""
    best, certificate = control.incumbent, frame.certificate
    everything = _Scope(limit=None if best is None else best.cost, tight=True, last=True)
    if certificate is None:
        return everything
    limit = certificate.lower
    if step:
        first = int(np.count_nonzero(certificate.reduced <= certificate.room(limit)))
        place = max(TRIAL_COLUMNS, 2 * first) << step - 1
        if place >= len(certificate.reduced):
            return everything
        ranked = np.partition(certificate.reduced, place)
        limit = max(limit, (certificate.bound + int(ranked[place])) // certificate.scale)
    if best is not None and limit >= best.cost:
        return everything
    return _Scope(limit=limit, tight=step == 0, last=False)


def _is_far(control: Control, gap: float) -> bool:
    """True if the plan is missing, or its gap is above `gap`."""
    best = control.incumbent
    return best is None or control.bound is None or best.cost - control.bound > gap * best.cost


def _offer_partition(problem: PartitionProblem, control: Control) -> None:
    """Offer the best exact partition, which is a plan with recomputation too and far easier to find."""
    child = control.spawn()
    solve_cpsat(prepare_instance(replace(problem, recompute=False)), child)
    control.work_used = child.work_used
    if child.incumbent is not None:
        control.offer(child.incumbent)


def _raise_bound(control: Control, outcome: Outcome, limit: int | None) -> None:
    """Every plan either is in the searched space or costs more than `limit`."""
    found = outcome.bound
    if outcome.verdict is Verdict.EMPTY:
        found = None if limit is None else limit + 1
    elif found is not None and limit is not None:
        found = min(found, limit + 1)
    if found is not None:
        control.raise_bound(found if control.incumbent is None else min(found, control.incumbent.cost))


def _learn(frame: Frame, outcome: Outcome) -> Frame:
    known = set(frame.rows)
    rows = (*frame.rows, *(row for row in dict.fromkeys(outcome.cuts) if row not in known))
    return replace(frame, rows=rows, memory=tuple(dict.fromkeys((*frame.memory, *outcome.memory))))


def _task(frame: Frame, scope: _Scope, weight: Sequence[int], control: Control) -> Task:
    """The search for the least `weight` in `scope`, started from the incumbent where its columns are kept."""
    instance = frame.instance
    place = {origin: index for index, origin in enumerate(instance.origin)}
    selected = control.incumbent.selected if control.incumbent is not None else ()
    hint = [place[index] for index in selected if index in place]
    kept, tight = frame.restrict(scope.limit)
    return Task(
        instance=instance,
        kept=kept,
        rows=frame.rows,
        tight=tight if scope.tight else [False] * len(tight),
        weight=weight,
        hint=hint if len(hint) == len(selected) else (),
        memory=frame.memory,
    )


def task_within(frame: Frame, limit: int, control: Control, weight: Sequence[int]) -> Task:
    """The search for the least `weight` among the plans of at most `limit` ns, whose cost is left to caps."""
    return _task(frame, _Scope(limit=limit, tight=True, last=True), weight, control)


def _settle_ties(frame: Frame, control: Control) -> None:
    """Among all plans of the optimal cost, take the one with the least sum of ties.

    Up to here nothing depended on the clock, or the proof would be missing; so a stop by TIE_WORK still gives the same
    plan on every run. A stop by the clock does not, and `ties_cut` says so.
    """
    best = control.incumbent
    if best is None:
        return
    task = task_within(frame, best.cost, control, frame.instance.tie.tolist())
    control.stats["tied"] = len(task.kept)
    settled = least_of_relaxation(task, best.cost, control)
    if settled is not None:
        offer_columns(frame.instance.problem, control, [frame.instance.origin[i] for i in settled])
        control.stats.update(ties_settled=1, ties_cut=0)
        return
    cap = Cap(weight=frame.instance.cost.tolist(), most=best.cost)
    outcome = search(replace(task, caps=(cap,)), control, TIE_WORK)
    if outcome.selected:
        offer_columns(frame.instance.problem, control, [frame.instance.origin[i] for i in outcome.selected])
    control.stats["ties_settled"] = int(outcome.verdict is Verdict.OPTIMAL)
    control.stats["ties_cut"] = int(outcome.verdict is not Verdict.OPTIMAL and control.clock_stopped())


def _explain(instance: Instance) -> tuple[str, ...]:
    limit, room = instance.problem.max_kernels, instance.problem.max_live
    if room is not None:
        beside = "" if limit is None else f" and has at most {limit} kernels"
        return (f"no plan keeps its live values within {room} bytes at every step{beside}; allow more",)
    if limit is not None:
        return (f"no plan of at most {limit} kernels exists over {len(instance.columns)} columns; raise max_kernels",)
    return (
        f"no selection of the {len(instance.columns)} columns holds every operator exactly once in an order that "
        "can run; allow recomputation or more columns",
    )
