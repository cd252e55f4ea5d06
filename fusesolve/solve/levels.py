"""Further objectives: among the plans of least cost, the least of a second weight, then of a third, each proven.

Every plan of the optimal cost lies within the columns that the duals of the relaxation keep at that cost (see `sift`
and `linear`). Over these the search minimises one weight after the other; what a level has reached is a limit for the
next.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fusesolve.ragged import Ints
from fusesolve.solve.baselines import offer_columns
from fusesolve.solve.control import Control
from fusesolve.solve.cpsat import frame_of, task_within
from fusesolve.solve.instance import prepare_instance
from fusesolve.solve.problem import Level, Limits, PartitionProblem
from fusesolve.solve.searching import Cap, Verdict, search
from fusesolve.solve.sift import make_sieve
from fusesolve.solve.sifted import worth_sifting
from fusesolve.solve.table import blocks_of

LEVEL_WORK = 20.0  # units of deterministic work for one level


@dataclass(frozen=True, slots=True, kw_only=True)
class Refined:
    """`selected`: columns of the plan in execution order; one `Level` for each weight."""

    selected: tuple[int, ...]
    levels: tuple[Level, ...]


def refine(
    problem: PartitionProblem, selected: Sequence[int], weigh: Callable[[Ints], Sequence[Sequence[int]]], limits: Limits
) -> Refined:
    """Of the plans as cheap as `selected`, an optimal one, the best by the weights in their order, then by ties.

    `weigh` gives, for column numbers, each weight of each column (integers >= 0). A level that the limits cut keeps the
    best plan found and a bound that may be lower, and those after it have no bound. Raises InternalError for a
    malformed problem.
    """
    control = Control(limits=limits)
    limit = sum(problem.columns[index].cost for index in selected)
    kept = _columns_within(problem, limit, control)
    place = {int(column): spot for spot, column in enumerate(kept)}
    part = replace(problem, columns=tuple(blocks_of(problem).take(kept)))
    instance = prepare_instance(part, drop_equals=False)
    offer_columns(part, control, [place[index] for index in selected])
    frame = frame_of(instance, control)
    origin = np.array(instance.origin, dtype=np.int64)
    weights = [list(map(int, weight)) for weight in weigh(kept[origin])]
    mine = {origin: spot for spot, origin in enumerate(instance.origin)}
    chosen = tuple(mine[place[index]] for index in selected)
    caps = [Cap(weight=instance.cost.tolist(), most=limit)]
    levels: list[Level] = []
    sure = True
    for weight in (*weights, instance.tie.tolist()):
        task = replace(task_within(frame, limit, control, weight), caps=tuple(caps), hint=chosen)
        outcome = search(task, control, LEVEL_WORK) if sure else None
        if outcome is not None and outcome.selected:
            chosen = outcome.selected
        value = sum(weight[spot] for spot in chosen)
        levels.append(Level(value=value, bound=None if outcome is None else outcome.bound))
        caps.append(Cap(weight=weight, most=value))
        sure = outcome is not None and outcome.verdict is Verdict.OPTIMAL
    return Refined(
        selected=tuple(int(kept[instance.origin[spot]]) for spot in chosen), levels=tuple(levels[: len(weights)])
    )


def _columns_within(problem: PartitionProblem, limit: int, control: Control) -> Ints:
    """Numbers of columns among which all plans of at most `limit` ns are."""
    sieve = make_sieve(problem, control) if worth_sifting(problem) else None
    return np.arange(len(problem.columns), dtype=np.int64) if sieve is None else sieve.keep(limit)
