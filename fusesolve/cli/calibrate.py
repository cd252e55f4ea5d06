"""`fusesolve calibrate`: fit a profile's constants on measured latencies, or measure this machine."""

from pathlib import Path
from typing import Annotated

import typer

from fusesolve.cli.options import DebugOpt, OutputOpt, QuietOpt, sink
from fusesolve.cli.streams import notes, write_result
from fusesolve.errors import InputError

EXAMPLES = """Examples:

fusesolve calibrate --data gemm.csv softmax.csv --hw h100 -o my_h100.yaml

fusesolve calibrate --device cpu -o this_machine.yaml

fusesolve calibrate --device cuda -o this_gpu.yaml
"""

DataOpt = Annotated[
    list[Path] | None,
    typer.Option("--data", metavar="DATA.csv...", help="Tables of measured latencies.", show_default=False),
]
MoreArg = Annotated[list[Path] | None, typer.Argument(metavar="[DATA.csv...]", hidden=True, show_default=False)]
ProfileOpt = Annotated[
    str | None, typer.Option("--hw", metavar="PROFILE", help="The profile to calibrate.", show_default=False)
]
DeviceOpt = Annotated[
    str | None,
    typer.Option("--device", metavar="cpu|cuda", help="Measure this machine's CPU or GPU instead.", show_default=False),
]


def calibrate_command(
    more: MoreArg = None,
    data: DataOpt = None,
    hardware: ProfileOpt = None,
    device: DeviceOpt = None,
    output: OutputOpt = None,
    quiet: QuietOpt = False,
    debug: DebugOpt = False,
) -> None:
    """Fit the calibrated constants of PROFILE on one half of the rows of its device; show errors on the other half.

    Writes a profile that extends PROFILE: each constant with its source, the rows it was fitted on and the error.
    """
    paths = [*(data or ()), *(more or ())]
    if device is not None:
        if paths or hardware is not None:
            raise InputError("--device measures this machine: leave --data and --hw out, or leave --device out")
        _measure(device, output, quiet=quiet)
        return
    if not paths or hardware is None:
        raise InputError("calibrate needs tables and a profile: --data DATA.csv... --hw PROFILE")
    from fusesolve.report.profiles import profile_yaml
    from fusesolve.study import calibrate

    goal = sink(None, output)
    say = notes(quiet=quiet)
    found = calibrate(paths, hardware)
    for group in found.groups:
        say(
            f"{group.name}: {group.rows} rows fitted; error on the others {100 * group.after.mape:.1f} % "
            f"(before {100 * group.before.mape:.1f} %, median now {100 * group.after.median_ape:.1f} %)"
        )
    for name in found.skipped:
        say(f"{name}: too few rows, constants kept")
    write_result(profile_yaml(found.definition()), goal.path)


def _measure(device: str, output: Path | None, *, quiet: bool) -> None:
    """Measure a device of this machine and write its profile."""
    goal = sink(None, output)
    say = notes(quiet=quiet)
    if device not in ("cpu", "cuda"):
        raise InputError(f"--device {device}: choose cpu or cuda")
    from fusesolve.report.profiles import profile_yaml
    from fusesolve.study.machine import calibrate_cpu, calibrate_cuda

    if device == "cuda":
        write_result(profile_yaml(calibrate_cuda(say)), goal.path)
        return
    say("measuring this CPU: about a minute on a quiet machine; what else runs makes it look slower")
    write_result(profile_yaml(calibrate_cpu(say)), goal.path)
