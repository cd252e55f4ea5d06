"""`fusesolve graph`: list, show and convert graphs."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from fusesolve.cli.options import (
    BindOpt,
    DebugOpt,
    DTypeOpt,
    Format,
    FormatOpt,
    OutputOpt,
    QuietOpt,
    StrictOpt,
    parse_bindings,
    sink,
)
from fusesolve.cli.streams import check_writable, colour_wanted, notes, result_width, write_result

GraphNameArg = Annotated[
    str, typer.Argument(metavar="GRAPH", help="A graph file or a bundled name.", show_default=False)
]
TargetOpt = Annotated[
    Path,
    typer.Option("-o", "--output", metavar="FILE", help="The native graph, YAML or JSON by suffix; - is stdout (YAML).",
                 show_default=False),
]  # fmt: skip


def list_command(form: FormatOpt = None, output: OutputOpt = None, debug: DebugOpt = False) -> None:
    """List the bundled graphs."""
    from fusesolve.importers import bundled_graphs, load_graph
    from fusesolve.report.graphs import graph_rows, graphs_table
    from fusesolve.report.json import format_json

    goal = sink(form, output)
    graphs = {name: load_graph(name, bind={}, strict=False, as_dtype=None) for name in bundled_graphs()}
    if goal.form is Format.JSON:
        text = format_json({"graphs": graph_rows(graphs)})
    else:
        text = graphs_table(graphs, width=result_width(goal.path), colour=goal.path is None and colour_wanted())
    write_result(text, goal.path)


def show_command(
    graph: GraphNameArg,
    bind: BindOpt = None,
    strict: StrictOpt = False,
    as_dtype: DTypeOpt = None,
    form: FormatOpt = None,
    output: OutputOpt = None,
    quiet: QuietOpt = False,
    debug: DebugOpt = False,
) -> None:
    """Show a graph as the planner sees it: primitives, types, and the operators they came from."""
    from fusesolve.importers import load_graph
    from fusesolve.report.graphs import graph_document, graph_table
    from fusesolve.report.json import format_json

    goal = sink(form, output)
    loaded = load_graph(graph, bind=parse_bindings(bind), strict=strict, as_dtype=as_dtype)
    if goal.form is Format.JSON:
        text = format_json(graph_document(loaded))
        for warning in loaded.warnings:
            notes(quiet=quiet)(f"warning: {warning}")
    else:
        text = graph_table(loaded, width=result_width(goal.path), colour=goal.path is None and colour_wanted())
    write_result(text, goal.path)


def convert_command(
    graph: GraphNameArg,
    output: TargetOpt,
    bind: BindOpt = None,
    strict: StrictOpt = False,
    as_dtype: DTypeOpt = None,
    quiet: QuietOpt = False,
    debug: DebugOpt = False,
) -> None:
    """Write a graph in the native format, dimensions bound, decomposed to primitives, without weights."""
    from fusesolve.importers import load_graph
    from fusesolve.importers.native import format_native, native_document
    from fusesolve.report.json import format_json

    target = None if str(output) == "-" else output
    check_writable(target)
    loaded = load_graph(graph, bind=parse_bindings(bind), strict=strict, as_dtype=as_dtype)
    for warning in loaded.warnings:
        notes(quiet=quiet)(f"warning: {warning}")
    as_json = target is not None and target.suffix == ".json"
    write_result(format_json(native_document(loaded)) if as_json else format_native(loaded), target)


COMMANDS: dict[str, tuple[Callable[..., Any], str]] = {
    "list": (list_command, "Example:  fusesolve graph list"),
    "show": (show_command, "Example:  fusesolve graph show model.onnx --bind batch=1"),
    "convert": (convert_command, "Example:  fusesolve graph convert model.onnx --bind batch=1 -o model.yaml"),
}
