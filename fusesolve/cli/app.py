"""The tree of commands. Each command is a function in a module of its own; this is their table."""

from collections.abc import Callable
from typing import Annotated, Any

import typer

from fusesolve.cli import (
    accuracy,
    calibrate,
    codegen,
    compare,
    diff,
    explain,
    graphs,
    plan,
    profiles,
    schema,
    validate,
    whatif,
)

ABOUT = """
Plan which operators of a neural network share a kernel on a described accelerator, with a proof.

Start with: fusesolve plan --hw h100.yaml
"""

# Name of the command -> (its function, an example for its help).
COMMANDS: dict[str, tuple[Callable[..., Any], str]] = {
    "plan": (plan.plan_command, plan.EXAMPLES),
    "explain": (explain.explain_command, explain.EXAMPLES),
    "codegen": (codegen.codegen_command, codegen.EXAMPLES),
    "validate": (validate.validate_command, validate.EXAMPLES),
    "accuracy": (accuracy.accuracy_command, accuracy.EXAMPLES),
    "calibrate": (calibrate.calibrate_command, calibrate.EXAMPLES),
    "compare": (compare.compare_command, compare.EXAMPLES),
    "whatif": (whatif.whatif_command, whatif.EXAMPLES),
    "diff": (diff.diff_command, diff.EXAMPLES),
    "schema": (schema.schema_command, schema.EXAMPLES),
}
GROUPS: dict[str, tuple[str, dict[str, tuple[Callable[..., Any], str]]]] = {
    "profiles": ("Hardware profiles: list, show, check, detect.", profiles.COMMANDS),
    "graph": ("Graphs: list, show, convert.", graphs.COMMANDS),
}
SETTINGS: dict[str, Any] = {
    "add_completion": False,
    "rich_markup_mode": "rich",
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}


def _show_version(wanted: bool) -> None:
    if wanted:
        from fusesolve import __version__
        from fusesolve.cli.streams import write_result

        write_result(f"fusesolve {__version__}\n", None)
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Hold the options that stand before a command."""


def _build() -> typer.Typer:
    root = typer.Typer(help=ABOUT, no_args_is_help=False, **SETTINGS)
    root.callback()(_root)
    for name, (function, examples) in COMMANDS.items():
        root.command(name, epilog=examples)(function)
    for name, (about, commands) in GROUPS.items():
        group = typer.Typer(help=about, **SETTINGS)
        for command, (function, examples) in commands.items():
            group.command(command, epilog=examples)(function)
        root.add_typer(group, name=name)
    return root


app = _build()
