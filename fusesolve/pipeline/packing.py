"""Packs join the space: those that could lower the relaxation of the problem without them, until there are none."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from fusesolve.candidates.packs import Packer, Part, add_packs, join_parts, pairs, runs
from fusesolve.candidates.pricing import Priced
from fusesolve.candidates.space import Kernel
from fusesolve.pipeline.columns import make_problem
from fusesolve.solve import Limits
from fusesolve.solve.marginal import price_columns

ROUNDS = 4
MOST_OPERATORS = 2500  # graphs above this are planned without packs
PARTS_PER_LEVEL = 40  # kernels of one level, those nearest to the best plan, that are paired with each other
NEAR = 0.01  # share of the bound: packs with a larger reduced cost than this and a launch are left out again
STALLED = 0.0005  # share of the bound: less progress in a round ends the search
LONGEST = 12.0  # launches: beside a longer kernel the saving of one is within the model's error


@dataclass(frozen=True, slots=True, kw_only=True)
class _Worth:
    """What kernels are worth against a relaxation: all with a reduced cost (ns), and those in its optimum."""

    slack: dict[int, float]
    held: frozenset[int]
    kernels: Sequence[Kernel]
    bound: int


def pack_space(priced: Priced, limits: Limits) -> Priced:
    """The priced space with packs. A second launch costs the most where kernels are short; see docs/MODEL.md."""
    if len(priced.space.program.operators) > MOST_OPERATORS:
        return priced
    known: set[tuple[tuple[int, ...], ...]] = set()
    terms = priced.prices.terms
    launch = 1e9 * float((terms["launch"] + terms["floor"]).max(initial=0.0))
    chosen = [kernel for kernel in priced.space.kernels if kernel.full]
    bound = 0
    for step in range(ROUNDS + 1):
        worth = _price(priced, chosen, limits)
        if worth is None:
            break
        fresh = [pack for pack in _look(priced, worth, LONGEST * launch) if _key(pack) not in known]
        known.update(_key(pack) for pack in fresh)
        most = NEAR * worth.bound + launch
        near = _near(priced, worth, most)
        last = step == ROUNDS or bound * (1.0 - STALLED) <= worth.bound < bound
        priced = add_packs(near, () if last else fresh)
        if priced is near:
            break
        bound = worth.bound
        chosen = [kernel for place, kernel in enumerate(worth.kernels) if worth.slack.get(place, most + 1) <= most]
        chosen += priced.space.kernels[len(near.space.kernels) :]
    return priced


def _key(pack: Part) -> tuple[tuple[int, ...], ...]:
    return tuple(kernel.members for kernel in pack.kernels)


def _price(priced: Priced, kernels: Sequence[Kernel], limits: Limits) -> _Worth | None:
    """Against the exact partition: its relaxation is nearly always whole, and recomputation moves it by a per cent."""
    columns = make_problem(priced, kernels, recompute=False)
    marginal = price_columns(columns.problem, limits)
    if marginal is None:
        return None
    return _Worth(
        slack=dict(marginal.reduced), held=frozenset(marginal.held), kernels=columns.kernels, bound=marginal.bound
    )


def _near(priced: Priced, worth: _Worth, most: float) -> Priced:
    """Without the packs whose reduced cost is above `most` ns: no plan near the bound holds them."""
    packs = priced.space.packs
    far = {
        kernel.unique
        for place, kernel in enumerate(worth.kernels)
        if kernel.unique in packs and worth.slack.get(place, most + 1) > most
    }
    kept = tuple(kernel for kernel in priced.space.kernels if kernel.unique not in far)
    return replace(priced, space=replace(priced.space, kernels=kept)) if far else priced


def _look(priced: Priced, worth: _Worth, longest: float) -> Iterator[Part]:
    """Packs that could lower the relaxation: pairs of kernels, runs of those in its optimum, packs in it grown."""
    packer = Packer(priced)
    levels: dict[int, list[Part]] = {}
    held: dict[int, list[Part]] = {}
    for place, slack in worth.slack.items():
        part = packer.part(worth.kernels[place], slack)
        if part is not None and slack < part.cost <= longest:
            levels.setdefault(part.level, []).append(part)
            if place in worth.held:
                held.setdefault(part.level, []).append(part)
    for level, parts in levels.items():
        levels[level] = sorted(parts, key=lambda part: (part.slack, part.kernels[0].members))[:PARTS_PER_LEVEL]
        yield from pairs(levels[level])
    for parts in held.values():
        yield from runs(parts)
    packs = priced.space.packs
    for row in [kernel.unique for place in worth.held if (kernel := worth.kernels[place]).unique in packs]:
        parts = [part for kernel in packs[row] if (part := packer.part(kernel, 0.0)) is not None]
        whole = join_parts(parts)
        yield from (join_parts((whole, other)) for other in levels.get(whole.level, ()) if whole.independent(other))
