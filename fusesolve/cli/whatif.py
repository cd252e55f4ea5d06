"""`fusesolve whatif`: the same plans on hardware that does not exist yet."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fusesolve.cli.options import (
    OUTPUT_PANEL,
    PLAN_PANEL,
    SOLVE_PANEL,
    BindOpt,
    DebugOpt,
    DTypeOpt,
    Implementation,
    ImplementationOpt,
    Launch,
    LaunchOpt,
    NoRecomputeOpt,
    OutputOpt,
    QuietOpt,
    SeedOpt,
    StrictOpt,
    VerboseOpt,
    parse_bindings,
)
from fusesolve.cli.request import DEFAULT_GRAPH, resolve_hardware
from fusesolve.cli.streams import check_writable, notes, shown_progress, write_bytes, write_result
from fusesolve.errors import InputError

if TYPE_CHECKING:
    from fusesolve.graph import Graph
    from fusesolve.hardware import HardwareProfile
    from fusesolve.pipeline.options import PlanOptions
    from fusesolve.whatif.rows import Table
    from fusesolve.whatif.sweep import Resources

EXAMPLES = """Examples:

fusesolve whatif --hw h100 --set launch.stream=0.5us,2us,5us

fusesolve whatif softmax rms_norm --hw h100 --hw h200 --set memory.dram.bandwidth=x0.5..x2:5:log -o sweep.csv
"""
WORK_LIMIT = 60.0


class Form(StrEnum):
    """How a what-if result is written."""

    CSV = "csv"
    PARQUET = "parquet"
    JSON = "json"


GraphsArg = Annotated[
    list[str] | None,
    typer.Argument(metavar="[GRAPH]...", show_default=False,
                   help="Files or names of bundled graphs; left out: a transformer block."),
]  # fmt: skip
ProfilesOpt = Annotated[
    list[str],
    typer.Option("--hw", metavar="PROFILE", show_default=False,
                 help="A profile file, a bundled name such as h100, or local. Repeatable."),
]  # fmt: skip
SetOpt = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUES", rich_help_panel=PLAN_PANEL, show_default=False,
                 help="V1,V2,... or LO..HI:STEPS[:log] for a number of the profile; x2 doubles it. Repeatable."),
]  # fmt: skip
ZipOpt = Annotated[
    bool, typer.Option("--zip", help="Take the values of all --set in step.", rich_help_panel=PLAN_PANEL)
]
SchedulerOpt = Annotated[
    str | None,
    typer.Option("--scheduler", metavar="ADDRESS", rich_help_panel=SOLVE_PANEL, show_default=False,
                 help="Run on the Dask cluster at tcp://host:port (extra dask)."),
]  # fmt: skip
SweepLimitOpt = Annotated[
    float | None,
    typer.Option("--time-limit", metavar="SECONDS", rich_help_panel=SOLVE_PANEL, show_default=False,
                 help="Wall clock after which the sweep ends; with -o it can be resumed."),
]  # fmt: skip
SweepWorkOpt = Annotated[
    float,
    typer.Option("--work-limit", metavar="N", rich_help_panel=SOLVE_PANEL,
                 help="Deterministic work units for one point, then its best plan so far."),
]  # fmt: skip
SweepWorkersOpt = Annotated[
    int | None,
    typer.Option("--workers", metavar="N", rich_help_panel=SOLVE_PANEL, show_default=False,
                 help="Processes; left out: as many as there are cores."),
]  # fmt: skip
FormOpt = Annotated[
    Form | None,
    typer.Option("--format", rich_help_panel=OUTPUT_PANEL, show_default=False,
                 help="Left out: by the suffix of -o, else csv."),
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What all questions have in common: what is planned, on what, and where the answer goes."""

    graphs: Sequence[str]
    hardware: Sequence[str]
    bind: Sequence[str]
    strict: bool
    options: "PlanOptions"
    resources: "Resources"
    output: Path | None
    form: Form
    quiet: bool
    verbose: bool


def whatif_command(
    hardware: ProfilesOpt,
    graphs: GraphsArg = None,
    sets: SetOpt = None,
    zipped: ZipOpt = False,
    scheduler: SchedulerOpt = None,
    bind: BindOpt = None,
    strict: StrictOpt = False,
    as_dtype: DTypeOpt = None,
    time_limit: SweepLimitOpt = None,
    work_limit: SweepWorkOpt = WORK_LIMIT,
    workers: SweepWorkersOpt = None,
    seed: SeedOpt = 0,
    no_recompute: NoRecomputeOpt = False,
    launch: LaunchOpt = Launch.STREAM,
    implementation: ImplementationOpt = Implementation.BEST,
    form: FormOpt = None,
    output: OutputOpt = None,
    quiet: QuietOpt = False,
    verbose: VerboseOpt = False,
    debug: DebugOpt = False,
) -> None:
    """Plan GRAPHs on PROFILEs whose numbers are changed: one row a point, with the plan's hash, time and proof.

    With -o FILE a sweep that was stopped goes on where it was when the same command is repeated.
    """
    path = None if output is None or str(output) == "-" else output
    check_writable(path)
    check_limits(time_limit, work_limit, workers, seed)
    from fusesolve.pipeline.options import PlanOptions
    from fusesolve.whatif.sweep import Resources

    request = Request(
        graphs=graphs or (), hardware=hardware, bind=bind or (), strict=strict,
        options=PlanOptions(
            recompute=not no_recompute, launch=launch.value, implementation=implementation.value, as_dtype=as_dtype,
            work_limit=work_limit, seed=seed,
        ),
        resources=Resources(workers=workers, scheduler=scheduler, time_limit=time_limit),
        output=path, form=form or _form_of(path), quiet=quiet, verbose=verbose,
    )  # fmt: skip
    run_sweep(request, sets or [], zipped=zipped)


def check_limits(time_limit: float | None, work_limit: float, workers: int | None, seed: int) -> None:
    """InputError names the first limit that makes no sense."""
    for option, number in (("--time-limit", time_limit), ("--work-limit", work_limit)):
        if number is not None and not 0 < number < float("inf"):
            raise InputError(f"{option} {number:g}: expected a number above 0")
    if workers is not None and workers < 1:
        raise InputError(f"--workers {workers}: expected an integer of at least 1")
    if not 0 <= seed < 2**31:
        raise InputError(f"--seed {seed}: expected an integer from 0 to {2**31 - 1}")


def _form_of(path: Path | None) -> Form:
    found = {".json": Form.JSON, ".parquet": Form.PARQUET, ".pq": Form.PARQUET}
    return Form.CSV if path is None else found.get(path.suffix.lower(), Form.CSV)


def load_subjects(request: Request) -> tuple[list["Graph"], list["HardwareProfile"]]:
    """The graphs and profiles that a request names; raises InputError."""
    say = notes(quiet=request.quiet)
    if not request.graphs:
        say(f"no GRAPH given: planning the bundled transformer block {DEFAULT_GRAPH}")
    from fusesolve.hardware_yaml import load_profile
    from fusesolve.importers import load_graph

    found = [resolve_hardware(name, say) for name in request.hardware]
    profiles = [load_profile(item) if isinstance(item, str) else item for item in found]
    sizes = parse_bindings(request.bind)
    graphs = [
        load_graph(name, bind=sizes, strict=request.strict, as_dtype=request.options.as_dtype)
        for name in request.graphs or (DEFAULT_GRAPH,)
    ]
    return graphs, profiles


def run_sweep(request: Request, sets: Sequence[str], *, zipped: bool) -> None:
    """Work out the crossed (or zipped) points and write the table."""
    from fusesolve.whatif.axes import parse_axis
    from fusesolve.whatif.files import load_parquet_library
    from fusesolve.whatif.points import build_study
    from fusesolve.whatif.state import state_path
    from fusesolve.whatif.sweep import run_study

    if request.form is Form.PARQUET:
        load_parquet_library()
    axes = [parse_axis(text) for text in sets]
    graphs, profiles = load_subjects(request)
    study = build_study(graphs, profiles, axes, request.options, zipped=zipped)
    say = notes(quiet=request.quiet)
    for line in dict.fromkeys(line for subject in study.subjects for line in subject.warnings):
        say(f"warning: {line}")
    state = None if request.output is None else state_path(request.output)
    with shown_progress(quiet=request.quiet, verbose=request.verbose) as report:
        table, journal = run_study(study, request.resources, state=state, progress=report)
    write_table(table, request)
    journal.remove()
    if request.output is not None:
        plans = len({record["plan_sha256"] for record in table.records()} - {None})
        say(f"wrote {request.output}: {len(table.rows):,} points, {plans:,} different plans")


def write_table(table: "Table", request: Request) -> None:
    """The table to stdout or the output file, in the form asked for."""
    from fusesolve.report.json import format_json
    from fusesolve.whatif.files import format_csv, format_parquet

    if request.form is Form.PARQUET:
        write_bytes(format_parquet(table), request.output)
    else:
        text = format_json(table.to_dict()) if request.form is Form.JSON else format_csv(table)
        write_result(text, request.output)
