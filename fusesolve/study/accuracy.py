"""The errors of the simulator on measured tables, per file, device and operator."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np

from fusesolve.hardware import HardwareProfile
from fusesolve.hardware_yaml import load_profile
from fusesolve.metrics import Errors, measure_errors, spearman
from fusesolve.study.devices import profile_name
from fusesolve.study.gains.cases import Gain
from fusesolve.study.gains.outcome import Times
from fusesolve.study.gains.tables import read_gains
from fusesolve.study.hosts import Host, add_hosts, estimate_hosts, with_true_kernels
from fusesolve.study.predict import Array, price_samples
from fusesolve.study.readers import read_table
from fusesolve.study.samples import Sample, Skipped, Table
from fusesolve.study.transfer import Transfer, transfer

FORMAT = "fusesolve-accuracy/1"
WORST = 10  # rows that are shown of each operator


class Part(StrEnum):
    """Which rows count: all, those that calibration may fit on, or the others (split by a hash of the operator)."""

    ALL = "all"
    FIT = "fit"
    HELD_OUT = "held-out"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstRow:
    """One row with a large error: the operator with its sizes, seconds measured and predicted."""

    label: str
    measured: float
    predicted: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyRow:
    """The errors of one operator of one device in one file, and its worst rows (largest error first).

    `reachable`: the rank correlation of a simulator whose kernels are exact, with one floor for the host; None where no
    host hides a kernel.
    """

    file: str
    device: str
    profile: str
    op: str
    timing: str
    errors: Errors
    worst: tuple[WorstRow, ...]
    reachable: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Excluded:
    """Rows of a file that are not counted, and why."""

    file: str
    device: str | None
    n: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FileHost:
    """A host's share that was estimated from the rows of a file."""

    file: str
    host: Host


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """All errors, in the order of files, devices and operators."""

    part: Part
    rows: tuple[AccuracyRow, ...]
    gains: tuple[Gain, ...]
    hosts: tuple[FileHost, ...]
    excluded: tuple[Excluded, ...]

    def to_dict(self) -> dict[str, Any]:
        """The result as plain data: `fusesolve-accuracy/1`."""
        return {
            "format": FORMAT,
            "part": self.part.value,
            "rows": [_plain_row(row) for row in self.rows],
            "gains": [gain.to_dict() for gain in self.gains],
            "hosts": [{"file": item.file, **asdict(item.host)} for item in self.hosts],
            "excluded": [asdict(item) for item in self.excluded],
        }


def _plain_row(row: AccuracyRow) -> dict[str, Any]:
    document = {name: getattr(row, name) for name in ("file", "device", "profile", "op", "timing")}
    worst = [
        {"row": item.label, "measured_us": item.measured * 1e6, "predicted_us": item.predicted * 1e6}
        for item in row.worst
    ]
    return document | asdict(row.errors) | {"reachable_spearman": row.reachable, "worst": worst}


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictions:
    """The samples of one device in one file with the profile that stands for it; seconds per sample.

    `kernels` are seconds on the device without the host, `predicted` those that the measurement should read.
    """

    file: str
    device: str
    profile: HardwareProfile
    profile_name: str
    samples: tuple[Sample, ...]
    kernels: Array
    predicted: Array
    hosts: tuple[Host, ...]


def is_fit_row(sample: Sample) -> bool:
    """Whether calibration may use a row: a hash of the operator, its type and sizes, the same on every device."""
    text = "|".join(f"{k.op}:{k.dtype}:{k.sizes}" for k in sample.kernels)
    return hashlib.sha256(text.encode()).digest()[0] % 2 == 0


def chosen(samples: Sequence[Sample], part: Part) -> list[Sample]:
    """The samples of a part, in their order."""
    if part is Part.ALL:
        return list(samples)
    return [sample for sample in samples if is_fit_row(sample) == (part is Part.FIT)]


def measure_accuracy(
    paths: Sequence[Path], hardware: str | None = None, part: Part = Part.ALL, *, leave_out: bool = False
) -> Accuracy:
    """The errors on the tables at `paths`.

    `hardware`: a profile (name or path) for every device; None takes the bundled profile of each device text.
    `leave_out`: every profile gets the constants of its family's other devices (`transfer`) instead of its own.
    Raises InputError where a table or the profile cannot be read. Tables without a reader are listed as excluded.
    """
    rows: list[AccuracyRow] = []
    gains: list[Gain] = []
    hosts: list[FileHost] = []
    excluded: list[Excluded] = []
    for path in paths:
        outcome = read_gains(path, hardware, leave_out=leave_out)
        if outcome is not None:
            gains += outcome.gains
            rows += [_timed_row(path.name, times) for times in outcome.times]
            hosts += [FileHost(file=path.name, host=host) for host in outcome.hosts]
            excluded += _counted(path.name, outcome.skipped)
            continue
        table = read_table(path)
        skipped = list(table.skipped)
        for (device, name), samples in by_profile(table, hardware).items():
            if name is None:
                skipped += [Skipped(device, f"no bundled profile stands for the device '{device}'")] * len(samples)
                continue
            left_out = transfer(name) if leave_out else None
            if leave_out and left_out is None:
                why = "no other device of its vendor has calibrated constants"
                skipped += [Skipped(device, why)] * len(samples)
                continue
            found = _predicted(table.file, device, chosen(samples, part), name, left_out)
            rows += _rows(found)
            hosts += [FileHost(file=table.file, host=host) for host in found.hosts]
            refused = int(np.count_nonzero(~np.isfinite(found.kernels)))
            skipped += [Skipped(device, "the profile has no legal kernel for the operator")] * refused
        excluded += _counted(table.file, skipped)
    return Accuracy(part=part, rows=tuple(rows), gains=tuple(gains), hosts=tuple(hosts), excluded=tuple(excluded))


def by_profile(table: Table, hardware: str | None = None) -> dict[tuple[str, str | None], list[Sample]]:
    """The samples of each device text and of the profile that stands for it (`hardware`: for all; None: no profile)."""
    found: dict[tuple[str, str | None], list[Sample]] = defaultdict(list)
    for sample in table.samples:
        found[sample.device, hardware or profile_name(sample.device, sample.library)].append(sample)
    return found


def _predicted(file: str, device: str, samples: Sequence[Sample], name: str, left_out: Transfer | None) -> Predictions:
    if left_out is None:
        return predict(file, device, samples, name)
    return predict_on(file, device, samples, f"{name} by {' '.join(left_out.donors)}", left_out.profile)


def predict(file: str, device: str, samples: Sequence[Sample], name: str) -> Predictions:
    """Predictions for samples of one device, on the profile `name`."""
    return predict_on(file, device, samples, name, load_profile(name))


def predict_on(file: str, device: str, samples: Sequence[Sample], name: str, profile: HardwareProfile) -> Predictions:
    """Predictions for samples of one device on a loaded profile; the host's share comes from these samples."""
    kernels = price_samples(samples, profile)
    hosts = estimate_hosts(samples, kernels, profile.vendor)
    return Predictions(
        file=file, device=device, profile=profile, profile_name=name, samples=tuple(samples), kernels=kernels,
        predicted=add_hosts(samples, kernels, hosts), hosts=tuple(hosts.values()),
    )  # fmt: skip


def _rows(found: Predictions) -> list[AccuracyRow]:
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    for index, sample in enumerate(found.samples):
        if np.isfinite(found.kernels[index]):
            groups[sample.op, sample.timing.value].append(index)
    return [_row(found, op, timing, np.array(index)) for (op, timing), index in sorted(groups.items())]


def _row(found: Predictions, op: str, timing: str, index: np.ndarray) -> AccuracyRow:
    predicted = found.predicted[index]
    measured = np.array([found.samples[i].latency for i in index])
    labels = [found.samples[i].label for i in index]
    return AccuracyRow(
        file=found.file, device=found.device, profile=found.profile_name, op=op, timing=timing,
        errors=measure_errors(predicted, measured), worst=_worst(labels, measured, predicted),
        reachable=_reachable(found, measured, index),
    )  # fmt: skip


def _reachable(found: Predictions, measured: Array, index: np.ndarray) -> float | None:
    samples = [found.samples[i] for i in index]
    hosts = {(host.device, host.family): host for host in found.hosts}
    exact = with_true_kernels(samples, found.kernels[index], hosts)
    return None if np.array_equal(exact, measured) else spearman(exact, measured)


def _timed_row(file: str, times: Times) -> AccuracyRow:
    predicted, measured = np.array(times.predicted), np.array(times.measured)
    return AccuracyRow(
        file=file, device=times.device, profile=times.profile, op=times.op, timing=times.timing,
        errors=measure_errors(predicted, measured), worst=_worst(times.labels, measured, predicted),
    )  # fmt: skip


def _worst(labels: Sequence[str], measured: Array, predicted: Array) -> tuple[WorstRow, ...]:
    order = np.argsort(-np.abs(predicted / measured - 1.0), kind="stable")[:WORST]
    return tuple(WorstRow(label=labels[i], measured=float(measured[i]), predicted=float(predicted[i])) for i in order)


def _counted(file: str, skipped: Sequence[Skipped]) -> list[Excluded]:
    counts = Counter((item.device, item.why) for item in skipped)
    return [Excluded(file=file, device=device, n=n, why=why) for (device, why), n in counts.items()]
