"""Rules that exclude each other: the core is minimal, and the least limits are right, on a chain of three operators."""

from fusesolve.solve import Column, PartitionProblem
from fusesolve.solve.core import Least, Rule, find_core, least_kernels, least_live


def column(members: tuple[int, ...], reads: tuple[int, ...], writes: tuple[int, ...]) -> Column:
    return Column(members=members, reads=reads, writes=writes, cost=10, tie=sum(members), full=True)


# Operators 0 -> 1 -> 2, values of 4, 6 and 0 bytes (the last is a result, in memory throughout). Columns by position:
# 0, 1, 2 alone; 3 = {0, 1}; 4 = {1, 2}. All three operators never share a kernel, so every plan has two or three.
CHAIN = PartitionProblem(
    n_ops=3, n_values=3, required=frozenset({2}), producer=(0, 1, 2), recompute=False, live_bytes=(4, 6, 0),
    columns=(
        column((0,), (), (0,)), column((1,), (0,), (1,)), column((2,), (1,), (2,)),
        column((0, 1), (), (1,)), column((1, 2), (0,), (2,)),
    ),
)  # fmt: skip
NO_FIRST_PAIR, NO_SECOND_PAIR = Rule(banned=frozenset({3})), Rule(banned=frozenset({4}))


def test_rules_that_leave_a_plan_have_no_core() -> None:
    assert find_core(CHAIN, [NO_FIRST_PAIR, Rule(max_kernels=2), Rule(max_live=4)]) == ()


def test_a_core_leaves_out_the_rules_that_do_not_matter() -> None:
    # without both pairs three kernels are left: two pins against a limit of two; the limit of 3 and 100 bytes are idle
    rules = [Rule(max_kernels=3), NO_FIRST_PAIR, Rule(max_live=100), NO_SECOND_PAIR, Rule(max_kernels=2)]
    assert find_core(CHAIN, rules) == (1, 3, 4)


def test_one_rule_alone_is_a_core() -> None:
    assert find_core(CHAIN, [Rule(max_live=100), Rule(max_kernels=1), NO_FIRST_PAIR]) == (1,)


def test_memory_excludes_columns_and_orders() -> None:
    # 4 bytes are live between {0} and {1, 2}, 6 between {0, 1} and {2}, 10 while {1} runs alone
    assert find_core(CHAIN, [Rule(max_live=3)]) == (0,)
    assert find_core(CHAIN, [NO_SECOND_PAIR, Rule(max_live=5)]) == (0, 1)
    assert find_core(CHAIN, [NO_SECOND_PAIR, Rule(max_live=6)]) == ()
    assert find_core(CHAIN, [NO_SECOND_PAIR, NO_FIRST_PAIR, Rule(max_live=9)]) == (0, 1, 2)


def test_memory_that_only_the_order_of_all_kernels_exceeds() -> None:
    # two chains 0 -> 2 and 1 -> 3 that meet in 4: 8 + 8 bytes are made, each is read by its own kernel first
    apart = PartitionProblem(
        n_ops=5, n_values=5, required=frozenset({4}), producer=(0, 1, 2, 3, 4), recompute=False,
        live_bytes=(8, 8, 1, 1, 0),
        columns=(
            column((0,), (), (0,)), column((1,), (), (1,)), column((2,), (0,), (2,)), column((3,), (1,), (3,)),
            column((4,), (2, 3), (4,)),
        ),
    )  # fmt: skip
    assert least_live(apart) == Least(proven=10, enough=10)
    assert find_core(apart, [Rule(max_live=9)]) == (0,)
    assert find_core(apart, [Rule(max_live=10)]) == ()


def test_least_limits_are_proven() -> None:
    assert least_kernels(CHAIN) == Least(proven=2, enough=2)
    assert least_live(CHAIN) == Least(proven=4, enough=4)
