"""Reads the public fusion cases beside the checkout: graphs in the native notation with what a plan must do."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from fusesolve.graph import Graph
from fusesolve.importers.native import parse_native

PATH = Path(__file__).parents[2] / ".." / "shared" / "cases" / "cases.yaml"
MISSING = f"the cases are not there: {PATH.name} lies in a folder beside the checkout"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Case:
    """One case. `checks` are (key, value) in file order; a key may repeat; `graph` is None for generators."""

    id: str
    kind: str
    title: str
    graph: Mapping[str, Any]
    checks: tuple[tuple[str, Any], ...]

    @property
    def written_out(self) -> bool:
        """Whether the graph is given operator by operator."""
        return bool(self.graph.get("ops"))

    def text(self) -> str:
        """The graph as a native document."""
        document = {"format": "fusesolve-graph/1", "name": self.id}
        document |= {key: list(self.graph.get(key, ())) for key in ("inputs", "ops", "outputs")}
        return yaml.safe_dump(document, sort_keys=False, width=10_000)

    def parse(self, **bind: int) -> Graph:
        """The graph, with symbolic dimensions bound; InputError where it is none."""
        return parse_native(self.text(), self.id, bind, False)

    def values(self, key: str) -> Iterator[Any]:
        """What the case says under `key`, up to the first condition (`when`, `unless`) that follows it."""
        for (name, value), (following, _) in zip(self.checks, (*self.checks[1:], ("", None)), strict=True):
            if name == key and following not in ("when", "unless"):
                yield value


def load_cases() -> tuple[Case, ...]:
    """All cases, in file order; none where the file is absent."""
    if not PATH.is_file():
        return ()
    rows: Sequence[Mapping[str, Any]] = yaml.safe_load(PATH.read_text(encoding="utf-8"))
    return tuple(
        Case(
            id=row["id"], kind=row["kind"], title=row["title"], graph=row.get("graph") or {},
            checks=tuple(pair for entry in row["planner_test"] for pair in entry.items()),
        )
        for row in rows
    )  # fmt: skip
