"""Objective levels: the least second and third weight among the cheapest plans, as exhaustive search finds them."""

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from fusesolve import plan
from fusesolve.errors import InputError
from fusesolve.pipeline.options import PlanOptions
from fusesolve.ragged import Ints
from fusesolve.solve import PartitionProblem, Status, check_solution, levels, sifted, solve
from fusesolve.solve.exhaustive import search_exhaustive
from fusesolve.solve.levels import refine
from fusesolve.solve.problem import Limits
from tests.property.test_solver_exact import make_problem

BASE = 1000  # above any sum of second weights below


def coarse(problem: PartitionProblem) -> PartitionProblem:
    """The problem with few different costs, so that many plans are the cheapest."""
    return replace(problem, columns=tuple(replace(c, cost=len(c.members) + c.cost % 2) for c in problem.columns))


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("sieve", [False, True])
def test_levels_are_what_exhaustive_search_finds(
    recompute: bool, sieve: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if sieve:
        monkeypatch.setattr(sifted, "SIFTED_COLUMNS", 0)
    moved = 0
    for seed in range(9100, 9112):
        problem = coarse(make_problem(seed, recompute=recompute, max_size=6))
        rng = random.Random(seed)
        first, second = ([rng.randrange(12) for _ in problem.columns] for _ in range(2))
        best = search_exhaustive(
            replace(problem, columns=tuple(
                replace(c, tie=a * BASE + b) for c, a, b in zip(problem.columns, first, second, strict=True)
            ))
        )  # fmt: skip
        found = solve(problem)
        assert best is not None and found.status is Status.OPTIMAL

        def weigh(numbers: Ints, weights: Sequence[Sequence[int]] = (first, second)) -> list[list[int]]:
            return [[weight[number] for number in numbers.tolist()] for weight in weights]

        refined = refine(problem, found.selected, weigh, Limits(time_s=None))
        assert [level.value for level in refined.levels] == list(divmod(best[1], BASE)), seed
        assert all(level.bound == level.value for level in refined.levels)
        assert check_solution(problem, replace(found, selected=refined.selected)) == []
        moved += refined.selected != found.selected
    assert moved > 0


def test_a_plan_states_its_levels() -> None:
    found = plan("softmax", "h100", objective=("latency", "dram", "kernels"))
    plain = plan("softmax", "h100")
    assert found.status == "OPTIMAL" and found.objective_ns == plain.objective_ns
    assert found.levels == (
        {"name": "latency", "value": found.objective_ns, "bound": found.objective_ns},
        {"name": "dram", "value": found.dram_bytes, "bound": found.dram_bytes},
        {"name": "kernels", "value": len(found.groups), "bound": len(found.groups)},
    )
    assert found.dram_bytes is not None and plain.dram_bytes is not None
    assert found.dram_bytes <= plain.dram_bytes
    assert found.options["objective"] == ["latency", "dram", "kernels"]
    assert "levels" not in plain.to_dict() and "objective" not in plain.options


@pytest.mark.parametrize(
    ("objective", "strategy"),
    [(("dram",), "cpsat"), (("latency", "latency"), "cpsat"), (("latency", "noise"), "cpsat"),
     (("latency", "dram"), "greedy")],
)  # fmt: skip
def test_levels_that_make_no_sense_are_refused(objective: tuple[str, ...], strategy: str) -> None:
    with pytest.raises(InputError, match="objective"):
        PlanOptions(objective=objective, strategy=strategy).check()


def test_a_level_that_is_cut_has_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(levels, "LEVEL_WORK", 0.0)
    problem = coarse(make_problem(9100, recompute=True, max_size=6))
    found = solve(problem)
    ones = refine(problem, found.selected, lambda numbers: [[1] * len(numbers)] * 2, Limits(time_s=None))
    assert [level.bound for level in ones.levels] == [None, None]
    assert ones.selected == found.selected
