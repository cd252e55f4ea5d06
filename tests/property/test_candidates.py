"""The kernel space on random graphs: growth yields kernels only, finds all of them, and bytes only shrink."""

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusesolve.builder import GraphBuilder
from fusesolve.candidates.grow import chain_units
from fusesolve.candidates.loops import build_nest
from fusesolve.candidates.program import Program, build_program
from fusesolve.candidates.space import _Enumerator, enumerate_kernels, inspect_group
from fusesolve.graph import DType, Graph, TensorType
from fusesolve.group import FusionGroup
from fusesolve.legality import may_grow
from tests.property.random_graphs import connected_convex_sets, graphs, is_connected, is_convex

MANY = settings(max_examples=120, deadline=None, derandomize=True)
SOME = settings(max_examples=60, deadline=None, derandomize=True)
RECOMPUTE = st.booleans()
POINTWISE_AND_ROWS = ("unary", "binary", "reduce", "broadcast", "scale")
CONTRACTIONS = ("unary", "matmul", "reduce", "binary", "scale")
MOVEMENT = ("slice", "transpose", "binary", "reshape", "unary", "reduce", "cast")
SIBLINGS = ("unary", "matmul", "sibling", "sibling", "binary", "scale")
MIXES = st.sampled_from((POINTWISE_AND_ROWS, CONTRACTIONS, SIBLINGS, MOVEMENT, (*MOVEMENT, "matmul", "opaque")))
MIXED = MIXES.flatmap(lambda kinds: graphs(kinds=kinds))


def legal_groups(program) -> dict[tuple[int, ...], FusionGroup]:
    """Every connected convex set that the structure rules accept, by exhaustion."""
    every = connected_convex_sets(program)
    judged = {members: inspect_group(program, build_nest(program, members)) for members in every}
    return {members: group for members, group in judged.items() if isinstance(group, FusionGroup)}


def waits_for_itself(program, kernel) -> bool:
    """Whether what is written reaches, through operators outside, something that is read inside."""
    inside, reached = set(kernel.members), set()
    stack = [r for value in kernel.writes for r in program.storage[value].readers if r not in inside]
    while stack:
        item = stack.pop()
        if item not in reached:
            reached.add(item)
            stack.extend(() if item in inside else program.succs[item])
    return bool(reached & inside)


def every_operator(program) -> frozenset[int]:
    """All operators apart: no chain of elementwise operators is kept whole."""
    return frozenset(range(len(program.operators)))


def reachable_sets(program) -> set[tuple[int, ...]]:
    """Sets that a chain of growable sets with the same smallest operator leads to, one operator at a time."""
    every = set(connected_convex_sets(program))

    @cache
    def growable(members: tuple[int, ...]) -> bool:
        return may_grow(build_nest(program, members).facts)

    found = {members for members in every if len(members) == 1}
    for members in sorted(every, key=len):
        smaller = (tuple(m for m in members if m != gone) for gone in members[1:])
        if any(part in found and growable(part) for part in smaller):
            found.add(members)
    return found


@MANY
@given(MIXED, RECOMPUTE)
def test_every_kernel_is_connected_convex_and_legal(graph, recompute):
    program = build_program(graph)
    space = enumerate_kernels(program, recompute=recompute)
    assert not space.cut_by
    for kernel in space.kernels:
        assert kernel.members == tuple(sorted(set(kernel.members)))
        assert is_connected(program, kernel.members)
        assert is_convex(program, kernel.members) or (not kernel.full and recompute)
        assert not waits_for_itself(program, kernel)
        group = inspect_group(program, build_nest(program, kernel.members))
        if kernel.full:
            assert isinstance(group, FusionGroup)
            assert (kernel.reads, kernel.writes) == (group.reads, group.writes)
        else:
            assert recompute


@MANY
@given(MIXED)
def test_growth_finds_every_legal_set_that_growable_sets_lead_to(graph):
    program = build_program(graph)
    space = enumerate_kernels(program, recompute=False, separable=every_operator(program))
    found = [kernel.members for kernel in space.kernels]
    assert len(found) == len(set(found))
    legal = set(legal_groups(program))
    assert set(found) <= legal
    assert not (legal - set(found)) & reachable_sets(program)


@MANY
@given(MIXED)
def test_chains_only_leave_out_sets_that_cut_a_chain(graph):
    """Kept whole: every set of the finer space that is a union of whole chains, and each operator alone."""
    program = build_program(graph)
    finer = enumerate_kernels(program, recompute=False, separable=every_operator(program))
    units = set(chain_units(program, frozenset()))
    whole = {
        kernel.members
        for kernel in finer.kernels
        if all(set(unit) <= set(kernel.members) or not set(unit) & set(kernel.members) for unit in units)
    }
    found = {kernel.members for kernel in enumerate_kernels(program, recompute=False).kernels}
    assert found == whole | {k.members for k in finer.kernels if len(k.members) == 1}


@MANY
@given(MIXED)
def test_a_fused_group_moves_no_more_bytes_than_its_parts(graph):
    program = build_program(graph)
    groups = legal_groups(program)
    alone = [
        group.workload.read_bytes + group.workload.write_bytes
        for index in range(len(program.operators))
        if (group := groups[(index,)]) is not None
    ]
    for members, group in groups.items():
        work = group.workload
        assert work.read_bytes + work.write_bytes <= sum(alone[m] for m in members)


@MANY
@given(MIXED, RECOMPUTE)
def test_what_a_kernel_needs_is_made_outside_and_what_it_leaves_out_stays_possible(graph, recompute):
    """Reads come from outside; a value that is left to others is not needed to justify any member."""
    program = build_program(graph)
    for kernel in enumerate_kernels(program, recompute=recompute).kernels:
        inside = set(kernel.members)
        made = {value for m in inside for value in program.operators[m].writes}
        needed = {read.storage for m in inside for read in program.operators[m].reads}
        assert set(kernel.reads) == needed - made
        assert kernel.writes
        assert set(kernel.writes) <= made
        outside = {v for v in made if program.storage[v].required or set(program.storage[v].readers) - inside}
        assert (set(kernel.writes) == outside) is kernel.full


def two_copies(graph: Graph) -> Graph:
    """The graph twice in one, side by side; nothing joins them, and each has inputs of its own."""
    builder = GraphBuilder("twice")
    for copy in ("a", "b"):
        rename = {name: f"{copy}_{name}" for name in graph.inputs}
        for name in graph.inputs:
            builder.input(rename[name], graph.type_of(name))
        rename |= {name: f"{copy}_{name}" for node in graph.nodes for name in node.outputs}
        for node in graph.nodes:
            operands = [rename.get(item, item) if isinstance(item, str) else item for item in node.inputs]
            types = tuple(graph.type_of(name) for name in node.outputs) if node.op == "opaque" else None
            outputs = tuple(rename[name] for name in node.outputs)
            builder.add(node.op, operands, dict(node.attrs), outputs=outputs, source=outputs[0], types=types)
        for name in graph.outputs:
            builder.output(rename[name])
    return builder.build()


class _Forgetful(dict):
    """A memo that remembers nothing."""

    def setdefault(self, key, default=None):
        return default


def described(space) -> list[tuple]:
    """Kernels as members, reads, writes and workload, whatever number the workload has."""
    return sorted((k.members, k.reads, k.writes, k.full, repr(space.workloads[k.unique])) for k in space.kernels)


def with_and_without_memo(program, recompute) -> tuple:
    plain = _Enumerator(program, recompute, frozenset(), lambda: False)
    plain.memo = _Forgetful()
    found = enumerate_kernels(program, recompute=recompute), plain.run()
    assert described(found[0]) == described(found[1])
    return found


@SOME
@given(MIXES.flatmap(lambda kinds: graphs(most=7, kinds=kinds)), RECOMPUTE)
def test_the_memo_changes_the_work_and_not_the_kernels(graph, recompute):
    with_memo, without = with_and_without_memo(build_program(two_copies(graph)), recompute)
    assert with_memo.walked < without.walked or not without.walked


def states(steps: int, returns: bool) -> Program:
    """A recurrence whose states are joined at the end; with `returns` what joins them goes back into a last step."""
    builder = GraphBuilder("states")
    builder.input("x", TensorType(DType.F32, (64, 64)))
    builder.input("w", TensorType(DType.F32, (64, 64)), weight=True)
    state, made = "x", []
    for step in range(steps):
        product = builder.one("matmul", [state, "w"])
        given = builder.one("slice", ["x"], {"axis": 0, "start": step, "end": step + 1})
        state = builder.one("tanh", [builder.one("add", [product, given])])
        made.append(builder.one("relu", [state]) if step % 2 else state)
    joined = builder.one("concat", made, {"axis": 1})
    if returns:
        part = builder.one("slice", [joined], {"axis": 1, "start": 0, "end": 64})
        builder.output(builder.one("exp", [builder.one("add", [part, state])]))
    builder.output(joined)
    return build_program(builder.build())


@pytest.mark.parametrize("returns", [False, True])
@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("steps", [4, 7, 12])
def test_states_that_a_wide_concat_reads_far_away(steps, recompute, returns):
    """Up to six sources may be computed in place, so that the concat is near; beyond, it is alone, wherever it is."""
    with_memo, without = with_and_without_memo(states(steps, returns), recompute)
    if steps == 12:
        assert with_memo.walked < 0.6 * without.walked
        more = enumerate_kernels(states(16, returns), recompute=recompute)
        assert more.walked == with_memo.walked


@SOME
@given(MIXES.flatmap(lambda kinds: graphs(most=7, kinds=kinds)), RECOMPUTE)
def test_a_second_copy_of_a_layer_has_the_kernels_of_the_first(graph, recompute):
    """Side by side: the same sets with shifted numbers, and the same workloads."""
    count = len(build_program(graph).operators)
    space = enumerate_kernels(build_program(two_copies(graph)), recompute=recompute)
    first = [k for k in space.kernels if k.members[-1] < count]
    second = [k for k in space.kernels if k.members[0] >= count]
    assert len(first) + len(second) == len(space.kernels)
    shifted = sorted((tuple(m - count for m in k.members), len(k.writes), k.unique) for k in second)
    assert shifted == sorted((k.members, len(k.writes), k.unique) for k in first)


@SOME
@given(MIXED)
def test_recomputation_only_adds_kernels(graph):
    program = build_program(graph)
    exact = described(enumerate_kernels(program, recompute=False))
    wider = described(enumerate_kernels(program, recompute=True))
    assert set(exact) <= set(wider)
