"""Pages of the other results: strategies beside the optimum, a validation."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fusesolve.report.pictures.drawn import HUES
from fusesolve.report.pictures.page import LAYOUT, Cell, Number, Page, Picture, Table, need_plots, time_cell
from fusesolve.units import format_bytes

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


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
            row["name"], row["kind"], time_cell(row["objective_ns"]), Number(row["ratio"], f"{row['ratio']:.4f}"),
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
                number(group["error"]), number(group["tolerance"]), time_cell(predicted.get("latency_ns")),
                time_cell(measured.get("latency_ns")), time_cell(measured.get("unfused_latency_ns")),
                number(predicted.get("registers_per_thread")), number(compiled.get("registers_per_thread")),
                str(group.get("note") or ""),
            )
        )  # fmt: skip
    return Table(heading="Groups", note="Click a heading to sort.", columns=columns, rows=cells)
