"""Operators on Ethos-U engines against the cycle estimates of Arm's own compiler.

A row is one operator (8-bit operands, 32-bit sums, an 8-bit result) alone in a network, as Vela schedules it. With the
memory mode Shared_Sram feature maps lie in the SRAM and only weights come from outside; with Dedicated_Sram both do.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from fusesolve.builder import GraphBuilder
from fusesolve.candidates.loops import build_nest
from fusesolve.candidates.pricing import price_workloads
from fusesolve.candidates.program import build_program
from fusesolve.candidates.space import inspect_group
from fusesolve.cost.table import PriceOptions
from fusesolve.decompose import add_operator
from fusesolve.errors import InternalError
from fusesolve.graph import AttrValue, DType, Graph, TensorType
from fusesolve.group import Refusal, Workload
from fusesolve.hardware_yaml import load_profile
from fusesolve.study.gains.outcome import Outcome, Request, Times
from fusesolve.study.samples import Skipped

Row: TypeAlias = Mapping[str, str]

COLUMNS = frozenset({
    "accelerator", "memory_mode", "op", "side", "c_in", "c_out", "kernel", "stride", "op_cycles", "clock_mhz",
})  # fmt: skip
IN_SRAM = "Shared_Sram"
OPERATORS = ("conv2d", "depthwise", "linear", "add")


def read(request: Request, rows: Sequence[Row]) -> Outcome:
    """Errors per accelerator and operator; InputError where an accelerator has no profile of its name."""
    outcome = Outcome()
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        if row["op"] not in OPERATORS:
            outcome.skipped.append(Skipped(row["accelerator"], f"the operator {row['op']} is not known"))
        elif not float(row["op_cycles"]) > 0:
            outcome.skipped.append(Skipped(row["accelerator"], "the row has no cycles"))
        else:
            groups[row["accelerator"], row["op"]].append(row)
    for (accelerator, op), members in groups.items():
        name = request.hardware or accelerator
        profile = load_profile(name)
        prices = price_workloads([_workload(row) for row in members], profile, PriceOptions()).latency
        outcome.times.append(
            Times(
                device=accelerator, profile=name, op=op, timing="estimate",
                labels=tuple(_label(row) for row in members),
                measured=tuple(float(row["op_cycles"]) / float(row["clock_mhz"]) * 1e-6 for row in members),
                predicted=tuple(float(price) for price in prices),
            )
        )  # fmt: skip
    return outcome


def _label(row: Row) -> str:
    side, c_in, c_out, kernel, stride = (row[name] for name in ("side", "c_in", "c_out", "kernel", "stride"))
    return f"{row['op']} {side}x{side}x{c_in} to {c_out}, kernel {kernel}, stride {stride}"


def operator_graph(row: Row) -> Graph:
    """The graph of a row's operator: 8-bit operands, a 32-bit sum, an 8-bit result."""
    side, c_in, c_out, kernel, stride = (int(row[name]) for name in ("side", "c_in", "c_out", "kernel", "stride"))
    builder = GraphBuilder(row["op"])

    def feed(name: str, *shape: int, weight: bool = False) -> str:
        return builder.input(name, TensorType(DType.I8, shape), weight=weight)

    if row["op"] == "linear":
        operands = feed("x", 1, c_in), feed("w", c_in, c_out, weight=True)
        total = builder.one("matmul", operands, {"to": "i32"})
    elif row["op"] == "add":
        total = builder.one("add", (feed("x", 1, c_in, side, side), feed("y", 1, c_in, side, side)))
    else:
        group = c_in if row["op"] == "depthwise" else 1
        weight = feed("w", c_out, c_in // group, kernel, kernel, weight=True)
        attrs: dict[str, AttrValue] = {"stride": stride, "pad": kernel // 2, "group": group, "to": "i32"}
        total = builder.one("conv2d", (feed("x", 1, c_in, side, side), weight), attrs)
    builder.output(add_operator(builder, "cast", (total,), {"to": "i8"})[0])
    return builder.build()


def _workload(row: Row) -> Workload:
    """The operator as one kernel, feature maps where the memory mode keeps them."""
    program = build_program(operator_graph(row))
    found = inspect_group(program, build_nest(program, tuple(range(len(program.operators)))))
    if isinstance(found, Refusal):
        raise InternalError(f"{_label(row)} is not one kernel: {found.message}")
    work = found.workload
    if row["memory_mode"] != IN_SRAM:
        return work
    maps = work.read_bytes - work.weight_bytes + work.write_bytes
    return replace(work, read_bytes=work.weight_bytes, write_bytes=0, staged_bytes=work.staged_bytes + maps)
