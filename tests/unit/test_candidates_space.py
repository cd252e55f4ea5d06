"""Choices of writes, chains and the limits of the space, on graphs small enough to list."""

from fusesolve.candidates.grow import chain_units
from fusesolve.candidates.space import enumerate_kernels
from tests.unit.native_program import members, names, program

X = "x: f32[64,128]"


def kernels(found, **options):
    """Kernels as (names of members by their first result, names of writes)."""
    space = enumerate_kernels(found, **options)
    return {
        (
            tuple(names(found, [found.operators[m].writes[0] for m in kernel.members])),
            tuple(names(found, kernel.writes)),
        )
        for kernel in space.kernels
    }


def test_two_operators_are_three_kernels():
    found = program([X], ["a = exp(x)", "y = reduce_sum(a; axis=1)"], ["y"])
    assert kernels(found, recompute=False) == {(("a",), ("a",)), (("y",), ("y",)), (("a", "y"), ("y",))}


def test_with_recomputation_a_shared_value_may_be_left_to_its_other_reader():
    """a is read by r and s, which cannot share a kernel: r's kernel may write a, or leave it to s's."""
    found = program([X], ["a = exp(x)", "r = reduce_sum(a; axis=1)", "s = reduce_sum(a; axis=0)"], ["r", "s"])
    exact, free = kernels(found, recompute=False), kernels(found, recompute=True)
    assert (("a", "r"), ("a", "r")) in exact
    assert (("a", "r"), ("r",)) not in exact
    assert free - exact == {(("a", "r"), ("r",)), (("a", "s"), ("s",))}


def test_a_member_that_feeds_no_written_value_is_left_out():
    """{a, r} writing only a would compute r for nothing: no such kernel."""
    found = program([X], ["a = exp(x)", "r = reduce_sum(a; axis=1)", "s = reduce_sum(a; axis=0)"], ["r", "s"])
    assert (("a", "r"), ("a",)) not in kernels(found, recompute=True)


def test_chains_are_kept_whole_unless_they_are_asked_apart():
    found = program([X], ["a = exp(x)", "b = relu(a)", "c = tanh(b)"], ["c"])
    assert set(chain_units(found, frozenset())) == {(0, 1, 2)}
    whole = kernels(found, recompute=False)
    assert (("a", "b"), ("b",)) not in whole
    assert (("a", "b", "c"), ("c",)) in whole
    assert {(("a",), ("a",)), (("b",), ("b",)), (("c",), ("c",))} <= whole  # alone each is a kernel always
    apart = kernels(found, recompute=False, separable=frozenset(members(found, "b")))
    assert (("a", "b"), ("b",)) in apart


def test_a_chain_ends_where_a_value_is_used_twice_or_delivered_or_widened():
    two_readers = program([X], ["a = exp(x)", "b = relu(a)", "c = mul(a, b)"], ["c"])
    assert (0, 1) not in chain_units(two_readers, frozenset())
    output = program([X], ["a = exp(x)", "b = relu(a)"], ["a", "b"])
    assert set(chain_units(output, frozenset())) == {(0,), (1,)}
    wider = program(["x: f16[64,128]"], ["a = exp(x)", "b = cast(a; to=f32)"], ["b"])
    assert set(chain_units(wider, frozenset())) == {(0,), (1,)}  # writing a moves fewer bytes than writing b


def layers(count):
    ops = []
    for layer in range(count):
        source = "x" if layer == 0 else f"h{layer - 1}"
        ops += [f"m{layer} = matmul({source}, w)", f"r{layer} = relu(m{layer})", f"h{layer} = add(r{layer}, {source})"]
    return program(["x: f16[64,64]", "w: f16[64,64]"], ops, [f"h{count - 1}"], ["w"])


def test_repeated_layers_are_walked_once_and_share_their_workloads():
    few, many = (enumerate_kernels(layers(count), recompute=True) for count in (6, 12))
    assert many.walked == few.walked
    assert len(many.workloads) == len(few.workloads)
    assert len(many.kernels) > 1.8 * len(few.kernels)


def test_a_space_that_runs_out_of_time_still_has_every_operator_and_says_so():
    ops = ["a = exp(x)", "r = reduce_sum(a; axis=1)", "s = reduce_sum(a; axis=0)"]
    found = program([X], ops, ["r", "s"])
    space = enumerate_kernels(found, recompute=False, late=lambda: True)
    assert {kernel.members for kernel in space.kernels if len(kernel.members) == 1} == {(0,), (1,), (2,)}
    assert any("time-limit" in reason for reason in space.cut_by)
    assert enumerate_kernels(found, recompute=False).cut_by == ()


def test_a_graph_without_operators_has_no_kernels():
    found = program([X], ["y = reshape(x; to=128-64)"], ["y"])
    assert enumerate_kernels(found, recompute=True).kernels == ()
