"""Every rule refuses what it is for, with its numbers, and lets its neighbour pass."""

import pytest

from fusesolve.group import GroupFacts, Refusal, Template
from fusesolve.legality import (
    LIMIT_RULES,
    MEMBER_LIMIT,
    STRUCTURE_RULES,
    allowed,
    check_structure,
    explain_limits,
    may_grow,
)
from tests.unit.cost_device import GPU, NPU
from tests.unit.native_program import group, inspect, program, refusal

ROWS = ["x: f32[64,128]"]


def test_a_legal_group_breaks_no_rule():
    assert check_structure(GroupFacts(size=3)) is None
    assert may_grow(GroupFacts(size=3))


def test_operators_without_an_edge_between_them():
    found = program(ROWS, ["a = exp(x)", "b = relu(x)"], ["a", "b"])
    assert refusal(found, "a", "b") == "connected"


def test_an_opaque_operator_runs_alone():
    found = program(ROWS, ["a = exp(x)", "b = opaque(a) : f32[64,128]", "c = relu(b)"], ["c"])
    assert refusal(found, "a", "b") == refusal(found, "b", "c") == "opaque-alone"
    assert group(found, "b").template is Template.OPAQUE


def test_a_group_has_a_most_number_of_members():
    ops = [f"v{i} = tanh({f'v{i - 1}' if i else 'x'})" for i in range(MEMBER_LIMIT + 1)]
    found = program(ROWS, ops, [f"v{MEMBER_LIMIT}"])
    every = [f"v{i}" for i in range(MEMBER_LIMIT + 1)]
    assert refusal(found, *every) == "member-limit"
    assert group(found, *every[:-1]).facts.size == MEMBER_LIMIT
    assert isinstance(answer := inspect(found, *every), Refusal)
    assert (answer.need, answer.limit) == (MEMBER_LIMIT + 1, MEMBER_LIMIT)


def test_an_index_that_depends_on_data_carries_no_edge():
    found = program([*ROWS, "i: i64[32]"], ["a = exp(x)", "b = gather(a, i; axis=0)", "c = relu(b)"], ["c"])
    assert refusal(found, "a", "b") == "carried-edge"
    assert group(found, "b", "c")  # what is gathered may be worked on at once


def test_a_reshape_whose_boundaries_do_not_nest_carries_no_edge():
    ops = ["a = exp(x)", "r = reshape(a; to=800-30)", "s = reduce_sum(r; axis=1)", "m = reduce_sum(a; axis=1)"]
    found = program(["x: f32[600,40]"], ops, ["s", "m"])
    assert refusal(found, "a", "s") == "carried-edge"
    nested = program(
        ["x: f32[64,128]"], ["a = exp(x)", "r = reshape(a; to=64-8-16)", "s = reduce_sum(r; axis=2)"], ["s"]
    )
    assert group(nested, "a", "s")


def test_a_matrix_and_its_own_transpose_need_two_loops():
    found = program(["x: f32[64,64]"], ["a = exp(x)", "t = transpose(a)", "b = add(a, t)"], ["b"])
    assert refusal(found, "a", "t", "b") == "one-loop-per-dimension"
    assert group(found, "t", "b")


def test_two_contractions_are_two_kernels():
    found = program(
        ["x: f16[64,128]", "v: f16[128,128]", "w: f16[128,128]"],
        ["a = matmul(x, v)", "b = relu(a)", "c = matmul(b, w)"], ["c"],
    )  # fmt: skip
    assert refusal(found, "a", "b", "c") == "one-contraction"
    assert group(found, "a", "b")
    assert group(found, "b", "c")


def test_a_row_reduction_does_not_share_the_kernel_of_a_contraction():
    found = program(["x: f16[64,128]", "w: f16[128,128]"], ["a = matmul(x, w)", "s = reduce_sum(a; axis=1)"], ["s"])
    assert refusal(found, "a", "s") == "reduction-beside-contraction"


def test_reductions_over_different_axes_are_apart():
    found = program(ROWS, ["a = exp(x)", "s = reduce_sum(a; axis=0)", "r = reduce_sum(a; axis=1)"], ["s", "r"])
    assert refusal(found, "a", "r", "s") == "one-reduction-space"
    assert group(found, "a", "s")


def test_a_group_has_one_iteration_space():
    """The sum of each row, then an outer product of the sums: two dimensions that are not those of the row."""
    ops = ["s = reduce_sum(x; axis=1)", "a = reshape(s; to=64-1)", "b = add(a, y)"]
    found = program(["x: f32[64,128]", "y: f32[64,32]"], ops, ["b"])
    assert refusal(found, "b", "s") == "one-iteration-space"


def joined(branches: int, depth: int = 1) -> tuple[list[str], list[str], list[str]]:
    """Inputs and operators of a concat of chains, and the results of the chains' operators."""
    ops, made = [], []
    for i in range(branches):
        for level in range(depth):
            ops.append(f"v{i}_{level} = exp({f'v{i}_{level - 1}' if level else f'x{i}'})")
            made.append(f"v{i}_{level}")
    ops.append(f"y = concat({', '.join(f'v{i}_{depth - 1}' for i in range(branches))}; axis=1)")
    return [f"x{i}: f32[64,32]" for i in range(branches)], ops, made


def test_the_branches_of_a_concat_are_computed_in_place_up_to_a_limit():
    inputs, ops, made = joined(4, depth=2)
    found = program(inputs, ops, ["y"])
    assert refusal(found, "y", *made) == "in-place-limit"
    inputs, ops, made = joined(3, depth=2)
    assert group(program(inputs, ops, ["y"]), "y", *made)


def test_a_concat_of_many_sources_takes_its_branches_and_is_written():
    """Each element of the result tests every boundary: its readers do not test them again."""
    inputs, ops, made = joined(8)
    found = program(inputs, [*ops, "z = relu(y)"], ["z"])
    assert group(found, "y", *made)
    assert refusal(found, "y", "z") == "carried-edge"


def test_fewer_operators_are_computed_in_place_in_front_of_a_contraction():
    inputs, ops, made = joined(3)
    found = program([*inputs, "w: f32[96,64]"], [*ops, "z = matmul(y, w)"], ["z"])
    assert refusal(found, *made, "y", "z") == "in-place-beside-contraction"
    assert group(found, *made[1:], "y", "z")


def test_what_is_never_whole_in_the_kernel_is_not_written_by_it():
    found = program(["x: f16[64,128]", "w: f16[128,128]"], ["p = exp(x)", "y = matmul(p, w)"], ["y", "p"])
    assert refusal(found, "p", "y") == "interior-write"
    alone = program(["x: f16[64,128]", "w: f16[128,128]"], ["p = exp(x)", "y = matmul(p, w)"], ["y"])
    assert group(alone, "p", "y")


GOOD = {
    "threads": 256.0, "block_registers": 16_384.0, "shared_bytes": 4096.0, "missing_blocks": 0.0,
    "argument_bytes": 128.0, "barriers": 1.0, "blocks": 1000.0,
}  # fmt: skip
TOO_MUCH = {
    "threads-per-block": ("threads", 1056.0, 1024.0),
    "registers-per-block": ("block_registers", 65_537.0, 65_536.0),
    "shared-memory-per-block": ("shared_bytes", 131_073.0, 131_072.0),
    "resident-block": ("missing_blocks", 1.0, 0.0),
    "argument-bytes": ("argument_bytes", 4097.0, 4096.0),
    "grid": ("blocks", 2.0**31, 2.0**31 - 1),
}


def test_resources_within_the_limits_are_allowed():
    assert bool(allowed(GOOD, GPU))
    assert explain_limits(GOOD, GPU) == ()


@pytest.mark.parametrize("rule", TOO_MUCH)
def test_a_limit_refuses_one_too_many_and_names_its_numbers(rule):
    resource, need, limit = TOO_MUCH[rule]
    bad = GOOD | {resource: need}
    assert not allowed(bad, GPU)
    (found,) = explain_limits(bad, GPU)
    assert (found.rule, found.need, found.limit) == (rule, need, limit)
    assert f"{limit:g}" in found.message
    assert found.lever
    assert bool(allowed(GOOD | {resource: limit}, GPU))


def test_a_device_without_a_limit_does_not_refuse_by_it():
    """The made-up GPU counts no barriers; an NPU has a scratchpad and nothing else of a GPU's limits."""
    assert bool(allowed(GOOD | {"barriers": 99.0}, GPU))
    assert bool(allowed(GOOD | {"threads": 1e6, "argument_bytes": 1e6, "blocks": 2.0**40}, NPU))
    (found,) = explain_limits(GOOD | {"shared_bytes": 1_000_001.0}, NPU)
    assert found.rule == "shared-memory-per-block"


def test_the_tables_are_complete_and_speak_for_themselves():
    names = [rule.name for rule in (*STRUCTURE_RULES, *LIMIT_RULES)]
    assert len(set(names)) == len(names)
    for rule in (*STRUCTURE_RULES, *LIMIT_RULES):
        assert rule.doc.endswith(".")
        assert rule.lever
    provoked = set(TOO_MUCH) | {"barriers"}
    assert {rule.name for rule in LIMIT_RULES} == provoked


def test_growth_stops_at_hereditary_rules_only():
    assert not may_grow(GroupFacts(size=2, blocked=1))
    assert may_grow(GroupFacts(size=2, interior_writes=1))
    assert check_structure(GroupFacts(size=2, interior_writes=1)).rule == "interior-write"


def test_one_block_does_what_no_loops_carry_where_it_is_small():
    """A gather of computed values and sums over different axes: 3 x 5 points in one block, 64 x 128 in none."""
    ops = ["e = exp(z)", "s = reduce_sum(e; axis=1, keepdims=true)", "l = sub(z, s)",
           "p = gather_elements(l, t; axis=1)", "y = reduce_sum(p; axis=0-1)"]  # fmt: skip
    small = program(["z: f32[3,5]", "t: i64[3,1]"], ops, ["y"])
    found = group(small, "e", "s", "l", "p", "y")
    assert (found.template, found.facts.one_block) == (Template.BLOCK, True)
    assert found.workload.kept_bytes == 4 * (3 + 1)
    large = program(["z: f32[64,128]", "t: i64[64,1]"], ops, ["y"])
    assert refusal(large, "e", "s", "l", "p", "y") == "carried-edge"
    product = program(["z: f32[4,4]"], ["m = matmul(z, z)", "s = reduce_sum(m; axis=1)"], ["s"])
    assert refusal(product, "m", "s") == "reduction-beside-contraction"
