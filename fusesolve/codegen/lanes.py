"""Folding over threads: the lanes of a row join their partial results, by warp shuffles or through shared memory.

`SHUFFLES` in the generated file chooses; the compiler drops the branch that is not taken. With shuffles, lanes of a
row are neighbours in a warp; rows wider than a warp pass one value per warp through shared memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from fusesolve.codegen.folds import Fold
from fusesolve.codegen.kernel import TaskSource

WARP = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """How the threads of a block share rows: `lanes` threads a row, `rows` rows, neighbours or `rows` apart."""

    lanes: int
    rows: int
    neighbours: bool

    @property
    def threads(self) -> int:
        """Threads of the block."""
        return self.lanes * self.rows

    def first(self) -> str:
        """The shared-memory place of a row's first lane."""
        return f"local * u32({self.lanes})" if self.neighbours else "local"

    def step(self) -> int:
        """Distance of two lanes of a row."""
        return 1 if self.neighbours else self.rows


@dataclass(frozen=True, slots=True)
class Partial:
    """A fold in progress: the names of its total and, for indexed folds, of the index."""

    fold: Fold
    total: str
    place: str = ""


def join_lanes(source: TaskSource, team: Team, parts: Sequence[Partial]) -> None:
    """Leave in every lane the fold over all lanes of its row. Every thread of the block takes part."""
    if team.lanes == 1:
        return
    by_shuffle = team.neighbours and not any(part.fold.indexed or part.fold.kind == "b1" for part in parts)
    if not by_shuffle:
        for part in parts:
            _through_shared(source, team, part)
        return
    with source.block("if SHUFFLES:"):
        for part in parts:
            _by_shuffles(source, team, part)
    with source.block("else:"):  # the simulator's: the compiler drops it, with its arrays
        for part in parts:
            _through_shared(source, team, part, simulated=True)


def _by_shuffles(source: TaskSource, team: Team, part: Partial) -> None:
    step = min(team.lanes, WARP) // 2
    while step:
        other = source.value(f"cuda.shfl_xor_sync(LANES, {part.total}, {step})")
        source.line(f"{part.total} = {part.fold.join(part.total, other)}")
        step //= 2
    if team.lanes <= WARP:
        return
    warps = team.lanes // WARP
    shared = source.fresh("s")
    source.declare_shared(shared, team.threads // WARP, part.fold.kind)
    with source.block(f"if tid % u32({WARP}) == u32(0):"):
        source.line(f"{source.slot(shared, f'tid // u32({WARP})')} = {part.total}")
    source.line("cuda.syncthreads()")
    source.line(f"{part.total} = {source.slot(shared, f'local * u32({warps})')}")
    with source.block(f"for q in range(1, {warps}):"):
        other = source.slot(shared, f"local * u32({warps}) + u32(q)")
        source.line(f"{part.total} = {part.fold.join(part.total, other)}")
    source.line("cuda.syncthreads()")


def _through_shared(source: TaskSource, team: Team, part: Partial, *, simulated: bool = False) -> None:
    """A tree over the lanes of a row (a power of two) in shared memory."""
    shared, fold = source.fresh("s"), part.fold
    where = source.fresh("s") if fold.indexed else ""
    for name, kind in ((shared, fold.kind), (where, "i64")):
        if name and simulated:
            source.line(f"{name} = cuda.shared.array({team.threads}, {kind})")
        elif name:
            source.declare_shared(name, team.threads, kind)

    def at(name: str, index: str) -> str:
        return source.slot(name, index)

    source.line(f"{at(shared, 'tid')} = {part.total}")
    if where:
        source.line(f"{at(where, 'tid')} = {part.place}")
    source.line("cuda.syncthreads()")
    half = source.value(f"u32({team.lanes // 2})", "t")
    with source.block(f"while {half} > u32(0):"):
        with source.block(f"if lane < {half}:"):
            far = f"tid + {half}" if team.step() == 1 else f"tid + {half} * u32({team.step()})"
            other, mine = source.value(at(shared, far)), source.value(at(shared, "tid"))
            if where:
                place, own = source.value(at(where, far)), source.value(at(where, "tid"))
                with source.block(f"if {fold.wins(other, place, mine, own)}:"):
                    source.line(f"{at(shared, 'tid')} = {other}")
                    source.line(f"{at(where, 'tid')} = {place}")
            else:
                source.line(f"{at(shared, 'tid')} = {fold.join(mine, other)}")
        source.line("cuda.syncthreads()")
        source.line(f"{half} = u32({half} // u32(2))")
    source.line(f"{part.total} = {at(shared, team.first())}")
    if where:
        source.line(f"{part.place} = {at(where, team.first())}")
    source.line("cuda.syncthreads()")
