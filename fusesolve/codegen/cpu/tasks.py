"""One emitted CPU kernel: its arguments and body, and how its points are shared out as tasks."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import prod

from fusesolve.codegen.affine import Affine
from fusesolve.codegen.cpu.source import CpuSource, Run
from fusesolve.codegen.kernel import ceil_div
from fusesolve.cost.cpu import TASK_POINTS as POINTS

AHEAD = 256  # elements of a row that are asked for at once: fewer than the lines that a core waits for
STRIP = 2048  # elements that are written as one block around the caches: small beside the first-level cache


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuKernel:
    """One kernel function `name(t, *names)` for t in range(tasks). `arguments` are storage numbers, -1 the workspace.

    `workspace`: elements and register type of memory between two kernels of one group, None where there is none.
    `whole`: names of the arrays that must start at a block of 32 bytes.
    """

    names: tuple[str, ...]
    arguments: tuple[int, ...]
    body: tuple[str, ...]
    tasks: int
    workspace: tuple[int, str] | None = None
    whole: tuple[str, ...] = ()

    def text(self, name: str) -> str:
        """The function's source, without its decorator."""
        return "\n".join((f"def {name}({', '.join(('t', *self.names))}):", *self.body)) + "\n"


def finished(source: CpuSource, tasks: int, workspace: tuple[int, str] | None = None) -> CpuKernel:
    """The kernel that a body has become."""
    names, storages = tuple(source.arrays.values()), tuple(source.arrays)
    if source.strips:
        source.lines[:0] = [
            f"    {name} = np.empty({STRIP}, {source.arrays[storage]}.dtype)" for storage, name in source.strips.items()
        ]
    if source.strips or source.direct:
        source.line("fence()")
    if workspace is not None:
        names, storages = (*names, "w0"), (*storages, -1)
    whole = tuple(source.arrays[storage] for storage in sorted(source.direct))
    return CpuKernel(
        names=names, arguments=storages, body=tuple(source.lines), tasks=tasks, workspace=workspace, whole=whole
    )


def unflatten(source: CpuSource, flat: str, runs: Sequence[Run]) -> None:
    """Define the variables of `runs` (outer to inner) from a flat index."""
    for n, run in enumerate(runs):
        step = prod(item.extent for item in runs[n + 1 :])
        text = flat if step == 1 else f"{flat} // {step}"
        if prod(item.extent for item in runs[:n]) > 1:
            text = f"({text}) % {run.extent}" if step > 1 else f"{text} % {run.extent}"
        source.line(f"{run.name} = u32({text})")


@contextmanager
def each_row(source: CpuSource, runs: Sequence[Run], per_row: int) -> Iterator[int]:
    """A loop over the rows of one task, with the variables of `runs` defined; gives the number of tasks.

    `per_row`: points of a row.
    """
    rows = prod(run.extent for run in runs)
    step = max(1, POINTS // max(1, per_row))
    tasks = ceil_div(rows, step)
    last = f"min((t + 1) * {step}, {rows})" if rows % step else f"(t + 1) * {step}"
    with source.block(f"for q in range(t * {step}, {last}):"):
        unflatten(source, "q", runs)
        place, depth = len(source.lines), source.depth
        yield tasks
        source.unravel_runs(place, depth, runs)


@contextmanager
def counted_loop(source: CpuSource, run: Run) -> Iterator[None]:
    """An outer loop over all of `run`."""
    with source.block(f"for {run.name}_ in range({run.extent}):"):
        source.line(f"{run.name} = u32({run.name}_)")
        place, depth = len(source.lines), source.depth
        yield
        source.unravel_runs(place, depth, [run])


@contextmanager
def vector_loop(
    source: CpuSource,
    run: Run | None,
    low: str = "0",
    high: str | None = None,
    *,
    stores: bool = False,
    ahead: Sequence[tuple[int, Affine]] = (),
) -> Iterator[None]:
    """The innermost loop: `run` from `low` up to `high` (its extent where None); no loop where `run` is None.

    `stores`: it writes arrays of the kernel; where the kernel's stores go around the caches it runs in strips.
    `ahead`: (storage, position) of what is asked for while it runs, in strips too.
    """
    if run is None:
        with source.scope():
            yield
        return
    end = high or str(run.extent)
    around = stores and source.streams
    with ExitStack() as open_:
        if around or ahead:
            strip = AHEAD if ahead else STRIP
            open_.enter_context(source.block(f"for s in range({low}, {end}, {strip}):"))
            whole = low == "0" and high is None and run.extent % strip == 0
            source.line(f"width = {strip}" if whole else f"width = min({strip}, {end} - s)")
            if ahead:
                source.line(f"{run.name} = u32(s)")
            for storage, place in ahead:
                source.line(f"ahead({source.arrays[storage]}, {source.index(place)}, width)")
            if around:
                open_.enter_context(source.strip(run))
            open_.enter_context(source.block("for c in range(width):"))
            source.line(f"{run.name} = u32(s) + u32(c)")
        else:
            open_.enter_context(source.block(f"for c in range({low}, {end}):"))
            source.line(f"{run.name} = u32(c)")
        first, depth = len(source.lines), source.depth
        yield
        source.unravel_runs(first, depth, [run])
