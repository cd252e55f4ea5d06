"""Objective levels: of the fastest plans the one that moves the fewest bytes, then the one of the fewest kernels."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fusesolve.candidates.pricing import Priced
from fusesolve.candidates.table import Kernel
from fusesolve.errors import InputError
from fusesolve.pipeline.columns import ColumnSet
from fusesolve.ragged import Ints
from fusesolve.solve import Limits, SolveResult, Status
from fusesolve.solve.levels import refine

OBJECTIVES = ("latency", "dram", "kernels")


def check_objective(objective: Sequence[str], strategy: str, streams: int) -> None:
    """Raise InputError where the levels are none, or cannot be kept."""
    if tuple(objective) == OBJECTIVES[:1]:
        return
    unknown = [name for name in objective if name not in OBJECTIVES]
    if unknown or objective[:1] != OBJECTIVES[:1] or len(set(objective)) < len(objective):
        raise InputError(
            f"objective {','.join(objective)!r}: name latency first, then each of dram and kernels at most once"
        )
    if strategy != "cpsat" or streams != 1:
        raise InputError(
            f"objective {','.join(objective)}: levels need the strategy cpsat and one stream; "
            f"asked for {strategy} and {streams}"
        )


def refine_plan(
    priced: Priced, columns: ColumnSet, result: SolveResult, objective: Sequence[str], limits: Limits
) -> SolveResult:
    """The best plan by the levels after latency; a plan that is not proven the fastest is left as it is."""
    if len(objective) < 2 or result.status is not Status.OPTIMAL or not result.selected:
        return result
    dram = priced.prices.resources["dram_bytes"]

    def weight(name: str, kernel: Kernel) -> int:
        return int(dram[kernel.unique]) if name == "dram" else 1

    def weigh(numbers: Ints) -> list[list[int]]:
        kernels = [columns.kernels[number] for number in numbers.tolist()]
        return [[weight(name, kernel) for kernel in kernels] for name in objective[1:]]

    found = refine(columns.problem, result.selected, weigh, limits)
    return replace(result, selected=found.selected, levels=found.levels)


def levels_record(objective: Sequence[str], result: SolveResult) -> tuple[dict[str, Any], ...]:
    """What each level reached and the bound proven for it (None where there is none); () with one objective."""
    if len(objective) < 2 or result.objective is None:
        return ()
    first = {"name": objective[0], "value": result.objective, "bound": result.bound}
    rest = [
        {"name": name, "value": level.value, "bound": level.bound}
        for name, level in zip(objective[1:], result.levels, strict=False)
    ]
    return (first, *rest)
