"""KernelBench: eager and compiled times of small programs on several hosts, with their operator DAGs beside them.

Source of the tables: KernelBench (ScalingIntelligence), results of v0.1 and v0.2, PyTorch 2.5, f32, convolutions with
TF32, modules in training mode without gradients; CUDA events around one call on an idle stream.
"""

import csv
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np

from fusesolve.errors import InputError, NoPlanError
from fusesolve.hardware_yaml import load_profile
from fusesolve.study.devices import profile_name
from fusesolve.study.gains.aten import NoFormError, Traced, lower_trace, parse_op
from fusesolve.study.gains.aten_ops import ATEN
from fusesolve.study.gains.cases import Case, measure_gain
from fusesolve.study.gains.execution import Executed, Program, execute
from fusesolve.study.gains.launches import Launches, Timed, borrowed, estimate_launches
from fusesolve.study.gains.library import Mode
from fusesolve.study.gains.outcome import Outcome, Request, Times
from fusesolve.study.hosts import Host
from fusesolve.study.samples import Skipped, Timing

Row: TypeAlias = Mapping[str, str]
Key: TypeAlias = tuple[str, str, str]  # version, level, problem

COLUMNS = frozenset(["version", "level", "problem_id", "host", "gpu", "compile_default_us", "eager_us"])
DAG_COLUMNS = frozenset(["version", "level", "problem_id", "op_idx", "op", "inputs", "outputs", "out_dtype", "flops"])
FACT_COLUMNS = frozenset(["version", "level", "problem_id", "problem", "n_aten_ops", "input_shapes"])
MICROSECOND = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """One timed problem of a host with its kernels as predicted."""

    key: Key
    row: Row
    found: Executed

    @property
    def label(self) -> str:
        return f"{self.key[0]} level {self.key[1]} problem {self.key[2]}"

    def timed(self, mode: Mode) -> Timed:
        kernels = self.found.eager if mode is Mode.EAGER else self.found.compiled
        column = "eager_us" if mode is Mode.EAGER else "compile_default_us"
        return Timed(kernels=kernels, measured=float(self.row[column]) * MICROSECOND)


def read(request: Request, rows: Sequence[Row]) -> Outcome:
    """The gains of a table of eager and compiled times; InputError where its DAGs are missing or malformed."""
    outcome = Outcome()
    programs = _programs(request.path, rows, outcome)
    by_host: dict[tuple[str, str], list[_Run]] = {}
    names: dict[str, str] = {}
    for device, group in _grouped(rows, "gpu").items():
        name = request.hardware or profile_name(device)
        if name is None:
            outcome.skipped.extend(
                [Skipped(device, f"no bundled profile stands for the device '{device}'")] * len(group)
            )
            continue
        names[device] = name
        for host, runs in _runs(group, name, programs, outcome).items():
            by_host[device, host] = runs
    hosts = {mode: _hosts(by_host, mode) for mode in Mode}
    for (device, host), runs in by_host.items():
        eager, compiled = (hosts[mode].get((device, host)) for mode in Mode)
        _report(request.file, device, host, names[device], runs, eager, compiled, outcome)
    return outcome


def _grouped(rows: Iterable[Row], column: str) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        found[row[column]].append(row)
    return found


def _key(row: Row) -> Key:
    return row["version"], row["level"], row["problem_id"]


def read_dags(path: Path) -> dict[Key, list[Row]]:
    """The rows of every problem's DAG, from the table with those columns beside `path`.

    InputError where there is none.
    """
    for other in sorted(path.parent.glob("*.csv")):
        if _columns(other) >= DAG_COLUMNS:
            found: dict[Key, list[Row]] = defaultdict(list)
            with other.open(newline="", encoding="utf-8") as stream:
                for row in csv.DictReader(stream):
                    found[_key(row)].append(row)
            return found
    raise InputError(
        f"{path}: no table of operator DAGs beside it (a CSV file with the columns "
        f"{', '.join(sorted(DAG_COLUMNS))}); put it into the same folder"
    )


def _columns(path: Path) -> frozenset[str]:
    """The head of a file beside the table; empty where it cannot be read."""
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            return frozenset(next(csv.reader(stream), ()))
    except (OSError, UnicodeDecodeError, csv.Error):
        return frozenset()


def _programs(path: Path, rows: Sequence[Row], outcome: Outcome) -> dict[Key, Program]:
    """The timed problems that have a native form; the rows of the others are skipped, with why."""
    dags, programs, why = read_dags(path), {}, {}
    any_profile = load_profile("h100-sxm")
    for key in dict.fromkeys(map(_key, rows)):
        if key not in dags:
            why[key] = f"{key[0]} level {key[1]} has no operator DAG" if key[1] == "3" else "no operator DAG"
            continue
        try:
            programs[key] = Program(_traced(path, key, dags[key]), any_profile)
        except NoFormError as error:
            why[key] = f"{key[0]} level {key[1]} problem {key[2]}: {error}"
    outcome.skipped.extend(Skipped(row["gpu"], why[_key(row)]) for row in rows if _key(row) in why)
    return programs


def _traced(path: Path, key: Key, rows: Sequence[Row]) -> Traced:
    name = "-".join(key)
    try:
        ops = [parse_op(row) for row in sorted(rows, key=lambda row: int(row["op_idx"]))]
    except (ValueError, KeyError) as error:
        raise InputError(f"{path}: the operator DAG of {name} is malformed ({error})") from error
    return lower_trace(name, ops, ATEN)


def _runs(rows: Sequence[Row], name: str, programs: Mapping[Key, Program], outcome: Outcome) -> dict[str, list[_Run]]:
    """The timed problems of one device by host, priced together."""
    profile = load_profile(name)
    timed = [row for row in rows if _key(row) in programs]
    lacking = [row for row in timed if not row["compile_default_us"] or not row["eager_us"]]
    outcome.skipped.extend(Skipped(row["gpu"], "no eager or no compiled time in the row") for row in lacking)
    keys = list(dict.fromkeys(_key(row) for row in timed))
    try:
        found = dict(zip(keys, execute([programs[key] for key in keys], profile), strict=True))
    except NoPlanError as error:
        outcome.skipped.extend(Skipped(row["gpu"], str(error)) for row in timed)
        return {}
    runs: dict[str, list[_Run]] = defaultdict(list)
    for row in timed:
        executed = found[_key(row)]
        if not all(np.isfinite(part).all() for part in (executed.eager, executed.compiled, executed.planned)):
            outcome.skipped.append(Skipped(row["gpu"], "the profile has no legal kernel for an operator"))
        elif row not in lacking:
            runs[row["host"]].append(_Run(key=_key(row), row=row, found=executed))
    return runs


def _hosts(by_host: Mapping[tuple[str, str], Sequence[_Run]], mode: Mode) -> dict[tuple[str, str], Launches]:
    """The host of every group of runs, borrowed from the others where its own rows are all long."""
    found = {key: estimate_launches([run.timed(mode) for run in runs], mode) for key, runs in by_host.items()}
    known = {key: host for key, host in found.items() if host is not None}
    lent = borrowed(known.values())
    return known | ({key: lent for key in found if key not in known} if lent is not None else {})


_NO_HOST = Launches(mode=Mode.EAGER, floor=0.0, gap=0.0, rows=0)


def _report(
    file: str, device: str, host: str, profile: str, runs: Sequence[_Run], eager: Launches | None,
    compiled: Launches | None, outcome: Outcome,
) -> None:  # fmt: skip
    """Gain rows and errors of one host, one per version and level."""
    for item in (eager, compiled):
        if item is not None:
            outcome.hosts.append(_host(device, host, item))
    splits: dict[str, list[_Run]] = defaultdict(list)
    for run in runs:
        splits[f"{run.key[0]}/level{run.key[1]}"].append(run)
    for split, members in sorted(splits.items()):
        cases = [_case(run, eager or _NO_HOST, compiled or _NO_HOST) for run in members]
        outcome.gains.append(measure_gain(cases, file=file, device=device, host=host, profile=profile, split=split))
        for mode, measured, predicted in (
            (Mode.EAGER, [c.unfused for c in cases], [c.predicted_unfused for c in cases]),
            (Mode.COMPILED, [c.fused for c in cases], [c.predicted_fused for c in cases]),
        ):
            outcome.times.append(
                Times(
                    device=device, profile=profile, op=f"{split} {mode.value} ({host})", timing=Timing.EAGER.value,
                    labels=tuple(case.label for case in cases), measured=tuple(measured), predicted=tuple(predicted),
                )
            )  # fmt: skip


def _case(run: _Run, eager: Launches, compiled: Launches) -> Case:
    return Case(
        label=run.label, unfused=run.timed(Mode.EAGER).measured, fused=run.timed(Mode.COMPILED).measured,
        predicted_unfused=eager.total(run.found.eager), predicted_fused=compiled.total(run.found.compiled),
        planned=compiled.total(run.found.planned),
    )  # fmt: skip


def _host(device: str, host: str, found: Launches) -> Host:
    family = f"{host} {found.mode.value}, {found.gap * 1e6:.1f} us a further kernel"
    return Host(
        device=device, family=family, timing=Timing.EAGER, floor=found.floor, offset=found.head, rows=found.rows
    )
