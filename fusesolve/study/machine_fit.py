"""The constants of a CPU's model from its probes: least squares over all of them together.

What is fitted is the price itself (`fusesolve.cost.cpu.Machine`): the constants at which the logarithms of predicted
over measured times of all probes are least, by a soft L1 norm, so that a disturbed probe moves little.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from fusesolve.cost.cpu import Machine
from fusesolve.cost.table import WorkloadTable
from fusesolve.study.probes import Probe

SOFT = 0.1  # of a probe's logarithm: beyond it an error counts by its size, below by its square

# What is fitted: bounds, and the probe that shows it most.
CONSTANTS: Mapping[str, tuple[float, float, str]] = {
    "call": (1e-8, 1e-3, "call"), "argument": (1e-10, 1e-4, "eight"), "region": (1e-8, 1e-3, "a task a core"),
    "core_rate": (1e9, 1e14, "two tasks a core"), "shared_rate": (1e9, 1e14, "cached"),
    "memory_rate": (1e8, 1e13, "sum"), "write_factor": (0.1, 4.0, "plain"), "stream_factor": (0.1, 4.0, "copy"),
    "row_stream_factor": (0.1, 4.0, "means"), "stride_factor": (1.0, 200.0, "turned"),
    "vector": (1e8, 1e14, "chain 1"), "window": (10.0, 1000.0, "chain 5"), "row": (1e-10, 1e-6, "short rows"),
    "exposed": (0.001, 1.0, "far 0"), "contraction": (1e8, 1e14, "product"),
}  # fmt: skip

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFit:
    """The machine, and predicted over measured seconds of every probe by name."""

    machine: Machine
    ratios: Mapping[str, float]

    @property
    def error(self) -> float:
        """Median absolute error of the probes themselves."""
        return float(np.median(np.abs(np.array(list(self.ratios.values())) - 1.0)))




def fit_machine(machine: Machine, probes: Mapping[str, Probe]) -> MachineFit:
    """The constants of `machine` that are measured, fitted to the probes; its sizes and cores stay."""
    rows = WorkloadTable([probe.workload for probe in probes.values()]).rows(np.arange(len(probes)))
    measured = np.log([probe.seconds for probe in probes.values()])
    low, high = (np.log([bounds[n] for bounds in CONSTANTS.values()]) for n in (0, 1))

    def residuals(x: Array) -> Array:
        return np.asarray(np.log(_seconds(_with(machine, x), rows)) - measured)

    start = np.clip(_start(machine, probes), low + 1e-6, high - 1e-6)
    found = least_squares(residuals, start, bounds=(low, high), loss="soft_l1", f_scale=SOFT, diff_step=1e-4)
    ratios = dict(zip(probes, np.exp(residuals(found.x)).tolist(), strict=True))
    return MachineFit(machine=_with(machine, found.x), ratios=ratios)


def _seconds(machine: Machine, rows: Mapping[str, Array]) -> Array:
    _, terms = machine.generated(dict(rows), {})
    return np.asarray(machine.combine(terms, frozenset())).ravel()


def _with(machine: Machine, x: Array) -> Machine:
    """The machine with the constants of logarithms `x`."""
    values = dict(zip(CONSTANTS, np.exp(x).tolist(), strict=True))
    return replace(machine, overlap=1.0 - values.pop("exposed"), **values)


def _start(machine: Machine, probes: Mapping[str, Probe]) -> Array:
    """Logarithms of constants that each follow from one probe or two."""
    seconds = {name: probe.seconds for name, probe in probes.items()}

    def rate(name: str) -> float:
        work = probes[name].workload
        return (work.read_bytes + work.write_bytes) / seconds[name]

    chain, long, short = probes["chain 1"], probes["long rows"], probes["short rows"]
    product = probes["product"].workload
    passes = short.workload.passes * (short.workload.outer - long.workload.outer)
    values = {
        "call": seconds["call"], "argument": (seconds["eight"] - seconds["two"]) / 6,
        "region": seconds["a task a core"] - seconds["one task"], "core_rate": 2 * rate("two tasks a core"),
        "shared_rate": rate("cached"), "memory_rate": rate("sum"), "write_factor": 1.0, "stream_factor": 0.8,
        "row_stream_factor": 1.0, "stride_factor": seconds["turned"] / seconds["plain"],
        "vector": 2.0 * chain.workload.vector / chain.seconds, "window": 30.0,
        "row": (short.seconds - long.seconds) * machine.cores / passes, "exposed": 0.3,
        "contraction": product.mma / seconds["product"],
    }  # fmt: skip
    return np.log([max(values[name], 1e-12) for name in CONSTANTS])
