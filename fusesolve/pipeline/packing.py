"""Packs join the space: all that start at one level where they can be listed, or those that a good plan could use."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from fusesolve.candidates.pack_search import ROUNDS, PackSearch
from fusesolve.candidates.packs import Packer, Part, add_packs, add_twins, independent_sets, price_packs
from fusesolve.candidates.pricing import Priced
from fusesolve.candidates.table import KernelTable, table_of
from fusesolve.pipeline.columns import make_problem
from fusesolve.solve import Limits
from fusesolve.solve.marginal import Marginal, price_columns

SETS_PER_LEVEL = 3000  # sets of independent kernels that start at one level, all of which are priced
FEW = 1000  # packs that join the space as they are; more are weighed first
MOST_OPERATORS = 2500  # graphs above this are planned without packs, and say so


def pack_space(priced: Priced, limits: Limits, *, late: Callable[[], bool]) -> Priced:
    """The priced space with packs. A second launch costs the most where kernels are short; see docs/MODEL.md.

    Levels of more than SETS_PER_LEVEL sets are searched against the relaxation, and `cut_by` names them; it says so,
    too, where there are no packs: in graphs of more than MOST_OPERATORS, or once `late` leaves no time for them.
    """

    def weigh(space: Priced, kernels: KernelTable) -> Marginal | None:
        return None if late() else price_columns(make_problem(space, kernels, recompute=False).problem, limits)

    if late():
        return _cut(priced, "packs: none, as half of the time limit was gone")
    count = len(priced.space.program.operators)
    if count > MOST_OPERATORS:
        return _cut(priced, f"packs: none in a graph of {count} operators (limit {MOST_OPERATORS})")
    packer = Packer(add_twins(priced))
    table = table_of(priced.space.kernels)
    sets: list[tuple[Part, ...]] = []
    wide: dict[int, str] = {}
    for level, parts in packer.parts(table).items():
        found = independent_sets(parts, SETS_PER_LEVEL)
        sets.extend(found or ())
        if found is None:
            wide[level] = f"packs: more than {SETS_PER_LEVEL} sets of kernels beside {_first_name(priced, parts)}"
    packs = price_packs(packer, sets)
    reasons = list(wide.values())
    if wide or len(packs) > FEW:
        packs, ended = PackSearch(packer, table, frozenset(wide), weigh).run(packs)
        reasons += [] if ended or wide else [f"packs: those of the last of {ROUNDS} rounds, or none in time"]
    return _cut(add_packs(packer.priced, packs), *reasons)


def _cut(priced: Priced, *reasons: str) -> Priced:
    return replace(priced, space=replace(priced.space, cut_by=(*priced.space.cut_by, *reasons)))


def _first_name(priced: Priced, parts: Sequence[Part]) -> str:
    program = priced.space.program
    first = min(part.kernel.members[0] for part in parts)
    return program.graph.nodes[program.operators[first].node].name
