"""Random ONNX graphs: what is imported computes what the standard says, under the same names."""

from typing import Any

import numpy as np
import onnx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import helper

from tests.models.numeric import compare_with_standard
from tests.unit.onnx_models import FLOAT, imported, model

UNARY = ("Relu", "Neg", "Abs", "Tanh", "Sigmoid", "Erf", "Softplus", "HardSigmoid", "Identity", "Transpose")
BINARY = ("Add", "Sub", "Mul", "Max", "Min")
SHAPES = ((4, 4), (4, 1), (1, 4), (4,), (1,), ())


@st.composite
def graphs(draw: st.DrawFn) -> onnx.ModelProto:
    """Up to eight nodes, some without a name, over inputs and constants that broadcast against [4, 4]."""
    seed = np.random.default_rng(draw(st.integers(0, 2**31)))
    names = [f"v{i}" for i in range(draw(st.integers(2, 4)))]
    shapes = {name: draw(st.sampled_from(SHAPES)) for name in names}
    fixed = sorted(draw(st.sets(st.sampled_from(names[1:]))))
    values = list(names)
    nodes = []
    for index in range(draw(st.integers(1, 8))):
        op = draw(st.sampled_from((*UNARY, *BINARY, "ReduceSum")))
        read = [draw(st.sampled_from(values)) for _ in range(2 if op in BINARY else 1)]
        attrs: dict[str, Any] = {"name": f"op{index}"} if draw(st.booleans()) else {}
        nodes.append(helper.make_node(op, read, [f"n{index}"], **attrs))
        values.append(f"n{index}")
    inputs = [(name, FLOAT, list(shapes[name])) for name in names if name not in fixed]
    outputs = sorted(draw(st.sets(st.sampled_from(values[len(names) :]), min_size=1)))
    constants = {name: seed.standard_normal(shapes[name]).astype(np.float32) for name in fixed}
    return model(nodes, inputs, [(name, FLOAT, None) for name in outputs], constants=constants)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graphs())
def test_random_graphs_compute_what_the_standard_says(proto: onnx.ModelProto) -> None:
    assert compare_with_standard(proto.SerializeToString(), {}, 1e-5) == len(proto.graph.output)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graphs())
def test_sources_are_the_nodes_of_the_model(proto: onnx.ModelProto) -> None:
    """Every source is a node's name, or its operator and result where it has none; copies of outputs apart."""
    graph = imported(proto, strict=True)
    labels = {node.name or f"{node.op_type}:{node.output[0]}" for node in proto.graph.node}
    assert {node.source for node in graph.nodes if node.op != "copy"} <= labels
    assert list(graph.outputs) == [item.name for item in proto.graph.output]
