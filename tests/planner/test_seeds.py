"""Where the kernel space was cut, the plan is at least as good as the cheapest of the seeding policies."""

from dataclasses import replace

import pytest

from fusesolve.candidates.pricing import Priced, PriceOptions, price_space
from fusesolve.hardware_yaml import load_profile
from fusesolve.importers import load_graph
from fusesolve.pipeline.options import PlanOptions
from fusesolve.pipeline.planning import Clock, Planning, enumerate_space, price_planning
from fusesolve.pipeline.seeds import SEEDING, Seeded, seed_space
from fusesolve.strategies import POLICIES, Context, realise


@pytest.fixture(scope="module", params=["gpt2_block", "bert_layer"])
def cut_planning(request) -> Planning:
    """A planning whose space has lost all kernels but single operators."""
    graph, profile, options = load_graph(request.param, bind={}), load_profile("h100"), PlanOptions()
    clock = Clock(limit=60.0)
    space = enumerate_space(graph, options, clock=clock)
    alone = tuple(kernel for kernel in space.kernels if len(kernel.members) == 1)
    cut = replace(space, kernels=alone, cut_by=("test at x",))
    return price_planning(cut, graph, profile, options, workers=1, clock=clock)


def single(planning: Planning) -> Priced:
    return price_space(
        replace(planning.priced.space, kernels=tuple(k for k in planning.priced.space.kernels if len(k.members) == 1)),
        planning.profile, PriceOptions(),
    )  # fmt: skip


def cost_of(planning: Planning, kernels) -> int:
    return sum(planning.priced.cost_ns[kernel.unique] for kernel in kernels)


def test_the_start_is_the_cheapest_partition_of_the_policies(cut_planning):
    count = len(cut_planning.priced.space.program.operators)
    assert sorted(m for kernel in cut_planning.start for m in kernel.members) == list(range(count))
    found = []
    for name in SEEDING:
        context = Context(single(cut_planning))
        realised = realise(context, POLICIES[name](context))
        found.append(sum(realised.priced.cost_ns[kernel.unique] for kernel in realised.whole))
    assert cost_of(cut_planning, cut_planning.start) == min(found)


def test_a_plan_without_work_is_as_good_as_the_start(cut_planning):
    planning = replace(cut_planning, options=PlanOptions(work_limit=0.0))
    assert planning.solve()[1].objective <= cost_of(planning, planning.start)
    assert replace(planning, start=()).solve()[1].objective > cost_of(planning, planning.start)


def test_other_strategies_do_not_start_from_it(cut_planning):
    _, greedy = cut_planning.solve(strategy="greedy")
    _, alone = replace(cut_planning, start=()).solve(strategy="greedy")
    assert greedy.objective == alone.objective


def test_policies_are_given_up_when_it_is_late(cut_planning):
    priced = single(cut_planning)
    assert seed_space(priced, lambda: True) == Seeded(priced=priced)
    calls = iter(range(10**9))
    some = seed_space(priced, lambda: next(calls) > 40)
    assert len(some.priced.space.kernels) < len(cut_planning.priced.space.kernels)


def test_the_clock_leaves_a_quarter_to_the_solver(monkeypatch):
    clock = Clock(limit=8.0, started=100.0)
    monkeypatch.setattr("fusesolve.pipeline.planning.time.monotonic", lambda: 105.9)
    assert not clock.solving_due()
    monkeypatch.setattr("fusesolve.pipeline.planning.time.monotonic", lambda: 106.1)
    assert clock.solving_due()
    assert not Clock(limit=None, started=0.0).solving_due()
