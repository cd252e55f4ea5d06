"""Plans for other programs' windows: a trace for Perfetto, DOT for Graphviz, node data for Model Explorer."""

import json
from typing import Any

from fusesolve.plan import Plan
from fusesolve.report.pictures.drawn import draw, hue, title


def trace_document(plan: Plan) -> str:
    """A plan as a trace in Chrome's JSON format (chrome://tracing, Perfetto): a thread per stream, times in us.

    Each kernel is a complete event (`ph` X) with its terms and resources as arguments; with `--simulate events` another
    process has the simulated starts and times. Source of the format: the Trace Event Format document of the Chromium
    project.
    """
    events: list[dict[str, Any]] = [_named(0, None, "predicted, closed form")]
    streams = sorted({group.stream for group in plan.groups})
    events += [_named(0, stream, f"stream {stream}") for stream in streams]
    events += [_event(0, group.start_ns, group.latency_ns, plan, n) for n, group in enumerate(plan.groups)]
    simulated = [n for n, group in enumerate(plan.groups) if group.simulated_start_ns is not None]
    if simulated:
        events += [_named(1, None, "simulated, block by block")]
        events += [_named(1, stream, f"stream {stream}") for stream in streams]
    for n in simulated:
        group = plan.groups[n]
        assert group.simulated_start_ns is not None
        events.append(_event(1, group.simulated_start_ns, group.simulated_ns or 0, plan, n))
    document = {
        "traceEvents": events, "displayTimeUnit": "ns",
        "otherData": {
            "graph": plan.graph.name, "hardware": plan.hardware.name, "status": plan.status,
            "objective_ns": plan.objective_ns, "bound_ns": plan.bound_ns,
        },
    }  # fmt: skip
    return json.dumps(document, indent=1) + "\n"


def _named(process: int, thread: int | None, name: str) -> dict[str, Any]:
    kind = "process_name" if thread is None else "thread_name"
    return {"ph": "M", "pid": process, "tid": thread or 0, "name": kind, "args": {"name": name}}


def _event(process: int, start_ns: int, length_ns: int, plan: Plan, position: int) -> dict[str, Any]:
    group = plan.groups[position]
    facts = {
        "bound_by": group.bound_by, "dram_bytes": group.dram_bytes, "flops": group.flops,
        "occupancy": group.occupancy, "registers_per_thread": group.registers_per_thread,
        "shared_bytes": group.shared_bytes, "blocks": group.blocks, "threads": group.threads,
    }  # fmt: skip
    return {
        "ph": "X", "pid": process, "tid": group.stream, "ts": start_ns / 1e3, "dur": length_ns / 1e3,
        "name": title(group), "cat": f"{group.template},{group.implementation}",
        "args": {
            "operators": list(group.nodes), "inputs": list(group.inputs), "outputs": list(group.outputs),
            "terms_ns": dict(group.terms_ns), **{name: value for name, value in facts.items() if value is not None},
        },
    }  # fmt: skip


def dot_text(plan: Plan) -> str:
    """A plan in the DOT language: operators as boxes, each kernel a coloured cluster, edges between operators.

    An operator that several kernels compute stands in the first of them. Names are escaped; node identifiers are ours.
    """
    drawn = draw(plan)
    number = {name: n for n, name in enumerate(drawn.operators)}
    lines = [
        "digraph plan {", "  rankdir=TB; compound=true;",
        '  node [shape=box, style="rounded,filled", fillcolor=white, fontname="sans-serif", fontsize=10];',
        f"  label={_quoted(_headline(plan))}; labelloc=t; fontname=\"sans-serif\";",
    ]  # fmt: skip
    inside: dict[int | None, list[str]] = {}
    for name in drawn.operators:
        ids = drawn.kernels[name]
        inside.setdefault(ids[0] if ids else None, []).append(name)
    for group in plan.groups:
        label = f"{group.id}: {group.latency_ns / 1e3:.2f} us, {group.bound_by}"
        lines.append(f"  subgraph cluster_{group.id} {{")
        lines.append(f'    label={_quoted(label)}; style="rounded,filled"; color="{hue(group.id)}";')
        lines.append(f'    fillcolor="{hue(group.id)}40"; fontsize=10;')
        lines += [f"    n{number[name]} [label={_quoted(name)}];" for name in inside.get(group.id, ())]
        lines.append("  }")
    lines += [f"  n{number[name]} [label={_quoted(name)}, style=dashed];" for name in inside.get(None, ())]
    lines += [f"  n{number[a]} -> n{number[b]};" for a, b in drawn.edges]
    return "\n".join([*lines, "}"]) + "\n"


def _quoted(text: str) -> str:
    safe = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
    return f'"{safe}"'


def _headline(plan: Plan) -> str:
    time = "no plan" if plan.objective_ns is None else f"{plan.objective_ns / 1e3:.1f} us"
    return f"{plan.graph.name} on {plan.hardware.name}: {time}, {len(plan.groups)} kernels, {plan.status}"


def node_data_document(plan: Plan) -> str:
    """Overlay for Google's Model Explorer: each operator's kernel as its colour, the kernel's time in us as its value.

    Results are keyed by the names of the tensors that leave an operator, which Model Explorer matches with those of the
    user's own ONNX file. Source of the format: `node_data_builder` of ai-edge-model-explorer 0.1.34.
    """
    drawn = draw(plan)
    times = {group.id: group.latency_ns / 1e3 for group in plan.groups}
    results = {
        tensor: {"value": round(sum(times[i] for i in ids), 3), "bgColor": hue(ids[0]), "textColor": "#000000"}
        for name, ids in drawn.kernels.items() if ids
        for tensor in drawn.tensors[name]
    }  # fmt: skip
    document = {"name": f"fusesolve: kernel and its us on {plan.hardware.name}", "results": results}
    return json.dumps(document, indent=1) + "\n"
