"""The exact strategy on large problems: sieve the columns by prices, solve what is left, widen until all is proven."""

from dataclasses import replace

import numpy as np

from fusesolve.ragged import Ints
from fusesolve.solve.control import Control, Finding, Incumbent
from fusesolve.solve.cpsat import solve_cpsat
from fusesolve.solve.instance import find_conflicts, prepare_instance
from fusesolve.solve.problem import PartitionProblem
from fusesolve.solve.sift import make_sieve
from fusesolve.solve.table import blocks_of

SIFTED_COLUMNS = 4_000  # columns from which on a problem is sieved first
COLUMNS_PER_OPERATOR = 2  # columns kept at first
GROWTH = 4  # times as many columns kept where the first ones hold no plan


def worth_sifting(problem: PartitionProblem) -> bool:
    """Whether the problem is large, and free of the limits that the prices know nothing of."""
    free = problem.max_kernels is None and problem.max_live is None
    return free and len(problem.columns) >= SIFTED_COLUMNS


def solve_sifted(problem: PartitionProblem, control: Control) -> Finding | None:
    """Least cost, then least sum of ties, with a proof over all columns; None where the sieve is of no use.

    Every plan of at most `limit` ns lies within the kept columns. So their optimum is that of the problem if it is
    within the limit. The first limit is the bound itself, which plans of repeated layers mostly reach. If the optimum
    is above it, more columns are kept, up to those of plans as good as the best one known.
    """
    with control.stage("sieve"):
        sieve = make_sieve(problem, control)
    if sieve is None:
        return None
    table = sieve.sample.table
    alone = sieve.sample.spread((table.members.lengths == 1) & table.full)  # they make a plan likely
    if sieve.lower > 0:
        control.raise_bound(sieve.lower)
    size = COLUMNS_PER_OPERATOR * problem.n_ops
    limit = sieve.lower + sieve.rounding
    kept = sieve.keep(limit)
    while not control.must_stop():
        control.stats["sieved"] = len(kept)
        best = _solve_kept(problem, kept, limit, control)
        if best is not None and best.cost <= limit:
            return Finding()
        if len(kept) == sieve.total:
            return None
        limit = max(limit + 1, sieve.limit_of(size))
        size *= GROWTH
        if control.incumbent is not None:
            limit = min(limit, control.incumbent.cost)
        kept = np.union1d(sieve.keep(limit), alone)
    return Finding()


def _solve_kept(problem: PartitionProblem, kept: Ints, limit: int, control: Control) -> Incumbent | None:
    """The best plan found over the kept columns, offered to `control`, which also learns what it proves."""
    columns = tuple(blocks_of(problem).take(kept))
    child = control.spawn()
    child.ceiling = limit
    with child.stage("prepare"):
        instance = prepare_instance(replace(problem, columns=columns))
        conflicts = find_conflicts(instance)
    if not conflicts:
        solve_cpsat(instance, child)
    control.work_used = child.work_used
    for name, seconds in child.seconds.items():
        control.seconds[name] = control.seconds.get(name, 0.0) + seconds
    control.stats.update(child.stats)
    best = child.incumbent
    if best is not None:
        best = replace(best, selected=tuple(int(kept[index]) for index in best.selected))
        control.offer(best)
    proven = limit + 1 if child.bound is None else min(child.bound, limit + 1)
    if child.bound is not None or conflicts:
        control.raise_bound(proven if control.incumbent is None else min(proven, control.incumbent.cost))
    return best
