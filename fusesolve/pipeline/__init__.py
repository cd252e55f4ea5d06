"""The main job: a graph and a profile in, a plan out."""

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fusesolve.cost.events import check_events
from fusesolve.errors import InputError
from fusesolve.graph import Graph
from fusesolve.hardware import HardwareProfile
from fusesolve.hardware_yaml import load_profile
from fusesolve.importers import load_graph
from fusesolve.pipeline.assemble import assemble
from fusesolve.pipeline.columns import ColumnSet
from fusesolve.pipeline.devices import fit_graph
from fusesolve.pipeline.options import Bindings, Event, PlanOptions, Report
from fusesolve.pipeline.planning import Clock, Planning, prepare
from fusesolve.pipeline.policy import check_strategy, follow_policy
from fusesolve.pipeline.streams import Scheduled, schedule_plan
from fusesolve.plan import Plan
from fusesolve.solve import SolveResult
from fusesolve.strategies import POLICIES

if TYPE_CHECKING:
    from fusesolve.pipeline.verify import Verified

__all__ = ["Event", "PlanOptions", "Planning", "begin", "plan"]


def plan(
    graph: Graph | str,
    hardware: HardwareProfile | str,
    *,
    bind: Bindings | None = None,
    strict: bool = False,
    as_dtype: str | None = None,
    strategy: str = "cpsat",
    objective: Sequence[str] = ("latency",),
    recompute: bool = True,
    launch: str = "stream",
    implementation: str = "best",
    simulate: str = "closed",
    streams: int = 1,
    verify: str = "none",
    store: Path | str | None = None,
    together: Sequence[Sequence[str]] = (),
    apart: Sequence[Sequence[str]] = (),
    max_memory: int | None = None,
    max_kernels: int | None = None,
    time_limit: float | None = 60.0,
    work_limit: float | None = None,
    workers: int | None = None,
    seed: int = 0,
    progress: Report | None = None,
) -> Plan:
    """The fastest plan of `graph` on `hardware` (objects, paths or bundled names) that the options allow.

    `bind`: symbolic dimensions. `time_limit`: seconds for everything, None for no limit. `max_memory`: bytes.
    `workers`: threads, never changes the plan. `streams`: kernels on different ones may overlap. `simulate`: "events"
    also simulates the plan block by block on a GPU (`timing`, and `simulated_ns` of each group). `verify`: "compile"
    compiles what is chosen and its runners-up, and plans with the compiled resources (`verification`); `store`: a
    folder that keeps what was compiled, by source. `objective`: "latency", then "dram" (bytes moved), "kernels" or
    both: what to minimise among the fastest plans (`levels`). Raises InputError for bad input; where no plan exists or
    none was found the status says so and there are no groups.
    """
    if store is not None and verify != "compile":
        raise InputError("--store keeps what is compiled: it needs --verify compile")
    options = PlanOptions(
        strategy=strategy, objective=tuple(objective), recompute=recompute, launch=launch,
        implementation=implementation,
        together=tuple(map(tuple, together)), apart=tuple(map(tuple, apart)), max_memory=max_memory,
        max_kernels=max_kernels, as_dtype=as_dtype, work_limit=work_limit, seed=seed,
        simulate=simulate, streams=streams, verify=verify,
    )  # fmt: skip
    planning = begin(
        graph, hardware, options, bind=bind, strict=strict, time_limit=time_limit, workers=workers, progress=progress
    )
    return finish(planning, None if store is None else Path(store))


def begin(
    graph: Graph | str, hardware: HardwareProfile | str, options: PlanOptions, *, bind: Bindings | None = None,
    strict: bool = False, time_limit: float | None = 60.0, workers: int | None = None, progress: Report | None = None,
    separable: Sequence[str] = (),
) -> Planning:  # fmt: skip
    """Load, enumerate and price, without solving; see `plan` for the arguments.

    `separable`: operators that may be asked apart later, and so are not kept in chains.
    """
    options.check()
    check_strategy(options.strategy)
    clock = Clock(limit=time_limit)
    profile = load_profile(hardware) if isinstance(hardware, str) else hardware
    if options.simulate == "events":
        check_events(profile, "--simulate events")
    if options.streams > 1:
        check_events(profile, f"--streams {options.streams}")
    if options.verify == "compile":
        _check_verified(options, profile)
    since = time.monotonic()
    if progress is not None:
        progress(Event(stage="import"))
    if isinstance(graph, str):
        graph = load_graph(graph, bind=bind or {}, strict=strict, as_dtype=options.as_dtype)
    graph, warnings = fit_graph(graph, profile)
    clock.lap("import", since)
    count = workers if workers is not None else min(8, os.cpu_count() or 1)
    return prepare(
        graph, profile, options, workers=count, clock=clock, warnings=warnings, report=progress, separable=separable
    )


def finish(planning: Planning, store: Path | None = None) -> Plan:
    """Solve and assemble; `store` as in `plan`."""
    since = time.monotonic()
    verified: Verified | None = None
    if planning.options.strategy in POLICIES:
        followed = follow_policy(planning, planning.options.strategy)
        planning, columns, result = followed.planning, followed.columns, followed.result
    elif planning.options.verify == "compile":
        from fusesolve.pipeline.verify import verify_plan

        verified = verify_plan(planning, store)
        planning, columns, result = verified.planning, verified.columns, verified.result
    else:
        columns, result = planning.solve()
    scheduled = _on_streams(planning, columns, result)
    if planning.report is not None:
        planning.report(Event(stage="assemble"))
    planning.clock.lap("solve", since)
    _ = planning.unfused  # solved (and timed) before the plan is assembled
    planning.clock.lap("total", planning.clock.started)
    found = assemble(planning, columns.kernels, result, scheduled)
    limit = planning.options.max_memory
    if scheduled is not None and limit is not None and (found.peak_memory_bytes or 0) > limit:
        return assemble(planning, columns.kernels, result, schedule_plan(planning, columns, result, 1))
    if verified is None or not found.groups:
        return found
    groups = verified.shown(found.groups)
    return replace(found, groups=groups, verification=verified.record(groups))


def _check_verified(options: PlanOptions, profile: HardwareProfile) -> None:
    """Raise where nothing can be compiled, or the strategy does not choose by price."""
    if options.strategy in POLICIES or options.strategy == "unfused":
        raise InputError(f"--verify compile needs a strategy that solves, such as cpsat; {options.strategy} does not")
    if options.streams > 1:
        raise InputError(f"--verify compile plans for one stream: leave out --streams {options.streams}")
    from fusesolve.pipeline.verify import check_verify

    check_verify(profile)


def _on_streams(planning: Planning, columns: ColumnSet, result: SolveResult) -> Scheduled | None:
    """The solved plan on the streams that the options allow, None where that is one; Ctrl-C leaves it on one."""
    streams = planning.options.streams
    if streams == 1 or result.objective is None:
        return None
    if planning.report is not None:
        planning.report(Event(stage="schedule"))
    try:
        return schedule_plan(planning, columns, result, streams)
    except KeyboardInterrupt:
        return schedule_plan(planning, columns, result, 1)
