"""Why there is no plan, in the user's names: operators without a kernel, pins that no kernel can honour."""

from collections.abc import Iterator, Sequence
from typing import Any

from fusesolve.candidates.pricing import judge_group, limit_refusal
from fusesolve.candidates.space import convex_hull
from fusesolve.group import Refusal
from fusesolve.pipeline.columns import find_operators
from fusesolve.pipeline.planning import Planning
from fusesolve.solve import SolveResult, Status


def refuse_together(planning: Planning, names: Sequence[str]) -> Refusal | None:
    """Why the smallest convex set that holds all named operators is no kernel, or None where it is one."""
    program = planning.priced.space.program
    wanted = sorted(frozenset().union(*(find_operators(program, name) for name in names)))
    hull = convex_hull(program, wanted)
    found = judge_group(program, hull, planning.profile, planning.priced.options)
    return found if isinstance(found, Refusal) else None


def explain_infeasible(planning: Planning, result: SolveResult) -> tuple[dict[str, Any], ...]:
    """Conflicts of an infeasible plan: each a message, and the rule, numbers and lever where a rule refuses."""
    if result.status is not Status.INFEASIBLE:
        return tuple({"message": line} for line in result.conflicts)
    found = [*_homeless(planning), *_pins(planning)]
    limit = planning.options.max_kernels
    if not found and limit is not None:
        found = [{"message": f"--max-kernels {limit}: every plan has more kernels; raise it or leave it out"}]
    return tuple(found) or tuple({"message": line} for line in result.conflicts)


def _homeless(planning: Planning) -> Iterator[dict[str, Any]]:
    """Operators whose own kernel no tiling fits and that no larger kernel holds."""
    priced = planning.priced
    program = priced.space.program
    held = {m for k in priced.space.kernels if priced.cost_ns[k.unique] is not None for m in k.members}
    for kernel in priced.space.kernels:
        member = kernel.members[0]
        if len(kernel.members) == 1 and kernel.full and member not in held:
            workload = priced.space.workloads[kernel.unique]
            refusal = limit_refusal(workload, planning.profile, priced.options)
            name = program.graph.nodes[program.operators[member].node].name
            if refusal is not None:
                yield _entry(f"operator {name} fits no kernel on {planning.profile.name}", refusal)


def _pins(planning: Planning) -> Iterator[dict[str, Any]]:
    options = planning.options
    for names in options.together:
        clash = [other for other in options.apart if len(set(other) & set(names)) > 1]
        if clash:
            both = " and ".join(name for name in names if name in clash[0])
            yield {"message": f"{both} are pinned both together and apart: drop one of the two pins"}
            continue
        refusal = refuse_together(planning, names)
        if refusal is not None:
            yield _entry(f"no kernel holds {' and '.join(names)} together", refusal)


def _entry(subject: str, refusal: Refusal) -> dict[str, Any]:
    return {
        "message": f"{subject}: {refusal.rule}: {refusal.message} What would make it fit: {refusal.lever}.",
        "rule": refusal.rule, "numbers": {"need": refusal.need, "limit": refusal.limit}, "lever": refusal.lever,
    }  # fmt: skip
