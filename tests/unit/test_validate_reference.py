"""The reference step: plans that hold, and every way of breaking one is caught with the group named."""

import copy
import json

import ml_dtypes
import numpy as np
import pytest

from fusesolve import plan
from fusesolve.codegen.planned import is_plan, read_plan
from fusesolve.errors import InputError
from fusesolve.graph import DType
from fusesolve.importers.native import parse_native
from fusesolve.validate.apart import graph_apart, pattern_of, plan_apart
from fusesolve.validate.ladder import StepOptions, plan_graph, validate_plan
from fusesolve.validate.memory import ReferenceKernel, run_plan
from fusesolve.validate.oracle import EPSILON, _error

CHAIN = {
    "format": "fusesolve-graph/1",
    "name": "chain",
    "inputs": ["x: f32[6,40]", "w: f32[40,24]", "b: f32[24]", "i: i64[6]"],
    "weights": ["w", "b"],
    "ops": [
        "p = softmax(x; axis=1)",
        "h = matmul(p, w)",
        "h2 = reshape(h; to=3-2-24)",
        "t = transpose(h2; perm=1-0-2)",
        "y = add(t, b)",
        "z = relu(y)",
        "g = gather(z, i; axis=0)",
    ],
    "outputs": ["z", "p", "g"],
}


@pytest.fixture(scope="module")
def document(tmp_path_factory):
    path = tmp_path_factory.mktemp("graphs") / "chain.yaml"
    path.write_text(json.dumps(CHAIN))
    found = plan(str(path), "a100", strategy="unfused", time_limit=30.0)
    return json.loads(json.dumps(found.to_dict()))


def broken(document, change):
    changed = copy.deepcopy(document)
    change(changed["groups"])
    return validate_plan(changed, "reference")


def test_a_plan_holds_and_says_so_for_every_group(document):
    found = validate_plan(document, "reference")
    assert found.ok and found.failure() is None
    assert [item.ok for item in found.groups] == [True] * len(document["groups"])
    assert all(item.error <= item.tolerance for item in found.groups)


def test_outputs_equal_the_reference_bit_by_bit(document):
    from fusesolve.reference import random_feeds, run_reference

    graph = plan_graph(document)
    planned = read_plan(document, graph)
    feeds = random_feeds(graph, 3)
    got = run_plan(planned, feeds, ReferenceKernel(planned), lambda *_: None)
    wanted = run_reference(graph, feeds)
    assert set(got) == {"z", "p", "g"}
    assert all(np.array_equal(got[name], wanted[name]) for name in wanted)


def test_a_missing_node_fails_and_names_its_group(document):
    victim = next(i for i, g in enumerate(document["groups"]) if "relu" in str(g["nodes"]) or "z" in g["nodes"])
    found = broken(document, lambda groups: groups[victim]["nodes"].remove("z"))
    assert not found.ok
    assert f"group {document['groups'][victim]['id']}" in found.failure()


def test_a_missing_output_fails_at_the_reader(document):
    maker = next(i for i, g in enumerate(document["groups"]) if "p" in g["outputs"])
    found = broken(document, lambda groups: groups[maker]["outputs"].remove("p"))
    assert not found.ok and "which no earlier group writes" in found.failure()


def test_a_missing_input_fails(document):
    reader = next(i for i, g in enumerate(document["groups"]) if "b" in g["inputs"])
    found = broken(document, lambda groups: groups[reader]["inputs"].remove("b"))
    assert not found.ok and "'b'" in found.failure()


def test_a_promise_that_nothing_computes_fails(document):
    found = broken(document, lambda groups: groups[0]["outputs"].append("z"))
    assert not found.ok and "promises 'z'" in found.failure()


def test_a_missing_group_fails(document):
    found = broken(document, lambda groups: groups.pop())
    assert not found.ok


def test_groups_in_the_wrong_order_fail(document):
    found = broken(document, lambda groups: groups.reverse())
    assert not found.ok


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d["groups"][0]["nodes"].append("nobody"), "no operator 'nobody'"),
        (lambda d: d["groups"][0]["inputs"].append("nothing"), "no value 'nothing'"),
        (lambda d: d["groups"][0].pop("tiling"), "lacks 'tiling'"),
        (lambda d: d.update(groups=[]), "no groups"),
        (lambda d: d["graph"].pop("definition"), "no graph definition"),
    ],
)
def test_a_document_that_does_not_fit_is_refused(document, change, message):
    changed = copy.deepcopy(document)
    change(changed)
    with pytest.raises(InputError, match=message):
        validate_plan(changed, "reference")


def test_the_seed_changes_the_inputs_and_the_plan_still_holds(document):
    assert all(validate_plan(document, "reference", StepOptions(seed=seed)).ok for seed in range(3))


def test_only_plans_are_plans(document):
    assert is_plan(document) and not is_plan({"format": "fusesolve-graph/1"}) and not is_plan([document])


def test_an_unknown_step_is_refused(document):
    with pytest.raises(InputError, match="the steps are"):
        validate_plan(document, "moon")


def test_the_error_is_relative_to_value_and_scale():
    wanted = np.array([3.0, -4.0])  # rms sqrt(12.5)
    got = np.array([3.0, -3.0])
    error = _error(got, wanted, wanted, jumps=False, limit=0.0)
    assert error == pytest.approx(1.0 / (4.0 + 12.5**0.5))


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_special_values_must_be_met(special):
    wanted = np.array([1.0, special])
    assert _error(wanted.copy(), wanted, wanted, jumps=False, limit=0.0) == 0.0
    assert _error(np.array([1.0, 2.0]), wanted, wanted, jumps=False, limit=0.0) == np.inf
    assert _error(np.array([1.0, special]), np.ones(2), np.ones(2), jumps=False, limit=0.0) == np.inf


def test_an_overflow_of_the_type_is_no_error_of_the_kernel():
    exact, same = np.array([7e4]), np.array([np.inf])  # f16 ends at 65504
    assert _error(np.array([np.inf]), exact, same, jumps=False, limit=0.0) == 0.0


def test_few_strays_are_allowed_only_behind_a_jump():
    wanted = np.ones(1000)
    got = wanted.copy()
    got[:5] = 2.0
    assert _error(got, wanted, wanted, jumps=True, limit=1e-3) == 0.0
    assert _error(got, wanted, wanted, jumps=False, limit=1e-3) == pytest.approx(0.5)
    got[:20] = 2.0
    assert _error(got, wanted, wanted, jumps=True, limit=1e-3) == pytest.approx(0.5)


def test_epsilons_are_those_of_the_types():
    kinds = {DType.F64: np.float64, DType.F32: np.float32, DType.F16: np.float16}
    narrow = {
        DType.BF16: ml_dtypes.bfloat16, DType.F8E4M3: ml_dtypes.float8_e4m3fn, DType.F8E5M2: ml_dtypes.float8_e5m2,
    }  # fmt: skip
    assert all(EPSILON[kind] == np.finfo(numpy).eps for kind, numpy in kinds.items())
    assert all(EPSILON[kind] == float(ml_dtypes.finfo(numpy).eps) for kind, numpy in narrow.items())


def test_a_group_apart_is_a_plan_of_its_own(document):
    planned = read_plan(document, plan_graph(document))
    storage = planned.program.storage
    for kernel in planned.kernels:
        graph = graph_apart(planned, kernel)
        assert {planned.where[name] for name in (*graph.inputs, *graph.weights)} == set(kernel.reads)
        assert graph.outputs == tuple(storage[s].value for s in kernel.writes)
        (alone,) = read_plan(plan_apart(document, planned, kernel), graph).kernels
        assert (alone.id, len(alone.members), len(alone.reads)) == (0, len(kernel.members), len(kernel.reads))


def test_names_alone_make_no_other_pattern():
    def pattern(op, name, fed):
        ops = [f"{name} = {op.format(fed)}"]
        text = {"format": "fusesolve-graph/1", "name": "g", "inputs": [f"{fed}: f32[4]"], "ops": ops, "outputs": [name]}
        return pattern_of(parse_native(json.dumps(text), "g", {}, False))

    assert pattern("exp({})", "y", "x") == pattern("exp({})", "other", "u")
    assert pattern("exp({})", "y", "x") != pattern("relu({})", "y", "x")
    assert pattern("add({}, 1)", "y", "x") != pattern("add({}, 2)", "y", "x")
