"""Plans under a limit on live memory: against exhaustive search, and the order search against all permutations."""

import random
from dataclasses import replace
from itertools import permutations

import pytest

from fusesolve.solve import Column, PartitionProblem
from fusesolve.solve.memory import Fit, Need, arrange, needs_of, peak_of, shrink
from tests.property.test_solver_exact import assert_exact, make_problem


def limited(seed: int, *, recompute: bool) -> PartitionProblem:
    """A random problem whose limit lies between the largest single kernel and everything at once."""
    rng = random.Random(seed)
    problem = make_problem(seed, recompute=recompute, max_size=6)
    sizes = tuple(rng.choice((0, 1, 2, 3, 5, 8)) for _ in range(problem.n_values))
    limit = rng.randint(0, max(1, 2 * sum(sizes) // 3))
    return replace(problem, live_bytes=sizes, max_live=limit)


@pytest.mark.parametrize("recompute", [False, True])
def test_cpsat_equals_exhaustive_search_under_a_memory_limit(recompute: bool) -> None:
    for seed in range(5000, 5080):
        assert_exact(limited(seed, recompute=recompute))


@pytest.mark.parametrize("recompute", [False, True])
def test_cpsat_equals_exhaustive_search_under_limits_on_memory_and_kernels(recompute: bool) -> None:
    for seed in range(6000, 6030):
        assert_exact(replace(limited(seed, recompute=recompute), max_kernels=1 + seed % 4))


def random_needs(rng: random.Random) -> list[Need]:
    """Up to six kernels of a random DAG of values; some values have two writers, some none."""
    needs = []
    for step in range(rng.randint(1, 6)):
        reads = frozenset(value for value in range(step) if rng.random() < 0.4)
        writes = frozenset({step}) | (frozenset({step - 1}) if step and rng.random() < 0.2 else frozenset())
        needs.append(Need(reads=reads - writes, writes=writes if rng.random() < 0.9 else frozenset()))
    return needs


def least_peak_by_permutation(needs: list[Need], sizes: list[int]) -> int | None:
    """The least peak over all orders that write a value before it is read, where a kernel here writes it."""
    columns = [
        Column(members=(0,), reads=tuple(sorted(n.reads)), writes=tuple(sorted(n.writes)), cost=1, tie=0, full=True)
        for n in needs
    ]
    peaks = []
    for order in permutations(columns):
        written: set[int] = set()
        for column in order:
            waits = [v for v in column.reads if v not in written and any(v in other.writes for other in columns)]
            if waits:
                break
            written.update(column.writes)
        else:
            peaks.append(peak_of(order, sizes))
    return min(peaks, default=None)


def test_the_search_for_an_order_equals_all_permutations() -> None:
    rng = random.Random(7)
    for _ in range(150):
        needs = random_needs(rng)
        sizes = [rng.randint(0, 6) for _ in range(7)]
        least = least_peak_by_permutation(needs, sizes)
        if least is None:
            continue
        assert arrange(needs, sizes, least - 1).fit is Fit.NEVER
        found = arrange(needs, sizes, least)
        assert found.fit is Fit.FITS and sorted(found.order) == list(range(len(needs)))


def test_a_search_that_is_given_up_says_so() -> None:
    # six values of 1 byte; two kernels read four of them each, share two, and make what a last one reads: with one of
    # the two results still live, the other kernel needs 4 + 1 + 1 bytes
    needs = [Need(reads=frozenset(), writes=frozenset({v})) for v in range(6)]
    needs += [
        Need(reads=frozenset(items), writes=frozenset({made})) for items, made in (((0, 1, 2, 3), 6), ((2, 3, 4, 5), 7))
    ]
    needs.append(Need(reads=frozenset({6, 7}), writes=frozenset({8})))
    assert arrange(needs, [1] * 9, 6).fit is Fit.FITS
    assert arrange(needs, [1] * 9, 5).fit is Fit.NEVER
    assert arrange(needs, [1] * 9, 5, nodes=3).fit is Fit.UNKNOWN


def test_a_cut_is_itself_without_an_order_and_small() -> None:
    rng = random.Random(11)
    seen = 0
    for _ in range(150):
        needs = random_needs(rng)
        sizes = [rng.randint(1, 6) for _ in range(7)]
        room = rng.randint(1, 12)
        if arrange(needs, sizes, room).fit is not Fit.NEVER:
            continue
        seen += 1
        cut = shrink(needs, sizes, room)
        assert arrange(cut.needs, sizes, room).fit is Fit.NEVER
        assert len(cut.needs) <= len(needs)
        assert all(any(n.reads <= m.reads and n.writes <= m.writes for m in needs) for n in cut.needs)
        for value in cut.handed:  # or another writer would void the cut
            assert sum(value in n.writes for n in cut.needs) == len({n for n in needs if value in n.writes})
    assert seen > 20


def test_the_order_that_fits_is_taken() -> None:
    # two producers of 10 bytes, each with a reader that makes 1 byte: writing both first needs 20 + 1, one by one 12
    columns = tuple(
        Column(members=(op,), reads=reads, writes=(op,), cost=1, tie=0, full=True)
        for op, reads in enumerate([(), (), (0,), (1,), (2, 3)])
    )
    assert peak_of(columns, [10, 10, 1, 1, 0]) == 21
    found = arrange(needs_of(columns), [10, 10, 1, 1, 0], 12)
    assert found.fit is Fit.FITS
    assert peak_of([columns[i] for i in found.order], [10, 10, 1, 1, 0]) == 12
    assert arrange(needs_of(columns), [10, 10, 1, 1, 0], 11).fit is Fit.NEVER
