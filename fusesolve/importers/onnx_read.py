"""From a file or bytes to a checked ONNX model without large weights: the first stage of the ONNX importer."""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError, Message  # type: ignore[import-untyped]  # the package ships no types

from fusesolve.errors import InputError
from fusesolve.importers.onnx_proto import (
    UNKNOWN_DOMAIN,
    is_standard,
    node_label,
    one_line,
    standard_opset,
    walk_graphs,
)
from fusesolve.importers.onnx_weights import drop_weight_data

MAX_FILE_BYTES = 2**31 - 1  # a protobuf message cannot be larger
MIN_OPSET = 7

_LFS_MARK = b"version https://git-lfs"


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxSource:
    """A checked model, the names of its inputs that are weights, and what the user should know of the reading."""

    model: onnx.ModelProto
    weights: frozenset[str]
    warnings: tuple[str, ...]


def read_onnx(source: Path | bytes, origin: str) -> OnnxSource:
    """Read, order and check a model; `origin` names it in errors.

    InputError where there is no such file, it is too large (more than 2 GiB - 1 byte), not an ONNX model, truncated,
    cyclic, uses an operator set that is too old or too new, or breaks the rules of the standard.
    """
    content = source if isinstance(source, bytes) else _read_bytes(source, origin)
    model = _parse(content, origin)
    model = _with_supported_opset(model, origin)
    _check_interface(model, origin)
    weights, warnings = drop_weight_data(model, None if isinstance(source, bytes) else source.parent, origin)
    _set_apart_unknown_operators(model)
    _sort_nodes(model.graph, origin)
    for scope in walk_graphs(model.graph):
        for node in scope.node:
            node.name = node_label(node)  # before a pass invents one
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
