"""`fusesolve codegen`: one file of Numba CUDA kernels for a plan."""

from pathlib import Path
from typing import Annotated, Any

import typer

from fusesolve.cli.documents import load_plan_document
from fusesolve.cli.options import (
    BindOpt,
    DebugOpt,
    DTypeOpt,
    Implementation,
    ImplementationOpt,
    QuietOpt,
    StrictOpt,
    TimeLimitOpt,
    VerboseOpt,
)
from fusesolve.cli.streams import colour_wanted, notes, result_width, shown_progress, write_result
from fusesolve.cli.validate import ForceOpt, SubjectArg, TargetOpt
from fusesolve.errors import InputError

EXAMPLES = """Examples:

fusesolve codegen gpt2_block --hw a100 -o kernels/

fusesolve codegen plan.json -o kernels/
"""
SOURCE, PLAN = "kernels.py", "plan.json"

FolderOpt = Annotated[
    Path,
    typer.Option("-o", "--output", metavar="DIR", show_default=False,
                 help=f"Folder for {SOURCE} and {PLAN}; made if it is not there."),
]  # fmt: skip


def codegen_command(
    output: FolderOpt,
    subject: SubjectArg = None,
    hardware: TargetOpt = None,
    bind: BindOpt = None,
    strict: StrictOpt = False,
    as_dtype: DTypeOpt = None,
    implementation: ImplementationOpt = Implementation.BEST,
    time_limit: TimeLimitOpt = 60.0,
    force: ForceOpt = False,
    quiet: QuietOpt = False,
    verbose: VerboseOpt = False,
    debug: DebugOpt = False,
) -> None:
    """Write the kernels of a plan as one Python file, and the plan beside it.

    Library calls and opaque operators have no kernel: run() in the file asks its caller for them.
    """
    _make_folder(output)
    with shown_progress(quiet=quiet, verbose=verbose) as report:
        document = load_plan_document(
            subject, hardware, force=force, say=notes(quiet=quiet), bind=bind, strict=strict, as_dtype=as_dtype,
            implementation=implementation.value, time_limit=time_limit, progress=report,
        )  # fmt: skip
    from fusesolve.report.codegen import codegen_table
    from fusesolve.report.json import format_json
    from fusesolve.validate.ladder import generate_plan, plan_profile

    planned, made = generate_plan(document)
    write_result(made.text, output / SOURCE)
    write_result(format_json(dict[str, Any](document)), output / PLAN)
    write_result(codegen_table(planned, made, width=result_width(None), colour=colour_wanted()), None)
    say = notes(quiet=quiet)
    profile = plan_profile(document)
    if not profile.compute_capability:
        say(f"note: {profile.name} does not run CUDA kernels; they are for a look, and for --on cudasim")
    say(f"wrote {output / SOURCE} and {output / PLAN}")


def _make_folder(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise InputError(f"cannot write into {folder}: it is a file; name a folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {folder}: {error.strerror}") from error
