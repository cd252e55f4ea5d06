"""Legality: every reason why a set of operators is not a kernel, as one table of rules.

A *structure* rule looks at the facts of a group; a *limit* rule compares a resource of a group and tiling with a
number of the profile. A rule's docstring is its documentation (docs/RULES.md is generated from the tables). A refusal
is a value: the rule, the numbers, what would make it fit.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fusesolve.group import GroupFacts, Refusal
from fusesolve.hardware import HardwareProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class StructureRule:
    """A rule over the facts of a group. `count(facts) > allowed` refuses.

    `hereditary`: a set that breaks it has no legal superset, so growth can stop there.
    """

    name: str
    doc: str
    count: Callable[[GroupFacts], int]
    allowed: int
    lever: str
    hereditary: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitRule:
    """A rule over resources: `need(resource) > limit(profile)` refuses; `limit` None means no such limit.

    `resource` names a column of the resource table, `path` the profile's key that sets the limit.
    """

    name: str
    doc: str
    resource: str
    path: str
    unit: str
    limit: Callable[[HardwareProfile], float | None]
    lever: str


MEMBER_LIMIT = 64
IN_PLACE_LIMIT = 6
SIDE_BY_SIDE_LIMIT = 4
IN_PLACE_BESIDE_CONTRACTION = 2
ONE_BLOCK_POINTS = 4096  # four elements for each of 1,024 threads
_OR_ONE_BLOCK = (
    f"One block may do what breaks this, where no operator of the group has more than {ONE_BLOCK_POINTS:,} points, its "
    "reductions have no more results, and none is a contraction or a window: it passes values through shared memory."
)

STRUCTURE_RULES: tuple[StructureRule, ...] = (
    StructureRule(
        name="connected", hereditary=True, allowed=1,
        doc="The operators of a group are connected by data edges between them, or as contractions that read one "
        "operand next to each other.",
        count=lambda f: f.components,
        lever="include the operators between them, or leave them apart",
    ),
    StructureRule(
        name="opaque-alone", hereditary=True, allowed=0,
        doc="A kernel that fusesolve cannot look into (control flow, sort, scatter, vendor operator) runs alone.",
        count=lambda f: f.opaque if f.size > 1 else 0,
        lever="express the operator in primitives",
    ),
    StructureRule(
        name="member-limit", hereditary=True, allowed=MEMBER_LIMIT,
        doc=f"A group has at most {MEMBER_LIMIT} operators; the limit bounds the stated space.",
        count=lambda f: f.size,
        lever="raise the limit of the kernel space",
    ),
    StructureRule(
        name="carried-edge", hereditary=True, allowed=0,
        doc="Every edge inside a group is carried by the loops: no index that depends on data, no sort or scan, "
        "no reshape whose boundaries do not nest, no result of a concat of more than 6 sources or of "
        f"an update in place. {_OR_ONE_BLOCK}",
        count=lambda f: 0 if f.one_block else f.blocked,
        lever="write the value to memory between the two operators",
    ),
    StructureRule(
        name="one-loop-per-dimension", hereditary=True, allowed=0,
        doc="No operator needs one loop variable for two of its dimensions (x times its own transpose).",
        count=lambda f: f.conflicts,
        lever="write the transposed value to memory",
    ),
    StructureRule(
        name="one-contraction", hereditary=True, allowed=1,
        doc=f"A group has one contraction; or up to {SIDE_BY_SIDE_LIMIT} side by side that read one operand in the "
        "same loops, none from another, those that share an epilogue over the same points; or two around an online "
        "softmax (attention): pointwise work and reductions over the keys between them, the keys being the reduction "
        "of the second.",
        count=lambda f: 1 if f.attention or 0 < f.side_by_side <= SIDE_BY_SIDE_LIMIT else f.contractions,
        lever="separate the contractions",
    ),
    StructureRule(
        name="reduction-beside-contraction", hereditary=True, allowed=0,
        doc="A contraction's tile does not hold whole rows, so no other reduction shares its kernel (attention apart).",
        count=lambda f: f.late_reductions,
        lever="write the contraction's result (or operand) to memory",
    ),
    StructureRule(
        name="one-reduction-space", hereditary=True, allowed=1,
        doc=f"All reductions of a group fold the same axes of the same space. {_OR_ONE_BLOCK}",
        count=lambda f: min(1, f.reduction_sets) if f.one_block else f.reduction_sets,
        lever="separate the reductions over different axes",
    ),
    StructureRule(
        name="one-iteration-space", hereditary=True, allowed=0,
        doc=f"One operator's loops contain those of all others: the kernel has one iteration space. {_OR_ONE_BLOCK}",
        count=lambda f: 0 if f.one_block else f.stray,
        lever="separate the operators whose dimensions differ",
    ),
    StructureRule(
        name="in-place-limit", hereditary=True, allowed=IN_PLACE_LIMIT,
        doc=f"At most {IN_PLACE_LIMIT} operators are computed in place, at the points where a concat, slice, pad or "
        "window reads them; the limit bounds the stated space (the branches of a concat multiply).",
        count=lambda f: f.in_place,
        lever="write the branches to memory before they are joined",
    ),
    StructureRule(
        name="in-place-beside-contraction", hereditary=True, allowed=IN_PLACE_BESIDE_CONTRACTION,
        doc=f"At most {IN_PLACE_BESIDE_CONTRACTION} operators are computed in place in front of a single contraction; "
        "the limit bounds the stated space (every tile would compute them again).",
        count=lambda f: f.in_place if f.contractions == 1 else 0,
        lever="write the operand to memory",
    ),
    StructureRule(
        name="overwritten-operand", hereditary=False, allowed=0,
        doc="Where a result is written back into an input (`alias_out`), nobody in its kernel reads the old value in "
        "other loops than those that write it: threads do not wait for each other.",
        count=lambda f: f.hazards,
        lever="let the reader run before, in a kernel of its own",
    ),
    StructureRule(
        name="interior-write", hereditary=False, allowed=0,
        doc="What is computed inside a contraction's prologue, inside attention before the second contraction, or "
        "in place at a window's or slice's points is never whole in the kernel, so it cannot be written by it.",
        count=lambda f: f.interior_writes,
        lever="let another kernel write the value (recomputation), or separate its reader",
    ),
)  # fmt: skip

LIMIT_RULES: tuple[LimitRule, ...] = (
    LimitRule(
        name="threads-per-block", resource="threads", path="limits.threads_per_block", unit="threads",
        doc="A block has no more threads than the device allows.",
        limit=lambda p: None if p.limits is None else p.limits.threads_per_block,
        lever="a smaller tile",
    ),
    LimitRule(
        name="registers-per-block", resource="block_registers", path="registers.per_block_max", unit="registers",
        doc="Registers of a thread, rounded up to the allocation unit, times threads fit in a block's registers.",
        limit=lambda p: None if p.registers is None else p.registers.per_block_max,
        lever="fewer threads or fewer elements per thread",
    ),
    LimitRule(
        name="shared-memory-per-block", resource="shared_bytes", path="memory.shared.per_block_max", unit="bytes",
        doc="Shared memory (or scratchpad) of a block fits in what one block may have.",
        limit=lambda p: None if p.memory.shared is None else p.memory.shared.per_block_max,
        lever="a smaller tile, a narrower type, or reading the row again instead of holding it",
    ),
    LimitRule(
        name="resident-block", resource="missing_blocks", path="limits.blocks_per_unit", unit="blocks",
        doc="At least one block fits on a compute unit with its registers, threads and shared memory.",
        limit=lambda p: 0,
        lever="a smaller tile",
    ),
    LimitRule(
        name="argument-bytes", resource="argument_bytes", path="limits.argument_bytes", unit="bytes",
        doc="The kernel's arguments fit in the parameter space. A concat of more operands than one kernel can name is "
        "planned in steps, each of which joins neighbours; an opaque kernel takes its operands in its own way.",
        limit=lambda p: None if p.limits is None else p.limits.argument_bytes,
        lever="fewer tensors in one kernel",
    ),
    LimitRule(
        name="barriers", resource="barriers", path="limits.barriers", unit="barriers",
        doc="The kernel's named barriers exist on the device.",
        limit=lambda p: None if p.limits is None else p.limits.barriers,
        lever="fewer stages",
    ),
    LimitRule(
        name="grid", resource="blocks", path="grid", unit="blocks",
        doc="A grid has fewer than 2^31 blocks (the limit of the x dimension in CUDA).",
        limit=lambda p: float(2**31 - 1) if p.kind == "gpu" else None,
        lever="more elements per thread",
    ),
)  # fmt: skip


_HEREDITARY = tuple(rule for rule in STRUCTURE_RULES if rule.hereditary)


def check_structure(facts: GroupFacts) -> Refusal | None:
    """The first structure rule that refuses a group, or None where it is a kernel of the space."""
    for rule in STRUCTURE_RULES:
        refusal = _judge(rule, facts)
        if refusal is not None:
            return refusal
    return None


def may_grow(facts: GroupFacts) -> bool:
    """False where a hereditary rule refuses: no superset is a kernel, so growth stops."""
    return all(rule.count(facts) <= rule.allowed for rule in _HEREDITARY)


def _judge(rule: StructureRule, facts: GroupFacts) -> Refusal | None:
    count = rule.count(facts)
    if count <= rule.allowed:
        return None
    message = f"{rule.doc} Here: {count}, allowed: {rule.allowed}."
    return Refusal(rule=rule.name, message=message, lever=rule.lever, need=count, limit=rule.allowed)


def allowed(resources: Mapping[str, Any], profile: HardwareProfile) -> Any:
    """Which rows of a resource table the profile can run: a boolean array (or bool) over all limit rules."""
    verdict: Any = True
    for rule in LIMIT_RULES:
        limit = rule.limit(profile)
        if limit is not None and rule.resource in resources:
            verdict = verdict & (resources[rule.resource] <= limit)
    return verdict


def explain_limits(resources: Mapping[str, float], profile: HardwareProfile) -> tuple[Refusal, ...]:
    """Every limit that one row of a resource table breaks, with its numbers."""
    found = []
    for rule in LIMIT_RULES:
        limit = rule.limit(profile)
        need = resources.get(rule.resource)
        if limit is not None and need is not None and need > limit:
            message = f"needs {need:g} {rule.unit}, {rule.path} allows {limit:g}"
            found.append(Refusal(rule=rule.name, message=message, lever=rule.lever, need=need, limit=limit))
    return tuple(found)
