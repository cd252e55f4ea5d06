"""Fixtures that several test folders share."""

import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fusesolve.plan import GraphRecord, HardwareRecord, Plan, PlannedGroup, SpaceRecord

SOFTMAX_DEFINITION = {
    "format": "fusesolve-graph/1",
    "name": "two_kernels",
    "inputs": ["x: f32[8192,4096]"],
    "ops": ["p = softmax(x; axis=1)", "y = relu(p)"],
    "outputs": ["y"],
}


def make_group(**changes: Any) -> PlannedGroup:
    fields: dict[str, Any] = {
        "id": 0, "nodes": ("softmax",), "inputs": ("x",), "outputs": ("p",), "recomputed": (), "template": "row",
        "implementation": "generated", "tiling": {"threads": 256}, "start_ns": 0, "stream": 0, "latency_ns": 100_000,
        "bound_by": "dram", "terms_ns": {"dram": 97_600, "launch": 2_400}, "dram_bytes": 268_435_456, "flops": 10**8,
        "registers_per_thread": 40, "shared_bytes": 16_384, "spill_bytes": 0, "occupancy": 0.75, "blocks": 8192,
        "threads": 256, "code_bytes": 2048, "argument_bytes": 24, "uncertain": False,
    }  # fmt: skip
    return PlannedGroup(**(fields | changes))


def make_plan(**changes: Any) -> Plan:
    fields: dict[str, Any] = {
        "fusesolve_version": "0.1.0",
        "graph": GraphRecord(name="two_kernels", sha256="a" * 64, nodes=2, values=3, definition=SOFTMAX_DEFINITION),
        "hardware": HardwareRecord(name="H100 SXM", sha256="b" * 64, definition={"name": "H100 SXM"}),
        "options": {"strategy": "cpsat", "recompute": True},
        "timing": {"launch": "stream", "streams": 1, "mode": "closed"},
        "status": "OPTIMAL", "objective_ns": 150_000, "bound_ns": 150_000, "gap": 0.0,
        "unfused_ns": 450_000, "speedup": 3.0, "dram_bytes": 536_870_912, "unfused_dram_bytes": 1_073_741_824,
        "peak_memory_bytes": 402_653_184, "unfused_peak_memory_bytes": 402_653_184,
        "space": SpaceRecord(candidates=1302, truncated=False, cut_by=(), regions=1),
        "seconds": {"import": 0.01, "solve": 0.25, "total": 0.5},
        "groups": (make_group(), make_group(id=1, nodes=("relu",), inputs=("p",), outputs=("y",), start_ns=100_000,
                                            latency_ns=50_000, template="pointwise", shared_bytes=None)),
        "warnings": (),
    }  # fmt: skip
    return Plan(**(fields | changes))


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """Let Ctrl-C end the tests: a command that wrote its result leaves SIGINT ignored."""
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def plan_with() -> Callable[..., Plan]:
    """A hand-made plan of two kernels, with fields changed by keyword."""
    return make_plan


@pytest.fixture
def group_with() -> Callable[..., PlannedGroup]:
    """One hand-made kernel of a plan, with fields changed by keyword."""
    return make_group


@pytest.fixture
def infeasible() -> Plan:
    """A plan that does not exist, as the planner reports it."""
    return make_plan(
        status="INFEASIBLE", objective_ns=None, bound_ns=None, gap=None, speedup=None, dram_bytes=None,
        peak_memory_bytes=None, groups=(),
        conflicts=({"rule": "max-kernels", "message": "--max-kernels 1: at least 2 kernels are needed"},),
    )  # fmt: skip
