"""Registers and code of generated kernels: fit the weights of `fusesolve/cost/gpu/features.py` on compiled kernels.

    python benchmarks/collect_resources.py ROWS.jsonl GRAPH...      (compiles the rows)
    python benchmarks/fit_resources.py ROWS.jsonl... [--write]

Prints how well the weights in the package, the newly fitted ones, and ones fitted without the kernel's own graph agree
with what was compiled; graphs that are versions of one model are left out together. `--write` writes the weights.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares, nnls

from fusesolve.cost.gpu import features, gemm_features
from fusesolve.cost.gpu.attention import HELD_CODE, HELD_REGISTERS
from fusesolve.cost.gpu.features import Features, Fit, plateau
from fusesolve.cost.gpu.fitted import FITTED, TILES
from fusesolve.cost.gpu.gemm_features import UNKNOWN_TILE
from fusesolve.cost.gpu.layout import gemm_threads
from fusesolve.cost.gpu.packed import LOOK_UP_CODE, LOOK_UP_REGISTERS
from fusesolve.cost.gpu.terms import FREE_REGISTERS, REGISTER_STEP, register_bound
from fusesolve.cost.gpu_occupancy import blocks_per_unit
from fusesolve.cost.table import FIELDS
from fusesolve.group import Template
from fusesolve.hardware import HardwareProfile
from fusesolve.hardware_yaml import load_profile

Array = NDArray[np.float64]
Row: TypeAlias = Mapping[str, Any]
Table: TypeAlias = dict[tuple[int, int], tuple[float, float]]
NEAR, SHARE, CODE_SHARE = 4.0, 0.15, 0.30  # registers within 4 or 15 %, code within 30 %
FAMILIES = ("point", "row", "fma", "tensor", "attention", "flash")
UNFITTED = ("held", "packed")  # constants, and what their parts take
BENT = ("point", "row")
COUNTS = 4  # a kernel that a plan chooses, beside one of others
LEAST_ROWS = 50  # a family with fewer rows keeps the weights that it has
TILE_ROUNDS = 3  # the table of tiles and the weights beside it are fitted in turn
TILE_PRIOR = 1.0  # rows that a tile's own number weighs against the one it starts from
VERSIONS = ("silero", "minilm", "inception_v", "llama_block")  # graphs of one model, left out together
TARGET = Path(__file__).parents[1] / "fusesolve" / "cost" / "gpu" / "fitted.py"


def family_of(row: Row) -> str:
    """point, row, fma, tensor, attention, flash (attention on the tensor pipe), held (rows of it) or packed."""
    template = Template(row["workload"]["template"])
    if template in (Template.POINTWISE, Template.MOVEMENT):
        return "point"
    if template in (Template.ROW, Template.REDUCTION):
        return "row"
    if template is Template.ATTENTION:
        if row["tiling"].get("mode", 0) > 1:
            return "held"
        return "flash" if row["workload"]["operand_bytes"] == 2 and row["workload"]["tensor_rate"] >= 0 else "attention"
    if template is Template.PACKED:
        return "packed"
    return "tensor" if row["tiling"].get("tile_k", 0) > 8 else "fma"


def model_of(row: Row) -> str:
    """The model whose versions are left out together."""
    return next((name for name in VERSIONS if row["graph"].startswith(name)), str(row["graph"]))


@dataclass(frozen=True, kw_only=True)
class Model:
    """Weights of registers and of code, and for the FMA pipe the table of tiles."""

    registers: Fit
    code: Fit
    table: Table


Point: TypeAlias = tuple[Mapping[str, Array], Mapping[str, Array]]  # a row's workload and tiling, each (1 x 1)


def point_of(row: Row) -> Point:
    """The workload and the tiling of a row as (1 x 1) columns."""
    known = {name: value for name, value in row["workload"].items() if name != "template"}
    w = {name: np.array([[float(known.get(name, 0))]]) for name in FIELDS}
    names = ("threads", "per_thread", "lanes", "rows", "mode", "split", "tile_m", "tile_n")
    tile = {name: np.array([[float(row["tiling"].get(name, 0))]]) for name in names}
    return w, tile | {"split": np.maximum(tile["split"], 1.0)}


def features_of(family: str, row: Row, table: Table) -> tuple[Features, Features]:
    """Features of registers and of code."""
    (w, tile), newer = point_of(row), float(row["newer"])
    if family == "point":
        return features.point_registers(w, tile, newer), features.point_code(w, tile)
    if family == "row":
        parts = features.row_parts(w, tile)
        return features.row_registers(w, tile, newer, parts), features.row_code(w, tile, parts)
    if family == "flash":
        return features.flash_registers(w, tile, newer), features.flash_code(w, tile)
    threads = gemm_threads(tile["tile_m"], tile["tile_n"])
    if family == "attention":
        threads = np.where(tile["tile_m"] >= 64, 2.0 * tile["tile_m"], 128.0)
        return features.attention_registers(w, tile, threads, newer), features.attention_code(w, tile, threads)
    if family == "tensor":
        found = gemm_features.tensor_registers(w, tile, threads, newer)
        return found, gemm_features.tensor_code(w, tile, threads)
    share = gemm_features.fma_share(w, tile)
    return gemm_features.fma_registers(w, tile, newer, table, share), gemm_features.fma_code(w, share)


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Rows of one family as columns: features of registers and of code, and compiled numbers."""

    registers: Mapping[str, Array]
    code: Mapping[str, Array]
    wanted_registers: Array
    wanted_code: Array


def sample(family: str, rows: Sequence[Row], table: Table) -> Sample:
    """The features of rows."""
    parts = [features_of(family, row, table) for row in rows]

    def stack(place: int) -> dict[str, Array]:
        return {name: np.array([float(part[place][name].item()) for part in parts]) for name in parts[0][place]}

    return Sample(
        registers=stack(0), code=stack(1),
        wanted_registers=np.array([row["compiled"]["registers"] for row in rows], dtype=np.float64),
        wanted_code=np.array([row["compiled"]["code"] for row in rows], dtype=np.float64),
    )  # fmt: skip


def fit_registers(columns: Mapping[str, Array], wanted: Array, *, bent: bool) -> Fit:
    """Robust least squares in units of what counts as near; the knee is fitted with the weights."""
    columns = {name: column for name, column in columns.items() if column.any()}
    matrix, scale = np.stack(list(columns.values()), axis=1), 1.0 / np.maximum(NEAR, SHARE * wanted)
    ridge = 0.3 * np.sqrt((matrix**2).mean(axis=0)) * np.median(scale)
    ridge[list(columns).index("one") if "one" in columns else 0] = 0.0

    def predicted(numbers: Array) -> Array:
        return plateau(matrix @ numbers[:-1], float(numbers[-1])) if bent else matrix @ numbers[:-1]

    def misses(numbers: Array) -> Array:
        return np.concatenate(((predicted(numbers) - wanted) * scale, ridge * numbers[:-1]))

    start = np.linalg.lstsq(
        np.vstack((matrix * scale[:, None], np.diag(ridge))), np.append(wanted * scale, 0.0 * ridge), rcond=None
    )[0]
    bounds = ([-np.inf] * matrix.shape[1] + [32.5], [np.inf] * matrix.shape[1] + [48.0])
    found = least_squares(misses, np.append(start, 36.0), loss="soft_l1", f_scale=0.5, bounds=bounds).x
    error = float(np.median(np.abs(predicted(found) - wanted) / wanted))
    weights = {name: round(float(value), 3) for name, value in zip(columns, found, strict=False)}
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


def fit_family(family: str, rows: Sequence[Row]) -> Model:
    """Both fits of a family, where what plans choose counts more; on the FMA pipe the table and the weights in turn."""
    table, count = first_table(rows) if family == "fma" else {}, len(rows)
    rows = [row for row in rows for _ in range(COUNTS if row["kind"] == "chosen" else 1)]
    for left in reversed(range(TILE_ROUNDS if family == "fma" else 1)):
        data = sample(family, rows, table)
        wanted = plain(data.wanted_registers) if family == "point" else data.wanted_registers
        fitted = fit_registers(data.registers, wanted, bent=family in BENT)
        if left:
            table = better_table(rows, table, data, fitted)
    code = fit_code(data.code, data.wanted_code)
    return Model(registers=replace(fitted, rows=count), code=replace(code, rows=count), table=table)


def plain(registers: Array) -> Array:
    """What pointwise kernels take where they are compiled for `FREE_REGISTERS`: a few more are no need."""
    few = (registers > FREE_REGISTERS) & (registers <= FREE_REGISTERS + REGISTER_STEP)
    return np.where(few, FREE_REGISTERS, registers)


def first_table(rows: Sequence[Row]) -> Table:
    """Compiled registers by tile: medians over bare kernels of the menu, of products and of convolutions."""
    found: dict[tuple[int, int], tuple[list[int], list[int]]] = {}
    for row in rows:
        if row["kind"] == "menu":
            tile = (row["tiling"]["tile_m"], row["tiling"]["tile_n"])
            found.setdefault(tile, ([], []))[_column(row)].append(row["compiled"]["registers"])
    return {tile: (float(np.median(a or b)), float(np.median(b or a))) for tile, (a, b) in found.items()}


def _column(row: Row) -> int:
    return int(row["workload"]["index_parts"] > 0)


def better_table(rows: Sequence[Row], table: Table, data: Sample, fitted: Fit) -> Table:
    """The table moved to the median of what is left, as far as the number of rows of a tile allows."""
    rest = data.wanted_registers - np.asarray(fitted.of(data.registers))
    weight = fitted.weights["tile"]
    made = dict(table)
    for tile in {(row["tiling"]["tile_m"], row["tiling"]["tile_n"]) for row in rows}:
        numbers = list(made.get(tile, UNKNOWN_TILE))
        for column in (0, 1):
            own = [
                float(rest[n]) for n, row in enumerate(rows)
                if data.registers["tile"][n] > 0 and _column(row) == column
                and (row["tiling"]["tile_m"], row["tiling"]["tile_n"]) == tile
            ]  # fmt: skip
            if own:
                numbers[column] += float(np.median(own)) / weight * len(own) / (len(own) + TILE_PRIOR)
        made[tile] = (round(numbers[0], 1), round(numbers[1], 1))
    return made


def predicted(family: str, rows: Sequence[Row], model: Model) -> tuple[Array, Array]:
    """Registers and code bytes of rows, rounded as prices are."""
    data = sample(family, rows, model.table)
    demand = np.asarray(model.registers.of(data.registers)) + 0.0 * data.wanted_code
    registers = np.ceil(np.maximum(bounded(rows, demand) if family == "fma" else demand, 8.0))
    code = np.ceil(np.maximum(np.asarray(model.code.of(data.code)), 384.0) / 128.0) * 128.0
    return np.minimum(np.minimum(registers, register_bound(registers)), most_registers(rows)), code


def bounded(rows: Sequence[Row], demand: Array) -> Array:
    """What kernels on the FMA pipe are compiled for."""
    points = [point_of(row) for row in rows]
    each = [
        gemm_features.bounded(n, w, gemm_features.fma_share(w, t)) for n, (w, t) in zip(demand, points, strict=True)
    ]
    return np.array([float(item.item()) for item in each])


def most_registers(rows: Sequence[Row]) -> Array:
    """Registers of a thread with which a block just fits."""
    return np.array([min(255, 65536 // row["compiled"]["threads"] // 8 * 8) for row in rows], dtype=np.float64)


# how well it agrees


def agreement(rows: Sequence[Row], registers: Array, code: Array) -> Array:
    """(rows x 3): 1.0 where registers, occupancy and code are right; as if compiled for the bound of the prediction."""
    found = np.zeros((len(rows), 3))
    bound = register_bound(registers)
    for n, row in enumerate(rows):
        compiled = row["compiled"]
        taken = min(compiled["registers"], bound[n])
        found[n] = (
            abs(registers[n] - taken) <= max(NEAR, SHARE * taken),
            _resident(row, registers[n]) == _resident(row, taken),
            abs(code[n] - compiled["code"]) <= CODE_SHARE * compiled["code"],
        )
    return found


@cache
def _profile(name: str) -> HardwareProfile:
    return load_profile(name)


def _resident(row: Row, registers: float) -> int:
    compiled = row["compiled"]
    return int(blocks_per_unit(_profile(row["device"]), int(registers), compiled["threads"], compiled["shared"]))


def packed(rows: Sequence[Row], models: Mapping[str, Model]) -> tuple[Array, Array]:
    """Registers and code of packs: those of the greediest part, and of all parts."""
    registers, code = np.zeros(len(rows)), np.zeros(len(rows))
    for n, row in enumerate(rows):
        for part in row["parts"]:
            whole = {**part, "newer": row["newer"], "compiled": row["compiled"]}
            own = predicted(family_of(whole), [whole], models[family_of(whole)])
            registers[n] = max(registers[n], float(own[0][0]))
            code[n] += float(own[1][0]) + LOOK_UP_CODE
    return np.where(registers > FREE_REGISTERS, registers + LOOK_UP_REGISTERS, registers), code


def judge(rows: Sequence[Row], models: Mapping[str, Model]) -> Array:
    """`agreement` of rows of all families."""
    found = np.zeros((len(rows), 3))
    for family in (*FAMILIES, *UNFITTED):
        here = [n for n, row in enumerate(rows) if family_of(row) == family]
        own = [rows[n] for n in here]
        if family == "packed" and own:
            found[here] = agreement(own, *packed(own, models))
        elif family == "held" and own:
            found[here] = agreement(own, np.full(len(own), HELD_REGISTERS), np.full(len(own), HELD_CODE))
        elif own:
            found[here] = agreement(own, *predicted(family, own, models[family]))
    return found


def fit_all(rows: Sequence[Row]) -> dict[str, Model]:
    """The models of all families; one with few rows is what the package has."""
    made = dict(packaged())
    for family in FAMILIES:
        own = [row for row in rows if family_of(row) == family]
        if len(own) >= LEAST_ROWS:
            made[family] = fit_family(family, own)
    return made


def packaged() -> dict[str, Model]:
    """The models in the package."""
    return {
        family: Model(registers=FITTED[f"{family}_registers"], code=FITTED[f"{family}_code"], table=dict(TILES))
        for family in FAMILIES
    }


def left_out(rows: Sequence[Row]) -> Array:
    """`agreement` with models fitted without a row's model; the menu of tiles is of none and stays in (NaN)."""
    found = np.full((len(rows), 3), np.nan)
    for name in sorted({model_of(row) for row in rows if row["kind"] != "menu"}):
        here = [n for n, row in enumerate(rows) if model_of(row) == name and row["kind"] != "menu"]
        models = fit_all([row for row in rows if model_of(row) != name])
        found[here] = judge([rows[n] for n in here], models)
    return found


def print_table(rows: Sequence[Row], columns: Mapping[str, Array]) -> None:
    """Shares of right registers, occupancy and code by family; the last lines are of kernels that plans choose."""
    print("| kernels | number |", " | ".join(f"{name}: registers, occupancy, code" for name in columns), "|")
    print("|---|---|" + "---|" * len(columns))
    real = [row["kind"] != "menu" for row in rows]
    chosen = [row["kind"] == "chosen" for row in rows]
    for title, among in (("", real), ("chosen: ", chosen)):
        for family in (*FAMILIES, *UNFITTED, "all"):
            here = np.array([ok and family in ("all", family_of(row)) for ok, row in zip(among, rows, strict=True)])
            if here.any():
                shares = [", ".join(f"{share:.0%}" for share in part[here].mean(axis=0)) for part in columns.values()]
                print(f"| {title}{family} | {here.sum()} |", " | ".join(shares), "|")


def fitted_text(models: Mapping[str, Model]) -> str:
    """The source of `fitted.py`."""
    lines = [
        '"""Weights of registers and code, fitted on compiled kernels. Written by benchmarks/fit_resources.py.',
        "", "Compiler: CUDA 13.5 (NVVM, nvJitLink), Numba CUDA 0.30, sm_80 and sm_90.", '"""', "",
        "from collections.abc import Mapping", "", "from fusesolve.cost.gpu.features import Fit",
        "from fusesolve.cost.gpu.gemm_features import TileTable", "", "FITTED: Mapping[str, Fit] = {",
    ]  # fmt: skip
    for family, model in models.items():
        for name, item in (("registers", model.registers), ("code", model.code)):
            lines.append(f'    "{family}_{name}": Fit(')
            lines.append(f"        knee={item.knee}, rows={item.rows}, error={item.error:.3f},")
            pairs = [f'"{key}": {value}' for key, value in item.weights.items() if value]
            lines.append("        weights={")
            lines += [f"            {', '.join(pairs[n : n + 4])}," for n in range(0, len(pairs), 4)]
            lines += ["        },", "    ),"]
    pairs = [f"({m}, {n}): ({a}, {b})" for (m, n), (a, b) in sorted(models["fma"].table.items())]
    lines += [
        "}",
        "",
        "# Registers of a bare product and of a bare convolution in f32 by tile.",
        "TILES: TileTable = {",
    ]
    lines += [f"    {', '.join(pairs[n : n + 3])}," for n in range(0, len(pairs), 3)]
    return "\n".join([*lines, "}"]) + "\n"


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", type=Path, nargs="+")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    rows = [json.loads(line) for path in asked.paths for line in path.read_text(encoding="utf-8").splitlines()]
    rows = [row for row in rows if row["workload"]["template"] != Template.OPAQUE]  # sorts: one constant
    models = fit_all(rows)
    before, after, apart = judge(rows, packaged()), judge(rows, models), left_out(rows)
    print_table(rows, {"now": before, "fitted": after, "left out": apart})
    bad = sum(row["compiled"]["spill"] > 0 or row["compiled"]["stack"] > 0 for row in rows)
    print(f"{bad} of {len(rows)} kernels have spills or a stack")
    if asked.write:
        TARGET.write_text(fitted_text(models), encoding="utf-8")


if __name__ == "__main__":
    main()
