"""Results written back into inputs: what is touched, what runs first, and where neither is possible."""

import pytest

from fusesolve import plan
from tests.unit.native_program import graph, group, members, names, program, refusal

CACHE = ["cache: bf16[8,1024,64; alias_out=new]", "key: bf16[8,1,64]"]
UPDATE = "new = slice_update(cache, key; axis=1, start=1023)"
KEY_BYTES = 8 * 64 * 2


def kernels(inputs, ops, outputs):
    return [group.nodes for group in plan(graph(inputs, ops, outputs), "a100").groups]


def test_an_update_in_place_touches_its_slice():
    found = program(CACHE, [UPDATE], ["new"])
    work = group(found, "new").workload
    assert (work.read_bytes, work.write_bytes) == (KEY_BYTES, KEY_BYTES)
    assert work.inner * work.outer == 8 * 64


def test_an_update_of_a_value_that_must_stay_copies_it():
    found = program(["cache: bf16[8,1024,64]", CACHE[1]], [UPDATE], ["new"])
    whole = 8 * 1024 * 64 * 2
    work = group(found, "new").workload
    assert (work.read_bytes, work.write_bytes) == (whole + KEY_BYTES, whole)


def test_what_makes_the_slice_joins_the_update_and_what_reads_the_result_does_not():
    found = program(CACHE, ["k2 = exp(key)", UPDATE.replace("key", "k2"), "y = relu(new)"], ["y"])
    assert group(found, "k2", "new").workload.read_bytes == KEY_BYTES
    assert refusal(found, "new", "y") == "carried-edge"


def test_updates_of_updates_all_lie_in_the_first_storage():
    ops = ["mid = slice_update(cache, key; axis=1, start=3)", "new = slice_update(mid, key; axis=1, start=5)"]
    found = program(CACHE, ops, ["new"])
    assert [group(found, name).workload.write_bytes for name in ("mid", "new")] == [KEY_BYTES, KEY_BYTES]
    assert refusal(found, "mid", "new") == "carried-edge"


def test_a_select_scatter_is_an_update_as_well():
    inputs = ["base: f32[20,20,26; alias_out=y]", "src: f32[20,20,1]"]
    found = program(inputs, ["y = select_scatter(base, src; axis=2, index=3)"], ["y"])
    work = group(found, "y").workload
    assert (work.read_bytes, work.write_bytes) == (1600, 1600)


def test_a_reader_of_the_old_value_runs_before_it_is_overwritten():
    """FC-074: s reads x in other loops than r writes it."""
    inputs, ops = ["x: f32[10,2; alias_out=r]", "z: f32[2,10,2]"], ["r = relu(x)", "s = add(x, z)"]
    assert kernels(inputs, ops, ["r", "s"]) == [("s",), ("r",)]
    found = program(inputs, ops, ["r", "s"])
    assert found.orders == ((members(found, "s")[0], members(found, "r")[0]),)


def test_what_is_still_read_is_not_overwritten_in_the_same_kernel():
    """FC-076: every thread of t reads one element of a that another thread overwrites."""
    inputs = ["a: f64[3; alias_out=new]", "c: f64[3]"]
    ops = [
        "a1 = slice(a; axis=0, start=1, end=2)", "cs = slice(c; axis=0, start=1, end=3)", "t = mul(a1, cs)",
        "new = slice_update(a, t; axis=0, start=1)",
    ]  # fmt: skip
    assert refusal(program(inputs, ops, ["new"]), "a1", "cs", "t", "new") == "overwritten-operand"
    assert kernels(inputs, ops, ["new"]) == [("a1", "cs", "t"), ("new",)]


def test_the_same_loops_may_read_what_they_overwrite():
    ops = ["p = softmax(x; axis=1)"]
    assert kernels(["x: f32[64,128; alias_out=p]"], ops, ["p"]) == [("p",)]


def test_an_operand_of_a_contraction_is_not_overwritten_by_its_epilogue():
    inputs, ops = ["x: f32[64,64; alias_out=p]", "w: f32[64,64]"], ["m = matmul(x, w)", "p = add(m, x)"]
    assert kernels(inputs, ops, ["p"]) == [("m",), ("p",)]


@pytest.mark.parametrize(
    ("inputs", "ops"),
    [
        (["a: f32[8; alias_out=r]", "b: f32[8; alias_out=s]"], ["r = copy(b)", "s = copy(a)"]),  # a swap
        (["a: f32[8,8; alias_out=r]"], ["r = transpose(a)", "s = relu(a)"]),  # walks the old value crosswise
        (["a: f32[8; alias_out=r]"], ["r = relu(a)", "s = add(r, a)"]),  # needs the old and the new value
    ],
    ids=["swap", "transpose", "both"],
)
def test_where_no_order_exists_the_result_lies_beside_the_input(inputs, ops):
    found = program(inputs, ops, ["r", "s"])
    needed = {(found.operators[r].index, w) for r, w in found.orders}
    assert len(needed) <= 1
    assert plan(graph(inputs, ops, ["r", "s"]), "a100").status == "OPTIMAL"


def test_memory_of_a_cache_counts_once():
    found = plan(graph(CACHE, [UPDATE], ["new"]), "a100")
    assert found.peak_memory_bytes == 8 * 1024 * 64 * 2 + KEY_BYTES


def test_names_of_what_is_overwritten():
    found = program(CACHE, [UPDATE], ["new"])
    assert names(found, tuple(found.overwrites.values())) == ["cache"]
