"""Plans on several streams: what overlaps, what is claimed, and that one stream changes nothing."""

import json

import jsonschema
import pytest

from fusesolve import plan
from fusesolve.errors import InputError
from fusesolve.importers.native import parse_native
from fusesolve.schema import load_schema

DEVICE = "h100"
LAUNCH_NS = 2430  # launch.stream of the H100 profile

FORK = """
format: fusesolve-graph/1
name: fork
inputs: ["x: f16[256,1024]", "y: f16[256,1024]", "a: f16[1024,512]", "b: f16[1024,256]"]
ops:
  - "u = matmul(x, a)"
  - "v = matmul(y, b)"
outputs: [u, v]
"""
CHAIN = """
format: fusesolve-graph/1
name: chain
inputs: ["x: f16[4096,4096]", "a: f16[4096,4096]", "b: f16[4096,4096]"]
ops:
  - "s = matmul(x, a)"
  - "t = matmul(s, b)"
outputs: [t]
"""


def graph(text):
    return parse_native(text, "given", {}, False)


@pytest.fixture(scope="module")
def branches():
    """Library kernels cannot be packed into one launch: on one stream the branches run one after the other."""
    return {n: plan("inception_branches", DEVICE, streams=n, implementation="library").to_dict() for n in (1, 2)}


def spans(document):
    return [(g["start_ns"], g["start_ns"] + g["latency_ns"], g["stream"]) for g in document["groups"]]


def check_order(document):
    """Kernels of one stream follow each other; nobody reads what is not written yet; the last end is the objective."""
    end: dict[int, int] = {}
    written: dict[str, int] = {}
    for group, (start, stop, stream) in zip(document["groups"], spans(document), strict=True):
        assert start >= end.get(stream, 0)
        assert all(written.get(value, 0) <= start for value in group["inputs"])
        end[stream] = stop
        for value in group["outputs"]:
            written.setdefault(value, stop)
    assert document["objective_ns"] == max(stop for _, stop, _ in spans(document))


def test_branches_overlap(branches):
    one, two = branches[1], branches[2]
    assert two["objective_ns"] < one["objective_ns"]
    assert {stream for _, _, stream in spans(two)} == {0, 1}
    assert two["timing"]["streams"] == two["options"]["streams"] == 2
    check_order(two)


def test_the_claim_is_no_stronger_than_the_proof(branches):
    two = branches[2]
    assert two["bound_ns"] <= two["timing"]["kernels_bound_ns"] <= two["objective_ns"]
    assert two["gap"] == pytest.approx((two["objective_ns"] - two["bound_ns"]) / two["objective_ns"])
    assert two["status"] == ("OPTIMAL" if two["bound_ns"] == two["objective_ns"] else "FEASIBLE")


def test_the_document_keeps_the_schema(branches):
    for document in branches.values():
        jsonschema.validate(json.loads(json.dumps(document)), load_schema("plan"))


def test_one_stream_changes_nothing(branches):
    asked = plan("inception_branches", DEVICE, streams=1, implementation="library").to_dict()
    assert asked | {"seconds": {}} == branches[1] | {"seconds": {}}
    assert "streams" not in asked["options"]


def test_overlap_takes_memory(branches):
    assert branches[2]["peak_memory_bytes"] >= branches[1]["peak_memory_bytes"]


def test_a_memory_limit_leaves_a_plan_that_keeps_it(branches):
    limit = branches[1]["peak_memory_bytes"]
    found = plan("inception_branches", DEVICE, streams=2, max_memory=limit, implementation="library")
    assert found.objective_ns is not None
    assert found.peak_memory_bytes <= limit


def test_a_chain_is_proven_not_to_gain():
    """Each kernel waits for the one before: the longest chain of waits is the whole plan."""
    one, four = (plan(graph(CHAIN), DEVICE, streams=n, apart=[("s", "t")]) for n in (1, 4))
    assert len(one.groups) == 2
    assert four.status == "OPTIMAL"
    assert four.objective_ns == four.bound_ns == one.objective_ns
    assert {group.stream for group in four.groups} == {0}


@pytest.mark.parametrize("launch", ["stream", "graph"])
def test_two_small_products_run_side_by_side(launch):
    found = plan(graph(FORK), DEVICE, streams=2, launch=launch, apart=[("u", "v")])
    second = found.groups[1]
    if launch == "stream":  # launched one after the other by one host
        assert second.start_ns == pytest.approx(LAUNCH_NS, rel=0.1)
    else:
        assert second.start_ns == 0
    assert found.objective_ns == max(g.start_ns + g.latency_ns for g in found.groups)


def test_the_simulator_sees_the_overlap_too():
    one, two = (plan(graph(FORK), DEVICE, streams=n, apart=[("u", "v")], simulate="events") for n in (1, 2))
    assert two.timing["simulated_ns"] < one.timing["simulated_ns"]
    first, second = two.groups
    assert second.simulated_start_ns < first.simulated_start_ns + first.simulated_ns
    assert two.timing["simulated_ns"] <= 1.1 * two.objective_ns  # kernels that were let overlap do not slow each other


def test_packs_and_streams_compete():
    """Two small products: one launch for both, two streams, or whatever is shorter where both are allowed."""
    packed = plan(graph(FORK), DEVICE, implementation="generated")
    streamed = plan(graph(FORK), DEVICE, streams=2, implementation="generated", apart=[("u", "v")])
    both = plan(graph(FORK), DEVICE, streams=2, implementation="generated", simulate="events")
    assert [group.template for group in packed.groups] == ["packed"]
    assert both.objective_ns == min(packed.objective_ns, streamed.objective_ns)
    assert both.timing["simulated_ns"] == pytest.approx(both.objective_ns, rel=0.1)


def test_parts_of_a_pack_overlap_on_streams_where_that_is_shorter():
    """The one-stream plan of the router packs kernels; side by side on streams they are shorter than packed."""
    one, two = plan("moe_router", DEVICE), plan("moe_router", DEVICE, streams=2)
    assert two.objective_ns < one.objective_ns
    if any(group.template == "packed" for group in one.groups):
        assert not any(group.template == "packed" for group in two.groups)


def test_a_policy_is_scheduled_as_it_is():
    one, two = (plan(graph(FORK), DEVICE, strategy="inductor", streams=n) for n in (1, 2))
    assert {g.nodes for g in one.groups} == {g.nodes for g in two.groups}
    assert two.objective_ns < one.objective_ns
    assert two.bound_ns is None


def test_the_same_plan_on_any_number_of_workers():
    documents = [plan("inception_branches", DEVICE, streams=3, workers=n).to_dict() for n in (1, 4)]
    for document in documents:
        document["seconds"] = {}
    assert json.dumps(documents[0]) == json.dumps(documents[1])


def test_streams_are_for_gpus():
    with pytest.raises(InputError, match=r"--streams 2: profile .* is a npu"):
        plan("softmax", "mobile-npu", streams=2)
