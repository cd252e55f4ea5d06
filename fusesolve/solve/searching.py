"""Searches over the columns that can still matter: what is asked, and how it ended.

CP-SAT is loaded with the first search: most plans are proven by the relaxation alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from fusesolve.solve.control import Control
from fusesolve.solve.instance import Instance
from fusesolve.solve.memory import MemoryCut
from fusesolve.solve.rows import Row


class Verdict(Enum):
    """How a search over a set of columns ended."""

    OPTIMAL = auto()  # the best selection out of the kept columns
    EMPTY = auto()  # proven: no selection out of the kept columns
    STOPPED = auto()  # a limit or an interrupt came first


@dataclass(frozen=True, slots=True, kw_only=True)
class Cap:
    """The sum of `weight[j]` over the selected columns j is at most `most`."""

    weight: Sequence[int]
    most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One search: minimise `weight` over selections out of `kept` (ascending columns) that meet `rows`.

    `tight[i]`: row i holds with equality in every selection
    of interest. `caps`: limits on other sums. `floor`: a known lower bound of the weight.
    `hint`: columns of a known plan. `memory`: cuts of the memory limit found so far.
    """

    instance: Instance
    kept: Sequence[int]
    rows: Sequence[Row]
    tight: Sequence[bool]
    weight: Sequence[int]
    caps: Sequence[Cap] = ()
    floor: int | None = None
    hint: Sequence[int] = ()
    memory: Sequence[MemoryCut] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a search ended.

    `selected`: columns in execution order, () without a plan. `weight`: its total. `bound`: proven for the kept
    columns, None when there is none. `cuts`: cycle cuts found on the way, `memory`: cuts of the memory limit; both
    hold for every plan. `unsure`: selections were left out whose memory could not be judged in time.
    """

    verdict: Verdict
    selected: tuple[int, ...] = ()
    weight: int | None = None
    bound: int | None = None
    cuts: tuple[Row, ...] = ()
    memory: tuple[MemoryCut, ...] = ()
    unsure: bool = False


def search(task: Task, control: Control, effort: float | None = None) -> Outcome:
    """Solve `task`; each selection with stuck columns is cut off and the search repeated.

    `effort`: units of deterministic work after which it stops, or None for the control's limits alone.

    One CP-SAT worker with the full linear relaxation: covering rows need it (without it the bound stays near 0), and
    a single worker makes every run the same, whatever the number of threads.
    """
    from fusesolve.solve.integer import hunt

    return hunt(task, control, effort)
