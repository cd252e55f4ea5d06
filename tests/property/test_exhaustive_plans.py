"""Plans of small random graphs are the best of all: recomputation, packs, pins and memory limits in play."""

from dataclasses import replace

from hypothesis import given, settings

from fusesolve.pipeline.options import PlanOptions
from tests.property.exhaustive_plans import Case, assert_agrees, best_by_exhaustion, cases, planned
from tests.unit.native_program import graph


@settings(max_examples=20, deadline=None, derandomize=True)
@given(cases())
def test_a_plan_is_the_best_of_all_plans(case: Case) -> None:
    """A sample; `python -m tests.property.exhaustive_plans 2000` tries as many as it is asked to."""
    assert_agrees(case)


def test_the_search_sees_packs_pins_and_limits() -> None:
    """Two short kernels share a launch, unless they must not; a limit below what is always live leaves no plan."""
    source = graph(["a: f32[8,16]", "b: f32[8,16]"], ["u = exp(a)", "v = tanh(b)"], ["u", "v"])
    case = Case(graph=source, device="a100", options=PlanOptions())
    best, packed = assert_agrees(case)
    assert packed
    dearer, packed = assert_agrees(replace(case, options=PlanOptions(apart=(("u", "v"),))))
    assert best is not None and dearer is not None and dearer > best and not packed
    tight = replace(case, options=PlanOptions(max_memory=1))
    assert best_by_exhaustion(tight)[0] is None and planned(tight).objective is None
