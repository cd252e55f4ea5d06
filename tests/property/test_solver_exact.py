"""The exact strategy against exhaustive search on random graphs, and its independence of order, workers and hashes."""

import random
from dataclasses import dataclass, replace
from itertools import combinations

import pytest

from fusesolve.solve import Column, Limits, PartitionProblem, Status, check_solution, solve
from fusesolve.solve.exhaustive import search_exhaustive


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomGraph:
    """`reads[i]`: values that operator i reads; `makes[i]`: values it produces; `outputs`: values the caller wants."""

    reads: tuple[tuple[int, ...], ...]
    makes: tuple[tuple[int, ...], ...]
    outputs: frozenset[int]


def make_graph(rng: random.Random, max_size: int = 9) -> RandomGraph:
    """A random DAG of 2 to 9, at most `max_size`, operators; one in five makes two values; outputs beside the sinks."""
    size = min(max_size, rng.choice((2, 3, 4, 5, 5, 6, 6, 7, 7, 8, 9)))
    reads, makes, count = [], [], 0
    for op in range(size):
        width = min(count, rng.choice((0, 1, 1, 2, 2, 3)) if op else 0)
        recent = range(max(0, count - 5), count)
        reads.append(tuple(sorted(rng.sample(recent, min(width, len(recent))))))
        produced = 2 if rng.random() < 0.2 else 1
        makes.append(tuple(range(count, count + produced)))
        count += produced
    read = {value for row in reads for value in row}
    outputs = {value for value in range(count) if value not in read or rng.random() < 0.1}
    return RandomGraph(reads=tuple(reads), makes=tuple(makes), outputs=frozenset(outputs))


def make_problem(seed: int, *, recompute: bool, drop_columns: float = 0.0, max_size: int = 9) -> PartitionProblem:
    """All connected convex groups of a random graph, at additive, sub-, super-additive or unrelated random costs."""
    rng = random.Random(seed)
    graph = make_graph(rng, max_size)
    size, style = len(graph.reads), rng.choice(("additive", "launch", "super", "noise"))
    own = [rng.randint(1, 20) for _ in range(size)]
    columns = []
    for group in connected_convex(graph):
        if len(group) > 1 and rng.random() < drop_columns:
            continue
        for reads, writes, full in variants(graph, group, recompute):
            total = sum(own[op] for op in group) + 3 * len(reads) + 4 * len(writes)
            cost = {
                "additive": total,
                "launch": 25 + total // 2,
                "super": 5 + total + len(group) ** 2,
                "noise": rng.randint(1, 60),
            }[style]
            tie = rng.choice((rng.randrange(2**31), rng.randrange(4)))
            columns.append(Column(members=group, reads=reads, writes=writes, cost=cost, tie=tie, full=full))
    rng.shuffle(columns)
    return PartitionProblem(
        n_ops=size,
        n_values=sum(map(len, graph.makes)),
        columns=tuple(columns),
        required=graph.outputs,
        producer=tuple(op for op, made in enumerate(graph.makes) for _ in made),
        recompute=recompute,
    )


def connected_convex(graph: RandomGraph) -> list[tuple[int, ...]]:
    """Every connected convex set of operators, by definition: no path leaves it and comes back."""
    size = len(graph.reads)
    maker = {value: op for op, made in enumerate(graph.makes) for value in made}
    edges = {(maker[value], op) for op in range(size) for value in graph.reads[op]}
    before = [0] * size
    for op in range(size):
        for first, second in edges:
            if second == op:
                before[op] |= before[first] | 1 << first
    found = []
    for mask in range(1, 1 << size):
        group = tuple(op for op in range(size) if mask >> op & 1)
        between = [
            op for op in range(size)
            if not mask >> op & 1 and before[op] & mask and any(before[m] >> op & 1 for m in group)
        ]  # fmt: skip
        if not between and _connected(group, edges):
            found.append(group)
    return found


def _connected(group: tuple[int, ...], edges: set[tuple[int, int]]) -> bool:
    seen, stack = {group[0]}, [group[0]]
    while stack:
        top = stack.pop()
        for other in group:
            if other not in seen and ((top, other) in edges or (other, top) in edges):
                seen.add(other)
                stack.append(other)
    return len(seen) == len(group)


def variants(
    graph: RandomGraph, group: tuple[int, ...], recompute: bool
) -> list[tuple[tuple[int, ...], tuple[int, ...], bool]]:
    """(reads, writes, full) of the group: all values needed outside, then with one or two of them dropped."""
    made = [value for op in group for value in graph.makes[op]]
    outside = {value for op, row in enumerate(graph.reads) if op not in group for value in row}
    reads = tuple(sorted({value for op in group for value in graph.reads[op]} - set(made)))
    leaving = sorted(value for value in made if value in outside or value in graph.outputs)
    found = []
    for dropped in range(3 if recompute else 1):
        for held in combinations(leaving, dropped):
            writes = tuple(value for value in leaving if value not in held)
            if writes:
                found.append((reads, writes, not held))
    return found


def assert_exact(problem: PartitionProblem) -> None:
    expected = search_exhaustive(problem)
    result = solve(problem, limits=Limits(time_s=None))
    assert check_solution(problem, result) == []
    if expected is None:
        assert result.status is Status.INFEASIBLE
        assert result.conflicts
        return
    assert (result.status, result.objective, result.bound) == (Status.OPTIMAL, expected[0], expected[0])
    assert sum(problem.columns[index].tie for index in result.selected) == expected[1]
    assert result.stats.get("ties_settled", 1) == 1


@pytest.mark.parametrize("block", range(10))
@pytest.mark.parametrize("recompute", [False, True])
def test_cpsat_equals_exhaustive_search(block: int, recompute: bool) -> None:
    for seed in range(50 * block, 50 * block + 50):
        assert_exact(make_problem(seed, recompute=recompute))


@pytest.mark.parametrize("recompute", [False, True])
def test_cpsat_equals_exhaustive_search_where_columns_are_missing(recompute: bool) -> None:
    for seed in range(1000, 1025):
        assert_exact(make_problem(seed, recompute=recompute, drop_columns=0.6))


@pytest.mark.parametrize("recompute", [False, True])
def test_cpsat_equals_exhaustive_search_under_a_kernel_limit(recompute: bool) -> None:
    for seed in range(2000, 2025):
        problem = make_problem(seed, recompute=recompute, drop_columns=0.4)
        assert_exact(replace(problem, max_kernels=1 + seed % 4))


@pytest.mark.parametrize("recompute", [False, True])
def test_order_of_columns_workers_and_seed_do_not_matter(recompute: bool) -> None:
    for seed in range(3000, 3015):
        problem = make_problem(seed, recompute=recompute)
        order = list(range(len(problem.columns)))
        random.Random(seed).shuffle(order)
        shuffled = replace(problem, columns=tuple(problem.columns[index] for index in order))
        for strategy in ("cpsat", "greedy", "unfused"):
            first = solve(problem, strategy=strategy)
            second = solve(shuffled, strategy=strategy, limits=Limits(workers=2))
            contents = [problem.columns[index] for index in first.selected]
            assert contents == [shuffled.columns[index] for index in second.selected]
            assert (first.status, first.objective, first.bound) == (second.status, second.objective, second.bound)


@pytest.mark.parametrize("recompute", [False, True])
def test_baselines_are_sound_and_never_beat_the_optimum(recompute: bool) -> None:
    for seed in range(4000, 4025):
        problem = make_problem(seed, recompute=recompute)
        exact, greedy, unfused = (solve(problem, strategy=name) for name in ("cpsat", "greedy", "unfused"))
        assert check_solution(problem, greedy) == check_solution(problem, unfused) == []
        assert exact.objective is not None and greedy.objective is not None and unfused.objective is not None
        assert exact.objective <= greedy.objective <= unfused.objective
        assert all(len(problem.columns[index].members) == 1 for index in unfused.selected)
