"""Options of `fusesolve whatif` alone: what is swept, what is asked, and how the result is written."""

from enum import StrEnum
from typing import Annotated

import typer

from fusesolve.cli.options import OUTPUT_PANEL, PLAN_PANEL, SOLVE_PANEL

WORK_LIMIT = 60.0
QUESTION_PANEL = "Questions (beside a sweep)"


class Form(StrEnum):
    """How a what-if result is written."""

    TABLE = "table"
    CSV = "csv"
    PARQUET = "parquet"
    JSON = "json"


SUFFIXES = {".csv": Form.CSV, ".json": Form.JSON, ".parquet": Form.PARQUET, ".pq": Form.PARQUET}

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
                 help="Left out: by the suffix of -o, else csv for a sweep and table for a question."),
]  # fmt: skip
ThresholdOpt = Annotated[
    list[str] | None,
    typer.Option("--threshold", metavar="PATH=LO..HI", rich_help_panel=QUESTION_PANEL, show_default=False,
                 help="Where the plan changes along this number; twice: a map, the second by LO..HI[:LINES]."),
]  # fmt: skip
ResolutionOpt = Annotated[
    str | None,
    typer.Option("--resolution", metavar="SIZE", rich_help_panel=QUESTION_PANEL, show_default=False,
                 help="How exactly to --threshold, --minimise, --maximise; left out: 1/4096 of the range."),
]  # fmt: skip
SensitivityOpt = Annotated[
    bool,
    typer.Option("--sensitivity", rich_help_panel=QUESTION_PANEL,
                 help="What 1 % more of each number buys, and which numbers are known too badly to decide."),
]  # fmt: skip
MinimiseOpt = Annotated[
    str | None,
    typer.Option("--minimise", metavar="PATH=LO..HI", rich_help_panel=QUESTION_PANEL, show_default=False,
                 help="The smallest value with which the plan takes at most --target."),
]  # fmt: skip
MaximiseOpt = Annotated[
    str | None,
    typer.Option("--maximise", metavar="PATH=LO..HI", rich_help_panel=QUESTION_PANEL, show_default=False,
                 help="The largest value with which the plan takes at most --target."),
]  # fmt: skip
TargetOpt = Annotated[
    str | None,
    typer.Option("--target", metavar="TIME", rich_help_panel=QUESTION_PANEL, show_default=False,
                 help="Latency to meet, such as 150us."),
]  # fmt: skip
