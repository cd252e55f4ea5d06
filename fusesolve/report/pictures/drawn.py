"""What every picture of a plan starts from: the source operators of its graph, their edges, and each one's kernel."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from fusesolve.importers.native import parse_native
from fusesolve.plan import Plan, PlannedGroup
from fusesolve.report.text import short_names

# Twelve hues that stay apart on light and dark ground, for kernels in turn.
HUES = (
    "#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#b07aa1", "#9c755f", "#d4a017", "#ff9da7", "#86bc86",
    "#6a8caf", "#c57b57",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A plan's source operators in topological order.

    `kernels[name]`: ids of the groups that compute the operator, the one with most of it first (several where it is
    split or computed again), none for a view. `edges`: pairs of operator names. `tensors[name]`: names of the values
    that leave the operator.
    """

    operators: tuple[str, ...]
    kernels: Mapping[str, tuple[int, ...]]
    edges: tuple[tuple[str, str], ...]
    tensors: Mapping[str, tuple[str, ...]]


def draw(plan: Plan) -> Drawn:
    """Read the operators and edges of a plan out of its definition."""
    graph = parse_native(json.dumps(plan.graph.definition), plan.graph.name, {}, False)
    kernels: dict[str, set[int]] = {}
    for group in plan.groups:
        for name in group.nodes:
            kernels.setdefault(name, set()).add(group.id)
    made = {output: node.source for node in graph.nodes for output in node.outputs}
    found: dict[str, Counter[int]] = {}
    tensors: dict[str, list[str]] = {}
    edges: dict[tuple[str, str], None] = {}
    used = {name for node in graph.nodes for name in node.reads} | set(graph.outputs)
    for node in graph.nodes:
        computed = kernels.get(node.source, set()) | kernels.get(node.name, set())
        found.setdefault(node.source, Counter()).update(computed)
        leaving = [o for o in node.outputs if o in used]
        tensors.setdefault(node.source, []).extend(leaving)
        for name in node.reads:
            if name in made and made[name] != node.source:
                edges[made[name], node.source] = None
    return Drawn(
        operators=tuple(found), edges=tuple(edges),
        kernels={name: tuple(i for i, _ in ids.most_common()) for name, ids in found.items()},
        tensors={name: tuple(names) for name, names in tensors.items()},
    )  # fmt: skip


def hue(group: int) -> str:
    """The colour of a kernel."""
    return HUES[group % len(HUES)]


def title(group: PlannedGroup, most: int = 60) -> str:
    """`3: c_attn+c_attn_bias`: a kernel's number, and its operators in at most `most` columns."""
    return f"{group.id}: {short_names(group.nodes, most)}"
