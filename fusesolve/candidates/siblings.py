"""Siblings: several contractions of one operand that one kernel computes side by side.

The kernel walks the operand once for all of them (queries, keys and values of one input; gate and up of a gated
layer). Its tile takes columns of each second operand; epilogues that join two results need both at the same points.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from fusesolve.graph import Graph

if TYPE_CHECKING:
    from fusesolve.candidates.program import AtomAccess, Operator, Program, Read, Storage


def shareable(graph: Graph, op: "Operator", storage: "Sequence[Storage]") -> tuple[int, ...]:
    """The operands (0 left, 1 right) by which a contraction may stand beside others: no weight, the other one stored.

    Only matrix products have any. Branches of a picture network, and products whose weights are computed (taken out
    of a quantised form), have operators of their own around them, and sets over several of those are too many to walk.
    """
    if graph.nodes[op.node].op != "matmul" or len(op.reads) < 2:
        return ()
    return tuple(
        position for position in (0, 1)
        if not storage[op.reads[position].storage].weight and storage[op.reads[1 - position].storage].producer is None
    )  # fmt: skip


def share_operand(program: "Program", left: int, right: int) -> bool:
    """Whether two matrix products read one tensor as the same operand in the same way (`shareable`)."""
    first, second = program.operators[left], program.operators[right]
    graph, storage = program.graph, program.storage
    both = set(shareable(graph, first, storage)) & set(shareable(graph, second, storage))
    return any(
        first.reads[k].storage == second.reads[k].storage and first.reads[k].axes == second.reads[k].axes for k in both
    )


def shared_position(ops: "Sequence[Operator]", heads: Sequence[int]) -> int | None:
    """The operand (0 left, 1 right) that all contractions at the positions `heads` read alike, None where none is."""
    for position in (0, 1):
        reads = [_operand(ops[head], position) for head in heads]
        first = reads[0]
        if first is not None and all(
            read is not None and read.storage == first.storage and read.axes == first.axes for read in reads
        ):
            return position
    return None


def _operand(op: "Operator", position: int) -> "Read | None":
    return op.reads[position] if position < len(op.reads) else None


def heads_below(count: int, heads: Sequence[int], edges: Sequence[tuple[int, int]]) -> list[frozenset[int]]:
    """For each position the contractions whose results it uses (itself included); `edges` ascend by consumer."""
    found: list[frozenset[int]] = [frozenset({i}) if i in heads else frozenset() for i in range(count)]
    for producer, consumer in edges:
        found[consumer] |= found[producer]
    return found


def heads_served(below: Sequence[frozenset[int]], edges: Sequence[tuple[int, int]]) -> list[frozenset[int]]:
    """For each position the contractions that it belongs to: those it uses, else those that its readers belong to."""
    found = list(below)
    for producer, consumer in reversed(edges):
        if not below[producer]:
            found[producer] |= found[consumer]
    return found


def near_products(program: "Program") -> tuple[tuple[int, ...], ...]:
    """For each matrix product, the ones before and after it among the products that read one operand alike.

    Weights do not count: what reads the same weights at two places of a model (the steps of a recurrence) is no
    layer of several outputs. Nor do other contractions (`shareable`).
    """
    alike: dict[tuple[int, int, tuple[AtomAccess, ...]], list[int]] = {}
    for op in program.operators:
        for position in shareable(program.graph, op, program.storage):
            read = op.reads[position]
            if not read.barrier:
                alike.setdefault((read.storage, position, read.axes), []).append(op.index)
    near: list[set[int]] = [set() for _ in program.operators]
    for readers in alike.values():
        for earlier, later in pairwise(readers):
            near[earlier].add(later)
            near[later].add(earlier)
    return tuple(tuple(sorted(found)) for found in near)
