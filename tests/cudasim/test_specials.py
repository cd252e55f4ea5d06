"""NaN, infinities, negative zero and extreme numbers through the generated source, and tensors of one element."""

import json

import pytest

from fusesolve import plan
from fusesolve.importers.native import parse_native
from fusesolve.validate.ladder import compare, plan_graph, validate_plan
from fusesolve.validate.simulate import SimulatedKernel, simulated_plan
from fusesolve.validate.specials import special_feeds
from tests.cudasim.conftest import needs_numba_cuda

pytestmark = [needs_numba_cuda, pytest.mark.slow]


@pytest.mark.parametrize("name", ["unary", "binary", "movement", "attention"])
def test_special_values_come_out_as_in_numpy(simulator_of, document_of, name):
    planned, made = simulated_plan(document_of(name), plan_graph(document_of(name)))
    execute = SimulatedKernel(planned, made, simulator_of(made.text))
    groups, fault = compare(planned, execute, special_feeds(planned.graph, 5), made.refused)
    assert fault is None
    assert all(item.ok for item in groups), [(item.nodes, item.note) for item in groups if not item.ok]


@pytest.mark.parametrize(
    "ops",
    [
        ["y = tanh(x)"], ["s = softmax(x; axis=2)", "y = relu(s)"], ["y = reduce_sum(x)"],
        ["y = reduce_max(x; axis=0)"],
        ["y = matmul(x, x)"], ["c = concat(x, x; axis=1)", "y = transpose(c; perm=2-1-0)"],
    ],
)  # fmt: skip
def test_tensors_of_one_element(ops):
    document = {"format": "fusesolve-graph/1", "name": "one", "inputs": ["x: f32[1,1,1]"], "ops": ops, "outputs": ["y"]}
    graph = parse_native(json.dumps(document), "one", {}, False)
    found = validate_plan(plan(graph, "a100", implementation="generated", time_limit=30.0).to_dict(), "cudasim")
    assert found.ok and all(item.generated for item in found.groups), found.failure()


def test_empty_tensors_are_left_to_the_reference():
    text = {"format": "fusesolve-graph/1", "name": "none", "inputs": ["x: f32[0,4]"], "ops": ["y = tanh(x)"],
            "outputs": ["y"]}  # fmt: skip
    graph = parse_native(json.dumps(text), "none", {}, False)
    found = validate_plan(plan(graph, "a100", time_limit=30.0).to_dict(), "cudasim")
    assert found.ok and "empty" in found.groups[0].note
