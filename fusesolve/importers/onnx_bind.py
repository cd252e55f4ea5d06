"""Bind the symbolic dims of an ONNX model's inputs to numbers: the second stage of the ONNX importer.

A dim is named by its symbol (`N=1`, every input that uses the symbol) or by its place (`input:axis=1`, which wins: some
exporters give different dims one symbol, or none). A scalar integer input can be bound to a value by its own name
(`sr=16000`); it becomes a constant, and an If that depends on it can be folded.
"""

from collections.abc import Iterator, Mapping

import onnx

from fusesolve.errors import InputError
from fusesolve.importers.onnx_proto import is_standard, one_line, walk_graphs
from fusesolve.importers.onnx_read import OnnxSource

_INTEGER_TYPES = {
    onnx.TensorProto.INT64, onnx.TensorProto.INT32, onnx.TensorProto.INT16, onnx.TensorProto.INT8,
    onnx.TensorProto.UINT64, onnx.TensorProto.UINT32, onnx.TensorProto.UINT16, onnx.TensorProto.UINT8,
    onnx.TensorProto.BOOL,
}  # fmt: skip


def bind_dims(source: OnnxSource, bind: Mapping[str, int], origin: str) -> str | None:
    """Replace every symbolic dim of the model's inputs by its number, in place.

    `bind`: symbol, `input:axis` or scalar input -> number (a dim is at least 1). InputError where a dim stays unbound,
    a number is out of range, a name fits nothing, an input is no tensor or has no rank. Returns the contradiction that
    the standard's strict inference finds in the shapes, or None: it also stumbles over a few valid models, so it
    is the better explanation where a later stage fails, and no failure by itself.
    """
    model = source.model
    known = ", ".join(_bindable(source)) or "none: every input is static"
    used: set[str] = set()
    values = _bind_scalars(model, source.weights, bind, used)
    for item in model.graph.input:
        if item.name not in source.weights:
            _bind_input(item, bind, used, origin)
    unused = [name for name in bind if name not in used and name not in values]
    if unused:
        raise InputError(f"{origin}: --bind {unused[0]}={bind[unused[0]]}: no input has such a dim (there are {known})")
    _forget_inferred_shapes(model, bind)
    return _contradiction(model, origin)


def _bind_scalars(
    model: onnx.ModelProto, weights: frozenset[str], bind: Mapping[str, int], used: set[str]
) -> Mapping[str, int]:
    """Turn the integer inputs of one element that `bind` names into initializers; returns the bound ones."""
    values = {}
    kept = []
    for item in model.graph.input:
        tensor = item.type.tensor_type
        dims = [dim.dim_value for dim in tensor.shape.dim]
        scalar = tensor.HasField("shape") and tensor.elem_type in _INTEGER_TYPES and dims in ([], [1])
        if scalar and item.name in bind and item.name not in weights:
            values[item.name] = bind[item.name]
            model.graph.initializer.append(
                onnx.helper.make_tensor(item.name, tensor.elem_type, dims, [bind[item.name]])
            )
        else:
            kept.append(onnx.ValueInfoProto.FromString(item.SerializeToString()))
    if values:
        del model.graph.input[:]
        model.graph.input.extend(kept)
        used.update(values)
    return values


def _bind_input(item: onnx.ValueInfoProto, bind: Mapping[str, int], used: set[str], origin: str) -> None:
    for axis, dim in enumerate(item.type.tensor_type.shape.dim):
        place = f"{item.name}:{axis}"
        if place in bind:
            used.add(place)
            used.add(dim.dim_param)
            dim.dim_value = _checked(place, bind[place], origin)
        elif dim.dim_param and dim.dim_param in bind:
            used.add(dim.dim_param)
            dim.dim_value = _checked(dim.dim_param, bind[dim.dim_param], origin)
        elif dim.dim_value < 1:
            name = dim.dim_param if _is_plain(dim.dim_param) else place
            symbol = f" ('{dim.dim_param}')" if dim.dim_param else ""
            raise InputError(
                f"{origin}: dim {axis}{symbol} of input '{item.name}' is not bound: "
                f"give its size with --bind {name}=SIZE"
            )


def _is_plain(symbol: str) -> bool:
    """Whether a symbol can serve as a name on the command line, unlike '?' or ''."""
    return bool(symbol) and all(char.isalnum() or char in "_.-" for char in symbol)


def _checked(name: str, size: int, origin: str) -> int:
    if not 1 <= size < 2**31:
        raise InputError(f"{origin}: --bind {name}={size}: a dim is a number from 1 to {2**31 - 1}")
    return size


def _bindable(source: OnnxSource) -> Iterator[str]:
    """Symbols of the inputs' dims, then all places."""
    inputs = [item for item in source.model.graph.input if item.name not in source.weights]
    names = (dim.dim_param for item in inputs for dim in item.type.tensor_type.shape.dim)
    yield from dict.fromkeys(name for name in names if name)
    for item in inputs:
        rank = len(item.type.tensor_type.shape.dim)
        if rank:
            yield f"{item.name}:0..{rank - 1}"


def _forget_inferred_shapes(model: onnx.ModelProto, bind: Mapping[str, int]) -> None:
    """Drop declared shapes that inference will find again for the bound dims; bind those it cannot find.

    Inference cannot see through foreign operators and control flow: what the file declares for them is all there is.
    """
    for scope in walk_graphs(model.graph):
        opaque = {name for node in scope.node if not _is_inferable(node) for name in node.output}
        kept = [item for item in scope.value_info if item.name in opaque]
        kept = [onnx.ValueInfoProto.FromString(item.SerializeToString()) for item in kept]
        del scope.value_info[:]
        scope.value_info.extend(kept)
        for item in (*scope.value_info, *scope.output):
            for dim in item.type.tensor_type.shape.dim:
                if dim.dim_param in bind and item.name in opaque:
                    dim.dim_value = bind[dim.dim_param]
                elif dim.HasField("dim_value") and dim.dim_value < 0:
                    dim.ClearField("dim_value")


def _is_inferable(node: onnx.NodeProto) -> bool:
    return is_standard(node.domain) and node.op_type not in ("If", "Loop", "Scan")


def _contradiction(model: onnx.ModelProto, origin: str) -> str | None:
    try:
        onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
    except (onnx.shape_inference.InferenceError, ValueError) as error:  # ValueError: an element type that is none
        return f"{origin}: inconsistent shapes: {one_line(error)}"
    return None


def take_output_shapes(model: onnx.ModelProto) -> Mapping[str, tuple[int | None, ...]]:
    """Declared shapes of the outputs (None: a dim left open), removed from the model where inference finds them."""
    producer = {name: node for node in model.graph.node for name in node.output}
    declared = {}
    for item in model.graph.output:
        tensor = item.type.tensor_type
        if item.type.HasField("tensor_type") and tensor.HasField("shape"):
            declared[item.name] = tuple(d.dim_value if d.HasField("dim_value") else None for d in tensor.shape.dim)
            node = producer.get(item.name)
            if node is not None and _is_inferable(node):
                tensor.ClearField("shape")
    return declared
