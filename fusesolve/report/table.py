"""The plan as a person reads it: one line a kernel, then the total, the proof, memory and warnings."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fusesolve.plan import Plan, PlannedGroup
from fusesolve.report.text import MARK, Column, fold, render_facts, render_table, room_for_flexible, short_names
from fusesolve.units import format_bytes, format_seconds

NARROW = 80
LEFT_OUT_IF_NARROW = ("regs", "shared", "occ")
OF_STREAMS = ("stream", "start")  # columns of plans on several streams
COLUMNS = (
    Column(head="#", right=True),
    Column(head="operators", flexible=True),
    Column(head="template"),
    Column(head="stream", right=True),
    Column(head="start", right=True),
    Column(head="time", right=True),
    Column(head="bound by"),
    Column(head="DRAM", right=True),
    Column(head="regs", right=True),
    Column(head="shared", right=True),
    Column(head="occ", right=True),
)


def plan_table(plan: Plan, *, width: int, colour: bool) -> str:
    """The whole report on a plan, at most `width` columns wide; INFEASIBLE and NO_SOLUTION plans say why."""
    head = fold(f"{plan.graph.name} on {plan.hardware.name}: {_headline(plan)}", width)
    several = plan.timing.get("streams", 1) > 1
    body = _kernels(plan.groups, width=width, colour=colour, several=several) if plan.groups else ""
    return head + ("\n" + body if body else "") + "\n" + render_facts(_facts(plan), width=width)


def summary(plan: Plan) -> str:
    """One line on a plan: kernels, time, gain and proof."""
    return f"{plan.graph.name} on {plan.hardware.name}: {_headline(plan)}; {proof(plan)}"


def _headline(plan: Plan) -> str:
    if plan.objective_ns is None:
        return "no plan"
    gain = "" if plan.speedup is None else f", {plan.speedup:.2f} x the speed of unfused"
    return f"{_kernel_count(plan)}, {_time(plan.objective_ns)} predicted{gain}"


def _kernel_count(plan: Plan) -> str:
    count = len(plan.groups)
    return f"{count} kernel{'s' * (count != 1)}"


def _kernels(groups: Sequence[PlannedGroup], *, width: int, colour: bool, several: bool) -> str:
    hidden = (() if width >= NARROW else LEFT_OUT_IF_NARROW) + (() if several else OF_STREAMS)
    kept = [index for index, column in enumerate(COLUMNS) if column.head not in hidden]
    columns = [COLUMNS[index] for index in kept]
    rows = [_row(group) for group in groups]
    bare = [[row[index] for index in kept] for row in rows]
    room = max(room_for_flexible(columns, bare, width), 12)
    filled = [[*row[:1], _operators(group, room), *row[2:]] for group, row in zip(groups, bare, strict=True)]
    return render_table(columns, filled, width=width, colour=colour) + _marks(groups)


def _row(group: PlannedGroup) -> list[str]:
    return [
        str(group.id),
        "",
        group.template,
        str(group.stream),
        _time(group.start_ns),
        _time(group.latency_ns) + ("?" if group.uncertain else ""),
        group.bound_by,
        _size(group.dram_bytes),
        _count(group.registers_per_thread) + ("!" if group.spill_bytes else ""),
        _size(group.shared_bytes),
        "-" if group.occupancy is None else f"{100 * group.occupancy:.0f}%",
    ]


def _operators(group: PlannedGroup, room: int) -> str:
    again = set(group.recomputed)
    return short_names([f"{name}{MARK}" if name in again else name for name in group.nodes], room)


def _marks(groups: Sequence[PlannedGroup]) -> str:
    """What the marks in the table mean; only those that occur."""
    marks = (
        (any(group.recomputed for group in groups), "* computed in more than one kernel"),
        (any(group.uncertain for group in groups), "? the gain is below the known error of the model"),
        (any(group.spill_bytes for group in groups), "! registers spill to memory"),
    )
    lines = "".join(f"{text}\n" for shown, text in marks if shown)
    return f"\n{lines}" if lines else ""


def _facts(plan: Plan) -> list[tuple[str, str]]:
    facts = [("status", plan.status), ("total", _total(plan)), ("proof", proof(plan))]
    if plan.timing.get("simulated_ns") is not None:
        facts.insert(2, ("simulated", _simulated(plan.timing)))
    if plan.verification is not None:
        facts.append(("verified", _verified(plan.verification)))
    if plan.dram_bytes is not None:
        facts.append(("DRAM", _against(plan.dram_bytes, plan.unfused_dram_bytes)))
    if plan.peak_memory_bytes is not None:
        facts.append(("peak memory", _against(plan.peak_memory_bytes, plan.unfused_peak_memory_bytes)))
    if plan.seconds:
        facts.append(("search", _search(plan.seconds)))
    facts += [("conflict", line) for line in conflict_lines(plan)]
    facts += [("warning", text) for text in plan.warnings]
    return facts


def _search(seconds: Mapping[str, float]) -> str:
    stages = ", ".join(f"{stage} {spent:.2f}" for stage, spent in seconds.items() if stage != "total")
    total = seconds.get("total")
    return f"seconds: {stages}" if total is None else f"{total:.2f} s ({stages})"


def conflict_lines(plan: Plan) -> list[str]:
    """One line a conflict of an infeasible plan: its message, or its fields where it has none."""
    return [
        str(entry.get("message") or ", ".join(f"{key}: {value}" for key, value in entry.items()))
        for entry in plan.conflicts
    ]


def _total(plan: Plan) -> str:
    if plan.objective_ns is None:
        return "none" if plan.unfused_ns is None else f"none; unfused takes {_time(plan.unfused_ns)}"
    text = f"{_time(plan.objective_ns)} in {_kernel_count(plan)}"
    used = len({group.stream for group in plan.groups})
    if plan.timing.get("streams", 1) > 1:
        text += f" on {used} stream{'s' * (used != 1)}"
    if plan.unfused_ns is None:
        return text
    gain = "" if plan.speedup is None else f", {plan.speedup:.2f} x"
    return f"{text}; unfused {_time(plan.unfused_ns)}{gain}"


def _simulated(timing: Mapping[str, Any]) -> str:
    """The totals of the event simulator."""
    text = f"{_time(timing['simulated_ns'])} block by block, launches overlapped"
    alone = timing.get("unfused_simulated_ns")
    return text if alone is None else f"{text}; unfused {_time(alone)}, {alone / timing['simulated_ns']:.2f} x"


def _verified(record: Mapping[str, Any]) -> str:
    """What was compiled for the plan, and whether nothing else would be chosen with it."""
    compiled, missing, rounds = len(record["compiled"]), len(record["without_source"]), record["rounds"]
    text = f"{compiled} generated kernel{'s' * (compiled != 1)} as compiled for {record['target']}"
    text += f" after {rounds} round{'s' * (rounds != 1)}, {'confirmed' if record['confirmed'] else 'not confirmed'}"
    return f"{text}; {missing} without source as predicted" if missing else text


def proof(plan: Plan) -> str:
    """What is proven, in words: over which kernels, and how far the best possible plan can be."""
    space = f"{plan.space.candidates:,} kernels"
    if plan.space.truncated:
        space += f" (the space was cut by {', '.join(plan.space.cut_by) or 'a limit'})"
    if plan.status == "OPTIMAL":
        return f"optimal over {space}"
    if plan.status == "INFEASIBLE":
        return f"infeasible: no plan exists over {space}"
    if plan.status == "NO_SOLUTION":
        return f"none: no plan was found over {space}"
    if plan.gap is None:
        return f"none: {plan.options.get('strategy', 'this strategy')} gives no bound; --strategy cpsat does"
    return f"within {_percent(plan.gap)} of the best over {space}"


def _percent(ratio: float) -> str:
    """A gap rounded up, so that the claim is never stronger than the proof."""
    return f"{math.ceil(10_000 * ratio - 1e-9) / 100:g} %"


def _against(number: int, unfused: int | None) -> str:
    if unfused is None:
        return format_bytes(number)
    share = f" ({100 * number / unfused:.0f} %)" if unfused else ""
    return f"{format_bytes(number)}, unfused {format_bytes(unfused)}{share}"


def _time(ns: int) -> str:
    return format_seconds(ns / 1e9)


def _size(count: int | None) -> str:
    return "-" if count is None else format_bytes(count).replace(" ", "")


def _count(number: int | None) -> str:
    return "-" if number is None else str(number)
