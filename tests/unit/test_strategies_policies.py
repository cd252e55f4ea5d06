"""Each policy on graphs small enough to follow its published rules by hand."""

from itertools import product

import pytest

from fusesolve.strategies import POLICIES
from tests.unit.policy_graphs import LINEAR, SOFTMAX, TWO_MATMULS, context_of, named, names

ONE = ("mx sb ex sm dv",)
SOFTMAX_GROUPS = {
    "greedy": ONE, "dp": ONE, "mincut": ONE, "xla": ONE, "inductor": ONE, "nvfuser": ONE, "welder": ONE, "iree": ONE,
    # a maximum is never a producer; ex has two readers whose post-dominator dv lies behind the reduction sm
    "tvm": ("mx", "sb ex", "sm", "dv"),
    # ex is computed again in both readers: its body reads two buffers (x, mx) and holds no reduction
    "tinygrad": ("mx", "sb ex sm", "sb ex dv"),
}  # fmt: skip
WHOLE = ("mm biased act",)
LINEAR_GROUPS = {
    "greedy": WHOLE, "dp": WHOLE, "mincut": WHOLE, "welder": WHOLE, "tvm": WHOLE, "tinygrad": WHOLE, "iree": WHOLE,
    "xla": ("mm biased", "act"),  # the library call takes the addition
    "inductor": ("mm", "biased act"),  # contractions are library calls
    "nvfuser": ("mm", "biased act"),
}  # fmt: skip


def test_the_cases_name_every_policy():
    assert set(SOFTMAX_GROUPS) == set(LINEAR_GROUPS) == set(POLICIES)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_decomposed_softmax(policy):
    context = context_of(SOFTMAX)
    assert named(context, POLICIES[policy](context)) == names(*SOFTMAX_GROUPS[policy])


@pytest.mark.parametrize("policy", POLICIES)
def test_a_contraction_with_bias_and_activation(policy):
    context = context_of(LINEAR)
    assert named(context, POLICIES[policy](context)) == names(*LINEAR_GROUPS[policy])


@pytest.mark.parametrize("policy", POLICIES)
def test_contractions_never_share_a_group(policy):
    context = context_of(TWO_MATMULS)
    groups = named(context, POLICIES[policy](context))
    assert not any({"m1", "m2"} <= group for group in groups)
    assert frozenset().union(*groups) == {"m1", "r", "m2"}


TWO_FOLDS = {
    "inputs": ["x: f32[512,2048]"],
    "ops": ["e = exp(x)", "rows = reduce_sum(e; axis=1)", "cols = reduce_sum(e; axis=0)"],
    "outputs": ["rows", "cols"],
}


@pytest.mark.parametrize("policy", ["xla", "tinygrad"])
def test_a_producer_goes_into_all_its_users(policy):
    context = context_of(TWO_FOLDS)
    assert named(context, POLICIES[policy](context)) == names("e rows", "e cols")


def test_inductor_inlines_at_lowering_and_then_fuses_where_sizes_agree():
    """Both reductions hold their own exp; (512, 2048) and (2048, 512) are different sizes, so they stay apart."""
    context = context_of(TWO_FOLDS)
    assert named(context, POLICIES["inductor"](context)) == names("e rows", "e cols")


def test_inductor_gives_a_value_with_several_users_a_buffer_above_four_reads():
    def sums(count):
        inputs = [f"x{i}: f32[1024,1024]" for i in range(count + 1)]
        ops = ["s1 = add(x0, x1)", *(f"s{i} = add(s{i - 1}, x{i})" for i in range(2, count + 1))]
        tail = [f"rows = reduce_sum(s{count}; axis=1)", f"cols = reduce_max(s{count}; axis=0)"]
        context = context_of({"inputs": inputs, "ops": [*ops, *tail], "outputs": ["rows", "cols"]})
        return named(context, POLICIES["inductor"](context))

    assert sums(3) == names("s1 s2 s3 rows", "s1 s2 s3 cols")  # four reads: computed twice
    # five reads: a buffer; the nearer reduction fuses with it, the other one folds another axis
    assert sums(4) == names("s1 s2 s3 s4 rows", "cols")


@pytest.mark.parametrize(("policy", "limit"), [("iree", 16), ("xla", 96)])
def test_operand_limits(policy, limit):
    """A sum of more tensors than operands are allowed takes more than one group, each within the limit."""
    count = limit + 4
    inputs = [f"x{i}: f32[1024,1024]" for i in range(count)]
    ops = ["s1 = add(x0, x1)", *(f"s{i} = add(s{i - 1}, x{i})" for i in range(2, count))]
    context = context_of({"inputs": inputs, "ops": ops, "outputs": [f"s{count - 1}"]})
    groups = POLICIES[policy](context)
    assert len(groups) > 1
    for members in groups:
        reads, writes = context.touched(members)
        assert len(reads) + len(writes) <= limit


def test_tvm_fuses_no_more_than_its_depth():
    ops = ["a1 = exp(x)", *(f"a{i} = neg(a{i - 1})" for i in range(2, 301))]
    context = context_of({"inputs": ["x: f32[64]"], "ops": ops, "outputs": ["a300"]})
    groups = POLICIES["tvm"](context)
    assert max(map(len, groups)) <= 256 and sorted(m for g in groups for m in g) == list(range(300))
    assert len(groups) == 2


def test_tvm_never_puts_an_output_inside():
    context = context_of({"inputs": ["x: f32[1024]"], "ops": ["a = exp(x)", "b = neg(a)"], "outputs": ["a", "b"]})
    assert named(context, POLICIES["tvm"](context)) == names("a", "b")


def test_welder_keeps_nothing_that_is_also_needed_outside():
    context = context_of({"inputs": ["x: f32[1024,1024]"], "ops": ["a = exp(x)", "b = neg(a)"], "outputs": ["a", "b"]})
    assert named(context, POLICIES["welder"](context)) == names("a", "b")
    assert named(context, POLICIES["greedy"](context)) == names("a b")  # which is one kernel with two results


UPCAST = {
    "inputs": ["x: f16[512,2048]"],
    "ops": ["w = cast(x; to=f32)", "rows = reduce_sum(w; axis=1)", "cols = reduce_sum(w; axis=0)"],
    "outputs": ["rows", "cols"],
}


def test_nvfuser_copies_widening_casts():
    context = context_of(UPCAST)
    assert named(context, POLICIES["nvfuser"](context)) == names("w rows", "w cols")


def test_iree_copies_widening_casts_that_stand_alone():
    context = context_of(UPCAST)
    assert named(context, POLICIES["iree"](context)) == names("w rows", "w cols")


def test_iree_takes_one_consumer_at_a_time():
    """The row sum has two readers, so its region ends there; each reader is a region of its own."""
    ops = ["s = reduce_sum(x; axis=1, keepdims=true)", "a = mul(x, s)", "b = sub(y, s)"]
    context = context_of({"inputs": ["x: f32[512,512]", "y: f32[512,512]"], "ops": ops, "outputs": ["a", "b"]})
    assert named(context, POLICIES["iree"](context)) == names("s", "a", "b")


def test_mincut_cuts_where_the_fewest_bytes_cross():
    """The f16 copy is half as wide as the f32 result: the cut is behind the cast."""
    ops = ["m1 = matmul(x, w1)", "narrow = cast(m1; to=f16)", "m2 = matmul(narrow, w2)"]
    inputs = ["x: f32[512,512]", "w1: f32[512,512]", "w2: f16[512,512]"]
    context = context_of({"inputs": inputs, "ops": ops, "outputs": ["m2"]})
    assert named(context, POLICIES["mincut"](context)) == names("m1 narrow", "m2")
    ops = ["m1 = matmul(x, w1)", "wide = cast(m1; to=f32)", "m2 = matmul(wide, w2)"]
    inputs = ["x: f16[512,512]", "w1: f16[512,512]", "w2: f32[512,512]"]
    context = context_of({"inputs": inputs, "ops": ops, "outputs": ["m2"]})
    assert named(context, POLICIES["mincut"](context)) == names("m1", "wide m2")


def test_xla_merges_contractions_of_one_operand_and_then_gives_them_no_epilogue():
    ops = ["q = matmul(x, wq)", "k = matmul(x, wk)", "qb = add(q, bq)", "y = mul(qb, k)"]
    inputs = ["x: f16[512,512]", "wq: f16[512,512]", "wk: f16[512,512]", "bq: f16[512]"]
    context = context_of({"inputs": inputs, "ops": ops, "outputs": ["y"]})
    assert named(context, POLICIES["xla"](context)) == names("q k", "qb y")


def test_xla_joins_siblings_that_walk_the_same_tensor():
    ops = ["a = reduce_sum(x; axis=1)", "b = reduce_max(x; axis=1)"]
    context = context_of({"inputs": ["x: f32[512,512]"], "ops": ops, "outputs": ["a", "b"]})
    assert named(context, POLICIES["xla"](context)) == names("a b")


def test_a_mean_is_no_producer_of_a_broadcast_in_xla_unless_it_normalises():
    """c = x - mean(x) is a normalisation; y - mean(x) would compute the mean again for every element."""
    head = {"inputs": ["x: f32[512,512]", "y: f32[512,512]"], "outputs": ["c"]}
    mean = "m = reduce_mean(x; axis=1, keepdims=true)"
    context = context_of({**head, "ops": [mean, "c = sub(x, m)"]})
    assert named(context, POLICIES["xla"](context)) == names("m c")


def cuts(count):
    """All ways to cut a chain of `count` operators."""
    for marks in product((False, True), repeat=count - 1):
        groups, start = [], 0
        for place, cut in enumerate((*marks, True), 1):
            if cut:
                groups.append(tuple(range(start, place)))
                start = place
        yield groups


def test_dp_is_optimal_on_a_chain():
    """Seven operators, 64 partitions, all priced."""
    ops = ["m = matmul(x, w)", "a = add(m, b)", "s = reduce_max(a; axis=1, keepdims=true)", "e = exp(s)",
           "g = broadcast(e; to=1024-512)", "t = tanh(g)", "n = neg(t)"]  # fmt: skip
    inputs = ["x: f16[1024,512]", "w: f16[512,512]", "b: f16[512]"]
    context = context_of({"inputs": inputs, "ops": ops, "outputs": ["n"]})

    def cost(groups):
        parts = context.costs(groups)
        return None if None in parts else sum(parts)

    totals = [total for groups in cuts(7) if (total := cost(groups)) is not None]
    assert len(totals) > 3
    assert cost(POLICIES["dp"](context)) == min(totals)


@pytest.mark.parametrize("policy", POLICIES)
def test_an_opaque_operator_is_alone(policy):
    ops = ["a = exp(x)", "o = opaque_sort(a) : f32[1024]", "b = neg(o)"]
    context = context_of({"inputs": ["x: f32[1024]"], "ops": ops, "outputs": ["b"]})
    assert named(context, POLICIES[policy](context)) == names("a", "o", "b")


@pytest.mark.parametrize("policy", POLICIES)
def test_one_operator_is_one_group(policy):
    context = context_of({"inputs": ["x: f32[1024]"], "ops": ["a = exp(x)"], "outputs": ["a"]})
    assert POLICIES[policy](context) == [(0,)]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_graph_of_views_alone_has_no_groups(policy):
    context = context_of({"inputs": ["x: f32[6,4]"], "ops": ["y = reshape(x; to=4-6)"], "outputs": ["y"]})
    assert POLICIES[policy](context) == []
