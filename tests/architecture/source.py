"""The package as syntax trees: what the architecture tests walk."""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "fusesolve"

# Room -> layer. Imports point only down: a room imports rooms of lower layers, and itself.
LAYERS: dict[str, int] = {
    "errors": 0, "units": 0,
    "graph": 1, "access": 1, "plan": 1, "group": 1, "hardware": 1, "bundled": 1, "schema": 1, "ragged": 1,
    "ops": 2, "builder": 2, "decompose": 2, "verify": 2, "reference": 2, "metrics": 2,
    "importers": 3, "hardware_yaml": 3, "legality": 3, "cost": 3,
    "candidates": 4, "solve": 4, "detect": 4,
    "codegen": 5, "validate": 5, "strategies": 5,
    "pipeline": 6, "explanation": 6, "peers": 6, "difference": 6,
    "study": 7, "comparison": 7, "whatif": 7,
    "report": 8,
    "cli": 9, "__init__": 9, "__main__": 10,
}  # fmt: skip

# In these layers rooms of the same layer may use each other (without a circle); in the others they are siblings.
TEAMS = {0, 1, 2, 5, 6, 9}

# Third-party library -> the only rooms that may import it.
HOMES: dict[str, set[str]] = {
    "ortools": {"solve"},
    "numba": {"cost", "candidates", "codegen"},
    "numpy": {
        "ops", "ragged", "metrics", "reference", "importers", "cost", "candidates", "solve", "detect", "codegen",
        "validate", "study",
    },
    "ml_dtypes": {"ops", "reference", "importers"},
    "onnx": {"importers"},
    "onnx_ir": {"importers"},
    "onnxscript": {"importers"},
    "google": {"importers"},
    "yaml": {"hardware_yaml", "importers"},
    "scipy": {"study"},
    "joblib": {"whatif"},
    "typer": {"cli"},
    "rich": {"report"},
    "plotly": {"report"},
    "networkx": {"report"},
}

# Library -> the distribution that brings it, where the names differ by more than a hyphen.
DISTRIBUTIONS = {"google": "protobuf", "yaml": "pyyaml", "ml_dtypes": "ml_dtypes"}


@dataclass(frozen=True, slots=True)
class Import:
    """One import statement: the room it stands in, what it names, and where."""

    room: str
    target: str
    names: tuple[str, ...]
    where: str


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def files() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if "_bundled" not in path.parts)


def room_of(path: Path) -> str:
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def place(path: Path, node: ast.AST) -> str:
    return f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}"


def imports(path: Path) -> Iterator[Import]:
    """Every import of a file, those inside functions and under TYPE_CHECKING too."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(room_of(path), alias.name, (), place(path, node))
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{place(path, node)}: relative import; write fusesolve.…"
            yield Import(room_of(path), node.module or "", tuple(alias.name for alias in node.names), place(path, node))


def rooms_imported(found: Import) -> set[str]:
    """The rooms of fusesolve that an import reaches; `__init__` stands for names of the package itself."""
    if found.target == "fusesolve":
        return {name if name in LAYERS else "__init__" for name in found.names} - _version_only(found)
    if found.target.startswith("fusesolve."):
        return {found.target.split(".")[1]}
    return set()


def _version_only(found: Import) -> set[str]:
    """Any room may read the version."""
    return {"__init__"} if set(found.names) == {"__version__"} else set()


def library(found: Import) -> str | None:
    """The third-party library that an import names, None for the standard library and fusesolve."""
    top = found.target.split(".")[0]
    return None if top == "fusesolve" or top in sys.stdlib_module_names else top


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
