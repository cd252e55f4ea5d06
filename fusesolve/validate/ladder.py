"""The ladder: each step takes a plan document and says, kernel by kernel, whether it holds.

`STEPS` is the table: the word after `--on`, and the function behind it.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from fusesolve.codegen.module import GeneratedPlan, generate
from fusesolve.codegen.planned import PlannedKernel, PlannedProgram, read_plan
from fusesolve.codegen.ranked import RANKED
from fusesolve.errors import InputError
from fusesolve.graph import Graph
from fusesolve.hardware import HardwareProfile
from fusesolve.hardware_yaml import profile_from_definition
from fusesolve.importers.native import parse_native
from fusesolve.metrics import measure_errors
from fusesolve.ops.definition import OpKind
from fusesolve.reference import random_feeds
from fusesolve.validate.apart import graph_apart, pattern_of, plan_apart
from fusesolve.validate.compiled import agreement, compile_plan
from fusesolve.validate.memory import Execute, KernelFaultError, ReferenceKernel, run_plan
from fusesolve.validate.oracle import Oracle, Verdict
from fusesolve.validate.result import KernelResult, Validation
from fusesolve.validate.shrink import shrink_graph, work_of
from fusesolve.validate.simulate import (
    MOST_ALONE,
    MOST_THREADS,
    THREADS_ALONE,
    SimulatedKernel,
    check_extra,
    simulated_plan,
    threads_of,
)
from fusesolve.validate.specials import special_feeds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

REFERENCE_WORK = 5e7  # multiply-adds and element operations that the reference runs at the plan's own extents
REFERENCE_INNER, REFERENCE_OUTER = 129, 9


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOptions:
    """How a step is run: `full` keeps the plan's extents whatever they cost; `seed` makes the inputs.

    `force`: run on a GPU that is not the profile's.
    """

    full: bool = False
    force: bool = False
    seed: int = 0


Step: TypeAlias = Callable[[Mapping[str, Any], StepOptions], Validation]


def validate_plan(document: Mapping[str, Any], on: str, options: StepOptions | None = None) -> Validation:
    """Run the step `on` over a `fusesolve-plan/1` document.

    InputError where there is no such step or the document does not fit; MissingError where the step needs an extra.
    A plan that fails is a result, not an error.
    """
    step = STEPS.get(on)
    if step is None:
        raise InputError(f"--on {on}: the steps are {', '.join(STEPS)}")
    return step(document, options or StepOptions())


def plan_graph(document: Mapping[str, Any]) -> Graph:
    """The graph of a plan document, from its definition; InputError where that does not parse."""
    record = document.get("graph")
    if not isinstance(record, Mapping) or not isinstance(record.get("definition"), Mapping):
        raise InputError("the plan carries no graph definition; write it again with fusesolve plan -o")
    return parse_native(json.dumps(record["definition"]), f"plan of {record.get('name')}", {}, False)


def generate_plan(document: Mapping[str, Any]) -> tuple[PlannedProgram, GeneratedPlan]:
    """The program of a plan document and its source, at the plan's own extents."""
    planned = read_plan(document, plan_graph(document))
    return planned, generate(planned)


def _reference(document: Mapping[str, Any], options: StepOptions) -> Validation:
    """Step 1: every group in NumPy, from its own reads, against the graph in f64; then on special values."""
    graph = plan_graph(document)
    small = shrink_graph(graph, inner=REFERENCE_INNER, outer=REFERENCE_OUTER)
    fits = options.full or work_of(graph) <= REFERENCE_WORK
    planned = read_plan(document, graph if fits else small)
    execute = ReferenceKernel(planned)
    groups, fault = compare(planned, execute, random_feeds(planned.graph, options.seed))
    if passed(groups, fault):
        special, fault = compare(planned, execute, special_feeds(planned.graph, options.seed))
        groups = tuple(a if b.ok is not False else b for a, b in zip(groups, special, strict=True))
    return Validation(
        on="reference", plan=graph.name, target=None, ok=passed(groups, fault),
        extents="the plan's" if fits else "shrunk", groups=groups, fault=fault,
    )  # fmt: skip


def _cudasim(document: Mapping[str, Any], options: StepOptions) -> Validation:
    """Step 2: the source of every group in the CUDA simulator, at shrunk extents: the plan, or each group alone."""
    check_extra("--on cudasim")
    graph = plan_graph(document)
    planned, made = simulated_plan(document, graph)
    fault = None
    if threads_of(made) <= MOST_THREADS:
        groups, fault = _simulated(planned, made, options.seed)
    else:
        alone = _Alone(document, read_plan(document, graph), options.seed)
        groups = tuple(alone.row(kernel) for kernel in alone.planned.kernels)
    return Validation(
        on="cudasim", plan=graph.name, target="numba-cuda simulator", ok=passed(groups, fault), extents="shrunk",
        groups=groups, fault=fault,
    )  # fmt: skip


def _simulated(
    planned: PlannedProgram, made: GeneratedPlan, seed: int
) -> tuple[tuple[KernelResult, ...], str | None]:  # fmt: skip
    """As `compare`, with the source in the CUDA simulator."""
    from fusesolve.codegen.runtime import Simulator

    with Simulator(made.text) as simulator:
        execute = SimulatedKernel(planned, made, simulator)
        return compare(planned, execute, random_feeds(planned.graph, seed), made.refused)


class _Alone:
    """Simulates the groups of a plan one by one, each over the graph of its own operators.

    What has the same source and computes the same runs once.
    """

    def __init__(self, document: Mapping[str, Any], planned: PlannedProgram, seed: int) -> None:
        self.document, self.planned, self.seed = document, planned, seed
        self.known: dict[tuple[str, ...], KernelResult] = {}

    def row(self, kernel: PlannedKernel) -> KernelResult:
        """The verdict on a group's source; none where it writes in place or stays too large."""
        graph = graph_apart(self.planned, kernel)
        if graph is None:
            return self._not_judged(kernel, "it writes in place, and its plan stays too large")
        planned, made = simulated_plan(plan_apart(self.document, self.planned, kernel), graph, THREADS_ALONE)
        if threads_of(made) > MOST_ALONE:
            return self._not_judged(kernel, f"{threads_of(made):,} threads at the smallest extents that fit together")
        key = (made.text, pattern_of(planned.graph), *made.refused.values())
        if key not in self.known:
            ((self.known[key],), _) = _simulated(planned, made, self.seed)
        return replace(self.known[key], id=kernel.id, nodes=kernel.nodes, predicted=kernel.predicted)

    def _not_judged(self, kernel: PlannedKernel, why: str) -> KernelResult:
        return KernelResult(
            id=kernel.id, nodes=kernel.nodes, ok=None, generated=has_source(self.planned, kernel),
            predicted=kernel.predicted, note=f"not simulated: {why}",
        )  # fmt: skip


def _compile(document: Mapping[str, Any], options: StepOptions) -> Validation:
    """Step 3: the source of every group through the CUDA compiler, at the plan's extents; no device is needed."""
    check_extra("--on compile")
    graph = plan_graph(document)
    profile = plan_profile(document)
    rows = compile_plan(read_plan(document, graph), profile)
    return Validation(
        on="compile", plan=graph.name, target=f"sm_{profile.compute_capability or ''}".replace(".", ""),
        ok=passed(rows, None), extents="the plan's", groups=rows, agreement=agreement(rows),
    )  # fmt: skip


def _cpu(document: Mapping[str, Any], options: StepOptions) -> Validation:
    """Step 4: every group as a CPU kernel, checked at shrunk extents, timed fused and unfused at the plan's."""
    from fusesolve.validate.cpu import CpuKernels, measure_groups

    graph, profile = plan_graph(document), plan_profile(document)
    small = read_plan(document, shrink_graph(graph, inner=REFERENCE_INNER, outer=REFERENCE_OUTER))
    execute = CpuKernels(small)
    groups, fault = compare(small, execute, random_feeds(small.graph, options.seed), execute.made.refused)
    if not passed(groups, fault):
        return Validation(
            on="cpu", plan=graph.name, target="this CPU", ok=False, extents="shrunk", groups=groups, fault=fault
        )
    measured = measure_groups(read_plan(document, graph))
    rows = tuple(
        replace(row, measured=measured[row.id].to_dict()) if row.id in measured else row for row in groups
    )  # fmt: skip
    return _timed("cpu", "this CPU", document, rows, predicted=profile.kind == "cpu")


def _cuda(document: Mapping[str, Any], options: StepOptions) -> Validation:
    """Step 5: the generated kernels on this machine's GPU: checked at shrunk extents, then timed at the plan's."""
    from fusesolve.validate.cuda import check_device, run_plan_on_device

    check_extra("--on cuda")
    graph, profile = plan_graph(document), plan_profile(document)
    check_device(profile, force=options.force)
    planned = read_plan(document, graph)
    found = run_plan_on_device((graph.name, document, graph, profile), options.seed)
    made = compile_plan(planned, profile) if profile.compute_capability else ()
    compiled = {row.id: row.compiled for row in made}
    record = found["plans"][0]
    checks = {row["id"]: row for row in record["checks"]}
    times = {row["id"]: row for row in record.get("times", ())}
    rows = tuple(
        _device_row(kernel, checks.get(kernel.id), times.get(kernel.id), compiled.get(kernel.id))
        for kernel in planned.kernels
    )
    return _timed("cuda", found["device"]["name"], document, rows, predicted=True)


def _timed(
    on: str, target: str, document: Mapping[str, Any], rows: tuple[KernelResult, ...], *, predicted: bool
) -> Validation:
    """The result of a step that measures; `predicted`: whether the plan's times are about the device that ran."""
    import numpy as np

    rows = tuple(_compared(row) for row in rows) if predicted else rows
    pairs = [
        (row.predicted["latency_ns"], row.measured["latency_ns"]) for row in rows
        if row.ratio is not None and row.predicted is not None and row.measured is not None
    ]  # fmt: skip
    errors = measure_errors(*np.array(pairs, dtype=np.float64).T) if pairs else None
    return Validation(
        on=on, plan=plan_graph(document).name, target=target, ok=passed(rows, None),
        extents="shrunk (times: the plan's)", groups=rows, spearman=None if errors is None else errors.spearman,
        median_ape=None if errors is None else errors.median_ape,
        winner=_winner(document, rows) if predicted else None,
    )  # fmt: skip


def _compared(row: KernelResult) -> KernelResult:
    """A row with its measured by its predicted time, where it has both."""
    expected = (row.predicted or {}).get("latency_ns")
    return row if row.measured is None or not expected else replace(row, ratio=row.measured["latency_ns"] / expected)


def _device_row(
    kernel: PlannedKernel, check: Mapping[str, Any] | None, times: Mapping[str, Any] | None,
    compiled: Mapping[str, Any] | None,
) -> KernelResult:  # fmt: skip
    measured = None if times is None else {
        "latency_ns": times["latency_ns"], "p20_ns": times["p20_ns"], "p80_ns": times["p80_ns"],
        "unfused_latency_ns": times["unfused_ns"],
    }  # fmt: skip
    return KernelResult(
        id=kernel.id, nodes=kernel.nodes, ok=None if check is None else check["ok"], generated=check is not None,
        error=None if check is None else _number(check["error"]),
        tolerance=None if check is None else check["tolerance"], predicted=kernel.predicted, measured=measured,
        compiled=compiled,
        note="no source" if check is None else None if check["ok"] else check.get("note", "computes something else"),
    )  # fmt: skip


def _winner(document: Mapping[str, Any], rows: tuple[KernelResult, ...]) -> dict[str, Any] | None:
    """Fused against unfused over the groups that were timed both ways: measured, and as the plan predicts it."""
    timed = [
        row.measured for row in rows if row.measured is not None and row.measured["unfused_latency_ns"] is not None
    ]
    fused = sum(item["latency_ns"] for item in timed)
    unfused = sum(item["unfused_latency_ns"] for item in timed)
    if not fused or not document.get("objective_ns") or not document.get("unfused_ns"):
        return None
    predicted = document["unfused_ns"] / document["objective_ns"]
    return {
        "predicted_gain": predicted, "measured_gain": unfused / fused, "groups": len(timed),
        "right": (predicted >= 1) == (unfused >= fused),
    }  # fmt: skip


def plan_profile(document: Mapping[str, Any]) -> HardwareProfile:
    """The hardware profile of a plan document, from its definition; InputError where that does not parse."""
    record = document.get("hardware")
    if not isinstance(record, Mapping) or not isinstance(record.get("definition"), Mapping):
        raise InputError("the plan carries no hardware definition; write it again with fusesolve plan -o")
    return profile_from_definition(record["definition"], str(record.get("name")))


def passed(groups: tuple[KernelResult, ...], fault: str | None) -> bool:
    """Whether nothing failed."""
    return fault is None and all(item.ok is not False for item in groups)


def compare(
    planned: PlannedProgram, execute: Execute, feeds: "Mapping[str, Array]", refused: Mapping[int, str] | None = None
) -> tuple[tuple[KernelResult, ...], str | None]:
    """Each kernel's result when the plan is run with `execute` on `feeds`, and a fault of the plan or None.

    `refused`: why kernels have no generated source, by number; None where the source was not looked at.
    """
    judge = _Judge(planned, execute)
    fault = None
    try:
        run_plan(planned, feeds, judge.execute, judge.watch)
    except KernelFaultError as found:
        if found.kernel is None:
            fault = str(found)
        else:
            judge.faults[found.kernel] = str(found)
    return tuple(judge.result(kernel, refused) for kernel in planned.kernels), fault


class _Judge:
    """Collects the verdict on each kernel while a plan runs."""

    def __init__(self, planned: PlannedProgram, execute: Execute) -> None:
        self.planned = planned
        self.inner = execute
        self.oracle = Oracle(planned)
        self.verdicts: dict[int, Verdict] = {}
        self.faults: dict[int, str] = {}

    def execute(self, kernel: PlannedKernel, read: "Mapping[int, Array]") -> "dict[int, Array]":
        """The kernel's writes; random arrays where an operator of it is unknown and so has no meaning."""
        return self._invented(kernel) if self._unknown(kernel) else self.inner(kernel, read)

    def watch(self, kernel: PlannedKernel, read: "Mapping[int, Array]", written: "Mapping[int, Array]") -> None:
        """Judge what a kernel has written."""
        if not self._unknown(kernel):
            self.verdicts[kernel.id] = self.oracle.judge(kernel, read, written)

    def result(self, kernel: PlannedKernel, refused: Mapping[int, str] | None) -> KernelResult:
        """The row of one kernel."""
        verdict, fault = self.verdicts.get(kernel.id), self.faults.get(kernel.id)
        made = has_source(self.planned, kernel) if refused is None else kernel.id not in refused
        ok = False if fault is not None else None if verdict is None else verdict.ok
        return KernelResult(
            id=kernel.id, nodes=kernel.nodes, ok=ok, generated=made,
            error=None if verdict is None else _number(verdict.error),
            tolerance=None if verdict is None else verdict.tolerance, predicted=kernel.predicted,
            note=fault or self._note(kernel, verdict) or (refused or {}).get(kernel.id),
        )  # fmt: skip

    def _note(self, kernel: PlannedKernel, verdict: Verdict | None) -> str | None:
        if verdict is None:
            return "not known: it has no reference" if self._unknown(kernel) else "not reached"
        if verdict.ok:
            return None
        return f"{verdict.worst} is off by {verdict.error:.3g}, {verdict.tolerance:.3g} is tolerated"

    def _unknown(self, kernel: PlannedKernel) -> bool:
        graph, operators = self.planned.graph, self.planned.program.operators
        return any(graph.nodes[operators[m].node].op == "opaque" for m in kernel.members)

    def _invented(self, kernel: PlannedKernel) -> "dict[int, Array]":
        import numpy as np

        from fusesolve.ops.numpy_reference import numpy_dtype

        storage = self.planned.program.storage
        random = np.random.Generator(np.random.PCG64(kernel.id))
        found = {}
        for s in kernel.writes:
            kind = storage[s].type
            drawn = random.standard_normal(kind.shape) if kind.dtype.is_float else np.zeros(kind.shape)
            found[s] = drawn.astype(numpy_dtype(kind.dtype))
        return found


def has_source(planned: PlannedProgram, kernel: PlannedKernel) -> bool:
    """Whether a plan's kernel is one that fusesolve writes: no library call, no opaque operator but a sort."""
    nodes, operators = planned.graph.nodes, [planned.program.operators[m] for m in kernel.members]
    opaque = any(op.kind is OpKind.OPAQUE and nodes[op.node].op not in RANKED for op in operators)
    return kernel.implementation == "generated" and not opaque


def _number(error: float | None) -> float | None:
    """The error as a number that JSON has: the largest one where a value that should be finite is not."""
    return None if error is None else min(error, 1.7976931348623157e308)


STEPS: Mapping[str, Step] = {
    "reference": _reference,
    "cudasim": _cudasim,
    "compile": _compile,
    "cpu": _cpu,
    "cuda": _cuda,
}
