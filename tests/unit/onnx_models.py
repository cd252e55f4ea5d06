"""Small ONNX models made by hand for the tests of the importer."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from fusesolve.graph import Graph
from fusesolve.importers.onnx import load_onnx

Spec = tuple[str, int, Sequence[int | str | None]]
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def value(spec: Spec) -> onnx.ValueInfoProto:
    name, kind, shape = spec
    return helper.make_tensor_value_info(name, kind, shape)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[Spec],
    outputs: Sequence[Spec],
    *,
    constants: Mapping[str, Any] | None = None,
    opset: int = 17,
    domains: Mapping[str, int] | None = None,
    **graph: Any,
) -> onnx.ModelProto:
    """A model of one graph; `constants` become initializers, `domains` further operator sets."""
    body = helper.make_graph(
        list(nodes), "test", [value(item) for item in inputs], [value(item) for item in outputs],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in (constants or {}).items()], **graph,
    )  # fmt: skip
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(*item) for item in (domains or {}).items())]
    return helper.make_model(body, opset_imports=imports, ir_version=8)


def imported(proto: onnx.ModelProto, *, strict: bool = False, **bind: int) -> Graph:
    return load_onnx(proto.SerializeToString(), bind=bind, strict=strict, origin="m.onnx")


def relu_of(shape: Sequence[int | str | None], *, output: Sequence[int | str | None] | None = None) -> onnx.ModelProto:
    node = helper.make_node("Relu", ["x"], ["y"], name="act")
    return model([node], [("x", FLOAT, shape)], [("y", FLOAT, output or shape)])
