"""What the planning commands ask for: the texts of the options, checked and turned into keywords of the planner."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fusesolve.cli.options import load_pins, parse_bindings, parse_sets
from fusesolve.errors import InputError

if TYPE_CHECKING:
    from fusesolve.hardware import HardwareProfile

DEFAULT_GRAPH = "gpt2_block"
LOCAL = "local"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """The options of `plan` and `explain` as given; `time_limit` in seconds, `max_memory` a text with a unit."""

    bind: Sequence[str]
    strict: bool
    as_dtype: str | None
    strategy: str
    time_limit: float
    work_limit: float | None
    workers: int | None
    seed: int
    together: Sequence[str]
    apart: Sequence[str]
    pins: Path | None
    recompute: bool
    max_memory: str | None
    max_kernels: int | None
    launch: str
    streams: int
    implementation: str
    simulate: str = "closed"
    verify: str = "none"
    objective: str = "latency"

    def keywords(self) -> dict[str, Any]:
        """The keywords of `fusesolve.plan`; InputError names the first option whose value makes no sense."""
        check_limits(
            time_limit=self.time_limit, work_limit=self.work_limit, workers=self.workers, seed=self.seed,
            max_kernels=self.max_kernels, streams=self.streams,
        )  # fmt: skip
        pins = load_pins(self.pins)
        return {
            "bind": parse_bindings(self.bind),
            "strict": self.strict,
            "as_dtype": self.as_dtype,
            "strategy": self.strategy,
            "time_limit": self.time_limit,
            "work_limit": self.work_limit,
            "workers": self.workers,
            "seed": self.seed,
            "together": (*parse_sets("--together", self.together), *pins["together"]),
            "apart": (*parse_sets("--apart", self.apart), *pins["apart"]),
            "recompute": self.recompute,
            "max_memory": _parse_size(self.max_memory),
            "max_kernels": self.max_kernels,
            "launch": self.launch,
            "implementation": self.implementation,
            "simulate": self.simulate,
            "streams": self.streams,
            "verify": self.verify,
            "objective": tuple(name.strip() for name in self.objective.split(",")),
        }


def check_limits(
    *, time_limit: float | None, work_limit: float | None, workers: int | None, seed: int,
    max_kernels: int | None = None, streams: int | None = None,
) -> None:  # fmt: skip
    """InputError names the first limit that makes no sense; None is none."""
    for option, number in (("--time-limit", time_limit), ("--work-limit", work_limit)):
        if number is not None and not 0 < number < float("inf"):
            raise InputError(f"{option} {number:g}: expected a number above 0")
    for option, count in (("--workers", workers), ("--max-kernels", max_kernels), ("--streams", streams)):
        if count is not None and count < 1:
            raise InputError(f"{option} {count}: expected an integer of at least 1")
    if not 0 <= seed < 2**31:
        raise InputError(f"--seed {seed}: expected an integer from 0 to {2**31 - 1}")


def resolve_hardware(hardware: str, say: Callable[[str], None]) -> "HardwareProfile | str":
    """What `--hw` names: a path or a bundled name as it is, `local` measured on this machine (notes go to `say`).

    A file that is called `local` is read as a file.
    """
    if hardware != LOCAL or Path(hardware).is_file():
        return hardware
    from fusesolve.detect import detect_profile
    from fusesolve.hardware_yaml import profile_from_definition

    found = detect_profile()
    for line in found.notes:
        say(line)
    return profile_from_definition(found.definition, LOCAL)


def _parse_size(text: str | None) -> int | None:
    from fusesolve.units import Dimension, parse_count

    if text is None:
        return None
    try:
        size = parse_count(f"{text} B" if text.isdecimal() else text, Dimension.BYTES)
    except InputError as error:
        raise InputError(f"--max-memory: {error}") from error
    if size < 1:
        raise InputError(f"--max-memory {text}: expected a size above 0, such as '12 GiB'")
    return size
