"""Real models are planned with a proof on a data-centre GPU, its predecessor and a mobile NPU, well within a minute."""

from functools import cache

import pytest

from fusesolve import plan
from fusesolve.graph import Graph
from fusesolve.plan import Plan
from tests.models.fetch import LIGHT_CNNS, FetchError
from tests.models.graphs import load_model

pytestmark = pytest.mark.models

PROFILES = ("a100", "h100", "mobile-npu")
LIMIT_S = {"mobile-npu": 45.0}  # one model takes all of its time, for a proof within 0.2 % instead of the optimum
LANGUAGE_AND_SPEECH = ("minilm", "minilm-int8", "pp-ocr-det", "pp-ocr-rec", "pp-ocr-cls", "magika", "basic-pitch")


@cache
def graph_of(name: str) -> Graph:
    try:
        return load_model(name)
    except FetchError as error:
        pytest.skip(str(error))


def sources(graph: Graph) -> set[str]:
    return {node.source for node in graph.nodes}


def assert_whole(found: Plan, graph: Graph) -> None:
    """Every operator is in a kernel, times add up, and each kernel reads what is there when it runs."""
    named = {name for group in found.groups for name in group.nodes}
    missing = [node.name for node in graph.nodes if not {node.name, node.source} & named]
    assert not missing
    assert sum(group.latency_ns for group in found.groups) == found.objective_ns
    there = {*graph.inputs, *graph.weights}
    for group in found.groups:
        assert set(group.inputs) <= there, (group.nodes, set(group.inputs) - there)
        there.update(group.outputs)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", [*LIGHT_CNNS, *LANGUAGE_AND_SPEECH])
def test_a_real_model_is_planned_with_a_proof(name: str, profile: str) -> None:
    graph = graph_of(name)
    found = plan(graph, profile, time_limit=LIMIT_S.get(profile, 60.0))
    assert found.status == "OPTIMAL" or (found.gap is not None and found.gap <= 0.01)
    assert [cut for cut in found.space.cut_by if not cut.startswith("packs: ")] == []
    assert found.unfused_ns is not None and found.objective_ns is not None
    assert found.objective_ns < found.unfused_ns
    if profile != "mobile-npu":  # there the graph is planned in f16, and casts are gone
        assert_whole(found, graph)


def test_a_convolution_takes_its_scale_and_relu_along_in_a_real_network() -> None:
    graph = graph_of("resnet50")
    for profile in PROFILES:
        found = plan(graph, profile)
        relus = [group for group in found.groups if any("relu" in name.lower() for name in group.nodes)]
        fused = [group for group in relus if group.template == "contraction"]
        assert len(fused) >= 0.9 * len(relus), profile
