"""`fusesolve diff`: what changed from one plan to another."""

from pathlib import Path
from typing import Annotated

import typer

from fusesolve.cli.options import DebugOpt, Format, FormatOpt, OutputOpt, QuietOpt, sink
from fusesolve.cli.streams import colour_wanted, result_width, write_result

EXAMPLES = """Examples:

fusesolve plan gpt2_block --hw h100 -o best.json; fusesolve plan gpt2_block --hw h100 --strategy xla -o xla.json

fusesolve diff xla.json best.json
"""

LeftArg = Annotated[Path, typer.Argument(metavar="PLAN", help="A plan's JSON file.", show_default=False)]
RightArg = Annotated[Path, typer.Argument(metavar="PLAN", help="The plan to compare it with.", show_default=False)]


def diff_command(
    left: LeftArg,
    right: RightArg,
    form: FormatOpt = None,
    output: OutputOpt = None,
    quiet: QuietOpt = False,
    debug: DebugOpt = False,
) -> None:
    """Tell two plans apart: kernels merged, split, regrouped, re-tiled; time and bytes, right minus left."""
    goal = sink(form, output)
    from fusesolve.difference import diff
    from fusesolve.report.diff import diff_table
    from fusesolve.report.json import format_json

    found = diff(left, right).to_dict()
    if goal.form is Format.JSON:
        text = format_json(found)
    else:
        text = diff_table(found, width=result_width(goal.path), colour=goal.path is None and colour_wanted())
    write_result(text, goal.path)
