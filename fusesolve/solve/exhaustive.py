"""The exact optimum of tiny problems by searching all states: the independent oracle of the solver's tests.

State = (operators covered, values in memory), a node of a shortest-path problem whose arcs are the columns that can
run next. It shares no code with the strategies: no linear program, no cuts, and the order holds by construction.
"""

import heapq

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
    limit = problem.max_kernels if problem.max_kernels is not None else len(problem.columns)
    start = (0, 0, 0 if problem.max_kernels is not None else -1)
    heap: list[tuple[int, int, tuple[int, ...], tuple[int, int, int]]] = [(0, 0, (), start)]
    done: set[tuple[int, int, int]] = set()
    best: dict[tuple[int, int, int], tuple[int, int]] = {}
    while heap:
        cost, tie, path, state = heapq.heappop(heap)
        if state in done:
            continue
        done.add(state)
        ops, values, used = state
        if ops & goal_ops == goal_ops and values & goal_values == goal_values:
            return cost, tie, path
        if used >= limit:
            continue
        for (members, reads, writes), (more_cost, more_tie, index) in moves.items():
            if reads & ~values or not writes & ~values or members & ops:
                continue
            after = (ops | members, values | writes, used + 1 if used >= 0 else -1)
            rank = (cost + more_cost, tie + more_tie)
            if after not in best or rank < best[after]:
                best[after] = rank
                heapq.heappush(heap, (*rank, (*path, index), after))
    return None


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
