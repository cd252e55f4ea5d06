"""A series of plans on changed hardware: what neighbours teach must change nothing but the time."""

import pytest

from fusesolve.candidates.pricing import price_space, shift_launch
from fusesolve.cost.table import PriceOptions
from fusesolve.hardware_yaml import load_profile, profile_from_definition
from fusesolve.importers import load_graph
from fusesolve.pipeline.devices import fit_dtypes
from fusesolve.pipeline.options import PlanOptions
from fusesolve.solve import Column, PartitionProblem, start_shortlist
from fusesolve.whatif.evaluate import Bench, enumerate_whole
from fusesolve.whatif.points import set_numbers


@pytest.fixture(scope="module", params=[("inception_branches", True), ("moe_router", False)], ids=str)
def bench(request):
    name, recompute = request.param
    options = PlanOptions(recompute=recompute)
    graph = load_graph(name, bind={})
    return Bench(graph=graph, space=enumerate_whole(graph, options), options=options)


CHANGES = (
    {}, {"memory.dram.bandwidth": "8 TB/s"}, {"memory.shared.per_block_max": "24 KiB"},
    {"compute.units": 40, "launch.stream": "9 us"},
)  # fmt: skip


def test_a_plan_after_others_is_the_plan_alone(bench):
    for change in CHANGES:
        profile = set_numbers(load_profile("h100"), change)
        alone = Bench(graph=bench.graph, space=bench.space, options=bench.options)
        assert bench.outcome(profile) == alone.outcome(profile), change


def test_the_next_point_is_solved_over_few_columns():
    profile = load_profile("mobile-npu")
    graph, _ = fit_dtypes(load_graph("unet_up_block", bind={}), profile)
    bench = Bench(graph=graph, space=enumerate_whole(graph, PlanOptions()), options=PlanOptions())
    found = []
    for bandwidth in ("60 GB/s", "61 GB/s", "62 GB/s"):
        found.append(bench.solve(bench.price(set_numbers(profile, {"memory.dram.bandwidth": bandwidth}))))
    assert len(found[0][0].kernels) > 200
    for columns, result in found[1:]:
        assert len(columns.kernels) < 140
        assert result.bound == result.objective


def prices_of(graph_name, profile, mode, as_dtype=None):
    graph, _ = fit_dtypes(load_graph(graph_name, bind={}, as_dtype=as_dtype), profile)
    space = enumerate_whole(graph, PlanOptions())
    return lambda other: price_space(space, other, PriceOptions(launch=mode))


@pytest.mark.parametrize(
    ("name", "graph", "as_dtype"),
    [
        ("h100", "rms_norm", None), ("h100", "resnet50_bottleneck", "f32"), ("mi300x", "gelu_mlp", None),
        ("mobile-npu", "rms_norm", None), ("ethos-u85-512", "rms_norm", "i8"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("mode", ["stream", "graph"])
def test_a_launch_only_shifts_the_prices(name, graph, as_dtype, mode):
    profile = load_profile(name)
    key = "stream" if profile.launch.stream is not None else "dispatch"
    changes = {f"launch.{key}": "11 us", **({"launch.graph": "3 us"} if key == "stream" else {})}
    other = set_numbers(profile, changes)
    price = prices_of(graph, profile, mode, as_dtype)
    shifted, anew = shift_launch(price(profile), other), price(other)
    assert shifted.cost_ns == anew.cost_ns != price(profile).cost_ns
    assert (shifted.prices.terms["launch"] == anew.prices.terms["launch"]).all()


def test_a_cpu_is_priced_anew():
    cpu = profile_from_definition({**load_profile("mobile-npu").definition, "kind": "cpu"}, "test")
    price = prices_of("rms_norm", cpu, "stream")
    assert shift_launch(price(cpu), set_numbers(cpu, {"launch.dispatch": "11 us"})) is None


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
