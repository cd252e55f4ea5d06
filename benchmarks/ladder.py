"""Run the ladder over whole plans of the bundled graphs and the real models, and say group by group what fails.

    python -m benchmarks.ladder FOLDER
    python -m benchmarks.ladder FOLDER --graphs gpt2_block,minilm --profiles h100 --steps cudasim --ways generated

FOLDER keeps plans (`plans/`), what was compiled (`compiled/`) and a row for each step of each plan (`rows.jsonl`).
What has a row is not run again; `--again` runs it again where it failed, and with `--graphs` or `--steps` wherever
those say. Each step is a process of its own that ends after `--limit` seconds. The table and the failures are printed
at the end, or without running anything with `--steps ''`.
"""

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fusesolve import plan
from fusesolve.codegen.module import generate
from fusesolve.codegen.planned import read_plan
from fusesolve.errors import FusesolveError
from fusesolve.importers import bundled_graphs
from fusesolve.validate.compile_groups import CompileStore
from fusesolve.validate.compiled import compile_plan
from fusesolve.validate.ladder import plan_graph, plan_profile, validate_plan
from fusesolve.validate.result import KernelResult
from tests.models.fetch import LIGHT_CNNS, REAL_MODELS, FetchError
from tests.models.graphs import named_graph

PROFILES = ("a100", "h100")
STEPS = ("emit", "reference", "cudasim", "compile")
# How a plan is made: the options of `fusesolve plan` behind each word.
WAYS: Mapping[str, Mapping[str, Any]] = {
    "best": {}, "no-recompute": {"recompute": False}, "generated": {"implementation": "generated"},
}  # fmt: skip
PLAN_S = 300.0


@dataclass(frozen=True, slots=True)
class Case:
    """One step of one plan."""

    graph: str
    profile: str
    way: str
    step: str

    @property
    def plan(self) -> str:
        """The name of the plan's file."""
        return f"{self.graph}-{self.profile}-{self.way}"


def document_of(folder: Path, case: Case) -> Mapping[str, Any]:
    """The plan of a case, made where the folder does not have it."""
    path = folder / "plans" / f"{case.plan}.json"
    if not path.is_file():
        found = plan(named_graph(case.graph), case.profile, time_limit=PLAN_S, **WAYS[case.way]).to_dict()
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        part.write_text(json.dumps(found), encoding="utf-8")
        part.replace(path)
    document: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document


def climb(folder: Path, case: Case) -> dict[str, Any]:
    """The row of one case."""
    document = document_of(folder, case)
    fault = None
    if case.step == "emit":
        groups = emitted(document)
    elif case.step == "compile":
        store = CompileStore(folder / "compiled")
        groups = compile_plan(read_plan(document, plan_graph(document)), plan_profile(document), store)
    else:
        found = validate_plan(document, case.step)
        groups, fault = found.groups, found.fault
    written = [group for group in groups if group.generated]
    library = {item["id"] for item in document["groups"] if item["implementation"] != "generated"}
    unknown = unknown_groups(document)
    return {
        "groups": len(groups), "generated": len(written), "library": len(library), "unknown": len(unknown),
        "fault": fault, "passed": sum(group.ok is True or case.step == "emit" for group in written),
        "failed": [_listed(group) for group in groups if group.ok is False],
        "sourceless": [
            _listed(group) for group in groups if not group.generated and group.id not in library | unknown
        ],
        "unjudged": [_listed(group) for group in written if group.ok is None and case.step != "emit"],
        "spills": [_listed(group) for group in groups if group.compiled and group.compiled["spill_bytes"]],
    }  # fmt: skip


def emitted(document: Mapping[str, Any]) -> tuple[KernelResult, ...]:
    """The groups of a plan, and why those without source have none."""
    planned = read_plan(document, plan_graph(document))
    refused = generate(planned, runs=False).refused
    return tuple(
        KernelResult(id=item.id, nodes=item.nodes, ok=None, generated=item.id not in refused, note=refused.get(item.id))
        for item in planned.kernels
    )


def unknown_groups(document: Mapping[str, Any]) -> set[int]:
    """Groups of an operator that the import does not know: they have neither reference nor source."""
    planned = read_plan(document, plan_graph(document))
    operators, nodes = planned.program.operators, planned.graph.nodes
    return {k.id for k in planned.kernels if any(nodes[operators[m].node].op == "opaque" for m in k.members)}


def _listed(group: KernelResult) -> dict[str, Any]:
    return {"group": group.id, "nodes": list(group.nodes[:4]), "note": group.note}


def processor_s() -> float:
    """Processor seconds of this process and of the children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + used.ru_utime + used.ru_stime


def run_child(folder: Path, case: Case, limit: float) -> dict[str, Any]:
    """The row of a case from a process of its own, or what that process said last."""
    command = [sys.executable, "-m", "benchmarks.ladder", str(folder), "--one", *_words(case)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        out, errors = child.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
        return {"error": f"not done after {limit:.0f} s"}
    if child.returncode:
        return {"error": (errors.strip().splitlines() or ["it said nothing"])[-1]}
    row: dict[str, Any] = json.loads(out.splitlines()[-1])
    return row


def _words(case: Case) -> tuple[str, str, str, str]:
    return case.graph, case.profile, case.way, case.step


def _failed(row: Mapping[str, Any]) -> bool:
    return bool("error" in row or row["failed"] or row["fault"] or row["sourceless"])


def read_rows(path: Path) -> dict[Case, dict[str, Any]]:
    """The last row of each case."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    rows = [json.loads(line) for line in lines]
    return {Case(row["graph"], row["profile"], row["way"], row["step"]): row for row in rows}


def run_cases(folder: Path, cases: Iterable[Case], limit: float, again: str) -> None:
    """Run what has no row yet; `again`: none, failed or all."""
    path = folder / "rows.jsonl"
    folder.mkdir(parents=True, exist_ok=True)
    for case in cases:
        known = read_rows(path).get(case)
        if known is not None and again != "all" and not (again == "failed" and _failed(known)):
            continue
        row = dict(zip(("graph", "profile", "way", "step"), _words(case), strict=True)) | run_child(folder, case, limit)
        with path.open("a", encoding="utf-8") as out:
            out.write(json.dumps(row) + "\n")
        print(" ".join(_words(case)), "FAILED" if _failed(row) else "ok", row.get("error", ""), flush=True)


def print_table(rows: Mapping[Case, Mapping[str, Any]]) -> None:
    """Groups, library calls, unknown operators and passes of each step by graph and way, then every failure."""
    print(f"| graph | plans | groups | library | unknown | {' | '.join(STEPS)} | spills |")
    print("|---|" + "---:|" * (5 + len(STEPS)))
    names = [(case.graph, case.way) for case in rows]
    for graph, way in (*dict.fromkeys(names), (None, None)):
        own = {case: row for case, row in rows.items() if graph is None or (case.graph, case.way) == (graph, way)}
        plans = {case.plan: row for case, row in own.items() if "error" not in row}
        cells = [sum(row[key] for row in plans.values()) for key in ("groups", "library", "unknown")]
        passes = [_share(own, step) for step in STEPS]
        spills = sum(len(row.get("spills", ())) for row in own.values())
        title = "all" if graph is None else graph if way == "best" else f"{graph}, {way}"
        print(f"| {title} | {len(plans)} | {' | '.join(map(str, [*cells, *passes, spills]))} |")
    for case, row in rows.items():
        for word in ("error", "fault"):
            if row.get(word):
                print(f"{' '.join(_words(case))}: {row[word]}")
        for word in ("failed", "sourceless", "unjudged", "spills"):
            for item in row.get(word, ()):
                names_ = ", ".join(item["nodes"])
                print(f"{' '.join(_words(case))}: {word}: group {item['group']} ({names_}): {item['note']}")


def _share(rows: Mapping[Case, Mapping[str, Any]], step: str) -> str:
    """Groups that pass a step of those that it was run on."""
    own = [row for case, row in rows.items() if case.step == step and "error" not in row]
    lost = sum("error" in row for case, row in rows.items() if case.step == step)
    if step == "reference":  # of all groups that have one, whoever computes them on a device
        total = sum(row["groups"] - row["unknown"] for row in own)
        passed = total - sum(len(row["failed"]) for row in own)
    else:
        total = sum(row["groups"] - row["library"] - row["unknown"] for row in own)
        passed = sum(row["passed"] for row in own)
    return f"{passed} of {total}{f', {lost} plans not run' if lost else ''}" if own or lost else "-"


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--graphs", default=",".join([*bundled_graphs(), *REAL_MODELS, *LIGHT_CNNS]))
    parser.add_argument("--profiles", default=",".join(PROFILES))
    parser.add_argument("--steps", default=",".join(STEPS))
    parser.add_argument("--ways", default="best", help=f"of {', '.join(WAYS)}")
    parser.add_argument("--again", choices=("none", "failed", "all"), default="none")
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds that one step of one plan may take")
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main() -> int:
    """Run what is asked, then print the table; 1 where something fails."""
    asked = parse()
    if asked.one:
        since = processor_s()
        try:
            row = climb(asked.folder, Case(*asked.one))
        except (FusesolveError, FetchError) as error:
            row = {"error": str(error)}
        print(json.dumps(row | {"processor_s": round(processor_s() - since, 1)}))
        return 0
    words = [[word for word in text.split(",") if word] for text in (asked.ways, asked.graphs, asked.profiles)]
    steps = [word for word in asked.steps.split(",") if word]
    cases = [Case(graph, profile, way, step) for way in words[0] for graph in words[1] for profile in words[2]
             for step in steps]  # fmt: skip
    run_cases(asked.folder, cases, asked.limit, asked.again)
    rows = read_rows(asked.folder / "rows.jsonl")
    print_table(rows)
    return int(any(_failed(row) for row in rows.values()))


if __name__ == "__main__":
    sys.exit(main())
