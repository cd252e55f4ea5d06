"""`fusesolve plan`: which operators share a kernel, with the proof."""

from pathlib import Path
from typing import TYPE_CHECKING

from fusesolve.cli.options import (
    ApartOpt,
    BindOpt,
    DebugOpt,
    DTypeOpt,
    Format,
    FormatOpt,
    GraphArg,
    HardwareOpt,
    Implementation,
    ImplementationOpt,
    Launch,
    LaunchOpt,
    MaxKernelsOpt,
    MaxMemoryOpt,
    NoRecomputeOpt,
    ObjectiveOpt,
    OutputOpt,
    PinsOpt,
    QuietOpt,
    SeedOpt,
    Simulate,
    SimulateOpt,
    Sink,
    StoreOpt,
    StrategyOpt,
    StreamsOpt,
    StrictOpt,
    TimeLimitOpt,
    TogetherOpt,
    VerboseOpt,
    Verify,
    VerifyOpt,
    WorkersOpt,
    WorkLimitOpt,
    sink,
)
from fusesolve.cli.pictures import DotOpt, HtmlOpt, NodeDataOpt, Pictures, TraceOpt
from fusesolve.cli.request import DEFAULT_GRAPH, PlanRequest, resolve_hardware
from fusesolve.cli.streams import colour_wanted, hold_interrupts, notes, result_width, shown_progress, write_result
from fusesolve.errors import NoPlanError
from fusesolve.plan import Plan

if TYPE_CHECKING:
    from fusesolve.pipeline.options import Event

EXAMPLES = """Examples:

fusesolve plan --hw h100.yaml  (the bundled transformer block)

fusesolve plan model.onnx --hw a100 --bind batch=8 -o plan.json

fusesolve plan gpt2_block --hw my_gpu.yaml --apart ln_1,c_attn --no-recompute
"""


def plan_command(
    hardware: HardwareOpt,
    graph: GraphArg = None,
    bind: BindOpt = None,
    strict: StrictOpt = False,
    as_dtype: DTypeOpt = None,
    strategy: StrategyOpt = "cpsat",
    objective: ObjectiveOpt = "latency",
    time_limit: TimeLimitOpt = 60.0,
    work_limit: WorkLimitOpt = None,
    workers: WorkersOpt = None,
    seed: SeedOpt = 0,
    together: TogetherOpt = None,
    apart: ApartOpt = None,
    pins: PinsOpt = None,
    no_recompute: NoRecomputeOpt = False,
    max_memory: MaxMemoryOpt = None,
    max_kernels: MaxKernelsOpt = None,
    launch: LaunchOpt = Launch.STREAM,
    streams: StreamsOpt = 1,
    implementation: ImplementationOpt = Implementation.BEST,
    simulate: SimulateOpt = Simulate.CLOSED,
    verify: VerifyOpt = Verify.NONE,
    store: StoreOpt = None,
    form: FormatOpt = None,
    output: OutputOpt = None,
    html: HtmlOpt = None,
    trace: TraceOpt = None,
    node_data: NodeDataOpt = None,
    dot: DotOpt = None,
    quiet: QuietOpt = False,
    verbose: VerboseOpt = False,
    debug: DebugOpt = False,
) -> None:
    """Find the fastest way to group the operators of GRAPH into kernels on PROFILE, and prove it.

    Prints one line a kernel with its predicted time and what limits it, then the total and how far it is proven.
    At the time limit, or at Ctrl-C, the best plan so far is shown with its gap.
    """
    goal = sink(form, output)
    request = PlanRequest(
        bind=bind or (), strict=strict, as_dtype=as_dtype, strategy=strategy, time_limit=time_limit,
        work_limit=work_limit, workers=workers, seed=seed, together=together or (), apart=apart or (), pins=pins,
        recompute=not no_recompute, max_memory=max_memory, max_kernels=max_kernels, launch=launch.value,
        streams=streams, implementation=implementation.value, simulate=simulate.value,
        verify=verify.value, objective=objective,
    )  # fmt: skip
    pictures = Pictures(html=html, trace=trace, node_data=node_data, dot=dot)
    run_plan(graph, hardware, request, goal, pictures, store=store, quiet=quiet, verbose=verbose)


def run_plan(
    graph: str | None, hardware: str, request: PlanRequest, goal: Sink, pictures: Pictures, *, quiet: bool,
    verbose: bool, store: Path | None = None,
) -> None:  # fmt: skip
    """Plan and write the result to `goal`; NoPlanError (exit 3) where there is no plan, after its document."""
    pictures.check()
    say = notes(quiet=quiet)
    keywords = request.keywords()
    if graph is None:
        say(f"no GRAPH given: planning the bundled transformer block {DEFAULT_GRAPH}")
    target = resolve_hardware(hardware, say)
    from fusesolve import plan

    try:
        with shown_progress(quiet=quiet, verbose=verbose) as report:

            def watch(event: "Event") -> None:
                if event.stage == "assemble":  # solved: an interrupt would lose what there is
                    hold_interrupts()
                if report is not None:
                    report(event)

            found = plan(graph or DEFAULT_GRAPH, target, progress=watch, store=store, **keywords)
    except KeyboardInterrupt:
        raise NoPlanError("interrupted before there was a plan") from None
    _write(found, goal, quiet=quiet)
    apart = {name: keywords[name] for name in ("bind", "strict", "as_dtype", "launch", "implementation")}
    pictures.write(found, lambda: plan(graph or DEFAULT_GRAPH, target, strategy="unfused", **apart))
    if found.status in ("INFEASIBLE", "NO_SOLUTION"):
        raise NoPlanError(_reason(found))


def _write(plan: Plan, goal: Sink, *, quiet: bool) -> None:
    from fusesolve.report.json import format_json
    from fusesolve.report.table import plan_table, summary

    say = notes(quiet=quiet)
    if goal.form is Format.JSON:
        text = format_json(plan.to_dict())
        for warning in plan.warnings:
            say(f"warning: {warning}")
    else:
        text = plan_table(plan, width=result_width(goal.path), colour=goal.path is None and colour_wanted())
    write_result(text, goal.path)
    if goal.path is not None:
        say(f"wrote {goal.path}: {summary(plan)}")


def _reason(plan: Plan) -> str:
    from fusesolve.report.table import conflict_lines

    conflicts = conflict_lines(plan)
    if plan.status == "INFEASIBLE":
        return "; ".join(("no plan exists", *conflicts))
    return "; ".join(("no plan was found", *(conflicts or ["the limit was reached first: raise --time-limit"])))
