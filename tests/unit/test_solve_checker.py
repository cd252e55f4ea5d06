"""The checker finds each kind of fault, the order finds each kind of wait, and the exhaustive search its answers."""

from dataclasses import replace

import pytest

from fusesolve.errors import InputError
from fusesolve.solve import Column, PartitionProblem, SolveResult, Status, check_solution
from fusesolve.solve.exhaustive import search_exhaustive
from fusesolve.solve.order import find_unfounded, order_columns


def column(members: tuple[int, ...], reads: tuple[int, ...], writes: tuple[int, ...], full: bool = True) -> Column:
    return Column(members=members, reads=reads, writes=writes, cost=10, tie=1, full=full)


CHAIN = PartitionProblem(
    n_ops=3, n_values=3, required=frozenset({2}), producer=(0, 1, 2), recompute=False,
    columns=(
        column((0,), (), (0,)), column((1,), (0,), (1,)), column((2,), (1,), (2,)),
        column((0, 1), (), (1,)), column((0, 1), (), (0,), full=False), column((1, 2), (0,), (2,)),
    ),
)  # fmt: skip


def result(selected: tuple[int, ...], status: Status = Status.FEASIBLE, **changes: object) -> SolveResult:
    base = SolveResult(
        status=status, selected=selected, objective=10 * len(selected) or None, bound=None, seconds={}, stats={}
    )
    return replace(base, **changes)  # type: ignore[arg-type]  # field values of many types


@pytest.mark.parametrize("selected", [(0, 1, 2), (3, 2), (0, 5)])
def test_sound_plans_pass(selected: tuple[int, ...]) -> None:
    assert check_solution(CHAIN, result(selected)) == []
    assert check_solution(CHAIN, result(selected, Status.OPTIMAL, bound=10 * len(selected))) == []


@pytest.mark.parametrize(
    ("selected", "words"),
    [
        ((0, 1, 9), "columns [9] do not exist"),
        ((0, 0, 1, 2), "column 0 is selected 2 times"),
        ((1, 0, 2), "kernel 0 (column 1) reads values [0] before any kernel writes them"),
        ((0, 1), "required values [2] are written by no kernel"),
        ((0, 1), "operator 2 is in 0 kernels, must be in one"),
        ((0, 3, 2), "operator 0 is in 2 kernels, must be in one"),
        ((4, 2), "columns [4] keep a value back"),
    ],
)
def test_each_unsound_selection_is_named(selected: tuple[int, ...], words: str) -> None:
    assert any(words in line for line in check_solution(CHAIN, result(selected)))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"objective": 29}, "stated as 29 ns, the selected columns cost 30 ns"),
        ({"bound": 31}, "bound 31 ns is above the objective 30 ns"),
        ({"status": Status.OPTIMAL, "bound": 29}, "OPTIMAL with objective 30 and bound 29"),
        ({"status": Status.OPTIMAL}, "OPTIMAL with objective 30 and bound None"),
        ({"objective": None}, "FEASIBLE with objective None"),
        ({"status": Status.NO_SOLUTION}, "NO_SOLUTION with objective 30"),
        ({"status": Status.INFEASIBLE, "objective": None}, "INFEASIBLE with 3 columns"),
    ],
)
def test_each_false_claim_is_named(changes: dict[str, object], words: str) -> None:
    claim = replace(result((0, 1, 2)), **changes)  # type: ignore[arg-type]  # field values of many types
    assert any(words in line for line in check_solution(CHAIN, claim))


def test_claims_without_columns() -> None:
    assert check_solution(CHAIN, result((), Status.INFEASIBLE)) == []
    assert "no columns although" in check_solution(CHAIN, result((), Status.OPTIMAL, objective=0, bound=0))[0]
    empty = replace(CHAIN, required=frozenset(), recompute=True)
    assert check_solution(empty, result((), Status.OPTIMAL, objective=0, bound=0)) == []


def test_the_kernel_limit_is_checked() -> None:
    lines = check_solution(replace(CHAIN, max_kernels=2), result((0, 1, 2)))
    assert lines == ["3 kernels are selected, the limit is 2"]


def test_recomputation_allows_an_operator_twice_and_kept_values() -> None:
    assert check_solution(replace(CHAIN, recompute=True), result((4, 5))) == []


def test_order_runs_the_smallest_content_first_and_names_the_stuck() -> None:
    columns = [column((2,), (1,), (2,)), column((1,), (), (1,)), column((0,), (), (0,)), column((3,), (4,), (3,))]
    order = order_columns(columns, range(4))
    assert (order.done, order.stuck, order.available) == ((2, 1, 0), (3,), frozenset({0, 1, 2}))


def test_an_unfounded_set_is_read_by_all_its_writers() -> None:
    # 0 <-> 1 wait for each other; 2 waits for 0; 3 runs.
    columns = [column((0,), (1,), (0,)), column((1,), (0,), (1,)), column((2,), (0,), (2,)), column((3,), (), (3,))]
    order = order_columns(columns, range(4))
    assert order.stuck == (0, 1, 2)
    for start in order.stuck:
        found = find_unfounded(columns, order, start)
        assert not found.isdisjoint(columns[start].reads)
        writers = [index for index in range(4) if not found.isdisjoint(columns[index].writes)]
        assert all(not found.isdisjoint(columns[index].reads) for index in writers)


def test_exhaustive_search_by_hand() -> None:
    assert search_exhaustive(CHAIN) == (20, 2, (0, 5))
    assert search_exhaustive(replace(CHAIN, max_kernels=1)) is None
    assert search_exhaustive(replace(CHAIN, columns=CHAIN.columns[:2])) is None
    with pytest.raises(InputError, match="at most 12 operators, the problem has 13"):
        search_exhaustive(replace(CHAIN, n_ops=13))
