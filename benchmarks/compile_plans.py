"""Compile the kernels of plans with no GPU, and print how far the predicted resources are from the compiled ones.

    fusesolve plan MODEL --hw a100 -o a.json
    python benchmarks/compile_plans.py rows.jsonl a.json b.json --share 0.25 --store compiled

`--share`: of the groups of each template, drawn with a fixed seed; packs and contractions side by side are all taken.
Rows are appended to the file, one JSON a group; without plans the table of the rows in it is printed.
"""

import argparse
import json
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fusesolve.candidates.loops import build_nest
from fusesolve.codegen.module import generate
from fusesolve.codegen.planned import PlannedKernel, PlannedProgram, read_plan
from fusesolve.errors import MissingError
from fusesolve.group import Template
from fusesolve.validate.compile_groups import CompileStore, GroupCompiler, KernelResources
from fusesolve.validate.compiled import CODE_SHARE, REGISTERS_NEAR, REGISTERS_SHARE, capability_of
from fusesolve.validate.ladder import plan_graph, plan_profile

ALL_OF = ("packed", "side by side")


def family_of(planned: PlannedProgram, kernel: PlannedKernel) -> str:
    """The word under which a group is counted."""
    if kernel.template == Template.PACKED:
        return "packed"
    nest = build_nest(planned.program, kernel.members)
    if nest.facts.side_by_side:
        return "side by side"
    if kernel.template == Template.CONTRACTION:
        node = planned.graph.nodes[planned.program.operators[nest.members[nest.heads[0]]].node]
        pipe = "tensor" if kernel.tiling.get("tile_k", 0) > 8 else "fma"
        return f"{node.op.rstrip('123d')}, {pipe}" if node.op.endswith("transpose") else f"contraction, {pipe}"
    return {"movement": "pointwise", "reduction": "row"}.get(kernel.template, kernel.template)


def compile_plan(document: Mapping[str, Any], share: float, store: CompileStore) -> Iterator[Mapping[str, Any]]:
    """One row a group that was drawn: its family, what was predicted, what was compiled or what the compiler said."""
    planned, profile = read_plan(document, plan_graph(document)), plan_profile(document)
    compiler = GroupCompiler(planned.program, profile, capability_of(profile), store)
    drawn = list(_drawn(planned, share))
    found = _compiled(compiler, drawn)
    for kernel in drawn:
        item = found[kernel.id]
        yield {
            "graph": planned.graph.name, "profile": profile.name, "group": kernel.id,
            "family": family_of(planned, kernel), "predicted": dict(kernel.predicted),
            **({"error": item} if isinstance(item, str) else {"compiled": asdict(item)}),
        }  # fmt: skip


def _drawn(planned: PlannedProgram, share: float) -> Iterator[PlannedKernel]:
    refused = generate(planned, runs=False).refused
    draw = random.Random(planned.graph.name)
    for kernel in planned.kernels:
        if kernel.id not in refused and (draw.random() < share or family_of(planned, kernel) in ALL_OF):
            yield kernel


def _compiled(compiler: GroupCompiler, kernels: Sequence[PlannedKernel]) -> dict[int, KernelResources | str]:
    """The main kernel of each group, or what the compiler said; all in one process where none is refused."""
    try:
        return {number: items[0] for number, items in compiler.compile(kernels).items()}
    except MissingError as error:
        if len(kernels) == 1:
            return {kernels[0].id: str(error)}
        return {k: v for kernel in kernels for k, v in _compiled(compiler, [kernel]).items()}


def print_table(rows: Sequence[Mapping[str, Any]]) -> None:
    """Shares of right predictions by family."""
    print("| kernels | number | registers | shared memory | occupancy | code | spills, stack | refused |")
    print("|---|---|---|---|---|---|---|---|")
    families = sorted({row["family"] for row in rows})
    for family in (*families, None):
        own = [row for row in rows if family is None or row["family"] == family]
        pairs = [(row["predicted"], row["compiled"]) for row in own if "compiled" in row]
        if not pairs:
            continue
        near = (
            sum(abs(p["registers_per_thread"] - c["registers"])
                <= max(REGISTERS_NEAR, REGISTERS_SHARE * c["registers"]) for p, c in pairs),
            sum(p["shared_bytes"] == c["shared"] for p, c in pairs),
            sum(abs(p["occupancy"] - c["occupancy"]) < 1e-3 for p, c in pairs),
            sum(abs(p["code_bytes"] - c["code"]) <= CODE_SHARE * c["code"] for p, c in pairs),
        )  # fmt: skip
        spills = sum(c["spill"] > 0 and not p["spill_bytes"] for p, c in pairs)
        stack = sum(c["stack"] > 0 for _, c in pairs)
        shares = " | ".join(f"{count / len(pairs):.0%}" for count in near)
        refused = len(own) - len(pairs)
        print(f"| {family or 'all'} | {len(pairs)} | {shares} | {spills}, {stack} | {refused} |")


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=Path, help="JSON, one row a line")
    parser.add_argument("plans", type=Path, nargs="*")
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--store", type=Path, help="a folder that keeps what was compiled, by source")
    asked = parser.parse_args()
    store = CompileStore(asked.store)
    for path in asked.plans:
        since = time.monotonic()
        count = 0
        with asked.rows.open("a", encoding="utf-8") as out:
            for row in compile_plan(json.loads(path.read_text(encoding="utf-8")), asked.share, store):
                out.write(json.dumps(row) + "\n")
                out.flush()
                count += 1
        print(f"{path.name}: {count} kernels, {time.monotonic() - since:.1f} s", flush=True)
    print_table([json.loads(line) for line in asked.rows.read_text(encoding="utf-8").splitlines()])


if __name__ == "__main__":
    main()
