"""The sweep: every row with every tiling of its template, in blocks; keeps the best legal one of each row."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fusesolve.cost.table import (
    COMPILED,
    DERIVED,
    RESOURCES,
    TERMS,
    TILING,
    Allowed,
    Array,
    Columns,
    Flags,
    PriceOptions,
    Prices,
    WorkloadTable,
    empty_prices,
)

ALIKE = 24  # rows: fewer are evaluated with all tilings, and each narrower set of tilings is for at least these
BLOCK = 1 << 18  # candidate-tilings evaluated at once: arrays of 2 MiB stay near the cache


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """The rows of one template under one implementation, their tilings, and the functions that price them.

    `wants(table)` > 0 marks rows that this implementation can do (None: all). `evaluate(rows, tilings)` returns
    resources and terms; `combine(terms, off)` the latency in seconds. `worth(rows, tilings)` is False where `evaluate`
    refuses a tiling by the shape of the row alone (None: unknown): such tilings need not be evaluated.
    """

    template: int
    tilings: Columns
    library: bool
    evaluate: Callable[[Columns, Columns], Any]
    combine: Callable[[Columns, frozenset[str]], Array]
    wants: Callable[[WorkloadTable], Array] | None
    worth: Callable[[Columns, Columns], Flags] | None = None

    @property
    def width(self) -> int:
        """How many tilings there are."""
        return int(next(iter(self.tilings.values())).shape[1])


def sweep(table: WorkloadTable, families: Sequence[Family], options: PriceOptions, allowed: Allowed) -> Prices:
    """Price every row under every family that takes it; ties go to the earlier family and the earlier tiling."""
    latency, tiling, resources, terms = empty_prices(len(table))
    implementation = np.zeros(len(table), dtype=np.int8)
    counted = 0
    templates = table["template"]
    for family in families:
        chosen = templates == family.template
        if family.wants is not None:
            chosen = chosen & (family.wants(table) > 0)
        index = np.flatnonzero(chosen)
        counted += len(index) * family.width
        for part, narrowed in _narrow(table, index, family):
            step = max(1, BLOCK // narrowed.width)
            for start in range(0, len(part), step):
                block = part[start : start + step]
                rows = table.rows(block)
                if options.compiled and not family.library:
                    rows |= _compiled_columns(table, block, narrowed, options)
                found = narrowed.evaluate(rows, narrowed.tilings)
                kept = (tiling, resources, terms)
                _keep_best(block, narrowed, found, options, allowed, latency, implementation, kept)
    return Prices(
        latency=latency, implementation=implementation, tiling=tiling, resources=resources, terms=terms, tilings=counted
    )


def _narrow(table: WorkloadTable, index: NDArray[np.intp], family: Family) -> Iterator[tuple[NDArray[np.intp], Family]]:
    """Rows with the tilings that are worth evaluating for at least one of them, rows of like shapes together.

    No price depends on it: a tiling that is left out is refused, and the others keep their order. Few rows are
    evaluated whole, so that a refusal can quote any tiling.
    """
    if family.worth is None or len(index) <= ALIKE:
        yield index, family
        return
    flags = np.broadcast_to(family.worth(table.rows(index), family.tilings), (len(index), family.width))
    order = np.lexsort(np.packbits(flags, axis=1).T)
    start = 0
    for stop in range(1, len(index) + 1):
        last = stop == len(index)
        if last or (stop - start >= ALIKE and (flags[order[stop]] != flags[order[start]]).any()):
            chosen = order[start:stop]
            useful = flags[chosen].any(axis=0)
            if useful.any():
                tilings = {name: column[:, useful] for name, column in family.tilings.items()}
                yield index[chosen], replace(family, tilings=tilings)
            start = stop


def _keep_best(
    part: NDArray[np.intp], family: Family, found: tuple[Mapping[str, Array], Mapping[str, Array]],
    options: PriceOptions, allowed: Allowed, latency: Array, implementation: NDArray[np.int8],
    columns: tuple[dict[str, Array], dict[str, Array], dict[str, Array]],
) -> None:  # fmt: skip
    res, parts = found
    width = family.width
    shape = (len(part), width)
    seconds = np.where(allowed(res), family.combine(parts, options.without), np.inf)
    seconds = np.broadcast_to(seconds, shape)
    best = np.argmin(seconds, axis=1)
    rows = np.arange(len(part))
    value = seconds[rows, best]
    better = value < latency[part]
    target, rows, best = part[better], rows[better], best[better]
    latency[target] = value[better]
    implementation[target] = 1 if family.library else 0
    for names, source, destination in zip(
        (TILING, RESOURCES, TERMS), (_tiling(family, res), res, parts), columns, strict=True
    ):
        for name in names:
            column = source.get(name)
            destination[name][target] = 0.0 if column is None else np.broadcast_to(column, shape)[rows, best]


def _compiled_columns(
    table: WorkloadTable, part: NDArray[np.intp], family: Family, options: PriceOptions
) -> dict[str, Array]:
    """Compiled registers, shared memory, code and spills of (rows x tilings), NaN where nothing was compiled."""
    width = family.width
    found = {f"compiled_{name}": np.full((len(part), width), np.nan) for name in COMPILED}
    known = False
    for place, row in enumerate(part):
        for item in options.compiled.get(table.workloads[row], ()):
            here = np.ones(width, dtype=bool)
            for name, column in family.tilings.items():
                here &= column[0] == item.tiling.get(name, 0)
            known = known or bool(here.any())
            for name in COMPILED:
                found[f"compiled_{name}"][place, here] = getattr(item, name)
    return found if known else {}


def _tiling(family: Family, res: Mapping[str, Array]) -> Columns:
    """The columns of a tiling: those that are swept, and those that follow from the row (a depth, stages, a limit)."""
    derived = [name for name in DERIVED if name in res and not (family.library and name == "max_registers")]
    return {**{name: res[name] for name in derived}, **family.tilings}
