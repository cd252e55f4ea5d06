"""Index arithmetic against plain integers."""

from itertools import product
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusesolve.codegen.affine import ZERO, Affine, Var, flatten, number, split, strides, variable

A, B, C = Var("a", 4), Var("b", 3), Var("c", 5)


def value(expression, **at):
    return expression.const + sum(coef * at[var.name] for var, coef in expression.terms)


def test_sums_collect_terms_and_drop_zeros():
    total = variable(A).scaled(3) + variable(B) + variable(A).scaled(-3).shifted(7)
    assert total == variable(B).shifted(7)


def test_bounds_are_reached():
    expression = variable(A).scaled(3) + variable(B).scaled(-2).shifted(1)
    values = [value(expression, a=a, b=b) for a, b in product(range(4), range(3))]
    assert (expression.low, expression.high) == (min(values), max(values)) == (-3, 10)


def test_a_variable_of_one_value_is_zero():
    assert variable(Var("x", 1)) == ZERO == number(0)


def test_strides_are_row_major():
    assert strides((4, 3, 5)) == (15, 5, 1) and strides(()) == ()


def test_a_reshape_that_nests_splits():
    flat = flatten((variable(A), variable(B), variable(C)), (4, 3, 5))
    assert split(flat, (12, 5)) == (variable(A).scaled(3) + variable(B), variable(C))
    assert split(flat, (4, 15)) == (variable(A), variable(B).scaled(5) + variable(C))


def test_a_reshape_that_cuts_across_does_not_split():
    flat = flatten((variable(A), variable(B)), (4, 3))
    assert split(flat, (6, 2)) is None


def test_negative_terms_do_not_split():
    assert split(variable(A).scaled(-1).shifted(3), (4,)) is None


@st.composite
def reshapes(draw):
    parts = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    cuts = draw(st.lists(st.booleans(), min_size=len(parts) - 1, max_size=len(parts) - 1))
    shape, size = [], parts[0]
    for part, cut in zip(parts[1:], cuts, strict=True):
        shape, size = ([*shape, size], part) if cut else (shape, size * part)
    return parts, [*shape, size]


@given(reshapes())
@settings(max_examples=200, deadline=None)
def test_splitting_is_exact_at_every_point(case):
    parts, shape = case
    names = [Var(f"v{n}", extent) for n, extent in enumerate(parts)]
    flat = flatten([variable(var) for var in names], parts)
    found = split(flat, shape)
    assert found is not None
    for position, point in enumerate(product(*(range(extent) for extent in parts))):
        at = {var.name: x for var, x in zip(names, point, strict=True)}
        index = [value(part, **at) for part in found]
        assert all(0 <= i < extent for i, extent in zip(index, shape, strict=True))
        assert sum(i * prod(shape[n + 1 :]) for n, i in enumerate(index)) == position


@given(st.lists(st.integers(1, 12), min_size=1, max_size=3), st.integers(0, 3), st.integers(1, 3))
@settings(max_examples=200, deadline=None)
def test_a_split_never_lies(shape, shift, scale):
    """Whatever is split is the same position, inside the shape."""
    names = [Var("x", 4), Var("y", 3)]
    flat = variable(names[0]).scaled(scale * 3) + variable(names[1]).scaled(scale).shifted(shift)
    found = split(flat, shape)
    if found is None:
        return
    for x, y in product(range(4), range(3)):
        index = [value(part, x=x, y=y) for part in found]
        assert all(0 <= i < extent for i, extent in zip(index, shape, strict=True))
        assert sum(i * step for i, step in zip(index, strides(shape), strict=True)) == value(flat, x=x, y=y)


@pytest.mark.parametrize(("expression", "high"), [(Affine(), 0), (number(5), 5)])
def test_constants_bound_themselves(expression, high):
    assert expression.low == expression.high == high
