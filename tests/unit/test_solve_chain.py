"""The longest chain of waits, by hand."""

from dataclasses import replace

from fusesolve.solve.chain import longest_chain
from fusesolve.solve.problem import Column, PartitionProblem


def column(members, reads, writes, cost, *, full=True):
    return Column(members=members, reads=reads, writes=writes, cost=cost, tie=0, full=full)


#      0 -> 1 -> 3
#        -> 2 ->     each operator makes the value of its number
ALONE = (
    column((0,), (), (0,), 5), column((1,), (0,), (1,), 7), column((2,), (0,), (2,), 4),
    column((3,), (1, 2), (3,), 6),
)  # fmt: skip


def problem(*columns, recompute=True, required=(3,)):
    return PartitionProblem(
        n_ops=4, n_values=4, columns=columns, required=frozenset(required), producer=(0, 1, 2, 3), recompute=recompute
    )


def test_branches_count_once():
    assert longest_chain(problem(*ALONE)) == 5 + 7 + 6


def test_the_faster_kernel_of_a_value_counts():
    both = column((0, 1), (), (0, 1), 9)  # 9 instead of 5 + 7 for value 1; value 0 is there after 5
    assert longest_chain(problem(*ALONE, both)) == 9 + 6


def test_kernels_that_keep_a_value_back_need_recomputation():
    part = column((0, 1), (), (1,), 6, full=False)
    assert longest_chain(problem(*ALONE, part)) == max(6, 5 + 4) + 6
    assert longest_chain(problem(*ALONE, part, recompute=False)) == 18


def test_only_what_is_required_counts():
    assert longest_chain(problem(*ALONE, required=(2,))) == 9
    assert longest_chain(replace(problem(*ALONE), required=frozenset())) == 0


def test_nothing_is_claimed_where_a_value_cannot_be_made():
    assert longest_chain(problem(*ALONE[1:])) == 0
