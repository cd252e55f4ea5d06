"""A series of plans on changed hardware: what neighbours teach must change nothing but the time."""

import pytest

from fusesolve.candidates.pricing import price_space, shift_launch
from fusesolve.cost.table import PriceOptions
from fusesolve.hardware_yaml import load_profile
from fusesolve.importers import load_graph
from fusesolve.pipeline.devices import fit_dtypes
from fusesolve.pipeline.options import PlanOptions
from fusesolve.solve import Column, PartitionProblem, start_shortlist
from fusesolve.whatif.evaluate import Bench, enumerate_whole
from fusesolve.whatif.points import set_numbers


@pytest.fixture(scope="module", params=[("gpt2_block", True), ("bert_layer", False)], ids=str)
def bench(request):
    name, recompute = request.param
    options = PlanOptions(recompute=recompute)
    graph = load_graph(name, bind={})
    return Bench(graph=graph, space=enumerate_whole(graph, options), options=options)


CHANGES = (
    {}, {"memory.dram.bandwidth": "8 TB/s"}, {"launch.stream": "0.2 us"}, {"memory.shared.per_block_max": "24 KiB"},
    {"compute.units": 40, "launch.stream": "9 us"}, {"memory.l2.size": "4 MiB"},
)  # fmt: skip


def test_a_plan_after_others_is_the_plan_alone(bench):
    for change in CHANGES:
        profile = set_numbers(load_profile("h100"), change)
        alone = Bench(graph=bench.graph, space=bench.space, options=bench.options)
        assert bench.outcome(profile) == alone.outcome(profile), change
    assert bench._shortlist is not None


def test_most_columns_are_left_out(bench):
    planning = bench.price(load_profile("h200"))
    columns, _ = bench.solve(bench.price(load_profile("h100")))
    columns, result = bench.solve(planning)
    assert len(columns.kernels) < 0.25 * len(bench.space.kernels)
    assert result.bound == result.objective


@pytest.mark.parametrize("name", ["h100", "mobile-npu", "ethos-u85-512", "mi300x"])
@pytest.mark.parametrize("mode", ["stream", "graph"])
def test_a_launch_only_shifts_the_prices(name, mode):
    profile = load_profile(name)
    key = "stream" if profile.launch.stream is not None else "dispatch"
    other = set_numbers(profile, {f"launch.{key}": "11 us", **({"launch.graph": "3 us"} if key == "stream" else {})})
    graph, _ = fit_dtypes(load_graph("rms_norm", bind={}, as_dtype="i8" if name.startswith("ethos") else None), profile)
    space = enumerate_whole(graph, PlanOptions())
    options = PriceOptions(launch=mode)
    shifted = shift_launch(price_space(space, profile, options), other)
    anew = price_space(space, other, options)
    assert shifted.cost_ns == anew.cost_ns != price_space(space, profile, options).cost_ns
    assert (shifted.prices.terms["launch"] == anew.prices.terms["launch"]).all()


def chain(costs):
    """Operators 0 -> 1 -> 2 with a column for every stretch of them, at these costs."""
    stretches = [(0,), (1,), (2,), (0, 1), (1, 2), (0, 1, 2)]
    columns = tuple(
        Column(members=m, reads=(m[0] - 1,) if m[0] else (), writes=(m[-1],), cost=c, tie=i, full=True)
        for i, (m, c) in enumerate(zip(stretches, costs, strict=True))
    )
    return PartitionProblem(
        n_ops=3, n_values=3, columns=columns, required=frozenset({2}), producer=(0, 1, 2), recompute=False
    )


def test_the_shortlist_of_a_chain():
    series = start_shortlist(chain([1] * 6))
    # plans: 0|1|2 = 30, 01|2 = 25, 0|12 = 28, 012 = 22: what is in a plan of at most U ns must stay
    costs = [10, 10, 10, 15, 18, 22]
    for known, needed in (((5,), {5}), ((3, 2), {2, 3, 5}), ((0, 4), {0, 2, 3, 4, 5})):
        assert needed <= set(series.keep(costs, known))
    assert len(series.keep(costs, (5,))) < 6
    kept = set(series.keep([*costs[:5], None], (3, 2)))
    assert {2, 3} <= kept
    assert 5 not in kept


def test_a_plan_that_does_not_exist_proves_nothing():
    series = start_shortlist(chain([1] * 6))
    assert series.keep([10, 10, 10, 15, 18, None], (5,)) is None
    assert series.keep([10] * 6, ()) is None
