"""Policies of other compilers under the clock: one that is not done in time has no plan, and says so."""

import pytest

from fusesolve import plan
from fusesolve.pipeline import PlanOptions, begin
from fusesolve.pipeline.planning import Clock
from fusesolve.strategies import POLICIES, Context, OutOfTimeError


def test_a_policy_that_is_stopped_has_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Clock, "over", lambda self: True)
    found = plan("gelu_mlp", "h100", strategy="greedy", apart=())
    assert found.status == "NO_SOLUTION" and found.groups == () and found.objective_ns is None
    assert "strategy greedy" in found.conflicts[0]["message"] and "--time-limit" in found.conflicts[0]["message"]


def test_every_policy_asks_the_clock() -> None:
    planning = begin("gpt2_block", "h100", PlanOptions(), time_limit=None)
    late = dict.fromkeys(POLICIES, 0)
    for name, policy in POLICIES.items():
        context = Context(planning.priced, lambda: True)
        context._cost.clear()  # nothing is known, so every question is new
        try:
            policy(context)
        except OutOfTimeError:
            late[name] = 1
    stopped = {name for name, count in late.items() if count}
    assert {"greedy", "dp", "mincut", "welder", "nvfuser"} <= stopped
