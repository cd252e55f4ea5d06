"""The exact partition problem: integers in, integers out.

Nothing here knows what an operator computes or what a device is. Candidate kernels are columns over numbered
operators and values; costs are whole nanoseconds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise

from fusesolve.errors import InternalError

TIE_LIMIT = 2**31
COST_LIMIT = 2**40


class Status(StrEnum):
    """What a solve proved."""

    OPTIMAL = "OPTIMAL"  # the objective equals the bound, and the same plan comes out of every run
    FEASIBLE = "FEASIBLE"  # a plan, and perhaps a bound; of equal value if the clock ran out between equal plans
    INFEASIBLE = "INFEASIBLE"  # proven: no selection of columns is a plan
    NO_SOLUTION = "NO_SOLUTION"  # none found within the limits, and none excluded


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One candidate kernel.

    `members`: operator indices, ascending. `reads`: values made by operators outside `members` that it reads from
    memory, ascending; graph inputs are left out. `writes`: values of its members that it writes to memory,
    ascending, at least one. `cost`: ns, >= 1. `tie`: 0 <= tie < 2**31, a hash of the content, which settles equal
    costs the same way on every run. `full`: it writes every value that anyone outside could need, so it may stand in
    an exact partition.
    """

    members: tuple[int, ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    cost: int
    tie: int
    full: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionProblem:
    """Columns over `n_ops` operators, numbered in a topological order, and `n_values` values.

    `columns`: a tuple, or a `ColumnTable` where there are very many.

    `required`: values that some selected column must write. `producer[v]`: the operator that makes value v.
    `recompute`: True lets an operator sit in several selected columns (or in none, if nobody needs it); False asks
    for every operator in exactly one selected column, out of the `full` ones. `max_kernels`: most columns that may be
    selected, or None. `max_live`: most bytes of live values at any step, or None; `live_bytes[v]`: bytes of value v
    that count there (0 for what is in memory throughout), needed where `max_live` is given.
    """

    n_ops: int
    n_values: int
    columns: Sequence[Column]
    required: frozenset[int]
    producer: tuple[int, ...]
    recompute: bool
    max_kernels: int | None = None
    max_live: int | None = None
    live_bytes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long a solve may take.

    `time_s`: wall clock in seconds, or None. `work`: units of deterministic work (about one second each on a desktop
    core), or None; a solve that this limit ends is reproducible. `workers`: threads that may be used, >= 1; never
    changes the result. `seed`: the solvers' random seed, >= 0.
    """

    time_s: float | None = 60.0
    work: float | None = None
    workers: int = 1
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A report from a running solve: stage, seconds since its start, best objective and proven bound in ns."""

    stage: str
    seconds: float
    incumbent: int | None
    bound: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A further objective: the least sum of its weight over the plans that are best so far, and the bound proven."""

    value: int
    bound: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SolveResult:
    """What a solve returns.

    `selected`: column indices in an execution order. `objective`: the sum of their costs (ns), None without a plan.
    `bound`: a proven lower bound (ns), None when there is none. `conflicts`: for INFEASIBLE, one line per operator or
    value that no selection can serve. `levels`: one for each further objective (see `levels`). `seconds` per stage,
    `stats` are counts.
    """

    status: Status
    selected: tuple[int, ...]
    objective: int | None
    bound: int | None
    seconds: Mapping[str, float]
    stats: Mapping[str, int]
    conflicts: tuple[str, ...] = field(default=())
    levels: tuple[Level, ...] = field(default=())

    @property
    def gap(self) -> float | None:
        """(objective - bound) / objective, or None where either is missing."""
        if self.objective is None or self.bound is None:
            return None
        return (self.objective - self.bound) / self.objective if self.objective else 0.0


def check_problem(problem: PartitionProblem) -> None:
    """Raise InternalError at the first column or field that breaks the promises of the classes above.

    Columns that are no tuple (see `table`) are left to the check of their own kind.
    """
    if len(problem.producer) != problem.n_values:
        raise InternalError(f"the problem has {problem.n_values} values but {len(problem.producer)} producers")
    if any(not 0 <= op < problem.n_ops for op in problem.producer):
        raise InternalError(f"a value's producer is outside the {problem.n_ops} operators")
    if any(not 0 <= value < problem.n_values for value in problem.required):
        raise InternalError(f"a required value is outside the {problem.n_values} values")
    if problem.max_kernels is not None and problem.max_kernels < 0:
        raise InternalError(f"max_kernels is {problem.max_kernels}; it must be >= 0")
    if problem.max_live is not None and len(problem.live_bytes) != problem.n_values:
        raise InternalError(f"max_live needs the bytes of {problem.n_values} values, got {len(problem.live_bytes)}")
    if any(size < 0 for size in problem.live_bytes):
        raise InternalError("live_bytes has a negative size")
    for index, column in enumerate(problem.columns if isinstance(problem.columns, tuple) else ()):
        fault = column_fault(problem, column)
        if fault is not None:
            raise InternalError(f"column {index} over operators {column.members[:6]}: {fault}")


def column_fault(problem: PartitionProblem, column: Column) -> str | None:
    """What is wrong with a column, None where nothing is."""
    inside = set(column.members)
    if not _ascending(column.members, problem.n_ops) or not column.members:
        return f"members must be ascending operators below {problem.n_ops}, at least one"
    if not _ascending(column.reads, problem.n_values) or not _ascending(column.writes, problem.n_values):
        return f"reads and writes must be ascending values below {problem.n_values}"
    if not column.writes or any(problem.producer[value] not in inside for value in column.writes):
        return f"writes {column.writes[:6]} must be values of its members, at least one"
    if any(problem.producer[value] in inside for value in column.reads):
        return f"reads {column.reads[:6]} must be made outside its members"
    if not 1 <= column.cost < COST_LIMIT or not 0 <= column.tie < TIE_LIMIT:
        return f"cost {column.cost} ns must be in [1, 2**40) and tie {column.tie} in [0, 2**31)"
    return None


def _ascending(indices: Sequence[int], limit: int) -> bool:
    """True if `indices` rise strictly and lie in [0, limit)."""
    if not indices:
        return True
    if indices[0] < 0 or indices[-1] >= limit:
        return False
    return all(left < right for left, right in pairwise(indices))
