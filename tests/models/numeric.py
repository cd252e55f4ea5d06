"""Feed an imported graph with the constants of its ONNX model, to compare it with the standard's evaluator."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator

from fusesolve.graph import Graph
from fusesolve.importers.onnx import load_onnx
from fusesolve.importers.onnx_bind import bind_dims, take_output_shapes
from fusesolve.importers.onnx_fold import fold_model, inline_functions
from fusesolve.importers.onnx_node import label
from fusesolve.importers.onnx_ops import HANDLERS
from fusesolve.importers.onnx_ops.recurrent import LETTERS, RECURRENCES
from fusesolve.importers.onnx_read import read_onnx
from fusesolve.reference import random_feeds, run_reference

Arrays = Mapping[str, Any]


def folded_constants(source: Path | bytes, bind: Mapping[str, int]) -> dict[str, Any]:
    """Constants that are there after folding, by name."""
    read = read_onnx(source, "model")
    bind_dims(read, bind, "model")
    inline_functions(read.model, HANDLERS)
    take_output_shapes(read.model)
    model = fold_model(read, "model")
    found = {}
    for value in [*model.graph.initializers.values(), *(value for node in model.graph for value in node.outputs)]:
        if value.const_value is not None:
            found[value.name] = value.const_value.numpy()
    for node in model.graph:
        if node.op_type == "ConstantOfShape" and node.inputs[0].const_value is not None:
            found[node.outputs[0].name] = _filled(node)
        if node.op_type in RECURRENCES:
            found |= {
                f"{label(node)}/{letter}": value.const_value.numpy()
                for letter, value in zip(LETTERS, node.inputs, strict=False)
                if value is not None and value.const_value is not None
            }
    return found


def _filled(node: ir.Node) -> Any:
    attribute = node.attributes.get("value")
    value = np.float32(0) if attribute is None else attribute.as_tensor().numpy().reshape(())
    return np.full(node.inputs[0].const_value.numpy(), value)


def shaped(graph: Graph, arrays: Arrays) -> dict[str, Any]:
    """Feeds of the graph from arrays by the model's names; a weight may have another shape than in the model."""
    feeds = {}
    for name in (*graph.inputs, *graph.weights):
        feeds[name] = np.asarray(_array_of(name, arrays)).reshape(graph.type_of(name).shape)
    return feeds


def _array_of(name: str, arrays: Arrays) -> Any:
    """An array by the importer's name of it, which may be rows of a recurrence's weights: `node/R[4:8]`."""
    name = name if name in arrays else name.rstrip("~")
    whole, mark, rows = name.rpartition("[")
    if name in arrays or not mark or whole not in arrays:
        return arrays[name]
    start, end = map(int, rows.split("@")[0].rstrip("]").split(":"))
    array = arrays[whole]
    return (array.reshape(-1) if array.ndim == 2 else array.reshape(-1, array.shape[-1]))[start:end]


def batch_norm_weights(model: onnx.ModelProto, arrays: Arrays) -> dict[str, Any]:
    """Factor and offset of each batch normalisation with constant statistics, by the importer's names.

    factor = scale / sqrt(variance + epsilon); offset = bias - mean * factor.
    """
    found = {}
    for node in model.graph.node:
        if node.op_type == "BatchNormalization" and all(name in arrays for name in node.input[1:5]):
            scale, bias, mean, variance = (np.asarray(arrays[name]) for name in node.input[1:5])
            epsilon = next((item.f for item in node.attribute if item.name == "epsilon"), 1e-5)
            factor = scale / np.sqrt(variance + epsilon)
            source = node.name or f"BatchNormalization:{node.output[0]}"
            found |= {f"{source}/factor": factor, f"{source}/offset": bias - mean * factor}
    return found


def compare_with_standard(source: Path | bytes, bind: Mapping[str, int], tolerance: float) -> int:
    """Run a model imported and by the standard's evaluator on the same random inputs; returns the outputs compared.

    `tolerance` bounds the difference relative to the largest magnitude of each output.
    """
    graph = load_onnx(source, bind=bind, strict=False)
    model = onnx.ModelProto.FromString(source) if isinstance(source, bytes) else onnx.load_model(source)
    arrays = folded_constants(source, bind) | {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            arrays[node.output[0]] = onnx.numpy_helper.to_array(node.attribute[0].t)
    arrays |= batch_norm_weights(model, arrays)
    made = {name for node in model.graph.node for name in node.output}
    ahead = [name for name in graph.weights if name not in arrays and name in made]
    outputs = [item.name for item in model.graph.output]
    feeds = {name: array for name, array in random_feeds(graph, 7).items() if name in graph.inputs}
    scalars = {item.name: np.int64(bind[item.name]) for item in model.graph.input if item.name in bind}
    results = _evaluate(model, feeds | scalars, [*outputs, *ahead])
    found = run_reference(graph, shaped(graph, {**arrays, **results, **feeds}))
    for name in outputs:
        scale = max(1e-6, float(np.abs(results[name]).max()))
        np.testing.assert_allclose(found[name] / scale, results[name] / scale, rtol=0, atol=tolerance, err_msg=name)
    return len(outputs)


def _evaluate(model: onnx.ModelProto, feeds: Arrays, names: Sequence[str]) -> dict[str, Any]:
    """Values of a model by name, inner ones included."""
    opened = onnx.ModelProto.FromString(model.SerializeToString())
    _avoid_faults_of_the_evaluator(opened)
    del opened.graph.output[:]
    opened.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in names)
    with np.errstate(all="ignore"):
        values = ReferenceEvaluator(opened).run(list(names), dict(feeds))
    return dict(zip(names, values, strict=True))


def _avoid_faults_of_the_evaluator(model: onnx.ModelProto) -> None:
    """Spell two operators in a way that the evaluator computes as the standard says.

    Up to opset 13 it mixes the batch's own statistics into a batch normalisation by `momentum`, also in inference; its
    GlobalMaxPool knows two spatial axes only.
    """
    for node in model.graph.node:
        if node.op_type == "BatchNormalization":
            kept = [item for item in node.attribute if item.name != "momentum"]
            del node.attribute[:]
            node.attribute.extend([*kept, onnx.helper.make_attribute("momentum", 1.0)])
        elif node.op_type == "GlobalMaxPool":  # only magika has one, over one axis
            node.op_type = "ReduceMax"
            node.attribute.append(onnx.helper.make_attribute("axes", [2]))
