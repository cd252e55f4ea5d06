"""`fusesolve explain`: why operators share a kernel or do not."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from fusesolve.cli.options import (
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
    NoRecomputeOpt,
    OutputOpt,
    QuietOpt,
    SeedOpt,
    Sink,
    StrictOpt,
    TimeLimitOpt,
    VerboseOpt,
    WorkersOpt,
    WorkLimitOpt,
    sink,
)
from fusesolve.cli.request import DEFAULT_GRAPH, PlanRequest, resolve_hardware
from fusesolve.cli.streams import colour_wanted, notes, result_width, shown_progress, write_result
from fusesolve.errors import InputError

EXAMPLES = """Examples:

fusesolve explain gpt2_block --hw h100 --between ln_1 c_attn

fusesolve explain model.onnx --hw a100 --group 3
"""

BetweenOpt = Annotated[
    tuple[str, str] | None,
    typer.Option("--between", metavar="A B", help="Two operators: together or apart, what would each cost?",
                 show_default=False),
]  # fmt: skip
GroupOpt = Annotated[
    int | None,
    typer.Option("--group", metavar="N", help="A kernel of the plan by its number: why it is one kernel.",
                 show_default=False),
]  # fmt: skip


def explain_command(
    hardware: HardwareOpt,
    graph: GraphArg = None,
    between: BetweenOpt = None,
    group: GroupOpt = None,
    bind: BindOpt = None,
    strict: StrictOpt = False,
    as_dtype: DTypeOpt = None,
    time_limit: TimeLimitOpt = 60.0,
    work_limit: WorkLimitOpt = None,
    workers: WorkersOpt = None,
    seed: SeedOpt = 0,
    no_recompute: NoRecomputeOpt = False,
    launch: LaunchOpt = Launch.STREAM,
    implementation: ImplementationOpt = Implementation.BEST,
    form: FormatOpt = None,
    output: OutputOpt = None,
    quiet: QuietOpt = False,
    verbose: VerboseOpt = False,
    debug: DebugOpt = False,
) -> None:
    """Say why two operators share a kernel or do not, or why a kernel is as it is: the terms, the rule, the numbers.

    Give --between A B or --group N.
    """
    if (between is None) == (group is None):
        raise InputError("explain needs one of --between A B and --group N")
    goal = sink(form, output)
    request = PlanRequest(
        bind=bind or (), strict=strict, as_dtype=as_dtype, strategy="cpsat", time_limit=time_limit,
        work_limit=work_limit, workers=workers, seed=seed, together=(), apart=(), pins=None,
        recompute=not no_recompute, max_memory=None, max_kernels=None, launch=launch.value, streams=1,
        implementation=implementation.value,
    )  # fmt: skip
    subject = {"between": between, "group": group}
    run_explain(graph, hardware, request, goal, subject=subject, quiet=quiet, verbose=verbose)


def run_explain(
    graph: str | None,
    hardware: str,
    request: PlanRequest,
    goal: Sink,
    *,
    subject: Mapping[str, Any],
    quiet: bool,
    verbose: bool,
) -> None:
    """Explain `subject` (`between` or `group`) and write the result to `goal`."""
    say = notes(quiet=quiet)
    if graph is None:
        say(f"no GRAPH given: explaining the bundled transformer block {DEFAULT_GRAPH}")
    target = resolve_hardware(hardware, say)
    from fusesolve import explain
    from fusesolve.report.explanation import explanation_table
    from fusesolve.report.json import format_json

    with shown_progress(quiet=quiet, verbose=verbose) as report:
        found = explain(graph or DEFAULT_GRAPH, target, progress=report, **subject, **request.keywords()).to_dict()
    if goal.form is Format.JSON:
        text = format_json(found)
    else:
        text = explanation_table(found, width=result_width(goal.path), colour=goal.path is None and colour_wanted())
    write_result(text, goal.path)
