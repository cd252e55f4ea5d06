"""`fusesolve schema`: the JSON Schemas of the formats."""

from pathlib import Path
from typing import Annotated

import typer

from fusesolve.cli.options import DebugOpt, OutputOpt
from fusesolve.cli.streams import check_writable, write_result

EXAMPLES = "Examples:  fusesolve schema   |   fusesolve schema plan   |   fusesolve schema graph -o graph.schema.json"

NameArg = Annotated[
    str | None,
    typer.Argument(metavar="NAME", help="The format; left out: list the formats.", show_default=False),
]


def schema_command(name: NameArg = None, output: OutputOpt = None, debug: DebugOpt = False) -> None:
    """Print the JSON Schema of a format that fusesolve reads or writes."""
    from fusesolve.schema import SCHEMAS, schema_text

    target = None if output is None or output == Path("-") else output
    check_writable(target)
    width = max(map(len, SCHEMAS)) + 2
    listing = "".join(f"{key:{width}}{text}\n" for key, text in SCHEMAS.items())
    write_result(listing if name is None else schema_text(name), target)
