"""`fusesolve accuracy`: how far the simulator is from measured latencies."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fusesolve.cli.options import DebugOpt, Format, FormatOpt, OutputOpt, QuietOpt, VerboseOpt, sink
from fusesolve.cli.streams import colour_wanted, notes, result_width, write_result
from fusesolve.errors import InputError

EXAMPLES = """Examples:

fusesolve accuracy measured/*.csv

fusesolve accuracy gemm.csv --hw my_gpu.yaml --format json -o errors.json
"""


class Rows(StrEnum):
    """Which rows of a table count."""

    ALL = "all"
    FIT = "fit"
    HELD_OUT = "held-out"


DataArg = Annotated[
    list[Path], typer.Argument(metavar="DATA.csv...", help="Tables of measured latencies.", show_default=False)
]
ProfileOpt = Annotated[
    str | None,
    typer.Option("--hw", metavar="PROFILE", help="Price every device of the tables on this profile.",
                 show_default=False),
]  # fmt: skip
RowsOpt = Annotated[
    Rows, typer.Option("--rows", help="All rows, those that calibration may fit on, or those that it never sees.")
]
LeaveOutOpt = Annotated[
    bool,
    typer.Option(
        "--leave-out", help="Price every device with the constants of its family's other devices, not with its own."
    ),
]


def accuracy_command(
    data: DataArg,
    hardware: ProfileOpt = None,
    rows: RowsOpt = Rows.ALL,
    leave_out: LeaveOutOpt = False,
    form: FormatOpt = None,
    output: OutputOpt = None,
    quiet: QuietOpt = False,
    verbose: VerboseOpt = False,
    debug: DebugOpt = False,
) -> None:
    """Compare predicted with measured latencies: errors per file, device and operator.

    Each device of a table is priced on the bundled profile of its name. -v shows the worst rows of every operator.
    Tables of fused and unfused times give the gain of fusion, predicted against measured.
    """
    from fusesolve.report.accuracy import accuracy_table
    from fusesolve.report.json import format_json
    from fusesolve.study import Part, measure_accuracy

    if leave_out and hardware is not None:
        raise InputError("--leave-out takes each device's own profile: leave out --hw")
    goal = sink(form, output)
    found = measure_accuracy(data, hardware, Part(rows.value), leave_out=leave_out)
    if goal.form is Format.JSON:
        text = format_json(found.to_dict())
    else:
        text = accuracy_table(
            found, width=result_width(goal.path), colour=goal.path is None and colour_wanted(), verbose=verbose
        )
    write_result(text, goal.path)
    if goal.path is not None:
        notes(quiet=quiet)(f"wrote {goal.path}: {len(found.rows)} operators")
