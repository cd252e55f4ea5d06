"""Fold the constants of a bound ONNX model until every shape is static: the third stage of the ONNX importer.

The work is done by the folding pass of onnxscript (shape inference node by node, the standard's reference evaluator,
constant If); here is the policy: what is worth materialising, and what it may cost. Only tensors that can be shapes,
indices or masks are materialised, at most `FOLD_ELEMENTS` elements each; weights have no data at this stage.
"""

import logging
import math
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx.inliner import inline_selected_functions
from onnx.reference.op_run import OpRun
from onnx.reference.ops import load_op
from onnx_ir.passes import PassError
from onnx_ir.passes.common import InlinePass, RemoveUnusedNodesPass
from onnxscript.optimizer import fold_constants

from fusesolve.errors import InputError
from fusesolve.importers.onnx_proto import UNKNOWN_DOMAIN, is_standard, one_line, standard_opset, walk_graphs
from fusesolve.importers.onnx_read import OnnxSource
from fusesolve.importers.onnx_weights import KEEP_FLOATS

FOLD_ELEMENTS = 2**20  # elements of one folded tensor
MAX_ROUNDS = 32  # of inference and folding: each round opens at least one more nested If
# What the reference evaluator and the folding pass raise on a constant node that they cannot compute.
_EVALUATION_ERRORS = (RuntimeError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, AssertionError)
# Results of the type of the first operand that the inference of a single node does not know: functions of the standard,
# and operators used with an operator set that has them no more or not yet, as some exporters do.
_LIKE_FIRST_OPERAND = frozenset({
    "Celu", "Gelu", "GroupNormalization", "HardSwish", "LayerNormalization", "Mish", "RMSNormalization",
    "RotaryEmbedding", "Swish",
})  # fmt: skip
# Their result can be larger than their operands; folded only where inference knows its size.
_GROWING = frozenset({
    "ConstantOfShape", "EyeLike", "Expand", "NonZero", "OneHot", "Pad", "Range", "Resize", "Tile", "Upsample",
})  # fmt: skip


def fold_model(source: OnnxSource, origin: str) -> ir.Model:
    """The model with functions inlined and constants folded, in the vocabulary of onnx-ir.

    InputError where a constant node cannot be evaluated (an index out of range, a reshape that does not fit).
    """
    try:
        model = ir.serde.deserialize_model(source.model)
        if model.functions:
            InlinePass()(model)
        with _quiet():
            _fold_until_stable(model)
    except (*_EVALUATION_ERRORS, PassError) as error:
        cause = error.__cause__ or error
        where = f"{error}: " if error.__cause__ else ""
        raise InputError(f"{origin}: a constant cannot be computed: {one_line(f'{where}{cause}')}") from None
    return model


def inline_functions(model: onnx.ModelProto, handled: Container[str]) -> None:
    """Replace calls of the standard's own functions by their bodies, in place, where no handler is there for them.

    The standard defines many composite operators (losses, windows, gated activations) by such bodies. A call that the
    inliner cannot type (an optional operand is left out) stays, and becomes an opaque kernel.
    """
    opset = standard_opset(model) or 1
    found = set()
    for node in (node for scope in walk_graphs(model.graph) for node in scope.node):
        if is_standard(node.domain) and node.op_type not in handled and onnx.defs.has(node.op_type, opset, ""):
            schema: Any = onnx.defs.get_schema(node.op_type, opset, "")  # the types of onnx leave its functions out
            if schema.has_function or schema.has_context_dependent_function:
                _spell_defaults(node, schema)
                found.add((node.domain, node.op_type))
    constants = [onnx.helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in model.graph.initializer]
    for function in sorted(found):
        typed = onnx.ModelProto.FromString(model.SerializeToString())
        typed.graph.value_info.extend(constants)
        try:
            model.CopyFrom(inline_selected_functions(typed, [function], inline_schema_functions=True))
        except RuntimeError:
            continue


def _spell_defaults(node: onnx.NodeProto, schema: Any) -> None:
    """Add the attributes that have defaults: a function's body refers to them, and the inliner drops absent ones."""
    given = {attribute.name for attribute in node.attribute}
    for name, attribute in schema.attributes.items():
        if name not in given and attribute.default_value.name:
            node.attribute.append(attribute.default_value)


def is_static(value: ir.Value) -> bool:
    """Whether `value` is a tensor whose element type and every dimension are known."""
    if not isinstance(value.type, ir.TensorType) or value.shape is None:
        return False
    return all(isinstance(dim, int) for dim in value.shape)


def _fold_until_stable(model: ir.Model) -> None:
    for _ in range(MAX_ROUNDS):
        split = _fold_multiple_results(model)
        result = fold_constants(
            model, onnx_shape_inference=True, input_size_limit=FOLD_ELEMENTS, output_size_limit=FOLD_ELEMENTS,
            should_fold=_is_worth_folding,
        )  # fmt: skip
        RemoveUnusedNodesPass()(model)
        typed = _type_like_first_operand(model)
        if not split and not typed and not result.modified:
            return


def _type_like_first_operand(model: ir.Model) -> bool:
    """Type the results that the node-wise inference does not know; True if there were any."""
    found = False
    for node in model.graph:
        known = node.op_type in _LIKE_FIRST_OPERAND and node.domain in ("", "ai.onnx", UNKNOWN_DOMAIN)
        if known and not is_static(node.outputs[0]):
            source = node.inputs[0]
            if source is not None and is_static(source):
                node.outputs[0].type, node.outputs[0].shape, found = source.type, source.shape, True
    return found


def _is_worth_folding(node: ir.Node) -> bool:
    """Whether the constant node `node` is materialised: its results are known to be small."""
    if node.domain not in ("", "ai.onnx"):
        return False
    if not all(is_static(value) for value in node.outputs):
        return node.op_type not in _GROWING
    sizes = [math.prod(value.shape.numpy()) for value in node.outputs if value.shape is not None]
    return max(sizes) <= (KEEP_FLOATS if node.op_type == "ConstantOfShape" else FOLD_ELEMENTS)


# --- nodes with several results, which the pass of onnxscript leaves alone ---


def _fold_multiple_results(model: ir.Model) -> bool:
    """Replace constant nodes with several results (Split of a shape vector) by initializers; True if there were any."""
    found = False
    for node in list(model.graph):
        if len(node.outputs) < 2 or node.domain not in ("", "ai.onnx") or not _is_foldable(node):
            continue
        arrays = _evaluate(node, model.opset_imports[node.domain])
        if arrays is None:
            continue
        for value, array in zip(node.outputs, arrays, strict=True):
            _replace_by_initializer(model.graph, value, array)
        found = True
    return found


def _is_foldable(node: ir.Node) -> bool:
    graphs = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
    has_graphs = any(item.type in graphs for item in node.attributes.values())
    reads = [value for value in node.inputs if value is not None]
    return (
        bool(reads) and not has_graphs and node.op_type not in ("Dropout", "BatchNormalization")
        and all(value.const_value is not None and value.const_value.size <= FOLD_ELEMENTS for value in reads)
        and not any(value.is_graph_output() for value in node.outputs)
    )  # fmt: skip


def _evaluate(node: ir.Node, opset: int) -> Sequence[np.ndarray] | None:
    """Results of a constant node by the standard's reference implementation; None where it has none."""
    try:
        implementation: type[OpRun] = load_op("", node.op_type, opset)
    except (NotImplementedError, onnx.reference.op_run.RuntimeImplementationError):
        return None
    run = {"log": lambda *_: None, "opsets": {"": opset}, "verbose": 0, "new_ops": None}
    feeds = [None if value is None or value.const_value is None else value.const_value.numpy() for value in node.inputs]
    evaluator: Any = implementation(ir.serde.serialize_node(node), run)
    results = evaluator.run(*feeds)
    return results if all(isinstance(item, np.ndarray) for item in results) else None


def _replace_by_initializer(graph: ir.Graph, value: ir.Value, array: np.ndarray) -> None:
    tensor = ir.tensor(np.asarray(array))
    kind, shape = ir.TensorType(tensor.dtype), ir.Shape(array.shape)
    constant = ir.Value(name=f"{value.name}/folded", type=kind, shape=shape, const_value=tensor)
    graph.register_initializer(constant)
    value.replace_all_uses_with(constant)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the pass's notes and NumPy's warnings about overflow in constants off the user's screen."""
    logger = logging.getLogger("onnxscript")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with np.errstate(all="ignore"):
            yield
    finally:
        logger.setLevel(level)
