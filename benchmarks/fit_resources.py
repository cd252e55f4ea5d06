"""Registers and code of generated kernels: compile many, fit the weights of `fusesolve/cost/gpu/features.py`.

    python benchmarks/fit_resources.py collect ROWS.jsonl --profiles a100,h100 --store FOLDER [GRAPH...]
    python benchmarks/fit_resources.py fit ROWS.jsonl... [--write]

`collect` plans each graph with generated kernels, and compiles the plan's groups with other groups and tilings of the
space, drawn by a fixed seed (a GPU is not needed; the extra cuda is). A row is a workload, a tiling, and what the
compiler made of it. `fit` prints how well the model that is in the package and the newly fitted one agree with the
rows, the latter also on graphs that were left out of the fit, and writes the weights.
"""

import argparse
import json
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares, nnls

from fusesolve.candidates.space import Kernel
from fusesolve.codegen.planned import PlannedKernel
from fusesolve.cost.gpu import families, features
from fusesolve.cost.gpu.device import read_device
from fusesolve.cost.gpu.features import Fit, plateau
from fusesolve.cost.gpu.fitted import FITTED
from fusesolve.cost.sweep import Family
from fusesolve.cost.table import DERIVED, FIELDS, PriceOptions, WorkloadTable
from fusesolve.group import TEMPLATES, Template
from fusesolve.hardware_yaml import load_profile
from fusesolve.importers import bundled_graphs
from fusesolve.pipeline import Planning, PlanOptions, begin
from fusesolve.validate.compile_groups import CompileStore, GroupCompiler
from fusesolve.validate.compiled import capability_of

Array = NDArray[np.float64]
EXTRA_TILINGS = 1  # of each group, beside the fastest
NEAR, SHARE, CODE_SHARE = 4.0, 0.15, 0.30  # registers within 4 or 15 %, code within 30 %
SLOWEST = 3.0  # tilings up to this many times the fastest one's latency are drawn
TARGET = Path(__file__).parents[1] / "fusesolve" / "cost" / "gpu" / "fitted.py"


@dataclass(frozen=True, slots=True)
class Draw:
    """A group with a tiling; `chosen` where the plan has it."""

    kernel: Kernel
    tiling: Mapping[str, int]
    predicted: Mapping[str, float]
    chosen: bool


def draws(planning: Planning, generator: random.Random, templates: Sequence[str], extra: int) -> Iterator[Draw]:
    """The plan's groups with the tilings that were priced, and others of the space, of these templates."""
    columns, result = planning.solve()
    priced = planning.priced
    space = priced.space
    device = read_device(planning.profile, "stream")
    offered = [item for item in families(device, PriceOptions(implementation="generated")) if not item.library]
    chosen = [
        kernel for i in result.selected if space.templates[(kernel := columns.kernels[i]).unique].value in templates
    ]
    seen = {kernel.unique for kernel in chosen}
    pool = [k for k in space.kernels if priced.cost_ns[k.unique] is not None and k.unique not in seen]
    pool = list({k.unique: k for k in pool if space.templates[k.unique].value in templates}.values())
    generator.shuffle(pool)
    for place, kernel in enumerate((*chosen, *pool[:extra])):
        yield from _tilings(planning, offered, kernel, generator, chosen=place < len(chosen))


def _tilings(
    planning: Planning, offered: Sequence[Family], kernel: Kernel, generator: random.Random, *, chosen: bool
) -> Iterator[Draw]:
    """The fastest tiling of a group, and others that are not much slower."""
    workload = planning.priced.space.workloads[kernel.unique]
    table = WorkloadTable([workload])
    for family in offered:
        wanted = family.template == workload.template and (family.wants is None or family.wants(table)[0] > 0)
        if not wanted:
            continue
        found, terms = family.evaluate(table.rows(np.array([0])), family.tilings)
        width = next(iter(family.tilings.values())).shape[1]
        seconds = np.broadcast_to(family.combine(terms, frozenset()), (1, width))[0].copy()
        seconds[np.broadcast_to(found["missing_blocks"], (1, width))[0] > 0] = np.inf
        best = int(np.argmin(seconds))
        if not np.isfinite(seconds[best]):
            continue
        near = [int(i) for i in np.flatnonzero(seconds < SLOWEST * seconds[best]) if i != best]
        for place in (best, *generator.sample(near, min(EXTRA_TILINGS, len(near)))):
            row = {name: float(np.broadcast_to(part, (1, width))[0, place]) for name, part in found.items()}
            tiling = {name: int(part[0, place]) for name, part in family.tilings.items()}
            tiling |= {name: int(row[name]) for name in DERIVED if name in row}
            yield Draw(kernel, {n: v for n, v in tiling.items() if v}, row, chosen and place == best)


def collect(
    path: Path, graphs: Sequence[str], profiles: Sequence[str], templates: Sequence[str], extra: int,
    store: CompileStore,
) -> None:  # fmt: skip
    """Compile and append rows to `path` (JSON, one a line)."""
    generator = random.Random(1)
    with path.open("a", encoding="utf-8") as out:
        for name in graphs:
            for profile in map(load_profile, profiles):
                since = time.monotonic()
                planning = begin(name, profile, PlanOptions(implementation="generated"), time_limit=120.0)
                rows = list(_compiled(planning, list(draws(planning, generator, templates, extra)), store))
                out.writelines(json.dumps(row) + "\n" for row in rows)
                out.flush()
                print(f"{name} {profile.name}: {len(rows)} kernels, {time.monotonic() - since:.1f} s", flush=True)


def _compiled(planning: Planning, drawn: Sequence[Draw], store: CompileStore) -> Iterator[Mapping[str, Any]]:
    space = planning.priced.space
    program = space.program
    kernels = [
        PlannedKernel(
            id=n, nodes=tuple(program.graph.nodes[program.operators[m].node].op for m in item.kernel.members),
            members=item.kernel.members, reads=item.kernel.reads, writes=item.kernel.writes,
            template=space.templates[item.kernel.unique].value, implementation="generated", tiling=item.tiling,
            predicted={},
        )
        for n, item in enumerate(drawn)
    ]  # fmt: skip
    compiler = GroupCompiler(program, planning.profile, capability_of(planning.profile), store)
    found = compiler.compile(kernels)
    for n, item in enumerate(drawn):
        if n in found:
            yield {
                "graph": planning.graph.name, "profile": planning.profile.name,
                "newer": read_device(planning.profile, "stream").newer,
                "operators": kernels[n].nodes,
                "workload": asdict(space.workloads[item.kernel.unique]), "tiling": dict(item.tiling),
                "chosen": item.chosen, "predicted": dict(item.predicted), "compiled": asdict(found[n][0]),
            }  # fmt: skip


# fitting


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Rows of one family as columns: features of registers and of code, compiled numbers, and graphs."""

    registers: Mapping[str, Array]
    code: Mapping[str, Array]
    wanted_registers: Array
    wanted_code: Array
    graphs: NDArray[np.str_]


def family_of(row: Mapping[str, Any]) -> str:
    """point, row, fma, tensor, attention or flash (attention on the tensor pipe)."""
    template = TEMPLATES[row["workload"]["template"]]
    if template in (Template.POINTWISE, Template.MOVEMENT):
        return "point"
    if template in (Template.ROW, Template.REDUCTION):
        return "row"
    if template is Template.ATTENTION:
        return "flash" if row["workload"]["operand_bytes"] == 2 and row["workload"]["tensor_rate"] >= 0 else "attention"
    return "tensor" if row["tiling"].get("tile_k", 0) > 8 else "fma"


def sample(family: str, rows: Sequence[Mapping[str, Any]]) -> Sample:
    """The features of rows."""
    parts = [_features(family, row, float(row["newer"])) for row in rows]

    def stack(place: int) -> dict[str, Array]:
        return {name: np.array([float(part[place][name].item()) for part in parts]) for name in parts[0][place]}

    return Sample(
        registers=stack(0), code=stack(1),
        wanted_registers=np.array([row["compiled"]["registers"] for row in rows], dtype=np.float64),
        wanted_code=np.array([row["compiled"]["code"] for row in rows], dtype=np.float64),
        graphs=np.array([row["graph"] for row in rows]),
    )  # fmt: skip


def _features(family: str, row: Mapping[str, Any], newer: float) -> tuple[Mapping[str, Array], Mapping[str, Array]]:
    w = {name: np.array([[float(row["workload"].get(name, 0))]]) for name in FIELDS}
    names = ("threads", "per_thread", "lanes", "rows", "mode", "split", "tile_m", "tile_n")
    tile = {name: np.array([[float(row["tiling"].get(name, 0))]]) for name in names}
    if family == "point":
        return features.point_registers(w, tile, newer), features.point_code(w, tile)
    if family == "row":
        parts = features.row_parts(w, tile)
        return features.row_registers(w, tile, newer, parts), features.row_code(w, tile, parts)
    if family == "flash":
        return features.flash_registers(w, tile, newer), features.flash_code(w, tile)
    threads = np.array([[float(row["compiled"]["threads"])]])
    if family == "attention":
        return (
            features.attention_registers(w, tile, threads, newer), features.attention_code(w, tile, threads)
        )  # fmt: skip
    return features.gemm_registers(w, tile, threads, newer), features.gemm_code(w, tile, threads)


def fit_registers(columns: Mapping[str, Array], wanted: Array, *, bent: bool) -> Fit:
    """Robust least squares in units of what counts as near; the knee is fitted with the weights."""
    matrix, scale = np.stack(list(columns.values()), axis=1), 1.0 / np.maximum(NEAR, SHARE * wanted)

    def predicted(numbers: Array) -> Array:
        return plateau(matrix @ numbers[:-1], float(numbers[-1])) if bent else matrix @ numbers[:-1]

    ridge = 0.02 * np.sqrt((matrix**2).mean(axis=0))

    def misses(numbers: Array) -> Array:
        return np.concatenate(((predicted(numbers) - wanted) * scale, ridge * numbers[:-1]))

    start = np.append(np.linalg.lstsq(matrix, wanted, rcond=None)[0], 36.0)
    bounds = ([-np.inf] * matrix.shape[1] + [32.5], [np.inf] * matrix.shape[1] + [48.0])
    found = least_squares(misses, start, loss="soft_l1", f_scale=0.5, bounds=bounds).x
    error = float(np.median(np.abs(predicted(found) - wanted) / wanted))
    seen = np.any(matrix != 0.0, axis=0)  # a feature that no row has keeps an arbitrary weight: it gets none
    weights = {name: round(float(value), 3) for name, value, known in zip(columns, found, seen, strict=False) if known}
    return Fit(weights=weights, knee=round(float(found[-1]), 2) if bent else None, rows=len(wanted), error=error)


def fit_code(columns: Mapping[str, Array], wanted: Array) -> Fit:
    """Non-negative weights, least squares of the relative error, a few rounds of down-weighting what is far off.

    Code is a multiple of 128 bytes and a prediction is rounded up to one: half of that is taken off what was compiled.
    """
    wanted = np.maximum(wanted - 64.0, 256.0)
    matrix = np.stack(list(columns.values()), axis=1) / wanted[:, None]
    weight = np.ones(len(wanted))
    for _ in range(6):
        found = nnls(matrix * weight[:, None], weight)[0]
        weight = 1.0 / np.sqrt(1.0 + (np.abs(matrix @ found - 1.0) / 0.15) ** 2)
    weights = {name: round(float(value), 2) for name, value in zip(columns, found, strict=True)}
    error = float(np.median(np.abs(matrix @ found - 1.0)))
    return Fit(weights=weights, knee=None, rows=len(wanted), error=error)


def registers_near(fit: Fit, columns: Mapping[str, Array], wanted: Array) -> Array:
    """1.0 where the fit is near."""
    found = np.ceil(np.maximum(fit.of(columns), 8.0))
    return (np.abs(found - wanted) <= np.maximum(NEAR, SHARE * wanted)).astype(np.float64)


def code_near(fit: Fit, columns: Mapping[str, Array], wanted: Array) -> Array:
    """1.0 where the fit is near."""
    found = np.ceil(np.maximum(fit.of(columns), 384.0) / 128.0) * 128.0
    return (np.abs(found - wanted) <= CODE_SHARE * wanted).astype(np.float64)


def left_out(data: Sample, *, bent: bool) -> tuple[float, float]:
    """Shares of near registers and code on graphs that the fit has not seen, each graph left out once."""
    registers, code = np.zeros(len(data.graphs)), np.zeros(len(data.graphs))
    for graph in np.unique(data.graphs):
        here = data.graphs == graph
        if here.all():
            return float("nan"), float("nan")
        rest, own = _part(data.registers, ~here), _part(data.registers, here)
        fit = fit_registers(rest, data.wanted_registers[~here], bent=bent)
        registers[here] = registers_near(fit, own, data.wanted_registers[here])
        fit = fit_code(_part(data.code, ~here), data.wanted_code[~here])
        code[here] = code_near(fit, _part(data.code, here), data.wanted_code[here])
    return float(registers.mean()), float(code.mean())


def _part(columns: Mapping[str, Array], here: NDArray[np.bool_]) -> dict[str, Array]:
    return {name: column[here] for name, column in columns.items()}


def fit(paths: Sequence[Path], *, write: bool) -> None:
    """Fit every family that has rows; print shares of near kernels, before and after."""
    rows = [json.loads(line) for path in paths for line in path.read_text(encoding="utf-8").splitlines()]
    made = dict(FITTED)
    print(f"{'family':10} {'kernels':>7}  registers now/fitted/left out   code now/fitted/left out   shared  spills")
    for family in ("point", "row", "fma", "tensor", "attention", "flash"):
        own = [row for row in rows if family_of(row) == family]
        if not own:
            continue
        data, bent = sample(family, own), family in ("point", "row")
        registers = fit_registers(data.registers, data.wanted_registers, bent=bent)
        code = fit_code(data.code, data.wanted_code)
        now = (
            registers_near(FITTED[f"{family}_registers"], data.registers, data.wanted_registers).mean(),
            code_near(FITTED[f"{family}_code"], data.code, data.wanted_code).mean(),
        )
        after = (
            registers_near(registers, data.registers, data.wanted_registers).mean(),
            code_near(code, data.code, data.wanted_code).mean(),
        )
        out = left_out(data, bent=bent)
        shared = np.mean([row["predicted"]["shared_bytes"] == row["compiled"]["shared"] for row in own])
        spills = sum(row["compiled"]["spill"] > 0 or row["compiled"]["stack"] > 0 for row in own)
        print(f"{family:10} {len(own):7}  {now[0]:.0%} {after[0]:.0%} {out[0]:.0%}   "
              f"{now[1]:.0%} {after[1]:.0%} {out[1]:.0%}   {shared:.0%}  {spills}")  # fmt: skip
        made[f"{family}_registers"], made[f"{family}_code"] = registers, code
    if write:
        TARGET.write_text(fitted_text(made), encoding="utf-8")


def fitted_text(made: Mapping[str, Fit]) -> str:
    """The source of `fitted.py`."""
    lines = [
        '"""Weights of registers and code, fitted on compiled kernels. Written by benchmarks/fit_resources.py.',
        "", "Compiler: CUDA 13.5 (NVVM, nvJitLink), Numba CUDA 0.30, sm_80 and sm_90.", '"""', "",
        "from collections.abc import Mapping", "", "from fusesolve.cost.gpu.features import Fit", "",
        "FITTED: Mapping[str, Fit] = {",
    ]  # fmt: skip
    for name, item in made.items():
        lines.append(f'    "{name}": Fit(')
        lines.append(f"        knee={item.knee}, rows={item.rows}, error={item.error:.3f},")
        pairs = [f'"{key}": {value}' for key, value in item.weights.items() if value]
        lines.append("        weights={")
        for start in range(0, len(pairs), 5):
            lines.append(f"            {', '.join(pairs[start : start + 5])},")
        lines += ["        },", "    ),"]
    return "\n".join([*lines, "}"]) + "\n"


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("collect")
    one.add_argument("path", type=Path)
    one.add_argument("graphs", nargs="*")
    one.add_argument("--profiles", default="a100,h100")
    one.add_argument("--templates", default=",".join(Template), help="of the groups that are compiled")
    one.add_argument("--extra", type=int, default=8, help="groups beside those of the plan")
    one.add_argument("--store", type=Path, help="a folder that keeps what was compiled, by source")
    two = commands.add_parser("fit")
    two.add_argument("paths", type=Path, nargs="+")
    two.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    if asked.command == "fit":
        fit(asked.paths, write=asked.write)
    else:
        graphs, profiles = asked.graphs or bundled_graphs(), asked.profiles.split(",")
        collect(asked.path, graphs, profiles, asked.templates.split(","), asked.extra, CompileStore(asked.store))


if __name__ == "__main__":
    main()
