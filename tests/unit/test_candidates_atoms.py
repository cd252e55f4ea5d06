"""Reshapes as renamings: the factors of dimensions, worked out by hand."""

import pytest

from fusesolve.candidates.atoms import Atoms, relate_views, same_pairs
from fusesolve.ops import OPS, access_map
from fusesolve.ops.definition import OpKind
from tests.unit.native_program import graph, group, names, program, refusal


def atoms_of(inputs, ops, outputs):
    source = graph(inputs, ops, outputs)
    atoms = Atoms(source)
    for node in source.nodes:
        if OPS[node.op].kind is not OpKind.VIEW:
            for left, right in same_pairs(node, access_map(source, node)):
                assert atoms.join(left, right)
    views = [node for node in source.nodes if OPS[node.op].kind is OpKind.VIEW]
    return atoms, relate_views(source, views, atoms)


def test_heads_split_off_the_width():
    """[8, 512, 768] as [4096, 12, 64]: 4096 is 8 x 512, and 768 is 12 x 64."""
    atoms, barriers = atoms_of(
        ["x: f32[8,512,768]"], ["a = exp(x)", "r = reshape(a; to=4096-12-64)", "y = exp(r)"], ["y"]
    )
    assert barriers == set()
    assert atoms.sizes(("r", 0)) == (8, 512)
    assert atoms.sizes(("a", 2)) == (12, 64)
    assert atoms.sizes(("a", 1)) == (512,)
    assert atoms.sizes(("r", 2)) == (64,)


def test_extents_of_one_have_no_atoms():
    atoms, barriers = atoms_of(["x: f32[1,6]"], ["a = exp(x)", "r = reshape(a; to=6-1-1)", "y = exp(r)"], ["y"])
    assert barriers == set()
    assert (atoms.sizes(("a", 0)), atoms.sizes(("a", 1)), atoms.sizes(("r", 1))) == ((), (6,), ())


def test_boundaries_that_cross_make_a_barrier():
    """[6, 4] as [8, 3]: 4 and 3 are inner products of 24 of which neither divides the other."""
    _, barriers = atoms_of(["x: f32[6,4]"], ["a = exp(x)", "r = reshape(a; to=8-3)", "y = exp(r)"], ["y"])
    assert barriers == {"r"}


def test_views_in_a_row_refine_one_another():
    """[24] as [4, 6] as [2, 12]: factors 2, 2, 6 everywhere."""
    atoms, barriers = atoms_of(
        ["x: f32[24]"], ["a = exp(x)", "r = reshape(a; to=4-6)", "s = reshape(r; to=2-12)", "y = exp(s)"], ["y"]
    )
    assert barriers == set()
    assert atoms.sizes(("a", 0)) == (2, 2, 6)
    assert atoms.sizes(("r", 0)) == (2, 2)
    assert atoms.sizes(("s", 1)) == (2, 6)


def test_dimensions_that_are_indexed_alike_share_their_factors():
    """b is added to the flat form, so it is cut where the split form is cut."""
    atoms, _ = atoms_of(
        ["x: f32[32,768]", "b: f32[768]"], ["a = add(x, b)", "r = reshape(a; to=32-12-64)", "y = exp(r)"], ["y"]
    )
    assert atoms.sizes(("b", 0)) == (12, 64)
    assert atoms.sizes(("x", 1)) == (12, 64)


def test_tensors_without_elements_are_never_renamed():
    _, barriers = atoms_of(["x: f32[0,6]"], ["a = exp(x)", "r = reshape(a; to=6-0)", "y = exp(r)"], ["y"])
    assert barriers == {"r"}


def test_views_cost_nothing_and_are_no_operators():
    found = program(["x: f32[8,64]"], ["a = exp(x)", "r = reshape(a; to=8-8-8)", "y = relu(r)"], ["y"])
    assert len(found.operators) == 2
    assert names(found, [read.storage for read in found.operators[1].reads]) == ["a"]
    assert group(found, "a", "y").workload.read_bytes == 8 * 64 * 4


@pytest.mark.parametrize("view", ["reshape(a; to=4-8-16)", "reshape(a; to=32-1-16)", "unsqueeze(a; axis=1)"])
def test_a_view_between_two_operators_does_not_part_them(view):
    found = program(["x: f32[32,16]"], ["a = exp(x)", f"r = {view}", "y = relu(r)"], ["y"])
    assert group(found, "a", "y").workload.write_bytes == 32 * 16 * 4


def test_a_view_that_cuts_across_parts_them():
    ops = ["a = exp(x)", "m = reduce_sum(a; axis=1)", "r = reshape(a; to=800-30)", "y = mul(r, b)"]
    found = program(["x: f32[600,40]", "b: f32[30]"], ops, ["y", "m"])
    assert refusal(found, "a", "y") == "carried-edge"
