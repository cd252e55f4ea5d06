"""Reading graphs: by the suffix of a file, then by its content, or a bundled graph by its name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TypeAlias

from fusesolve.bundled import bundled_dir
from fusesolve.errors import InputError, MissingError
from fusesolve.graph import Graph
from fusesolve.importers.native import parse_native
from fusesolve.importers.native_text import MAX_BYTES
from fusesolve.importers.retype import retype_graph
from fusesolve.ops.rules import parse_dtype

__all__ = ["IMPORTERS", "Importer", "bundled_graphs", "load_graph"]

# (path, extents of symbolic dimensions, strict) -> graph; InputError, one line, where the file does not fit.
Load: TypeAlias = Callable[[Path, Mapping[str, int], bool], Graph]


@dataclass(frozen=True, slots=True, kw_only=True)
class Importer:
    """One file format: `recognise` looks at the first bytes of a file whose suffix says nothing."""

    doc: str
    load: Load
    recognise: Callable[[bytes], bool]


def _load_native(path: Path, bind: Mapping[str, int], strict: bool) -> Graph:
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise InputError(f"{path}: {size} bytes, the limit of a native graph is {MAX_BYTES}; split the graph")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text: {error.reason} at byte {error.start}") from None
    return parse_native(text, str(path), bind, strict)


def _load_onnx(path: Path, bind: Mapping[str, int], strict: bool) -> Graph:
    from fusesolve.importers.onnx import load_onnx

    return load_onnx(path, bind=bind, strict=strict)


def _load_pt2(path: Path, bind: Mapping[str, int], strict: bool) -> Graph:
    raise MissingError(f"{path}: reading .pt2 files is not in this version; export the model to ONNX")


def _load_mlir(path: Path, bind: Mapping[str, int], strict: bool) -> Graph:
    raise MissingError(f"{path}: reading .mlir files is not in this version; export the model to ONNX")


def _is_native(head: bytes) -> bool:
    return b"fusesolve-graph/" in head


def _is_onnx(head: bytes) -> bool:
    return head[:1] == b"\x08"  # a ModelProto starts with field 1, its ir_version


def _is_zip(head: bytes) -> bool:
    return head[:4] == b"PK\x03\x04"


def _is_mlir(head: bytes) -> bool:
    return head[:4] == b"ML\xefR" or b"func.func" in head


_NATIVE = Importer(doc="the native format, YAML or JSON", load=_load_native, recognise=_is_native)
_ONNX = Importer(doc="ONNX", load=_load_onnx, recognise=_is_onnx)
_PT2 = Importer(doc="torch.export archives", load=_load_pt2, recognise=_is_zip)
_MLIR = Importer(doc="StableHLO as MLIR", load=_load_mlir, recognise=_is_mlir)

IMPORTERS: Mapping[str, Importer] = {
    ".yaml": _NATIVE,
    ".yml": _NATIVE,
    ".json": _NATIVE,
    ".onnx": _ONNX,
    ".pt2": _PT2,
    ".mlir": _MLIR,
}


def bundled_graphs() -> list[str]:
    """Names of the graphs that ship with fusesolve, sorted."""
    folder = bundled_dir("graphs")
    return sorted(path.stem for path in folder.glob("*.yaml"))


def load_graph(
    path_or_name: str | Path, *, bind: Mapping[str, int], strict: bool = False, as_dtype: str | None = None
) -> Graph:
    """The graph in a file, or the bundled graph of that name (with or without suffix).

    `bind`: extents of symbolic dimensions. `strict` refuses unknown operators. `as_dtype`: an element type that
    every floating value takes. Raises InputError with one line where there is no such file or graph, and for
    everything in it that does not fit.
    """
    graph = _load(Path(path_or_name), bind, strict)
    return graph if as_dtype is None else retype_graph(graph, parse_dtype(as_dtype))


def _load(path: Path, bind: Mapping[str, int], strict: bool) -> Graph:
    if path.is_dir():
        raise InputError(f"{path} is a folder; give a graph file")
    if not path.is_file():
        path = _bundled(path)
    try:
        return _importer(path).load(path, bind, strict)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None


def _bundled(path: Path) -> Path:
    """The bundled graph's file; InputError where the name is none."""
    name = path.name.removesuffix(".yaml")
    names = bundled_graphs()
    if len(path.parts) == 1 and name in names:
        return bundled_dir("graphs") / f"{name}.yaml"
    near = get_close_matches(name, names, 1)
    hint = f"; did you mean {near[0]}?" if near else "; `fusesolve graph list` shows the bundled ones"
    raise InputError(f"{path}: no such file and no bundled graph of that name{hint}")


def _importer(path: Path) -> Importer:
    """By suffix, and for a suffix that says nothing by content."""
    found = IMPORTERS.get(path.suffix.lower())
    if found is not None:
        return found
    with path.open("rb") as file:
        head = file.read(4096)
    for importer in (_NATIVE, _PT2, _MLIR, _ONNX):
        if importer.recognise(head):
            return importer
    known = ", ".join(IMPORTERS)
    raise InputError(f"{path}: neither its suffix nor its content is a graph's; fusesolve reads {known}")
