"""Why there is no plan, in the user's names: operators without a kernel, pins that no kernel can honour."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fusesolve.candidates.pricing import judge_group, limit_refusal
from fusesolve.candidates.space import convex_hull
from fusesolve.group import Refusal
from fusesolve.pipeline.columns import ColumnSet, apply_pins, find_operators, make_problem
from fusesolve.pipeline.memory import constant_bytes
from fusesolve.pipeline.planning import Planning
from fusesolve.solve import PartitionProblem, SolveResult
from fusesolve.solve.core import Least, Rule, find_core, least_kernels, least_live


def refuse_together(planning: Planning, names: Sequence[str]) -> Refusal | None:
    """Why the smallest convex set that holds all named operators is no kernel, or None where it is one."""
    program = planning.priced.space.program
    wanted = sorted(frozenset().union(*(find_operators(program, name) for name in names)))
    hull = convex_hull(program, wanted)
    found = judge_group(program, hull, planning.profile, planning.priced.options)
    return found if isinstance(found, Refusal) else None


def explain_infeasible(planning: Planning, result: SolveResult) -> tuple[dict[str, Any], ...]:
    """Conflicts of an infeasible plan: each a message, and the rule, numbers and lever where there are some."""
    found = tuple(_homeless(planning)) or tuple(_contradictions(planning)) or tuple(_requests(planning))
    return found or tuple({"message": line} for line in result.conflicts)


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


def _contradictions(planning: Planning) -> Iterator[dict[str, Any]]:
    """Names that are pinned both together and apart; memory below what is there before any kernel runs."""
    options = planning.options
    for names in options.together:
        clash = [other for other in options.apart if len(set(other) & set(names)) > 1]
        if clash:
            both = " and ".join(name for name in names if name in clash[0])
            yield {"message": f"{both} are pinned both together and apart: drop one of the two pins"}
    limit = options.max_memory
    if limit is not None:
        fixed = constant_bytes(planning.priced.space.program)
        if fixed > limit:
            yield {
                "message": f"--max-memory {limit}: inputs, weights and outputs alone take {fixed} bytes; allow more",
                "rule": "max-memory", "numbers": {"need": fixed, "limit": limit},
                "lever": f"--max-memory above {fixed}",
            }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """One demand of the caller: its words, what it forbids, and the names of a `together` pin."""

    words: str
    rule: Rule
    together: tuple[str, ...] = ()


def _requests(planning: Planning) -> Iterator[dict[str, Any]]:
    """A smallest set of the caller's demands that leaves no plan, and what each limit in it would have to be."""
    priced, options = planning.priced, planning.options
    columns = make_problem(priced, priced.space.kernels, recompute=options.recompute, max_memory=options.max_memory)
    demands = _list_requests(planning, columns)
    core = [demands[i] for i in find_core(columns.problem, [demand.rule for demand in demands])]
    for demand in core:
        refusal = refuse_together(planning, demand.together) if demand.together else None
        if refusal is not None:
            yield _entry(f"no kernel holds {' and '.join(demand.together)} together", refusal)
            return
    limits = [demand for demand in core if demand.rule.max_kernels is not None or demand.rule.max_live is not None]
    for demand in limits:
        others = [other for other in core if other is not demand]
        yield _limit_entry(planning, columns.problem, demand, others)
    if core and not limits:
        words = " and ".join(demand.words for demand in core)
        verb = "leaves no plan: drop it" if len(core) == 1 else "leave no plan together: drop one of them"
        yield {"message": f"{words} {verb}"}


def _list_requests(planning: Planning, columns: ColumnSet) -> list[_Request]:
    options, program = planning.options, planning.priced.space.program
    found = []
    for words, together, apart in (
        *((f"--together {','.join(names)}", (names,), ()) for names in options.together),
        *((f"--apart {','.join(names)}", (), (names,)) for names in options.apart),
    ):
        kept = set(apply_pins(program, columns.kernels, together, apart))
        banned = frozenset(i for i, kernel in enumerate(columns.kernels) if kernel not in kept)
        found.append(_Request(words=words, rule=Rule(banned=banned), together=together[0] if together else ()))
    if options.max_kernels is not None:
        found.append(_Request(words=f"--max-kernels {options.max_kernels}", rule=Rule(max_kernels=options.max_kernels)))
    if options.max_memory is not None:
        words = f"--max-memory {options.max_memory}"
        found.append(_Request(words=words, rule=Rule(max_live=columns.problem.max_live)))
    return found


def _limit_entry(
    planning: Planning, problem: PartitionProblem, demand: _Request, others: Sequence[_Request]
) -> dict[str, Any]:
    """What a limit would have to be, with the other demands as they are."""
    banned = frozenset[int]().union(*(other.rule.banned for other in others))
    kernels = [other.rule.max_kernels for other in others if other.rule.max_kernels is not None]
    live = [other.rule.max_live for other in others if other.rule.max_live is not None]
    rest = replace(
        problem, columns=tuple(c for i, c in enumerate(problem.columns) if i not in banned),
        max_kernels=min(kernels, default=None), max_live=min(live, default=None),
    )  # fmt: skip
    words = " with ".join([demand.words, *(other.words for other in others)])
    if demand.rule.max_kernels is not None:
        least = least_kernels(rest)
        return _least_entry(words, "max-kernels", "kernels", least, demand.rule.max_kernels)
    fixed = constant_bytes(planning.priced.space.program)
    least = least_live(rest)
    whole = Least(
        proven=None if least.proven is None else least.proven + fixed,
        enough=None if least.enough is None else least.enough + fixed,
    )
    return _least_entry(words, "max-memory", "bytes", whole, planning.options.max_memory or 0)


def _least_entry(words: str, rule: str, unit: str, least: Least, limit: int) -> dict[str, Any]:
    need = f"every plan needs at least {least.proven} {unit}" if least.proven is not None else "no plan keeps it"
    enough = "raise it" if least.enough is None else f"{least.enough} are enough: --{rule} {least.enough}"
    return {
        "message": f"{words}: {need}; {enough}", "rule": rule,
        "numbers": {"need": least.enough if least.enough is not None else least.proven, "limit": limit},
        "lever": enough,
    }  # fmt: skip


def _entry(subject: str, refusal: Refusal) -> dict[str, Any]:
    return {
        "message": f"{subject}: {refusal.rule}: {refusal.message} What would make it fit: {refusal.lever}.",
        "rule": refusal.rule, "numbers": {"need": refusal.need, "limit": refusal.limit}, "lever": refusal.lever,
    }  # fmt: skip
