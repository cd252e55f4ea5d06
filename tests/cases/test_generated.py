"""Cases given as a rule: sizes that broke planners, each within its time limit."""

from math import ceil

import pytest

from fusesolve import plan
from fusesolve.legality import MEMBER_LIMIT
from tests.cases import generated


@pytest.mark.parametrize("count", [2, 8, 10])
def test_a_chain_of_diamonds_is_walked_as_a_graph(count):
    """FC-014: one kernel of 3n + 1 operators, none of them computed twice."""
    found = plan(generated.diamonds(count), "a100")
    assert len(found.groups) == 1
    assert len(found.groups[0].nodes) == 3 * count + 1
    assert found.groups[0].recomputed == ()


def test_a_long_chain_of_diamonds_is_planned():
    """FC-014: 193 operators in as few kernels as their most members allow, or a few more; nothing is computed twice."""
    found = plan(generated.diamonds(64), "a100", recompute=False, time_limit=12)
    assert found.status in ("OPTIMAL", "FEASIBLE")
    placed = [node for group in found.groups for node in group.nodes]
    assert len(placed) == len(set(placed)) == 193
    assert ceil(193 / MEMBER_LIMIT) <= len(found.groups) <= 40


def test_arguments_count_by_their_bytes():
    """FC-052: a sum of 120 tensors; higher rank never gives fewer kernels."""
    flat, deep = (plan(generated.wide_sum(40, rank), "a100") for rank in (2, 6))
    assert len(deep.groups) >= len(flat.groups)
    for group in (*flat.groups, *deep.groups):
        assert group.argument_bytes <= 32_764


def test_a_concat_of_many_branches_keeps_the_limits():
    """FC-053: 60 branches; a kernel computes at most six of them in place."""
    found = plan(generated.wide_concat(60), "a100", time_limit=10)
    assert found.status in ("OPTIMAL", "FEASIBLE")
    assert sum(len(group.nodes) for group in found.groups) >= 63
    assert found.objective_ns < found.unfused_ns


@pytest.mark.parametrize("count", [20, 200])
def test_each_layer_of_a_chain_is_one_kernel(count):
    """FC-056: one kernel a layer, each layer like the next."""
    found = plan(generated.linear_layers(count), "a100")
    assert found.status == "OPTIMAL"
    assert len(found.groups) == count


def test_a_final_sum_does_not_pull_in_a_chain_of_scatters():
    """FC-058: eight scatters run alone; the sum adds at most one kernel and none is computed twice."""
    found = plan(generated.scatter_chain(8), "a100")
    assert found.status == "OPTIMAL"
    scatters = [node for group in found.groups for node in group.nodes if node.startswith("u")]
    assert len(scatters) == len(set(scatters)) == 8


def test_hundreds_of_pointwise_operators_become_kernels_of_bounded_size():
    """FC-059: 120 operators of the 400."""
    found = plan(generated.long_chain(120), "a100", recompute=False)
    assert found.status in ("OPTIMAL", "FEASIBLE")
    assert all(len(group.nodes) <= MEMBER_LIMIT for group in found.groups)
    assert len(found.groups) <= 12


def test_ties_among_identical_blocks_are_broken_the_same_way_every_time():
    """FC-062: 24 identical blocks; the same plan from shuffled work and from one or two workers."""
    first = plan(generated.residual_blocks(24), "a100", workers=1)
    second = plan(generated.residual_blocks(24), "a100", workers=2)
    assert [group.nodes for group in first.groups] == [group.nodes for group in second.groups]
    assert first.status == "OPTIMAL"
