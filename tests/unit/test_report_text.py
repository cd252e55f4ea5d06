"""Short names of operators, and tables that keep to their width."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusesolve.report.text import Column, render_facts, render_table, short_names


@pytest.mark.parametrize(
    ("names", "width", "shown"),
    [
        (["relu"], 20, "relu"),
        (["/l0/att/MatMul", "/l0/att/Add"], 30, "/l0/att/(MatMul+Add)"),
        (["/l0/att/MatMul", "/l0/att/Add"], 16, "att/(MatMul+Add)"),
        (["/l0/att/MatMul", "/l0/att/Add"], 12, "att/…2"),
        (["/l0/att/MatMul", "/l0/mlp/Add"], 40, "/l0/att/MatMul+/l0/mlp/Add"),
        (["/l0/att/MatMul", "/l0/mlp/Add"], 20, "att/MatMul+mlp/Add"),
        (["ln/sub", "ln/mul", "fc"], 40, "ln/(sub+mul)+fc"),
        (["ln/sub", "ln/mul", "fc"], 10, "ln/…2+fc"),
        (["ln/sub", "ln/mul*", "fc"], 11, "ln/…2*+fc"),
        (["ln", "ln/mul"], 40, "ln+ln/mul"),
        (["a", "b"], 40, "a+b"),
        (["alpha", "beta", "gamma", "delta"], 14, "alpha+beta+…2"),
        (["a_very_long_name_indeed"], 10, "a_very_lo…"),
        (["abcdefgh", "b"], 6, "abcde…"),
        (["/", "a/"], 10, "/+a/a/"),
    ],
)
def test_short_names_by_hand(names, width, shown):
    assert short_names(names, width) == shown


@given(st.lists(st.text(alphabet="ab/._", min_size=1, max_size=12), min_size=1, max_size=9), st.integers(8, 60))
def test_short_names_fit_and_say_something(names, width):
    shown = short_names(names, width)
    assert 0 < len(shown) <= width


def test_a_flexible_column_gives_way_and_the_others_do_not():
    columns = (Column(head="name", flexible=True), Column(head="number", right=True))
    text = render_table(columns, [("n" * 100, "12345")], width=40, colour=False)
    head, row = text.splitlines()
    assert len(row) <= 40
    assert row.endswith("12345")
    assert "…" in row
    assert head.split() == ["name", "number"]


def test_facts_are_aligned_and_wrapped_under_themselves():
    text = render_facts([("a", "one two three " * 6), ("longer", "x")], width=40)
    lines = text.splitlines()
    assert lines[0].startswith("a       one")
    assert all(line.startswith(" " * 8) for line in lines[1:-1])
    assert lines[-1] == "longer  x"
    assert max(map(len, lines)) <= 40
