"""`fusesolve profiles`: list, show, check and detect hardware profiles."""

from collections.abc import Callable
from typing import Annotated, Any

import typer

from fusesolve.cli.options import DebugOpt, Format, FormatOpt, OutputOpt, QuietOpt, sink
from fusesolve.cli.streams import colour_wanted, note, notes, result_width, write_result
from fusesolve.errors import InputError

NameArg = Annotated[
    str, typer.Argument(metavar="PROFILE", help="A profile file or a bundled name.", show_default=False)
]
FilesArg = Annotated[
    list[str], typer.Argument(metavar="FILE...", help="Profile files or bundled names.", show_default=False)
]


def list_command(form: FormatOpt = None, output: OutputOpt = None, debug: DebugOpt = False) -> None:
    """List the bundled hardware profiles with their main numbers."""
    from fusesolve.hardware_yaml import list_profiles
    from fusesolve.report.json import format_json
    from fusesolve.report.profiles import profile_rows, profiles_table

    goal = sink(form, output)
    summaries = list_profiles()
    if goal.form is Format.JSON:
        text = format_json({"profiles": profile_rows(summaries)})
    else:
        text = profiles_table(summaries, width=result_width(goal.path), colour=goal.path is None and colour_wanted())
    write_result(text, goal.path)


def show_command(name: NameArg, form: FormatOpt = None, output: OutputOpt = None, debug: DebugOpt = False) -> None:
    """Show one profile, resolved: every number with its source."""
    from fusesolve.hardware_yaml import load_profile, show_profile
    from fusesolve.report.json import format_json
    from fusesolve.report.profiles import profile_table

    goal = sink(form, output)
    if goal.form is Format.JSON:
        text = format_json(load_profile(name).definition)
    else:
        leaves = show_profile(name)
        text = profile_table(leaves, width=result_width(goal.path), colour=goal.path is None and colour_wanted())
    write_result(text, goal.path)


def check_command(files: FilesArg, debug: DebugOpt = False) -> None:
    """Check profiles strictly: unknown keys, missing units, impossible numbers, all at once. Exit 2 if one is bad."""
    from fusesolve.hardware_yaml import check_profile

    bad = 0
    for name in files:
        problems = check_profile(name)
        bad += bool(problems)
        for problem in problems:
            note(f"{name}: {problem}")
        if not problems:
            write_result(f"{name}: ok\n", None)
    if bad:
        raise InputError(f"{bad} of {len(files)} profiles have errors (listed above)")


def detect_command(output: OutputOpt = None, quiet: QuietOpt = False, debug: DebugOpt = False) -> None:
    """Describe this machine, its GPU or else its CPU, as a profile (YAML): what is measured, what is assumed."""
    from fusesolve.detect import detect_profile
    from fusesolve.report.profiles import profile_yaml

    goal = sink(None, output)
    found = detect_profile()
    for line in found.notes:
        notes(quiet=quiet)(line)
    write_result(profile_yaml(found.definition), goal.path)


COMMANDS: dict[str, tuple[Callable[..., Any], str]] = {
    "list": (list_command, "Example:  fusesolve profiles list --format json"),
    "show": (show_command, "Example:  fusesolve profiles show h100"),
    "check": (check_command, "Example:  fusesolve profiles check my_gpu.yaml"),
    "detect": (detect_command, "Example:  fusesolve profiles detect -o here.yaml && fusesolve plan --hw here.yaml"),
}
