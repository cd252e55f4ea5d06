"""Pages of the other results: strategies beside the optimum, a sweep, a validation."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fusesolve.report.pictures.drawn import HUES
from fusesolve.report.pictures.page import Cell, Number, Page, Picture, Table, need_plots
from fusesolve.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

LAYOUT: dict[str, Any] = {"margin": {"l": 70, "r": 20, "t": 30, "b": 50}, "font": {"size": 12}, "template": "none"}
MOST_LINES = 24  # lines of a sweep's curves; more are one picture's end


def _us(ns: float | None) -> Number:
    return Number(ns, "" if ns is None else format_seconds(ns / 1e9))


def compare_page(document: Mapping[str, Any]) -> str:
    """The page of a `fusesolve-compare/1` document; MissingError without the extra `plots`."""
    need_plots()
    import plotly.graph_objects as go

    rows = sorted(document["rows"], key=lambda row: row["objective_ns"])
    figure = go.Figure()
    for kind, colour in (("strategy", HUES[0]), ("partition", HUES[1])):
        part = [row for row in rows if row["kind"] == kind]
        if part:
            figure.add_bar(
                orientation="h", name=kind, y=[row["name"] for row in part],
                x=[100 * (row["ratio"] - 1) for row in part], marker={"color": colour},
                hovertext=[f"{row['ratio']:.4f} of the optimum, {row['kernels']} kernels" for row in part],
                hoverinfo="text",
            )  # fmt: skip
    figure.update_layout(**{**LAYOUT, "margin": {**LAYOUT["margin"], "l": 150}}, legend={"orientation": "h", "y": 1.1})
    figure.update_xaxes(title="% above cpsat", rangemode="tozero")
    figure.update_yaxes(autorange="reversed", categoryorder="array", categoryarray=[row["name"] for row in rows])
    cells: list[Sequence[Cell]] = [
        (
            row["name"], row["kind"], _us(row["objective_ns"]), Number(row["ratio"], f"{row['ratio']:.4f}"),
            Number(row["kernels"], str(row["kernels"])), Number(row["dram_bytes"], format_bytes(row["dram_bytes"])),
            "yes" if row["legal"] else "no", "yes" if row["in_space"] else "no", row["priced_as"],
            "; ".join(sorted({item["rule"] for item in row["illegal"]})),
        )
        for row in rows
    ]  # fmt: skip
    columns = ("name", "kind", "time", "ratio", "kernels", "traffic", "legal", "in space", "priced as", "refused by")
    return Page(
        title="Strategies and partitions", line=f"{len(rows)} rows beside the optimum", facts=(),
        parts=[
            Picture(
                heading="Distance from the optimum", figure=figure, height=120 + 26 * len(rows),
                note="Predicted time over the proven plan's; a bar of nothing is the optimum.",
            ),
            Table(heading="Rows", note="Click a heading to sort.", columns=columns, rows=cells),
        ],
    ).html()  # fmt: skip


def sweep_page(document: Mapping[str, Any]) -> str:
    """The page of a `fusesolve-whatif/1` document: curves along the first path, a phase map of two paths, the rows."""
    need_plots()
    paths, rows = list(document["paths"]), list(document["rows"])
    plans = list(dict.fromkeys(row["plan_sha256"] for row in rows if row["plan_sha256"]))
    parts: list[Picture | Table] = []
    if paths and rows:
        parts.append(_curves(paths, rows, plans))
    if len(paths) == 2:
        parts += _phases(paths, rows, plans)
    parts.append(_sweep_rows(paths, rows, plans))
    return Page(title="What if", line=f"{len(rows)} points, {len(plans)} different plans", facts=(), parts=parts).html()


def _series(paths: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Rows by everything but the first path."""
    several = {name: len({row[name] for row in rows}) > 1 for name in ("graph", "hardware")}
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        names = [str(row[name]) for name, more in several.items() if more]
        names += [f"{path}={row[path]:.4g}" for path in paths[1:] if row[path] is not None]
        found.setdefault(", ".join(names) or "time", []).append(row)
    return found


def _curves(paths: Sequence[str], rows: Sequence[Mapping[str, Any]], plans: Sequence[str]) -> Picture:
    import plotly.graph_objects as go

    figure = go.Figure()
    series = _series(paths, rows)
    for n, (name, part) in enumerate(list(series.items())[:MOST_LINES]):
        there = sorted((r for r in part if r["objective_ns"] and r[paths[0]] is not None), key=lambda r: r[paths[0]])
        figure.add_scatter(
            x=[r[paths[0]] for r in there], y=[r["objective_ns"] / 1e3 for r in there], mode="lines+markers", name=name,
            line={"color": HUES[n % len(HUES)], "width": 1.5},
            marker={"size": 9, "color": [HUES[plans.index(r["plan_sha256"]) % len(HUES)] for r in there]},
            hovertext=[f"plan {r['plan_sha256'][:8]}, {r['kernels']} kernels" for r in there],
        )  # fmt: skip
    figure.update_layout(**LAYOUT, legend={"orientation": "h", "y": 1.15})
    figure.update_xaxes(title=paths[0], exponentformat="SI")
    figure.update_yaxes(title="us", rangemode="tozero")
    left = max(0, len(series) - MOST_LINES)
    return Picture(
        heading="Time", figure=figure, height=460,
        note="The colour of a dot is the plan: where it changes, the best fusion changes."
        + (f" {left} more lines are in the table only." if left else ""),
    )  # fmt: skip


def _phases(paths: Sequence[str], rows: Sequence[Mapping[str, Any]], plans: Sequence[str]) -> list[Picture]:
    """A map per graph and device: the plan at each pair of values."""
    import plotly.graph_objects as go

    found = []
    by_subject: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        by_subject.setdefault((row["graph"], row["hardware"]), []).append(row)
    for (graph, hardware), part in by_subject.items():
        figure = go.Figure()
        there = [row for row in part if row["plan_sha256"] and None not in (row[paths[0]], row[paths[1]])]
        figure.add_scatter(
            x=[row[paths[0]] for row in there], y=[row[paths[1]] for row in there], mode="markers", showlegend=False,
            marker={
                "symbol": "square", "size": 15,
                "color": [HUES[plans.index(row["plan_sha256"]) % len(HUES)] for row in there],
            },
            hovertext=[
                f"plan {row['plan_sha256'][:8]}, {row['kernels']} kernels<br>{_us(row['objective_ns']).text}"
                for row in there
            ],
            hoverinfo="text+x+y",
        )  # fmt: skip
        figure.update_layout(**LAYOUT)
        figure.update_xaxes(title=paths[0], exponentformat="SI")
        figure.update_yaxes(title=paths[1], exponentformat="SI")
        found.append(
            Picture(
                heading=f"Phases of {graph} on {hardware}", figure=figure, height=460,
                note=f"{len({row['plan_sha256'] for row in there})} plans, a colour each (again after twelve).",
            )
        )  # fmt: skip
    return found


def _sweep_rows(paths: Sequence[str], rows: Sequence[Mapping[str, Any]], plans: Sequence[str]) -> Table:
    columns = ("graph", "hardware", *paths, "plan", "status", "time", "unfused", "kernels", "traffic")
    cells: list[Sequence[Cell]] = [
        (
            row["graph"], row["hardware"],
            *(Number(row[path], "" if row[path] is None else f"{row[path]:.6g}") for path in paths),
            "" if not row["plan_sha256"] else f"{plans.index(row['plan_sha256'])}: {row['plan_sha256'][:8]}",
            row["status"], _us(row["objective_ns"]), _us(row["unfused_ns"]),
            Number(row["kernels"], str(row["kernels"])),
            Number(row["dram_bytes"], "" if row["dram_bytes"] is None else format_bytes(row["dram_bytes"])),
        )
        for row in rows
    ]  # fmt: skip
    return Table(heading="Points", note="Paths in base units (s, B, B/s, Hz).", columns=columns, rows=cells)


def validation_page(document: Mapping[str, Any]) -> str:
    """The page of a `fusesolve-validation/1` document: predicted against compiled or measured, and every group."""
    need_plots()
    groups = document["groups"]
    parts: list[Picture | Table] = []
    for field, name, unit in (("measured", "latency_ns", "us"), ("compiled", "registers_per_thread", "registers")):
        pairs = [
            (g["id"], g["predicted"][name], g[field][name]) for g in groups
            if g[field] and g["predicted"] and g["predicted"].get(name) and g[field].get(name)
        ]  # fmt: skip
        if pairs:
            scale = 1e3 if unit == "us" else 1.0
            parts.append(_against(field, unit, [(i, p / scale, m / scale) for i, p, m in pairs]))
    parts.append(_groups(groups))
    good = sum(group["ok"] is True for group in groups)
    facts = [
        (name, text) for name, text in (
            ("target", str(document["target"] or "NumPy")),
            ("rank correlation", "" if document["spearman"] is None else f"{document['spearman']:.3f}"),
            ("median error", "" if document["median_ape"] is None else f"{100 * document['median_ape']:.0f} %"),
        ) if text
    ]  # fmt: skip
    return Page(
        title=f"{document.get('plan', 'plan')} on {document['on']}", line=f"{good} of {len(groups)} groups hold",
        facts=facts, parts=parts,
    ).html()  # fmt: skip


def _against(field: str, unit: str, pairs: Sequence[tuple[int, float, float]]) -> Picture:
    import plotly.graph_objects as go

    figure: Figure = go.Figure()
    most = max(max(p, m) for _, p, m in pairs)
    least = min(min(p, m) for _, p, m in pairs)
    figure.add_scatter(
        x=[least, most], y=[least, most], mode="lines", name="equal", line={"dash": "dot", "color": "#8b949e"}
    )
    figure.add_scatter(
        x=[p for _, p, _ in pairs], y=[m for _, _, m in pairs], mode="markers", name="groups",
        hovertext=[f"group {i}: {p:.4g} predicted, {m:.4g} {field}" for i, p, m in pairs], hoverinfo="text",
        marker={"size": 9, "color": HUES[0]},
    )  # fmt: skip
    figure.update_layout(**LAYOUT, showlegend=False)
    kind = "log" if least > 0 and most / least > 20 else "linear"
    figure.update_xaxes(title=f"predicted {unit}", type=kind)
    figure.update_yaxes(title=f"{field} {unit}", type=kind)
    return Picture(heading=f"Predicted and {field}", figure=figure, height=420, note="A dot is a kernel.")


def _groups(groups: Sequence[Mapping[str, Any]]) -> Table:
    columns = (
        "group", "verdict", "error", "tolerated", "predicted", "measured", "apart", "registers", "compiled", "note",
    )  # fmt: skip

    def number(value: float | None) -> Number:
        return Number(value, "" if value is None else f"{value:.3g}")

    cells: list[Sequence[Cell]] = []
    for group in groups:
        predicted, compiled, measured = (group[name] or {} for name in ("predicted", "compiled", "measured"))
        cells.append(
            (
                Number(group["id"], str(group["id"])), {True: "ok", False: "FAILS", None: "-"}[group["ok"]],
                number(group["error"]), number(group["tolerance"]), _us(predicted.get("latency_ns")),
                _us(measured.get("latency_ns")), _us(measured.get("unfused_latency_ns")),
                number(predicted.get("registers_per_thread")), number(compiled.get("registers_per_thread")),
                str(group.get("note") or ""),
            )
        )  # fmt: skip
    return Table(heading="Groups", note="Click a heading to sort.", columns=columns, rows=cells)
