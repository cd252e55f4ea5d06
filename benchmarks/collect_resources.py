"""Compile many generated kernels and note what the compiler made of them: the rows of `benchmarks/fit_resources.py`.

    python benchmarks/collect_resources.py ROWS.jsonl GRAPH... --profiles a100,h100 --store FOLDER
    python benchmarks/collect_resources.py ROWS.jsonl GRAPH... --menu --store FOLDER

GRAPH: a bundled graph, a file, or a name of tests/models/fetch.py. Each is planned; compiled are groups of the plan
with the tilings that were priced, packs and their parts, the same groups with another tiling, and other groups of the
space, all drawn by a fixed seed; each for as many registers as the compiler likes, which is what is predicted first.
`--menu`: the widest contraction or attention of each graph in every tile instead (what the table
of tiles starts from). No GPU is needed; the extra cuda is.
"""

import argparse
import json
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fusesolve.candidates.space import Kernel
from fusesolve.codegen.planned import PlannedKernel, part_of
from fusesolve.cost.gpu import families
from fusesolve.cost.gpu.device import Device, read_device
from fusesolve.cost.sweep import Family
from fusesolve.cost.table import DERIVED, PriceOptions, WorkloadTable
from fusesolve.errors import MissingError
from fusesolve.group import TEMPLATES, Template, Workload
from fusesolve.hardware_yaml import load_profile
from fusesolve.pipeline import Planning, PlanOptions, begin
from fusesolve.pipeline.verify import Source, source_of
from fusesolve.validate.compile_groups import CompileStore, GroupCompiler, KernelResources
from fusesolve.validate.compiled import capability_of
from tests.models.graphs import named_graph

SLOWEST = 3.0  # tilings up to this many times the fastest one's latency are drawn
SPLIT = 4  # of the menu's second kernel in each tile

Draw = tuple[Kernel, Source, str]  # a group with a tiling; kind: chosen, part, other or menu


@dataclass(frozen=True, kw_only=True)
class Drawer:
    """Draws kernels of one planned graph."""

    planning: Planning
    device: Device
    generator: random.Random
    most: int

    def draws(self, others: int, extra: int) -> Iterator[Draw]:
        """Groups, packs and parts of the plan (`most` each), `others` in another tiling, and `extra` other groups."""
        columns, result = self.planning.solve()
        priced = self.planning.priced
        packs = priced.space.packs
        chosen = [columns.kernels[i] for i in result.selected]
        chosen = [kernel for kernel in chosen if not priced.prices.implementation[kernel.unique]]
        self.generator.shuffle(chosen)
        whole = [kernel for kernel in chosen if kernel.unique in packs]
        single = [kernel for kernel in chosen if kernel.unique not in packs]
        for kernel in (*single[: self.most], *whole[: self.most]):
            yield kernel, source_of(priced, kernel), "chosen"
        parts = [part for kernel in whole for part in packs[kernel.unique]]
        self.generator.shuffle(parts)
        for part in parts[: self.most]:
            tiling = priced.prices.tiling_of(priced.packed_row(part.unique))
            yield part, Source(part.members, part.writes, tuple(sorted(tiling.items())), ()), "part"
        pool = [k for k in priced.space.kernels if priced.cost_ns[k.unique] is not None and k.unique not in packs]
        pool = list({kernel.unique: kernel for kernel in pool}.values())
        for kernel in (*(*single, *parts)[:others], *self.generator.sample(pool, min(extra, len(pool)))):
            yield from self._other(kernel)

    def menu(self) -> Iterator[Draw]:
        """The group with most operators in every tile of a contraction, with the sum whole and split."""
        kernel = max(self.planning.priced.space.kernels, key=lambda item: len(item.members))
        for family in self._families(kernel):
            for place in range(family.width):
                tiling = {name: int(column[0, place]) for name, column in family.tilings.items()}
                if tiling["split"] in (1, SPLIT) and tiling.get("mode", 0) <= 1:  # not whole rows: few groups need them
                    tiling |= {"tile_k": 8, "stages": 2}
                    yield kernel, Source(kernel.members, kernel.writes, tuple(sorted(tiling.items())), ()), "menu"

    def _families(self, kernel: Kernel) -> Iterator[Family]:
        workload = self.planning.priced.space.workloads[kernel.unique]
        table = WorkloadTable([workload])
        for family in families(self.device, PriceOptions(implementation="generated")):
            wanted = family.wants is None or family.wants(table)[0] > 0
            if not family.library and wanted and family.template == workload.template:
                yield family

    def _other(self, kernel: Kernel) -> Iterator[Draw]:
        """A tiling that is not much slower than the fastest one."""
        table = WorkloadTable([self.planning.priced.space.workloads[kernel.unique]])
        for family in self._families(kernel):
            found, terms = family.evaluate(table.rows(np.array([0])), family.tilings)
            shape = (1, family.width)
            seconds = np.broadcast_to(family.combine(terms, frozenset()), shape)[0].copy()
            seconds[np.broadcast_to(found["missing_blocks"], shape)[0] > 0] = np.inf
            near = np.flatnonzero(seconds < SLOWEST * seconds.min())
            if len(near):
                place = int(self.generator.choice(list(near)))
                tiling = {name: int(part[0, place]) for name, part in family.tilings.items()}
                tiling |= {n: int(np.broadcast_to(found[n], shape)[0, place]) for n in DERIVED if n in found}
                kept = tuple(sorted((name, value) for name, value in tiling.items() if value))
                yield kernel, Source(kernel.members, kernel.writes, kept, ()), "other"


class Tolerant(GroupCompiler):
    """Leaves out what the compiler refuses, and says so."""

    def compile_all(self, kernels: Sequence[PlannedKernel]) -> Mapping[int, tuple[KernelResources, ...]]:
        """As `compile`, in halves where a kernel is refused."""
        try:
            return self.compile(kernels)
        except MissingError as error:
            if len(kernels) == 1:
                print(f"refused: {error}", flush=True)
                return {}
        middle = len(kernels) // 2
        return {**self.compile_all(kernels[:middle]), **self.compile_all(kernels[middle:])}


def rows_of(planning: Planning, device: str, drawn: Sequence[Draw], store: CompileStore) -> Iterator[Mapping[str, Any]]:
    """What the compiler makes of each kernel that was drawn, beside its workload and tiling."""
    space = planning.priced.space
    kernels = [_planned(planning, n, kernel, source) for n, (kernel, source, _) in enumerate(drawn)]
    compiler = Tolerant(space.program, planning.profile, capability_of(planning.profile), store)
    found = compiler.compile_all(kernels)
    for n, (kernel, source, kind) in enumerate(drawn):
        if n in found:
            parts = zip(space.packs.get(kernel.unique, ()), source.parts, strict=False)
            yield {
                "graph": planning.graph.name, "device": device, "kind": kind, "operators": kernels[n].nodes,
                "newer": read_device(planning.profile, "stream").newer,
                "workload": _workload(space.workloads[kernel.unique]), "tiling": dict(source.tiling),
                "parts": [{"workload": _workload(space.workloads[p.unique]), "tiling": dict(t)} for p, (_, t) in parts],
                "compiled": asdict(found[n][0]),
            }  # fmt: skip


def _workload(workload: Workload) -> dict[str, Any]:
    """The fields, and the template by its name."""
    return {**asdict(workload), "template": TEMPLATES[workload.template].value}


def _planned(planning: Planning, number: int, kernel: Kernel, source: Source) -> PlannedKernel:
    space = planning.priced.space
    program = space.program
    whole = PlannedKernel(
        id=number, nodes=tuple(program.graph.nodes[program.operators[m].node].op for m in kernel.members),
        members=kernel.members, reads=kernel.reads, writes=kernel.writes,
        template=space.templates[kernel.unique].value, implementation="generated",
        tiling={name: value for name, value in source.tiling if name != "max_registers"}, predicted={},
    )  # fmt: skip
    return replace(whole, parts=tuple(part_of(program, whole, m, dict(t)) for m, t in source.parts))


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path)
    parser.add_argument("graphs", nargs="+")
    parser.add_argument("--profiles", default="a100,h100")
    parser.add_argument("--templates", default=",".join(Template), help="of the groups that are compiled")
    parser.add_argument("--most", type=int, default=8, help="groups of each kind")
    parser.add_argument("--others", type=int, default=8, help="groups that are compiled in another tiling too")
    parser.add_argument("--extra", type=int, default=4, help="groups beside those of the plan")
    parser.add_argument("--menu", action="store_true")
    parser.add_argument("--store", type=Path, help="a folder that keeps what was compiled, by source")
    asked = parser.parse_args()
    store, generator = CompileStore(asked.store), random.Random(1)
    for name in asked.graphs:
        for profile in asked.profiles.split(","):
            since = time.monotonic()
            planning = begin(named_graph(name), load_profile(profile), PlanOptions(), time_limit=120.0)
            drawer = Drawer(
                planning=planning, device=read_device(planning.profile, "stream"), generator=generator, most=asked.most
            )
            drawn = [
                item for item in (drawer.menu() if asked.menu else drawer.draws(asked.others, asked.extra))
                if planning.priced.space.templates[item[0].unique].value in asked.templates.split(",")
            ]  # fmt: skip
            rows = list(rows_of(planning, profile, drawn, store))
            with asked.path.open("a", encoding="utf-8") as out:
                out.writelines(json.dumps(row) + "\n" for row in rows)
            print(f"{name} {profile}: {len(rows)} kernels, {time.monotonic() - since:.1f} s", flush=True)


if __name__ == "__main__":
    main()
