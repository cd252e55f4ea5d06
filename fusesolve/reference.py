"""Running a graph in NumPy, node by node: the values that every other way of running it is compared with."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fusesolve.errors import InputError
from fusesolve.graph import Graph, Literal, Node, TensorType
from fusesolve.ops import OPS, operand_types, result_types

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]


def run_reference(graph: Graph, feeds: Mapping[str, "Array"]) -> dict[str, "Array"]:
    """Every output of `graph` by name, from arrays for all its inputs and weights.

    Arrays are freed after their last reader. InputError where a feed is missing, has another shape, or an operator
    is opaque.
    """
    values = {name: _feed(graph, name, feeds) for name in (*graph.inputs, *graph.weights)}
    last = {name: readers[-1] for name, readers in graph.consumers.items()}
    kept = set(graph.outputs)
    for index, node in enumerate(graph.nodes):
        values.update(run_node(graph, node, values))
        for name in (*node.reads, *node.outputs):
            if last.get(name, index) <= index and name not in kept:
                values.pop(name, None)
    return {name: values[name] for name in graph.outputs}


def run_node(graph: Graph, node: Node, values: Mapping[str, "Array"]) -> dict[str, "Array"]:
    """Results of one node by name, from the arrays of the values that it reads."""
    types = operand_types(graph, node)
    arrays = [
        literal_array(item, kind) if isinstance(item, Literal) else values[item]
        for item, kind in zip(node.inputs, types, strict=True)
    ]
    try:
        results = OPS[node.op].reference(arrays, dict(node.attrs), result_types(graph, node))
    except (IndexError, ValueError) as error:
        raise InputError(f"{node.name}: {error}; indices must lie inside the tensor") from error
    return dict(zip(node.outputs, results, strict=True))


def literal_array(item: Literal, kind: TensorType) -> "Array":
    """The literal as a 0-d array of the type that it adapts to."""
    import numpy as np

    from fusesolve.ops.numpy_reference import numpy_dtype

    with np.errstate(all="ignore"):
        return np.asarray(item.value).astype(numpy_dtype(kind.dtype))


def random_feeds(graph: Graph, seed: int) -> dict[str, "Array"]:
    """Arrays for all inputs and weights: standard normal floats, integers 0 to 3, random bools.

    Integer values that some node uses as indices stay below the extent that they index.
    """
    import numpy as np

    from fusesolve.ops.numpy_reference import numpy_dtype

    generator = np.random.Generator(np.random.PCG64(seed))
    limits = _index_limits(graph)
    feeds: dict[str, Array] = {}
    for name in (*graph.inputs, *graph.weights):
        kind = graph.type_of(name)
        array: Array
        if kind.dtype.is_float:
            array = generator.standard_normal(kind.shape)
        else:
            top = 2 if kind.dtype == "bool" else min(4, limits.get(name, 4))
            array = generator.integers(0, max(1, top), kind.shape)
        feeds[name] = np.asarray(array).astype(numpy_dtype(kind.dtype))
    return feeds


_INDEX_OPERAND = {"gather": 1, "gather_elements": 1, "gather_nd": 1, "scatter_update": 1, "scatter_add": 1,
                  "scatter_elements": 1, "scatter_nd": 1}  # fmt: skip


def _index_limits(graph: Graph) -> dict[str, int]:
    limits: dict[str, int] = {}
    for node in graph.nodes:
        position = _INDEX_OPERAND.get(node.op)
        data = node.inputs[0] if node.inputs else None
        if position is None or not isinstance(data, str):
            continue
        shape, axis = graph.type_of(data).shape, node.attr("axis")
        limit = shape[axis] if isinstance(axis, int) else min(shape, default=1)
        index = node.inputs[position]
        if isinstance(index, str):
            limits[index] = min(limits.get(index, limit), limit)
    return limits


def _feed(graph: Graph, name: str, feeds: Mapping[str, "Array"]) -> "Array":
    from fusesolve.ops.numpy_reference import numpy_dtype

    kind = graph.type_of(name)
    if name not in feeds:
        raise InputError(f"no array for the input {name!r} ({kind})")
    array = feeds[name]
    if tuple(array.shape) != kind.shape or array.dtype != numpy_dtype(kind.dtype):
        raise InputError(f"the array for {name!r} is {array.dtype}{list(array.shape)}, the graph needs {kind}")
    return array
