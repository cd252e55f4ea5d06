"""The page of a plan: proof, roofline, timeline against unfused, the graph with its kernels coloured, the kernels."""

from collections.abc import Sequence
from math import log10
from typing import Any

from fusesolve.hardware import HardwareProfile, per_clock, tensor_peak
from fusesolve.hardware_yaml import profile_from_definition
from fusesolve.plan import Plan, PlannedGroup
from fusesolve.report.pictures.drawn import Drawn, draw, hue
from fusesolve.report.pictures.page import LAYOUT, Number, Page, Picture, Table, escape_hover, need_plots
from fusesolve.report.table import proof
from fusesolve.units import format_bandwidth, format_bytes, format_flops, format_seconds

FEW = 80  # operators up to which the graph shows names
ROW, COLUMN = 34, 150  # pixels between operators


def plan_page(plan: Plan, unfused: Plan | None) -> str:
    """The HTML of a plan; `unfused`: the same graph with every operator alone, None where that is not known.

    MissingError without the extra `plots`.
    """
    need_plots()
    parts: list[Picture | Table] = []
    if plan.groups:
        drawn = draw(plan)
        profile = profile_from_definition(plan.hardware.definition, plan.hardware.name)
        parts = [_roofline(plan, profile), _timeline(plan, unfused), _graph(plan, drawn), _kernels(plan)]
    line = "no plan" if plan.objective_ns is None else f"{_us(plan.objective_ns)} in {len(plan.groups)} kernels"
    return Page(
        title=f"{plan.graph.name} on {plan.hardware.name}", line=f"{line}, {proof(plan)}", facts=_facts(plan),
        parts=parts, notes=[*plan.warnings, *(str(item.get("message", item)) for item in plan.conflicts)],
    ).html()  # fmt: skip


def _us(ns: float) -> str:
    return format_seconds(ns / 1e9)


def _facts(plan: Plan) -> list[tuple[str, str]]:
    found = []
    if plan.unfused_ns is not None and plan.speedup is not None:
        found.append(("unfused", f"{_us(plan.unfused_ns)}, {plan.speedup:.2f} x"))
    if plan.dram_bytes is not None and plan.unfused_dram_bytes is not None:
        share = f"{format_bytes(plan.dram_bytes)}, unfused {format_bytes(plan.unfused_dram_bytes)}"
        found.append(("device memory traffic", share))
    if plan.peak_memory_bytes is not None:
        found.append(("peak memory", format_bytes(plan.peak_memory_bytes)))
    found.append(("operators", f"{plan.graph.nodes:,}"))
    found.append(("launch", f"{plan.timing.get('launch')}, {plan.timing.get('streams')} stream(s)"))
    return found


def _hover(group: PlannedGroup) -> str:
    """What a kernel is, in lines for a tooltip; Plotly reads a few HTML tags there, so names are escaped."""
    names = escape_hover(", ".join(group.nodes))
    facts = [
        f"<b>kernel {group.id}</b>: {group.template}, {group.implementation}", _wrapped(names),
        f"{_us(group.latency_ns)}, bound by {group.bound_by}", f"{format_bytes(group.dram_bytes)} of traffic",
    ]  # fmt: skip
    if group.occupancy is not None:
        facts.append(f"{group.registers_per_thread} registers, occupancy {100 * group.occupancy:.0f} %")
    if group.shared_bytes:
        facts.append(f"{format_bytes(group.shared_bytes)} of shared memory")
    if group.uncertain:
        facts.append("gain within the model's error")
    return "<br>".join(facts)


def _wrapped(text: str, width: int = 70, most: int = 8) -> str:
    words, lines = text.split(" "), [""]
    for word in words:
        if len(lines[-1]) + len(word) > width:
            lines.append("")
        lines[-1] += ("" if not lines[-1] else " ") + word[:width]
    return "<br>".join(lines[:most] + ([f"... {len(lines) - most} lines more"] if len(lines) > most else []))


def _roofline(plan: Plan, profile: HardwareProfile) -> Picture:
    """Each kernel at its FLOPs per byte and FLOP/s, under the roofs of memory and of the pipes."""
    import plotly.graph_objects as go

    shown = [group for group in plan.groups if group.flops and group.dram_bytes and group.latency_ns]
    x = [group.flops / group.dram_bytes for group in shown]
    y = [group.flops / group.latency_ns * 1e9 for group in shown]
    size = [8 + 22 * (group.latency_ns / max(g.latency_ns for g in plan.groups)) ** 0.5 for group in shown]
    low, high = min(x, default=0.1) / 4, max(x, default=10.0) * 8
    figure = go.Figure()
    for name, peak in _roofs(profile):
        knee = peak / profile.memory.dram.sustained
        high = max(high, 4 * knee)
        xs = [low, knee, high] if low < knee else [low, high]
        ys = [min(peak, value * profile.memory.dram.sustained) for value in xs]
        figure.add_scatter(x=xs, y=ys, mode="lines", name=f"{name}: {format_flops(peak)}", hoverinfo="name")
    figure.add_scatter(
        x=x, y=y, mode="markers", name="kernels", showlegend=False, hovertext=[_hover(group) for group in shown],
        hoverinfo="text", marker={"size": size, "color": [hue(group.id) for group in shown], "line": {"width": 1}},
    )  # fmt: skip
    figure.update_layout(**LAYOUT, legend={"orientation": "h", "y": 1.12, "x": 0})
    figure.update_xaxes(type="log", title="FLOP per byte of device memory traffic", range=[log10(low), log10(high)])
    figure.update_yaxes(type="log", title="FLOP/s", exponentformat="SI")
    rate = format_bandwidth(profile.memory.dram.sustained)
    note = f"Sustained memory bandwidth {rate}; the area of a dot grows with the kernel's time."
    left = len(plan.groups) - len(shown)
    return Picture(
        heading="Roofline", figure=figure, height=440,
        note=note + (f" {left} kernels without arithmetic are not shown." if left else ""),
    )  # fmt: skip


def _roofs(profile: HardwareProfile) -> list[tuple[str, float]]:
    found: dict[float, str] = {}
    for dtype in ("f16", "bf16", "f32", "i8"):
        peak = tensor_peak(profile, dtype)
        if peak:
            found.setdefault(peak, f"tensor {dtype}")
    rate = per_clock(profile.compute.pipes.fma, "f32")
    if rate:
        found.setdefault(2.0 * rate * profile.compute.units * profile.compute.clock, "FMA f32")
    return [(name, peak) for peak, name in sorted(found.items(), reverse=True)]


def _timeline(plan: Plan, unfused: Plan | None) -> Picture:
    """Kernels one after the other (a row per stream), and below them every operator alone."""
    import plotly.graph_objects as go

    figure = go.Figure()
    rows = [(f"stream {s}", [g for g in plan.groups if g.stream == s]) for s in sorted({g.stream for g in plan.groups})]
    if len(rows) == 1:
        rows = [("plan", rows[0][1])]
    if unfused is not None and unfused.groups:
        rows.append(("unfused", list(unfused.groups)))
    for name, groups in rows:
        colour = [hue(g.id) if name != "unfused" else "#8b949e" for g in groups]
        figure.add_bar(
            orientation="h", y=[name] * len(groups), x=[g.latency_ns / 1e3 for g in groups],
            base=[g.start_ns / 1e3 for g in groups], hovertext=[_hover(g) for g in groups], hoverinfo="text",
            marker={"color": colour, "line": {"width": 0.5, "color": "rgba(127,127,127,.6)"}}, showlegend=False,
        )  # fmt: skip
    figure.update_layout(**LAYOUT, barmode="overlay", bargap=0.25)
    figure.update_xaxes(title="us", rangemode="tozero")
    figure.update_yaxes(autorange="reversed")
    return Picture(
        heading="Timeline", figure=figure, height=150 + 60 * len(rows),
        note="Predicted; drag to zoom into a stretch, double-click to leave it.",
    )  # fmt: skip


def _graph(plan: Plan, drawn: Drawn) -> Picture:
    """Source operators by depth, coloured by kernel."""
    import networkx
    import plotly.graph_objects as go

    net = networkx.DiGraph()
    net.add_nodes_from(drawn.operators)
    net.add_edges_from(drawn.edges)
    place, width, depth = _placed(net)
    lines_x: list[float | None] = []
    lines_y: list[float | None] = []
    for a, b in drawn.edges:
        lines_x += [place[a][0], place[b][0], None]
        lines_y += [place[a][1], place[b][1], None]
    by_id = {group.id: group for group in plan.groups}
    colours = [hue(ids[0]) if (ids := drawn.kernels[name]) else "#8b949e" for name in drawn.operators]
    texts = [
        f"<b>{escape_hover(name)}</b><br>"
        + ("<br>".join(_hover(by_id[i]) for i in drawn.kernels[name]) or "a view: no kernel")
        for name in drawn.operators
    ]
    named = len(drawn.operators) <= FEW
    figure = go.Figure()
    figure.add_scatter(
        x=lines_x, y=lines_y, mode="lines", hoverinfo="skip", showlegend=False,
        line={"width": 1, "color": "rgba(127,127,127,.55)"},
    )  # fmt: skip
    figure.add_scatter(
        x=[place[name][0] for name in drawn.operators], y=[place[name][1] for name in drawn.operators],
        mode="markers+text" if named else "markers", text=[escape_hover(_short(name)) for name in drawn.operators],
        textposition="middle right", hovertext=texts, hoverinfo="text", showlegend=False,
        marker={"size": 13 if named else 9, "color": colours, "line": {"width": 1, "color": "rgba(127,127,127,.8)"}},
    )  # fmt: skip
    figure.update_layout(**{**LAYOUT, "margin": {"l": 10, "r": 10, "t": 10, "b": 10}}, dragmode="pan")
    figure.update_xaxes(visible=False, range=[-0.4, max(width, 6) - 0.2])
    figure.update_yaxes(visible=False, range=[depth - 0.4, -0.8])
    return Picture(
        heading="Graph", figure=figure, height=max(260, min(30_000, ROW * depth + 40)), width=COLUMN * width + 80,
        note="Operators from top to bottom, a colour for each kernel (the same after twelve). Hover for its limits.",
    )  # fmt: skip


def _short(name: str, most: int = 20) -> str:
    return name if len(name) <= most else "…" + name[1 - most :]


def _placed(net: Any) -> tuple[dict[str, tuple[float, float]], int, int]:
    """A column and a row for each operator: rows are depths, columns follow the operators' own inputs."""
    import networkx

    place: dict[str, tuple[float, float]] = {}
    width, depth = 1, 0
    for row, layer in enumerate(networkx.topological_generations(net)):
        wanted = {name: [place[p][0] for p in net.predecessors(name)] for name in layer}
        order = sorted(layer, key=lambda name: (sum(wanted[name]) / len(wanted[name]) if wanted[name] else 0.0, name))
        taken = -1.0
        for name in order:
            column = max(round(sum(wanted[name]) / len(wanted[name])) if wanted[name] else 0.0, taken + 1)
            place[name] = (column, float(row))
            taken = column
        width, depth = max(width, int(taken) + 1), row + 1
    return place, width, depth


def _kernels(plan: Plan) -> Table:
    columns = (
        "kernel", "operators", "template", "by", "time", "bound by", "traffic", "FLOP", "registers", "shared",
        "occupancy", "blocks", "spills",
    )  # fmt: skip
    return Table(
        heading="Kernels", columns=columns, rows=[_row(group) for group in plan.groups],
        note="Click a heading to sort. Predicted values.",
    )  # fmt: skip


def _row(group: PlannedGroup) -> Sequence[str | Number]:
    def count(value: int | None) -> Number:
        return Number(value, "" if value is None else f"{value:,}")

    shared = group.shared_bytes
    occupancy = None if group.occupancy is None else 100 * group.occupancy
    return (
        Number(group.id, str(group.id)), ", ".join(group.nodes), group.template, group.implementation,
        Number(group.latency_ns, _us(group.latency_ns)), group.bound_by,
        Number(group.dram_bytes, format_bytes(group.dram_bytes)), count(group.flops), count(group.registers_per_thread),
        Number(shared, "" if shared is None else format_bytes(shared)),
        Number(occupancy, "" if occupancy is None else f"{occupancy:.0f} %"), count(group.blocks),
        count(group.spill_bytes),
    )  # fmt: skip
