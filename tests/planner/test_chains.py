"""Keeping elementwise chains whole loses nothing: the optimum over the smaller space is that over all operators."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusesolve.candidates.pricing import price_space
from fusesolve.candidates.program import build_program
from fusesolve.candidates.space import enumerate_kernels
from fusesolve.cost.table import PriceOptions
from fusesolve.hardware_yaml import load_profile
from fusesolve.pipeline.columns import make_problem
from fusesolve.solve import solve
from tests.property.random_graphs import graphs

KINDS = ("unary", "scale", "binary", "reduce", "cast", "transpose", "slice", "matmul")


def optimum(program, device, *, apart, recompute):
    """Objective in ns with every operator apart, or with chains kept whole."""
    separable = frozenset(range(len(program.operators))) if apart else frozenset()
    space = enumerate_kernels(program, recompute=recompute, separable=separable)
    priced = price_space(space, device, PriceOptions())
    return solve(make_problem(priced, space.kernels, recompute=recompute).problem).objective


@pytest.mark.parametrize("name", ["a100", "mobile-npu"])
@settings(max_examples=25, deadline=None, derandomize=True)
@given(graph=graphs(kinds=KINDS, scale=512), recompute=st.booleans())
def test_chains_kept_whole_do_not_change_the_optimum(name, graph, recompute):
    """Matrices of 2048 x 3072: bytes and launches both matter."""
    program, device = build_program(graph), load_profile(name)
    whole = optimum(program, device, apart=False, recompute=recompute)
    apart = optimum(program, device, apart=True, recompute=recompute)
    assert apart <= whole <= apart * 1.0001
