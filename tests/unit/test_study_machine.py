"""The constants of a machine from its probes: those of a known machine come back from the times that it would take."""

from dataclasses import replace

import numpy as np
import pytest

from fusesolve.codegen.cpu.runtime import Timing
from fusesolve.cost.cpu import Machine
from fusesolve.cost.table import WorkloadTable
from fusesolve.detect import CpuFacts
from fusesolve.importers.native import parse_native
from fusesolve.study.machine_fit import CONSTANTS, fit_machine
from fusesolve.study.probes import Probe, probe_specs
from fusesolve.validate.parts import one_kernel

FACTS = CpuFacts(
    vendor="AMD", model="a CPU", cores=2, clock=2.5e9, clock_source="assumed", l1_data=32 << 10, l1_code=32 << 10,
    core_cache=512 << 10, last_level=32 << 20, cache_source="here", memory=16 << 30, flags=frozenset({"avx2"}),
)  # fmt: skip
MACHINE = Machine(
    cores=2, call=1e-6, argument=1e-7, region=2e-6, core_cache=1 << 20, core_rate=300e9, shared_cache=24 << 20,
    shared_rate=80e9, memory_rate=20e9, write_factor=1.5, stream_factor=0.8, row_stream_factor=1.1,
    stride_factor=9.0, vector=300e9, window=25.0, row=8e-9, overlap=0.8, contraction=30e9, gemm=80e9,
    library_call=1e-6,
)  # fmt: skip


@pytest.fixture(scope="module")
def workloads():
    found = {}
    for name, spec in probe_specs(FACTS).items():
        lines = ["format: fusesolve-graph/1", "name: probe", "inputs:", *(f'  - "{item}"' for item in spec.inputs)]
        lines += ["ops:", *(f'  - "{item}"' for item in spec.ops), f"outputs: [{spec.output}]"]
        found[name] = one_kernel(parse_native("\n".join(lines), "probe", {}, False))[1].workload
    return found


def fitted(machine, workloads):
    """The machine that the probes of `machine` show."""
    probes = {}
    for name, workload in workloads.items():
        _, terms = machine.generated(WorkloadTable([workload]).rows(np.array([0])), {})
        seconds = float(np.ravel(machine.combine(terms, frozenset()))[0])
        probes[name] = Probe(workload=workload, timing=Timing((seconds, seconds)))
    return fit_machine(replace(machine, **dict.fromkeys(("call", "vector", "memory_rate"), 1.0)), probes)


@pytest.mark.parametrize("change", [{}, {"overlap": 0.4}, {"vector": 150e9, "window": 60.0}, {"memory_rate": 12e9}])
def test_a_known_machine_comes_back(workloads, change):
    wanted = replace(MACHINE, **change)
    found = fitted(wanted, workloads)
    assert found.error < 0.01
    for name in CONSTANTS:
        field = "overlap" if name == "exposed" else name
        assert getattr(found.machine, field) == pytest.approx(getattr(wanted, field), rel=0.03), name
