"""`fusesolve compare`: every strategy, and what other compilers chose, on one simulator."""

from pathlib import Path
from typing import Annotated, Any

import typer

from fusesolve.cli.options import (
    SOLVE_PANEL,
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
from fusesolve.cli.pictures import HtmlOpt, Pictures, write_page
from fusesolve.cli.request import DEFAULT_GRAPH, PlanRequest, resolve_hardware
from fusesolve.cli.streams import colour_wanted, notes, result_width, shown_progress, write_result
from fusesolve.errors import InputError

EXAMPLES = """Examples:

fusesolve compare gpt2_block --hw h100

fusesolve compare model.onnx --hw a100 --strategies cpsat,xla,inductor --partition inductor.json
"""
ALL = "all"

StrategiesOpt = Annotated[
    str,
    typer.Option("--strategies", metavar="all|A,B", help="Which strategies to compare, by name.",
                 rich_help_panel=SOLVE_PANEL),
]  # fmt: skip
PartitionOpt = Annotated[
    list[Path] | None,
    typer.Option("--partition", metavar="FILE", help="A partition that another compiler chose, as JSON. Repeatable.",
                 rich_help_panel=SOLVE_PANEL, show_default=False),
]  # fmt: skip


def compare_command(
    hardware: HardwareOpt,
    graph: GraphArg = None,
    strategies: StrategiesOpt = ALL,
    partition: PartitionOpt = None,
    bind: BindOpt = None,
    strict: StrictOpt = False,
    as_dtype: DTypeOpt = None,
    time_limit: TimeLimitOpt = 60.0,
    work_limit: WorkLimitOpt = None,
    workers: WorkersOpt = None,
    seed: SeedOpt = 0,
    launch: LaunchOpt = Launch.STREAM,
    implementation: ImplementationOpt = Implementation.BEST,
    form: FormatOpt = None,
    output: OutputOpt = None,
    html: HtmlOpt = None,
    quiet: QuietOpt = False,
    verbose: VerboseOpt = False,
    debug: DebugOpt = False,
) -> None:
    """Price what every strategy, and every given partition, makes of GRAPH on PROFILE, beside the optimum.

    A group that is no kernel is named with the rule and priced as its own best legal parts.
    """
    goal = sink(form, output)
    request = PlanRequest(
        bind=bind or (), strict=strict, as_dtype=as_dtype, strategy="cpsat", time_limit=time_limit,
        work_limit=work_limit, workers=workers, seed=seed, together=(), apart=(), pins=None, recompute=True,
        max_memory=None, max_kernels=None, launch=launch.value, streams=1, implementation=implementation.value,
    )  # fmt: skip
    Pictures(html=html).check()
    found = run_compare(graph, hardware, request, goal, strategies, partition or [], quiet=quiet, verbose=verbose)
    from fusesolve.report.pictures.other_pages import compare_page

    write_page(lambda: compare_page(found), html)


def run_compare(
    graph: str | None, hardware: str, request: PlanRequest, goal: Sink, strategies: str, partitions: list[Path], *,
    quiet: bool, verbose: bool,
) -> dict[str, Any]:  # fmt: skip
    """Compare and write the result to `goal`; `strategies` is `all` or names with commas between."""
    say = notes(quiet=quiet)
    keywords = request.keywords()
    for pins in ("together", "apart"):
        del keywords[pins]
    chosen = parse_strategies(strategies)
    if graph is None:
        say(f"no GRAPH given: comparing on the bundled transformer block {DEFAULT_GRAPH}")
    target = resolve_hardware(hardware, say)
    from fusesolve.comparison import compare
    from fusesolve.pipeline.policy import STRATEGY_NAMES
    from fusesolve.report.compare import compare_table
    from fusesolve.report.json import format_json

    with shown_progress(quiet=quiet, verbose=verbose) as report:
        found = compare(
            graph or DEFAULT_GRAPH, target, strategies=chosen or STRATEGY_NAMES, partitions=partitions, progress=report,
            **keywords,
        ).to_dict()  # fmt: skip
    if goal.form is Format.JSON:
        text = format_json(found)
    else:
        text = compare_table(found, width=result_width(goal.path), colour=goal.path is None and colour_wanted())
    write_result(text, goal.path)
    return found


def parse_strategies(text: str) -> tuple[str, ...]:
    """Names of `--strategies` in order, none for `all`; InputError where there is no name in it."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise InputError(f"--strategies {text!r}: expected all, or names such as cpsat,xla")
    return () if ALL in names else names
