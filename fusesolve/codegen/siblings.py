"""Contractions of one operand side by side in one launch: those that meet behind their sums share tiles, others blocks.

Contractions whose results meet in an epilogue (gate and up of a gated layer) are one kernel: a tile has columns of
each. The rest (queries, keys and values of one input) have tiles of their own, one contraction after the other in the
grid.
"""

from collections.abc import Callable
from dataclasses import replace

from fusesolve.candidates.loops import Nest, build_nest
from fusesolve.candidates.siblings import heads_below, heads_served, shared_position
from fusesolve.codegen.kernel import EmittedKernel, Task, Workspace
from fusesolve.codegen.packed import pack_parts
from fusesolve.codegen.planned import part_of
from fusesolve.codegen.scalars import UnsupportedError
from fusesolve.codegen.tiles import choose_tile

Emit = Callable[[Task], tuple[EmittedKernel, ...]]


def emit_siblings(task: Task, emit: Emit) -> tuple[EmittedKernel, ...]:
    """The kernels of contractions side by side; `emit` writes those that share tiles.

    UnsupportedError where tiles would have rows of several contractions.
    """
    families = families_of(task.nest)
    operators = [task.program.operators[member] for member in task.nest.members]
    by_rows = shared_position(operators, task.nest.heads) == 1
    if by_rows and any(len(heads) > 1 for heads, _ in families):
        raise UnsupportedError("contractions of one right operand that meet behind their sums have no source")
    if len(families) == 1:
        return emit(task)
    tiling = dict(task.kernel.tiling)
    if by_rows:  # priced with the columns of all contractions as columns of the tile: they are rows here
        tiling |= {"tile_m": tiling["tile_n"], "tile_n": tiling["tile_m"]}
    launch = task.launch or choose_tile(tiling["tile_m"], tiling["tile_n"]).threads
    parts = []
    for _, positions in families:
        kernel = part_of(task.program, task.kernel, [task.nest.members[i] for i in positions], tiling)
        parts.append(emit(replace(task, kernel=kernel, nest=build_nest(task.program, kernel.members), launch=launch)))
    spaces = [main.workspace for main, *_ in parts if main.workspace is not None]
    packed = [pack_parts(task.kernel, stage, [space.size for space in spaces]) for stage in zip(*parts, strict=True)]
    if spaces:
        whole = Workspace(size=sum(space.size for space in spaces), kind=spaces[0].kind)
        packed[0] = replace(packed[0], workspace=whole)
    return tuple(packed)


def families_of(nest: Nest) -> list[tuple[frozenset[int], list[int]]]:
    """Contractions that meet behind their sums, and the positions of all operators that they need or feed."""
    below = heads_below(len(nest.members), nest.heads, nest.edges)
    served = heads_served(below, nest.edges)
    families = [frozenset({head}) for head in nest.heads]
    for meeting in below:
        touched = [family for family in families if family & meeting]
        if len(touched) > 1:
            families = [family for family in families if family not in touched] + [frozenset().union(*touched)]
    families.sort(key=min)
    return [
        (family, [i for i, heads in enumerate(served) if heads & family or (not heads and family is families[0])])
        for family in families
    ]  # fmt: skip
