"""Constants of an ONNX model: which keep their data, and which become weights without data.

Planning needs shapes, types and small constants only. So a tensor with more data than shapes and indices ever have
(`KEEP_FLOATS`, `KEEP_INTEGERS` elements) becomes a graph input. Data outside the model file is read for the same small
tensors only, from the model's folder only; a missing data file is no error, because its tensors are taken as weights.
"""

import math
from collections.abc import Mapping
from pathlib import Path

import onnx
from onnx import TensorProto

from fusesolve.errors import InputError
from fusesolve.importers.onnx_proto import is_standard, walk_graphs

KEEP_FLOATS = 4096  # elements of a constant tensor of floats or bytes whose data is kept
KEEP_INTEGERS = 2**17  # the same for 32- and 64-bit integers and booleans, which may be indices or masks
_INDEX_TYPES = frozenset({TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL})


def drop_weight_data(
    model: onnx.ModelProto, folder: Path | None, origin: str
) -> tuple[frozenset[str], tuple[str, ...]]:
    """Turn constants into weights (graph inputs without data) where they are too large to be shapes or indices.

    `folder`: where external data lies, or None. Returns the names of the weights and what the user should know.
    InputError where external data lies elsewhere or is too short, and where data does not fit its tensor.
    """
    graph = model.graph
    _constants_to_initializers(graph)
    dropped: dict[str, onnx.ValueInfoProto] = {}
    missing: list[str] = []
    for scope in walk_graphs(graph):
        for tensor in scope.initializer:
            _read_external(tensor, folder, origin, missing)
        _drop_large(scope, dropped, origin)
    for sparse in graph.sparse_initializer:
        name = sparse.values.name
        dropped[name] = onnx.helper.make_tensor_value_info(name, sparse.values.data_type, sparse.dims)
    warnings = [f"sparse weight '{item.values.name}' is planned as a dense one" for item in graph.sparse_initializer]
    del graph.sparse_initializer[:]
    model.ir_version = max(model.ir_version, 4)  # up to 3 every initializer had to be an input, too
    constant = dropped.keys() | {tensor.name for tensor in graph.initializer}
    inputs = [item for item in graph.input if item.name not in constant]
    del graph.input[:]
    graph.input.extend([*inputs, *dropped.values()])
    if missing:
        warnings.append(f"data file '{missing[0]}' is missing; {len(missing)} tensors are taken as weights")
    return frozenset(dropped), tuple(warnings)


def _drop_large(scope: onnx.GraphProto, dropped: dict[str, onnx.ValueInfoProto], origin: str) -> None:
    """Move the large initializers of one graph to `dropped`."""
    kept = []
    for tensor in scope.initializer:
        if _keeps_data(tensor):
            kept.append(onnx.TensorProto.FromString(tensor.SerializeToString()))
            continue
        _check_data_size(tensor, origin)
        entry = onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        if dropped.setdefault(tensor.name, entry) != entry:  # both branches of an If may use one name
            raise InputError(f"{origin}: two constants of different types have the name '{tensor.name}'")
    if len(kept) < len(scope.initializer):
        del scope.initializer[:]
        scope.initializer.extend(kept)


def _constants_to_initializers(graph: onnx.GraphProto) -> None:
    """Move the tensors of Constant nodes of the main graph to its initializers."""
    nodes = []
    for node in graph.node:
        if node.op_type == "Constant" and is_standard(node.domain) and len(node.attribute) == 1:
            tensor = node.attribute[0].t
            if node.attribute[0].name == "value" and node.attribute[0].HasField("t"):
                tensor.name = node.output[0]
                graph.initializer.append(tensor)
                continue
        nodes.append(node)
    if len(nodes) < len(graph.node):
        copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
        del graph.node[:]
        graph.node.extend(copies)


def _keeps_data(tensor: TensorProto) -> bool:
    if tensor.data_location == TensorProto.EXTERNAL:
        return False
    limit = KEEP_INTEGERS if tensor.data_type in _INDEX_TYPES else KEEP_FLOATS
    return tensor.data_type == TensorProto.STRING or math.prod(tensor.dims) <= limit


def _check_data_size(tensor: TensorProto, origin: str) -> None:
    """InputError where the raw data of a dropped tensor does not match its shape (the checker will not see it)."""
    if not tensor.HasField("raw_data") or tensor.data_type not in _ITEM_BITS:
        return
    expected = (math.prod(tensor.dims) * _ITEM_BITS[tensor.data_type] + 7) // 8
    if len(tensor.raw_data) != expected:
        raise InputError(
            f"{origin}: tensor '{tensor.name}' {list(tensor.dims)} has {len(tensor.raw_data)} bytes, needs {expected}"
        )


_ITEM_BITS: Mapping[int, int] = {
    TensorProto.DOUBLE: 64, TensorProto.FLOAT: 32, TensorProto.FLOAT16: 16, TensorProto.BFLOAT16: 16,
    TensorProto.INT64: 64, TensorProto.INT32: 32, TensorProto.INT16: 16, TensorProto.INT8: 8,
    TensorProto.UINT64: 64, TensorProto.UINT32: 32, TensorProto.UINT16: 16, TensorProto.UINT8: 8,
    TensorProto.BOOL: 8, TensorProto.FLOAT8E4M3FN: 8, TensorProto.FLOAT8E5M2: 8,
}  # fmt: skip


def _read_external(tensor: TensorProto, folder: Path | None, origin: str, missing: list[str]) -> None:
    """Read the data of a small external tensor; check the place of every external one.

    InputError where the path leaves the model's folder or the data file is too short.
    """
    if tensor.data_location != TensorProto.EXTERNAL:
        return
    fields = {item.key: item.value for item in tensor.external_data}
    location = fields.get("location", "")
    where = Path(location)
    if not location or where.is_absolute() or ".." in where.parts or "\\" in location or ":" in location:
        raise InputError(f"{origin}: the data of tensor '{tensor.name}' is at '{location}', outside the model's folder")
    if folder is None:
        missing.append(location)
        return
    path = (folder / where).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise InputError(f"{origin}: the data of tensor '{tensor.name}' is a link out of the folder: '{location}'")
    if not path.is_file():
        missing.append(location)
        return
    bits = _ITEM_BITS.get(tensor.data_type)
    if bits is None:
        return
    size = math.prod(tensor.dims) * bits // 8
    offset = _natural(fields.get("offset", "0"), tensor.name, origin)
    if offset + size > path.stat().st_size:
        raise InputError(
            f"{origin}: the data of tensor '{tensor.name}' ends at byte {offset + size}, "
            f"'{location}' has {path.stat().st_size}"
        )
    if math.prod(tensor.dims) > (KEEP_INTEGERS if tensor.data_type in _INDEX_TYPES else KEEP_FLOATS):
        return
    with path.open("rb") as file:
        file.seek(offset)
        tensor.raw_data = file.read(size)
    tensor.data_location = TensorProto.DEFAULT
    del tensor.external_data[:]


def _natural(text: str, tensor: str, origin: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 19:
        raise InputError(f"{origin}: tensor '{tensor}' has the external offset '{text}', not a number")
    return int(text)
