"""From a file or bytes to a checked ONNX model without large weights: the first stage of the ONNX importer.

Planning needs shapes, types and small constants only. So a tensor with more data than shapes and indices ever have
(`KEEP_FLOATS`, `KEEP_INTEGERS` elements) loses its data here: it becomes a graph input whose name is kept in
`OnnxSource.weights`. Data outside the model file is read for the same small tensors only, from the model's folder
only; a missing data file is no error, because its tensors are taken as weights.
"""

import heapq
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError, Message  # type: ignore[import-untyped]  # the package ships no types
from onnx import TensorProto

from fusesolve.errors import InputError

MAX_FILE_BYTES = 2**31 - 1  # a protobuf message cannot be larger
KEEP_FLOATS = 4096  # elements of a constant tensor of floats or bytes whose data is kept
KEEP_INTEGERS = 2**17  # the same for 32- and 64-bit integers and booleans, which may be indices or masks
MIN_OPSET = 7
UNKNOWN_DOMAIN = "unknown"  # stands for the standard domain on operators that the standard does not have

_INDEX_TYPES = frozenset({TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL})
_LFS_MARK = b"version https://git-lfs"


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxSource:
    """A checked model, the names of its inputs that are weights, and what the user should know of the reading."""

    model: onnx.ModelProto
    weights: frozenset[str]
    warnings: tuple[str, ...]


def one_line(error: object) -> str:
    """The text of `error` on one line of at most 300 characters."""
    text = " ".join(str(error).split())
    return text if len(text) <= 300 else f"{text[:297]}..."


def read_onnx(source: Path | bytes, origin: str) -> OnnxSource:
    """Read, order and check a model; `origin` names it in errors.

    InputError where there is no such file, it is too large (more than 2 GiB - 1 byte), not an ONNX model, truncated,
    cyclic, uses an operator set that is too old or too new, or breaks the rules of the standard.
    """
    content = source if isinstance(source, bytes) else _read_bytes(source, origin)
    model = _parse(content, origin)
    model = _with_supported_opset(model, origin)
    _check_interface(model, origin)
    weights, warnings = _drop_weight_data(model, None if isinstance(source, bytes) else source.parent, origin)
    _set_apart_unknown_operators(model)
    _sort_nodes(model.graph, origin)
    _check_model(model, origin)
    return OnnxSource(model=model, weights=weights, warnings=warnings)


def _check_model(model: onnx.ModelProto, origin: str) -> None:
    """InputError where the standard's checker finds a fault; outputs need no shape, as other readers have it."""
    shapeless = [item.type.tensor_type for item in model.graph.output if item.type.WhichOneof("value") == "tensor_type"]
    shapeless = [tensor for tensor in shapeless if not tensor.HasField("shape")]
    for tensor in shapeless:
        tensor.shape.SetInParent()
    try:
        onnx.checker.check_model(model)
    except onnx.checker.ValidationError as error:
        raise InputError(f"{origin}: not a valid ONNX model: {one_line(error)}") from None
    for tensor in shapeless:
        tensor.ClearField("shape")


def is_standard(domain: str) -> bool:
    """True for the two spellings of the standard's own domain."""
    return domain in ("", "ai.onnx")


def standard_opset(model: onnx.ModelProto) -> int | None:
    """Version of the standard operator set that the model imports, or None."""
    return next((item.version for item in model.opset_import if is_standard(item.domain)), None)


def walk_graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """The graph and all graphs nested in its nodes, outermost first."""
    pending = [graph]
    while pending:
        current = pending.pop()
        yield current
        for node in current.node:
            for attribute in node.attribute:
                pending.extend(attribute.graphs)
                if attribute.HasField("g"):
                    pending.append(attribute.g)


def _read_bytes(path: Path, origin: str) -> bytes:
    try:
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise InputError(
                f"{origin}: {size} bytes, at most {MAX_FILE_BYTES} can be one model: save the weights as external data"
            )
        return path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{origin}: no such file") from None
    except OSError as error:
        raise InputError(f"{origin}: cannot be read: {error.strerror}") from None


def _parse(content: bytes, origin: str) -> onnx.ModelProto:
    if not content:
        raise InputError(f"{origin}: the file is empty, an ONNX model was expected")
    if content.startswith(_LFS_MARK):
        raise InputError(f"{origin}: a Git LFS pointer, not the model itself: run 'git lfs pull'")
    try:
        model: onnx.ModelProto = onnx.ModelProto.FromString(content)
    except DecodeError:
        raise InputError(f"{origin}: not an ONNX model, or truncated ({len(content)} bytes do not parse)") from None
    if not model.HasField("graph") or not model.ir_version or not model.graph.output:
        raise InputError(f"{origin}: not an ONNX model (no graph with outputs and IR version inside)")
    _check_text(model, origin)
    return model


def _check_text(message: Message, origin: str) -> None:
    """InputError where a name anywhere in the model is not UTF-8: protobuf hands it out as bytes."""
    pending = [message]
    while pending:
        for field, value in pending.pop().ListFields():
            items = [value] if isinstance(value, Message | str | bytes) else value
            if field.type == field.TYPE_MESSAGE:
                pending.extend(items)
            elif field.type == field.TYPE_STRING and not all(isinstance(item, str) for item in items):
                raise InputError(f"{origin}: damaged: the text of a field '{field.name}' is not UTF-8")


def _with_supported_opset(model: onnx.ModelProto, origin: str) -> onnx.ModelProto:
    """The model, converted where its operator set is older than `MIN_OPSET` (broadcast was an attribute then)."""
    opset, newest = standard_opset(model), onnx.defs.onnx_opset_version()
    if opset is None:
        if not model.opset_import:
            raise InputError(f"{origin}: the model names no operator set (opset_import is empty)")
        return model
    if opset > newest:
        raise InputError(f"{origin}: operator set {opset} is newer than {newest}, which onnx {onnx.__version__} has")
    if opset >= MIN_OPSET:
        return model
    try:
        return onnx.version_converter.convert_version(model, MIN_OPSET)
    except (RuntimeError, ValueError, onnx.checker.ValidationError) as error:
        raise InputError(
            f"{origin}: operator set {opset} is older than {MIN_OPSET} and cannot be converted: {one_line(error)}"
        ) from None


def _check_interface(model: onnx.ModelProto, origin: str) -> None:
    """InputError where an input is no tensor or has no rank, and where two nodes produce the same value."""
    for item in model.graph.input:
        kind = item.type.WhichOneof("value")
        if kind != "tensor_type":
            text = (kind or "value of unknown kind").removesuffix("_type")
            raise InputError(f"{origin}: input '{item.name}' is a {text}, only tensors are planned")
        if not item.type.tensor_type.HasField("shape"):
            raise InputError(f"{origin}: input '{item.name}' has no rank: export the model with input shapes")
    seen: set[str] = set()
    for node in model.graph.node:
        for name in node.output:
            if name in seen:
                raise InputError(f"{origin}: two nodes produce the value '{name}'")
            if name:
                seen.add(name)


# --- weights ---


def _drop_weight_data(
    model: onnx.ModelProto, folder: Path | None, origin: str
) -> tuple[frozenset[str], tuple[str, ...]]:
    """Turn constants into weights (graph inputs without data) where they are too large to be shapes or indices."""
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


# --- structure ---


def _set_apart_unknown_operators(model: onnx.ModelProto) -> None:
    """Move operators that the standard does not have at this version to `UNKNOWN_DOMAIN`: the rest is checked."""
    opset = standard_opset(model)
    found = False
    for scope in walk_graphs(model.graph):
        for node in scope.node:
            if is_standard(node.domain) and not _is_registered(node.op_type, opset):
                node.domain, found = UNKNOWN_DOMAIN, True
    if found:
        model.opset_import.append(onnx.helper.make_opsetid(UNKNOWN_DOMAIN, 1))


def _is_registered(op_type: str, opset: int | None) -> bool:
    if opset is None or not onnx.defs.has(op_type, opset, ""):
        return False
    return not onnx.defs.get_schema(op_type, opset, "").deprecated


def _reads(node: onnx.NodeProto) -> Iterator[str]:
    """Names that a node reads, names that its nested graphs may take from outside included."""
    yield from (name for name in node.input if name)
    for attribute in node.attribute:
        for graph in [*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])]:
            for scope in walk_graphs(graph):
                yield from (name for inner in scope.node for name in inner.input if name)
                yield from (item.name for item in scope.output)


def _sort_nodes(graph: onnx.GraphProto, origin: str) -> None:
    """Bring the nodes into topological order, keeping the order of a sorted model; InputError on a cycle."""
    producer = {name: index for index, node in enumerate(graph.node) for name in node.output if name}
    known = {item.name for item in graph.input} | {item.name for item in graph.initializer}
    needs: list[set[int]] = []
    for node in graph.node:
        _check_reads(node, producer, known, origin)
        needs.append({producer[name] for name in _reads(node) if name in producer and name not in known})
    order = _topological(needs)
    if len(order) < len(needs):
        stuck = graph.node[min(set(range(len(needs))) - set(order))]
        raise InputError(f"{origin}: the graph has a cycle through or before node '{node_label(stuck)}'")
    if order != sorted(order):
        copies = [onnx.NodeProto.FromString(graph.node[index].SerializeToString()) for index in order]
        del graph.node[:]
        graph.node.extend(copies)


def _check_reads(node: onnx.NodeProto, producer: dict[str, int], known: set[str], origin: str) -> None:
    for name in node.input:
        if name and name not in producer and name not in known:
            raise InputError(f"{origin}: node '{node_label(node)}' reads '{name}', which nothing produces")


def _topological(needs: Sequence[set[int]]) -> list[int]:
    """Indices in an order where each comes after those it needs, the smallest ready one first, cycles left out."""
    users: dict[int, list[int]] = {}
    waiting = [len(items) for items in needs]
    for index, items in enumerate(needs):
        for item in items:
            users.setdefault(item, []).append(index)
    ready = [index for index, count in enumerate(waiting) if count == 0]
    order = []
    while ready:
        index = heapq.heappop(ready)
        order.append(index)
        for user in users.get(index, ()):
            waiting[user] -= 1
            if waiting[user] == 0:
                heapq.heappush(ready, user)
    return order


def node_label(node: onnx.NodeProto) -> str:
    """Name of a node as plans show it: its own, or `op_type:first_output` where it is empty."""
    return node.name or f"{node.op_type}:{next(iter(node.output), '')}"
