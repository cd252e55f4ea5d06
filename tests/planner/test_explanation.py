"""Explanations on bundled graphs: every adjacent pair that is left apart has a price, every kernel a second choice."""

import pytest

from fusesolve.candidates.pricing import price_runner_up
from fusesolve.explanation import explain_group, explain_pair
from fusesolve.pipeline import Planning, PlanOptions, begin


@pytest.fixture(scope="module")
def planning() -> Planning:
    return begin("resnet50_bottleneck", "h100", PlanOptions(), time_limit=None)


def test_every_adjacent_pair_left_apart_has_a_counterfactual(planning: Planning) -> None:
    columns, result = planning.best
    program = planning.priced.space.program
    names = [program.graph.nodes[op.node].source for op in program.operators]
    held = [set(columns.kernels[i].members) for i in result.selected]
    apart = {
        (names[a], names[b]) for b in range(len(names)) for a in program.preds[b]
        if not any({a, b} <= members for members in held)
    }  # fmt: skip
    assert apart
    for pair in sorted(apart):
        found = explain_pair(planning, pair)
        assert found.apart_ns == result.objective
        assert (found.together_ns is None) == (found.rule is not None)
        assert found.together_ns is None or found.together_ns >= result.objective
        if found.delta_ns:
            assert "resources" in {item["term"] for item in found.because}


def test_the_runner_up_is_another_tiling_that_is_no_faster(planning: Planning) -> None:
    columns, result = planning.best
    priced = planning.priced
    for index in result.selected:
        row = columns.kernels[index].unique
        second = price_runner_up(priced, row)
        assert second is not None and second.cost_ns >= (priced.cost_ns[row] or 0)
        chosen = {name: float(priced.prices.resources[name][row]) for name in second.resources}
        tiling = {name: int(column[row]) for name, column in priced.prices.tiling.items() if column[row]}
        assert second.resources != chosen or second.tiling != tiling


def test_a_kernel_is_explained_with_its_runner_up(planning: Planning) -> None:
    found = explain_group(planning, 0)
    (entry,) = [item for item in found.because if item["term"] == "runner-up"]
    assert entry["delta_ns"] >= 0 and " us " in entry["message"]
