"""Tables of programs and whole networks: one reader per set of columns, and the companions that readers look up."""

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fusesolve.errors import InputError
from fusesolve.study import estimates, networks
from fusesolve.study.gains import kernelbench, liger, models, totals
from fusesolve.study.gains.outcome import Outcome, Request
from fusesolve.study.samples import Skipped


@dataclass(frozen=True, slots=True, kw_only=True)
class GainTable:
    """The columns that name a kind of table, and its reader: all rows to an outcome."""

    name: str
    columns: frozenset[str]
    read: Callable[[Request, Sequence[Mapping[str, str]]], Outcome]


GAIN_TABLES: tuple[GainTable, ...] = (
    GainTable(name="KernelBench times", columns=kernelbench.COLUMNS, read=kernelbench.read),
    GainTable(name="Liger-Kernel benchmarks", columns=liger.COLUMNS, read=liger.read),
    GainTable(name="models by totals", columns=totals.COLUMNS, read=totals.read),
    GainTable(name="engine estimates", columns=estimates.COLUMNS, read=estimates.read),
    GainTable(name="Hailo networks", columns=networks.HAILO_COLUMNS, read=networks.read_hailo),
    GainTable(name="Qualcomm networks", columns=networks.QUALCOMM_COLUMNS, read=networks.read_qualcomm),
    GainTable(name="times of whole models", columns=models.COLUMNS, read=models.read),
)

# Columns of tables that hold no latencies of their own: facts that a reader finds beside its main table.
COMPANIONS: tuple[frozenset[str], ...] = (
    kernelbench.DAG_COLUMNS,
    kernelbench.FACT_COLUMNS,
    frozenset({"file", "group", "mape_naive"}),  # errors of simpler models
    frozenset({"op", "dtype", "clock_cycles"}),  # cycles of instructions
)


def read_gains(path: Path, hardware: str | None, *, leave_out: bool = False) -> Outcome | None:
    """What a table of programs gives, an empty outcome for a companion table, None for any other table.

    With `leave_out` its rows are listed as not counted. InputError where the file cannot be read or a row is malformed.
    """
    columns = _columns(path)
    if any(companion <= columns for companion in COMPANIONS):
        return Outcome()
    table = next((table for table in GAIN_TABLES if table.columns <= columns), None)
    if table is None:
        return None
    with path.open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    if leave_out:
        why = "whole programs are not priced with a device left out"
        return Outcome(skipped=[Skipped(_device(row), why) for row in rows])
    try:
        return table.read(Request(path=path, hardware=hardware), rows)
    except (ValueError, KeyError) as error:
        raise InputError(f"{path}: not a table of {table.name} ({error})") from error


def _device(row: Mapping[str, str]) -> str | None:
    return next((row[name] for name in ("gpu", "device", "chipset", "accelerator") if name in row), None)


def _columns(path: Path) -> frozenset[str]:
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            return frozenset(next(csv.reader(stream), ()))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: cannot read the table: {error}") from error
