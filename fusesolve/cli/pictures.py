"""Options that write pictures beside the result, and their writing: each file whole or not at all."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from fusesolve.cli.options import OUTPUT_PANEL
from fusesolve.cli.streams import check_writable, write_result
from fusesolve.plan import Plan

HtmlOpt = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", help="Write a page with pictures too (the extra plots).",
                 rich_help_panel=OUTPUT_PANEL, show_default=False),
]  # fmt: skip
TraceOpt = Annotated[
    Path | None,
    typer.Option("--trace", metavar="FILE", help="Write a trace for Perfetto or chrome://tracing too.",
                 rich_help_panel=OUTPUT_PANEL, show_default=False),
]  # fmt: skip
NodeDataOpt = Annotated[
    Path | None,
    typer.Option("--node-data", metavar="FILE", help="Write an overlay for Model Explorer too: kernels and times.",
                 rich_help_panel=OUTPUT_PANEL, show_default=False),
]  # fmt: skip
DotOpt = Annotated[
    Path | None,
    typer.Option("--dot", metavar="FILE", help="Write the graph with its kernels as clusters, for Graphviz, too.",
                 rich_help_panel=OUTPUT_PANEL, show_default=False),
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Pictures:
    """The files that were asked for, None where not."""

    html: Path | None = None
    trace: Path | None = None
    node_data: Path | None = None
    dot: Path | None = None

    def check(self) -> None:
        """Before any work: InputError for a file that cannot be written, MissingError without the extra `plots`."""
        for path in (self.html, self.trace, self.node_data, self.dot):
            check_writable(path)
        if self.html is not None:
            from fusesolve.report.pictures.page import need_plots

            need_plots()

    def write(self, plan: Plan, unfused: Callable[[], Plan]) -> None:
        """Write the pictures of a plan; `unfused` gives the plan of its operators alone, for the page's timeline."""
        from fusesolve.report.pictures.overlays import dot_text, node_data_document, trace_document

        forms = ((self.trace, trace_document), (self.node_data, node_data_document), (self.dot, dot_text))
        for path, form in forms:
            if path is not None:
                write_result(form(plan), path)
        if self.html is not None:
            from fusesolve.report.pictures.plan_page import plan_page

            write_result(plan_page(plan, unfused() if plan.groups else None), self.html)


def write_page(page: Callable[[], str], path: Path | None) -> None:
    """Write a page where one was asked for."""
    if path is not None:
        write_result(page(), path)
