"""The ONNX importer: a model file becomes a graph of primitives with every shape static.

Stages: read and check (`onnx_read`), bind the symbolic dims (`onnx_bind`), fold constants until shapes are static
(`onnx_fold`), lower every node to primitives (`onnx_lower` with the handlers of `onnx_ops`). Operator sets 7 to the
newest of the installed onnx package are read as they are, older ones are converted. No weight data leaves the first
stage.
"""

from collections.abc import Mapping
from pathlib import Path

from fusesolve.errors import InputError
from fusesolve.graph import Graph
from fusesolve.importers.onnx_bind import bind_dims, take_output_shapes
from fusesolve.importers.onnx_fold import fold_model, inline_functions
from fusesolve.importers.onnx_lower import Lowering
from fusesolve.importers.onnx_ops import HANDLERS
from fusesolve.importers.onnx_read import read_onnx


def load_onnx(source: Path | bytes, *, bind: Mapping[str, int], strict: bool, origin: str | None = None) -> Graph:
    """The graph of the ONNX model `source`, a file or its content; `origin` names it in messages (default the file).

    `bind`: size per symbolic dim (`N`), per place (`input:axis`), or value of a scalar integer input. What has no
    primitives (control flow, recurrences, operators of vendors) becomes an opaque kernel with a warning, with
    `strict` an InputError. Raises InputError, one line, where the file is missing, too large, truncated, no ONNX
    model, cyclic or inconsistent, where a dim is not bound, and where a shape stays unknown.
    """
    name = origin or (str(source) if isinstance(source, Path) else "<bytes>")
    read = read_onnx(source, name)
    contradiction = bind_dims(read, bind, name)
    try:
        inline_functions(read.model, HANDLERS)
        declared = take_output_shapes(read.model)
        lowering = Lowering(fold_model(read, name), read.weights, HANDLERS, name)
        for warning in read.warnings:
            lowering.builder.warn(warning)
        graph = lowering.run(strict=strict)
        _check_outputs(graph, declared, name)
    except InputError:
        if contradiction is not None:
            raise InputError(contradiction) from None
        raise
    return graph


def _check_outputs(graph: Graph, declared: Mapping[str, tuple[int | None, ...]], origin: str) -> None:
    """InputError where an output has another shape than the model declares."""
    for output in graph.outputs:
        shape, wanted = graph.type_of(output).shape, declared.get(output)
        if wanted is None:
            continue
        fits = len(shape) == len(wanted) and all(b in (None, a) for a, b in zip(shape, wanted, strict=True))
        if not fits:
            text = ", ".join("?" if extent is None else str(extent) for extent in wanted)
            raise InputError(f"{origin}: output '{output}' is declared [{text}], but its shape is {list(shape)}")
