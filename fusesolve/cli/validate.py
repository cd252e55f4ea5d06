"""`fusesolve validate`: a plan against the reference, the CUDA simulator, the CUDA compiler, this CPU."""

from enum import StrEnum
from typing import Annotated

import typer

from fusesolve.cli.documents import load_plan_document
from fusesolve.cli.options import (
    BindOpt,
    DebugOpt,
    DTypeOpt,
    Format,
    FormatOpt,
    Implementation,
    ImplementationOpt,
    OutputOpt,
    QuietOpt,
    SeedOpt,
    StrictOpt,
    TimeLimitOpt,
    VerboseOpt,
    sink,
)
from fusesolve.cli.pictures import HtmlOpt, Pictures, write_page
from fusesolve.cli.streams import colour_wanted, notes, result_width, shown_progress, write_result
from fusesolve.errors import ValidationError

EXAMPLES = """Examples:

fusesolve validate gpt2_block --hw a100 --on reference

fusesolve validate plan.json --on reference --format json

fusesolve validate softmax --hw local --on cpu
"""


class On(StrEnum):
    """The steps of the ladder."""

    REFERENCE = "reference"
    CUDASIM = "cudasim"
    COMPILE = "compile"
    CPU = "cpu"
    CUDA = "cuda"


SubjectArg = Annotated[
    str | None,
    typer.Argument(
        metavar="GRAPH|PLAN", show_default=False,
        help="A graph (file or bundled name), planned first; or a plan that fusesolve plan -o wrote.",
    ),
]  # fmt: skip
TargetOpt = Annotated[
    str | None,
    typer.Option("--hw", metavar="PROFILE", help="The profile to plan for; a PLAN has its own.", show_default=False),
]
OnOpt = Annotated[On, typer.Option("--on", help="What to check against.", show_default=False)]
FullOpt = Annotated[
    bool, typer.Option("--full", help="Run at the plan's own extents, however large; without it they are shrunk.")
]
ForceOpt = Annotated[bool, typer.Option("--force", help="Take a PLAN although --hw, or the GPU, is another.")]


def validate_command(
    on: OnOpt,
    subject: SubjectArg = None,
    hardware: TargetOpt = None,
    bind: BindOpt = None,
    strict: StrictOpt = False,
    as_dtype: DTypeOpt = None,
    implementation: ImplementationOpt = Implementation.BEST,
    time_limit: TimeLimitOpt = 60.0,
    full: FullOpt = False,
    force: ForceOpt = False,
    seed: SeedOpt = 0,
    form: FormatOpt = None,
    output: OutputOpt = None,
    html: HtmlOpt = None,
    quiet: QuietOpt = False,
    verbose: VerboseOpt = False,
    debug: DebugOpt = False,
) -> None:
    """Check a plan: its groups against the graph, its kernels in the simulator, the CUDA compiler, on this CPU or GPU.

    Exits with 5 and names the first failing group where the plan does not hold.
    """
    goal = sink(form, output)
    Pictures(html=html).check()
    with shown_progress(quiet=quiet, verbose=verbose) as report:
        document = load_plan_document(
            subject, hardware, force=force, say=notes(quiet=quiet), bind=bind, strict=strict, as_dtype=as_dtype,
            implementation=implementation.value, time_limit=time_limit, progress=report,
        )  # fmt: skip
    from fusesolve.report.json import format_json
    from fusesolve.report.pictures.other_pages import validation_page
    from fusesolve.report.validate import validation_table
    from fusesolve.validate.ladder import StepOptions, validate_plan

    found = validate_plan(document, on.value, StepOptions(full=full, seed=seed, force=force))
    if goal.form is Format.JSON:
        text = format_json(found.to_dict())
    else:
        text = validation_table(found, width=result_width(goal.path), colour=goal.path is None and colour_wanted())
    write_result(text, goal.path)
    write_page(lambda: validation_page(found.to_dict()), html)
    failure = found.failure()
    if failure is not None:
        raise ValidationError(failure)
