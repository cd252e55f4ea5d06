"""Groups become kernels: writes, duplicates, views, refusals, and the best legal parts of what is no kernel."""

from dataclasses import replace

import pytest

from fusesolve.candidates.pricing import price_workloads
from fusesolve.errors import InputError
from fusesolve.group import FusionGroup, Refusal
from fusesolve.hardware_yaml import load_profile
from fusesolve.pipeline import PlanOptions, begin
from fusesolve.pipeline.policy import check_strategy, follow_groups, follow_policy
from fusesolve.strategies import Context, realise
from fusesolve.strategies.grouping import Grouping
from fusesolve.strategies.xla_model import L2_GAIN, OVERLAP, Estimate
from tests.unit.policy_graphs import (
    LINEAR,
    SOFTMAX,
    TWO_MATMULS,
    context_of,
    group,
    named,
    names,
    number,
    planning_of,
)


def follow(graph, *texts, views="", profile="a100"):
    planning = planning_of(**graph, profile=profile)
    context = Context(planning.priced)
    found = follow_groups(
        planning, [group(context, text) for text in texts], context, views=frozenset(group(context, views))
    )
    return context, found


def kernels(context, found):
    return named(context, (kernel.members for kernel in found.kernels))


def test_legal_groups_cost_the_sum_of_their_kernels():
    context, found = follow(LINEAR, "mm", "biased act")
    assert not found.illegal and kernels(context, found) == names("mm", "biased act")
    alone = context.costs([group(context, "mm"), group(context, "biased act")])
    assert found.objective == sum(alone)
    assert found.result.bound is None and found.result.status == "FEASIBLE"  # a policy proves nothing


def test_an_illegal_group_is_named_and_costs_its_best_parts():
    """Of {m1, r, m2} the parts are m1 r | m2 and m1 | r m2 and all three alone; the cheapest is taken."""
    context, found = follow(TWO_MATMULS, "m1 r m2")
    assert [item.rule for item in found.illegal] == ["one-contraction"]
    assert not found.illegal[0].breaks_limit
    m1, r, m2 = ((number(context, name),) for name in ("m1", "r", "m2"))
    ways = [context.costs(way) for way in ([m1, r, m2], [(*m1, *r), m2], [m1, (*r, *m2)])]
    assert found.objective == min(sum(way) for way in ways if None not in way)
    assert found.groups == 1 and len(found.kernels) == 2


def test_a_part_may_cut_a_chain_that_the_space_keeps_whole():
    """The space has exp, neg, tanh as one unit; {neg, tanh, two contractions} holds only a part of it."""
    graph = {
        "inputs": ["x: f16[512,512]", "w1: f16[512,512]", "w2: f16[512,512]"],
        "ops": ["e = exp(x)", "n = neg(e)", "t = tanh(n)", "m1 = matmul(t, w1)", "m2 = matmul(m1, w2)"],
        "outputs": ["m1", "m2"],
    }
    context, found = follow(graph, "e", "n t m1 m2")
    assert [item.members for item in found.illegal] == [group(context, "n t m1 m2")]
    assert names("e", "n t") <= kernels(context, found)  # and not n and t by two launches


def test_a_duplicated_value_is_written_by_the_smallest_group_that_makes_it():
    """e is in both groups and read by s in a third one, which does not make it."""
    graph = {
        "inputs": ["x: f32[512,2048]"],
        "ops": [
            "e = exp(x)", "rows = reduce_sum(e; axis=1)", "t = tanh(e)", "n = neg(t)", "s = slice(e; axis=0, end=8)",
        ],
        "outputs": ["rows", "n", "s"],
    }
    context, found = follow(graph, "e rows", "e t n", "s")
    assert kernels(context, found) == names("e rows", "e t n", "s")
    written = {
        frozenset(context.name(m) for m in k.members): {context.program.storage[w].value for w in k.writes}
        for k in found.kernels
    }
    assert written[frozenset({"e", "rows"})] == {"e", "rows"}
    assert written[frozenset({"e", "t", "n"})] == {"n"}


def test_a_group_that_computes_again_need_not_be_convex():
    """{sb, ex, dv} makes ex for itself: the path ex -> sm -> dv leaves from the other group's copy."""
    _, found = follow(SOFTMAX, "mx", "sb ex sm", "sb ex dv")
    assert not found.illegal and len(found.kernels) == 3
    nbytes = 8192 * 4096 * 4
    small = 8192 * 4
    # each kernel reads x; the last also writes the result; the row values are read or written beside it
    prices = found.planning.priced.prices.resources["dram_bytes"]
    total = sum(int(prices[k.unique]) for k in found.kernels)
    assert 4 * nbytes <= total <= 4 * nbytes + 6 * small


def test_a_group_that_waits_for_itself_is_refused():
    context = context_of(SOFTMAX)
    found = context.judge(group(context, "mx dv"))
    assert isinstance(found, Refusal) and found.rule == "convex"
    assert not context.is_convex(group(context, "mx dv")) and context.is_convex(group(context, "mx sb"))


def test_groups_that_wait_for_each_other_are_taken_apart():
    """a1 feeds b1 and b2 feeds a2: each group is convex, the pair is a circle."""
    graph = {
        "inputs": ["x: f32[256,256]"],
        "ops": ["a1 = exp(x)", "b1 = neg(a1)", "b2 = tanh(x)", "a2 = mul(b2, x)", "p = add(a1, a2)", "q = add(b1, b2)"],
        "outputs": ["p", "q"],
    }
    context, found = follow(graph, "a1 a2 p", "b1 b2 q")
    assert {item.rule for item in found.illegal} == {"acyclic"} and len(found.illegal) == 2
    assert found.objective is not None
    order = [k.members for k in found.kernels]
    made = set()
    for members in order:
        assert all(p in made or p in members for m in members for p in context.preds[m])
        made.update(members)


VIEWED = {
    "inputs": ["x: f16[512,512]", "w: f16[512,512]"],
    "ops": ["a = relu(x)", "t = transpose(a; perm=1-0)", "m = matmul(t, w)"],
    "outputs": ["m"],
}


def test_views_are_read_through_where_that_is_a_kernel():
    context, found = follow(VIEWED, "a", "m", views="t")
    assert not found.illegal and kernels(context, found) == names("a", "t m")
    assert found.objective == sum(context.costs([group(context, "a"), group(context, "t m")]))


def test_what_only_a_view_reads_need_not_be_written():
    """a feeds m through t, all in one group: one kernel, and a never reaches memory."""
    context, found = follow(VIEWED, "a m", views="t")
    assert not found.illegal and kernels(context, found) == names("a t m")
    assert [context.program.storage[w].value for k in found.kernels for w in k.writes] == ["m"]


def test_a_view_that_one_group_cannot_read_through_lies_in_memory_for_it_alone():
    """c takes t whole, so a must be written for t to exist; m still reads a through t."""
    graph = {
        "inputs": ["x: f32[512,512]", "w: f32[512,512]"],
        "ops": ["a = relu(x)", "t = transpose(a; perm=1-0)", "m = matmul(t, w)", "c = cumsum(t; axis=0)"],
        "outputs": ["m", "c"],
    }
    context, found = follow(graph, "a", "m", "c", views="t")
    assert not found.illegal and kernels(context, found) == names("a", "t m", "c")
    alone = context_of({**graph, "ops": graph["ops"][:3], "outputs": ["m"]})  # where t is read by m alone
    parts = [context.cost(group(context, "a")), alone.cost(group(alone, "t m")), context.cost(group(context, "c"))]
    assert found.objective == sum(parts)


def test_views_that_no_kernel_reads_through_cost_nothing():
    """A scan takes its operand whole, so the transposed tensor lies in memory, for nothing."""
    graph = {
        "inputs": ["x: f32[512,512]"],
        "ops": ["a = relu(x)", "t = transpose(a; perm=1-0)", "c = cumsum(t; axis=0)"],
        "outputs": ["c"],
    }
    context, found = follow(graph, "a", "c", views="t")
    assert not found.illegal and kernels(context, found) == names("a", "c")
    assert found.objective == sum(context.costs([group(context, "a"), group(context, "c")]))


def test_a_limit_of_the_device_is_told_from_a_rule_of_the_space():
    """A sum of 24 tensors needs more arguments than a device with 512 bytes of them takes."""
    usual_profile = load_profile("a100")
    narrow = replace(usual_profile, limits=replace(usual_profile.limits, argument_bytes=512))
    ops = ["s1 = add(x0, x1)", *(f"s{i} = add(s{i - 1}, x{i})" for i in range(2, 24))]
    usual = planning_of([f"x{i}: f32[1024]" for i in range(24)], ops, ["s23"])
    planning = begin(usual.graph, narrow, PlanOptions(), workers=1)
    everything = tuple(range(len(planning.priced.space.program.operators)))
    found = follow_groups(planning, [everything])
    assert [item.rule for item in found.illegal] == ["argument-bytes"] and found.illegal[0].breaks_limit
    assert len(found.kernels) > 1
    assert not follow_groups(usual, [everything]).illegal


def test_the_space_itself_stays_what_it_is():
    planning = planning_of(**SOFTMAX)
    context = Context(planning.priced)
    before = planning.priced.space.kernels
    found = realise(context, [group(context, "mx"), group(context, "sb ex sm"), group(context, "sb ex dv")])
    assert found.priced.space.kernels == before == context.priced.space.kernels
    assert len(found.priced.cost_ns) == len(found.priced.space.workloads) == len(found.priced.prices.latency)
    for kernel in found.whole:
        workload = found.priced.space.workloads[kernel.unique]
        again = price_workloads([workload], planning.profile, planning.priced.options)
        assert found.priced.cost_ns[kernel.unique] == round(float(again.latency[0]) * 1e9)


def test_policies_take_no_pins():
    planning = planning_of(**LINEAR)
    pinned = replace(planning, options=replace(planning.options, apart=(("mm", "act"),)))
    with pytest.raises(InputError, match="strategy tvm follows its own rules and takes no pins"):
        follow_policy(pinned, "tvm")


def test_a_partition_above_max_kernels_is_no_plan():
    planning = planning_of(**LINEAR)
    limited = replace(planning, options=replace(planning.options, max_kernels=2))
    found = follow_groups(limited, [(0,), (1,), (2,)])
    assert found.objective is None and found.result.conflicts == (
        "the partition has 3 kernels, --max-kernels allows 2",
    )


def test_an_unknown_strategy_lists_the_known_ones():
    with pytest.raises(InputError, match=r"no strategy 'magic'; choose one of cpsat, unfused, greedy, dp"):
        check_strategy("magic")


def test_merging_over_a_third_group_closes_a_cycle():
    """a -> b -> c and a -> c."""
    graph = {"inputs": ["x: f32[64]"], "ops": ["a = exp(x)", "b = neg(a)", "c = add(a, b)"], "outputs": ["c"]}
    context = context_of(graph)
    grouping = Grouping(context)
    a, b, c = (number(context, name) for name in "abc")
    assert grouping.closes_cycle(a, c) and grouping.closes_cycle(c, a)
    assert not grouping.closes_cycle(a, b)
    merged = grouping.merge(a, b)
    assert not grouping.closes_cycle(merged, c) and grouping.neighbours(merged) == [c]
    assert grouping.merge_all([merged, c]) == 0 and grouping.groups() == [(0, 1, 2)]


def test_xla_estimates_an_elementwise_fusion_by_bytes_and_arithmetic():
    """exec = arithmetic + memory - 0.95 min(both), by the profile's own numbers."""
    context = context_of({"inputs": ["x: f32[1024,1024]"], "ops": ["a = exp(x)"], "outputs": ["a"]})
    profile = context.profile
    work = context.operators[0].work
    points = 1024 * 1024
    rate = profile.compute.units * profile.compute.pipes.fma.per_clock["f32"] * profile.compute.clock
    arithmetic = points * max(1.0, work.fma + work.alu + work.sfu) / rate
    memory = 2 * 4 * points / profile.memory.dram.bandwidth
    expected = arithmetic + memory - OVERLAP * min(arithmetic, memory)
    assert Estimate(context).seconds((0,), 0) == pytest.approx(expected, rel=1e-12)


def test_xla_pays_for_a_producer_once_an_element_of_its_reader():
    """A row of 1 KiB below a broadcast to 4096 rows is computed 4096 times, and read again from the caches."""
    ops = ["e = exp(r)", "y = mul(x, e)"]
    context = context_of({"inputs": ["x: f32[4096,256]", "r: f32[1,256]"], "ops": ops, "outputs": ["y"]})
    e, y = number(context, "e"), number(context, "y")
    work = [context.operators[i].work for i in (e, y)]
    per_element = sum(max(1.0, w.fma + w.alu + w.sfu) for w in work)
    points, profile = 4096 * 256, context.profile
    estimate = Estimate(context)
    arithmetic = points * per_element / estimate.rate
    again = (points - 256) * 4 / (profile.memory.dram.bandwidth * L2_GAIN * 8)
    memory = (2 * 4 * points + 256 * 4) / profile.memory.dram.bandwidth + again
    expected = arithmetic + memory - OVERLAP * min(arithmetic, memory)
    assert estimate.seconds((e, y), y) == pytest.approx(expected, rel=1e-12)


def test_costs_are_those_of_the_space_where_it_has_the_kernel():
    context = context_of(LINEAR)
    for kernel in context.priced.space.kernels:
        if kernel.full:
            assert context.cost(kernel.members) == context.priced.cost_ns[kernel.unique]
            assert isinstance(context.judge(kernel.members), FusionGroup)
