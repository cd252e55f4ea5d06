"""What a table of gains gives: gain rows, the errors of its times, the hosts that were estimated, what is left out."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from fusesolve.study.gains.cases import Gain
from fusesolve.study.hosts import Host
from fusesolve.study.samples import Skipped

Row: TypeAlias = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Measured and predicted seconds of one kind of row on one device, with a label each.

    ValueError where a measured time is not above 0.
    """

    device: str
    profile: str
    op: str
    timing: str
    labels: tuple[str, ...]
    measured: tuple[float, ...]
    predicted: tuple[float, ...]

    def __post_init__(self) -> None:
        for label, seconds in zip(self.labels, self.measured, strict=True):
            if not seconds > 0:
                raise ValueError(f"{label}: a measured time must be above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of one table."""

    gains: list[Gain] = field(default_factory=list)
    times: list[Times] = field(default_factory=list)
    hosts: list[Host] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)


    def counted(self, rows: Sequence[Row], why: Callable[[Row], str | None]) -> dict[str, list[Row]]:
        """Rows by device (column `gpu`); those for which `why` has a reason are listed as left out with it."""
        found: dict[str, list[Row]] = {}
        for row in rows:
            reason = why(row)
            if reason is None:
                found.setdefault(row["gpu"], []).append(row)
            else:
                self.skipped.append(Skipped(row["gpu"], reason))
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is asked of a table: its file, and a profile for all its devices (None: each device's own)."""

    path: Path
    hardware: str | None = None

    @property
    def file(self) -> str:
        """The file's name."""
        return self.path.name
