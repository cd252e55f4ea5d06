"""The exact optimum of tiny problems by searching all states: the independent oracle of the solver's tests.

State = (operators covered, values written, values forgotten), a node of a shortest-path problem whose arcs are the
columns that can run next. It shares no code with the strategies: no linear program, no cuts, and the order holds by
construction.
"""

import heapq
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from fusesolve.errors import InputError
from fusesolve.solve.problem import PartitionProblem

MAX_OPS = 12


def search_exhaustive(problem: PartitionProblem) -> tuple[int, int, tuple[int, ...]] | None:
    """Least (cost in ns, sum of ties, columns in execution order) over all plans, or None where there is no plan.

    Dijkstra over the states, by (cost, sum of ties). Raises InputError above 12 operators: the states are exponential.
    """
    if problem.n_ops > MAX_OPS:
        raise InputError(f"exhaustive search takes at most {MAX_OPS} operators, the problem has {problem.n_ops}")
    moves = _list_moves(problem)
    goal_ops, goal_values = 0 if problem.recompute else (1 << problem.n_ops) - 1, _mask(tuple(problem.required))
    heap: list[tuple[int, int, tuple[int, ...], State]] = [(0, 0, (), State())]
    done: set[State] = set()
    best: dict[State, tuple[int, int]] = {}
    while heap:
        cost, tie, path, state = heapq.heappop(heap)
        if state in done:
            continue
        done.add(state)
        if state.ops & goal_ops == goal_ops and state.values & goal_values == goal_values:
            return cost, tie, path
        for step in _steps(problem, moves, state):
            rank = (cost + step.cost, tie + step.tie)
            if step.after not in best or rank < best[step.after]:
                best[step.after] = rank
                more = path if step.column is None else (*path, step.column)
                heapq.heappush(heap, (*rank, more, step.after))
    return None


class State(NamedTuple):
    """Bit sets of operators covered, values ever written, values forgotten since; kernels used where they count."""

    ops: int = 0
    values: int = 0
    forgotten: int = 0
    used: int = 0


class Step(NamedTuple):
    """An arc of the search: a column run (or None: a value forgotten), its cost and tie, the state after it."""

    column: int | None
    cost: int
    tie: int
    after: State


def _steps(
    problem: PartitionProblem, moves: Mapping[tuple[int, int, int], tuple[int, int, int]], state: State
) -> Iterator[Step]:
    """Columns that can run; under a memory limit also each value in memory forgotten, never to be touched again."""
    limit, room = problem.max_kernels, problem.max_live
    if room is not None:
        for value in range(problem.n_values):
            if (state.values & ~state.forgotten) >> value & 1:
                yield Step(None, 0, 0, state._replace(forgotten=state.forgotten | 1 << value))
    if limit is not None and state.used >= limit:
        return
    for (members, reads, writes), (cost, tie, index) in moves.items():
        touched = reads | writes
        if reads & ~state.values or not writes & ~state.values or members & state.ops or touched & state.forgotten:
            continue
        values = state.values | writes
        if room is not None and _bytes(problem, values & ~state.forgotten) > room:
            continue
        used = state.used + (limit is not None)
        yield Step(index, cost, tie, State(state.ops | members, values, state.forgotten, used))


def _bytes(problem: PartitionProblem, values: int) -> int:
    return sum(size for value, size in enumerate(problem.live_bytes) if values >> value & 1)


def _list_moves(problem: PartitionProblem) -> dict[tuple[int, int, int], tuple[int, int, int]]:
    """(operators, reads, writes) as bit sets -> (cost, tie, column) of the first column that makes this move."""
    moves: dict[tuple[int, int, int], tuple[int, int, int]] = {}
    for index, column in enumerate(problem.columns):
        if problem.recompute or column.full:
            ops = 0 if problem.recompute else _mask(column.members)
            move = (ops, _mask(column.reads), _mask(column.writes))
            moves[move] = min(moves.get(move, (column.cost, column.tie, index)), (column.cost, column.tie, index))
    return moves


def _mask(indices: tuple[int, ...]) -> int:
    return sum(1 << index for index in indices)
