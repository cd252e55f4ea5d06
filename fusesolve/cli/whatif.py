"""`fusesolve whatif`: the same plans on hardware that does not exist yet."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fusesolve.cli.options import (
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
from fusesolve.cli.pictures import HtmlOpt, Pictures, write_page
from fusesolve.cli.request import DEFAULT_GRAPH, check_limits, resolve_hardware
from fusesolve.cli.streams import (
    check_writable,
    colour_wanted,
    notes,
    result_width,
    shown_progress,
    write_bytes,
    write_result,
)
from fusesolve.cli.whatif_options import (
    SUFFIXES,
    WORK_LIMIT,
    Form,
    FormOpt,
    GraphsArg,
    MaximiseOpt,
    MinimiseOpt,
    ProfilesOpt,
    ResolutionOpt,
    SchedulerOpt,
    SensitivityOpt,
    SetOpt,
    SweepLimitOpt,
    SweepWorkersOpt,
    SweepWorkOpt,
    TargetOpt,
    ThresholdOpt,
    ZipOpt,
)
from fusesolve.errors import InputError, NoPlanError

if TYPE_CHECKING:
    from fusesolve.graph import Graph
    from fusesolve.hardware import HardwareProfile
    from fusesolve.hardware_yaml import NumberPath
    from fusesolve.pipeline.options import PlanOptions, Report
    from fusesolve.whatif.axes import Axis
    from fusesolve.whatif.executors import Resources
    from fusesolve.whatif.points import Study
    from fusesolve.whatif.rows import Table
    from fusesolve.whatif.state import Journal

LOG_EVERY_S = 30.0  # seconds between the lines that say how far a sweep is, where there is no terminal
EXAMPLES = """Examples:

fusesolve whatif --hw h100 --set launch.stream=0.5us,2us,5us

fusesolve whatif softmax rms_norm --hw h100 --hw h200 --set memory.dram.bandwidth=x0.5..x2:5:log -o sweep.csv
"""


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
    html: Path | None
    form: Form | None
    quiet: bool
    verbose: bool

    def choose(self, default: Form) -> Form:
        """The form asked for, else that of the output's suffix, else `default`."""
        suffix = "" if self.output is None else self.output.suffix.lower()
        return self.form or SUFFIXES.get(suffix, default)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The question beside the points: at most one of these is given."""

    threshold: Sequence[str]
    sensitivity: bool
    minimise: str | None
    maximise: str | None
    target: str | None
    resolution: str | None

    def check(self) -> None:
        """Raise InputError where more than one question is asked, or half of one."""
        given = [
            name
            for name, value in (
                ("--threshold", self.threshold), ("--sensitivity", self.sensitivity), ("--minimise", self.minimise),
                ("--maximise", self.maximise),
            )
            if value
        ]  # fmt: skip
        if len(given) > 1:
            raise InputError(f"{' and '.join(given)} are two questions: ask one at a time")
        search = self.minimise or self.maximise
        if bool(search) != bool(self.target):
            raise InputError("--minimise or --maximise and --target go together, such as --target 150us")
        if self.resolution and not (search or self.threshold):
            raise InputError("--resolution goes with --threshold, --minimise or --maximise")


def whatif_command(
    hardware: ProfilesOpt,
    graphs: GraphsArg = None,
    sets: SetOpt = None,
    zipped: ZipOpt = False,
    threshold: ThresholdOpt = None,
    minimise: MinimiseOpt = None,
    maximise: MaximiseOpt = None,
    target: TargetOpt = None,
    sensitivity: SensitivityOpt = False,
    resolution: ResolutionOpt = None,
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
    html: HtmlOpt = None,
    quiet: QuietOpt = False,
    verbose: VerboseOpt = False,
    debug: DebugOpt = False,
) -> None:
    """Plan GRAPHs on PROFILEs whose numbers are changed: one row a point, with the plan's hash, time and proof.

    With -o FILE a sweep that was stopped goes on where it was when the same command is repeated. A question (where the
    plan changes, what a number buys, what it takes to meet a target) is answered at every point of the --set values.
    """
    asked = Asked(
        threshold=threshold or (), sensitivity=sensitivity, minimise=minimise, maximise=maximise, target=target,
        resolution=resolution,
    )  # fmt: skip
    asked.check()
    path = None if output is None or str(output) == "-" else output
    check_writable(path)
    Pictures(html=html).check()
    check_limits(time_limit=time_limit, work_limit=work_limit, workers=workers, seed=seed)
    from fusesolve.pipeline.options import PlanOptions
    from fusesolve.whatif.executors import Resources

    request = Request(
        graphs=graphs or (), hardware=hardware, bind=bind or (), strict=strict,
        options=PlanOptions(
            recompute=not no_recompute, launch=launch.value, implementation=implementation.value, as_dtype=as_dtype,
            work_limit=work_limit, seed=seed,
        ),
        resources=Resources(workers=workers, scheduler=scheduler, time_limit=time_limit),
        output=path, html=html, form=form, quiet=quiet, verbose=verbose,
    )  # fmt: skip
    if asked.threshold or asked.sensitivity or asked.target:
        run_question(request, sets or [], asked, zipped=zipped)
    else:
        run_sweep(request, sets or [], zipped=zipped)


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


def make_study(request: Request, axes: "Sequence[Axis]", *, zipped: bool) -> "Study":
    """The points of a request; warnings of its graphs are noted."""
    from fusesolve.whatif.points import build_study

    graphs, profiles = load_subjects(request)
    study = build_study(graphs, profiles, axes, request.options, zipped=zipped)
    say = notes(quiet=request.quiet)
    for line in dict.fromkeys(line for subject in study.subjects for line in subject.warnings):
        say(f"warning: {line}")
    return study


def run_sweep(request: Request, sets: Sequence[str], *, zipped: bool) -> None:
    """Work out the crossed (or zipped) points and write the table."""
    from fusesolve.report.pictures.whatif_pages import sweep_page
    from fusesolve.whatif.axes import parse_axis
    from fusesolve.whatif.files import load_parquet_library
    from fusesolve.whatif.state import state_path
    from fusesolve.whatif.sweep import run_study

    if request.choose(Form.CSV) is Form.PARQUET:
        load_parquet_library()
    study = make_study(request, [parse_axis(text) for text in sets], zipped=zipped)
    state = None if request.output is None else state_path(request.output)
    try:
        with shown_progress(quiet=request.quiet, verbose=request.verbose, every=LOG_EVERY_S) as report:
            table, journal = run_study(study, request.resources, state=state, progress=report)
    except KeyboardInterrupt:
        kept = "with -o FILE a sweep can be resumed" if state is None else "repeat the command to go on"
        raise NoPlanError(f"interrupted before the sweep was finished; {kept}") from None
    there = write_table(table, study, request, finished=journal.finished)
    write_page(lambda: sweep_page(table.to_dict()), request.html)
    journal.finish()
    if request.output is not None:
        notes(quiet=request.quiet)(_written(table, journal, request.output, there=there))


def _written(table: "Table", journal: "Journal", output: Path, *, there: bool) -> str:
    """What came of a sweep with an output file, in one line; `there`: it had been finished before."""
    plans = len({record["plan_sha256"] for record in table.records()} - {None})
    said = f"{output}: {len(table.rows):,} points"
    if there:
        return f"nothing to do, {said} are there already ({journal.path} can be removed to work them out anew)"
    kept = f" ({journal.kept:,} kept from before)" if journal.kept else ""
    return f"wrote {said}{kept}, {plans:,} different plans"


def write_table(table: "Table", study: "Study", request: Request, *, finished: bool) -> bool:
    """The table of a sweep to stdout or the output file, in the form asked for.

    True where nothing was written: the sweep had been `finished` before, and the file is what it came to.
    """
    data = format_table(table, study, request)
    path = request.output
    if finished and path is not None and path.is_file() and path.read_bytes() == _encoded(data):
        return True
    if isinstance(data, bytes):
        write_bytes(data, path)
    else:
        write_result(data, path)
    return False


def _encoded(data: str | bytes) -> bytes:
    return data if isinstance(data, bytes) else data.encode()


def format_table(table: "Table", study: "Study", request: Request) -> str | bytes:
    """The table of a sweep in the form asked for."""
    from fusesolve.report.json import format_json
    from fusesolve.report.whatif import sweep_table
    from fusesolve.whatif.files import format_csv, format_parquet

    form = request.choose(Form.CSV)
    if form is Form.PARQUET:
        return format_parquet(table)
    if form is Form.TABLE:
        return sweep_table(table.to_dict(), [number.dimension for number in study.paths], **_look(request))
    return format_json(table.to_dict()) if form is Form.JSON else format_csv(table)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """The document that answers a question, what shows it to people, and its page (None: it has none)."""

    document: dict[str, Any]
    show: Callable[..., str]
    page: Callable[[dict[str, Any]], str] | None = None


def run_question(request: Request, sets: Sequence[str], asked: Asked, *, zipped: bool) -> None:
    """Answer the question at every point, and write the answers as tables or JSON."""
    from fusesolve.report.json import format_json

    form = request.choose(Form.TABLE)
    if request.html is not None and asked.target:
        raise InputError("--html shows a sweep, --threshold or --sensitivity, not --minimise or --maximise")
    if form not in (Form.TABLE, Form.JSON):
        raise InputError(
            f"--format {form.value}: a question is answered as table or json; only sweeps have {form.value}"
        )
    with shown_progress(quiet=request.quiet, verbose=request.verbose, every=LOG_EVERY_S) as report:
        found = _answer(request, sets, asked, zipped=zipped, report=report)
    text = format_json(found.document) if form is Form.JSON else found.show(found.document, **_look(request))
    write_result(text, request.output)
    page = found.page
    if page is not None:
        write_page(lambda: page(found.document), request.html)


def _answer(request: Request, sets: Sequence[str], asked: Asked, *, zipped: bool, report: "Report | None") -> _Answer:
    from fusesolve.report.pictures.whatif_pages import sensitivity_page, thresholds_page
    from fusesolve.report.whatif import search_table, sensitivity_table, thresholds_table
    from fusesolve.whatif.axes import parse_axis, parse_map, parse_range
    from fusesolve.whatif.questions import ask_sensitivity, ask_thresholds, ask_value

    axes = [parse_axis(text) for text in sets]
    if asked.sensitivity:
        found = ask_sensitivity(make_study(request, axes, zipped=zipped), request.resources, progress=report)
        return _Answer(document=found, show=sensitivity_table, page=sensitivity_page)
    if asked.threshold:
        span, lines = parse_map(asked.threshold)
        study = make_study(request, [*axes, *([lines] if lines else [])], zipped=zipped)
        step = _resolution(span.number, asked.resolution)
        found = ask_thresholds(study, span, request.resources, resolution=step, progress=report)
        return _Answer(document=found, show=thresholds_table, page=thresholds_page)
    option = "--maximise" if asked.maximise else "--minimise"
    span = parse_range(asked.maximise or asked.minimise or "", option)
    found = ask_value(
        make_study(request, axes, zipped=zipped), span, _target_ns(asked.target or ""), request.resources,
        largest=bool(asked.maximise), resolution=_resolution(span.number, asked.resolution), progress=report,
    )  # fmt: skip
    return _Answer(document=found, show=search_table)


def _resolution(number: "NumberPath", text: str | None) -> float | None:
    return None if text is None else number.read(text)


def _target_ns(text: str) -> int:
    from fusesolve.units import Dimension, parse_quantity

    try:
        target = round(1e9 * parse_quantity(text, Dimension.SECONDS))
    except InputError as error:
        raise InputError(f"--target: {error}") from error
    if target < 1:
        raise InputError(f"--target {text}: expected at least 1 ns")
    return target


def _look(request: Request) -> dict[str, Any]:
    """Width and colour of a table for people."""
    return {"width": result_width(request.output), "colour": request.output is None and colour_wanted()}
