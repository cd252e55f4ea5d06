"""Plans that are simulated block by block: both totals, every kernel's place, and nothing else changed."""

import json

import jsonschema
import pytest

from fusesolve import plan
from fusesolve.errors import InputError
from fusesolve.schema import load_schema

GRAPH, DEVICE = "gelu_mlp", "h100"


@pytest.fixture(scope="module")
def closed():
    return plan(GRAPH, DEVICE).to_dict()


@pytest.fixture(scope="module")
def events():
    return plan(GRAPH, DEVICE, simulate="events").to_dict()


def without_times(document):
    return {key: value for key, value in document.items() if key not in ("seconds", "timing", "options", "groups")}


def test_the_plan_stays_and_gets_its_simulation_beside_it(closed, events):
    assert without_times(closed) == without_times(events)
    assert closed["timing"] == {"launch": "stream", "streams": 1, "mode": "closed"}
    assert events["timing"]["mode"] == "events"
    assert events["options"] == closed["options"] | {"simulate": "events"}
    for before, after in zip(closed["groups"], events["groups"], strict=True):
        assert after == before | {key: after[key] for key in ("simulated_start_ns", "simulated_ns")}


def test_both_documents_keep_the_schema(closed, events):
    for document in (closed, events):
        jsonschema.validate(json.loads(json.dumps(document)), load_schema("plan"))


def test_kernels_of_one_stream_follow_each_other(events):
    end = 0
    for group in events["groups"]:
        assert group["simulated_start_ns"] > end
        end = group["simulated_start_ns"] + group["simulated_ns"]
    assert end == events["timing"]["simulated_ns"]


def test_launches_hide_behind_long_kernels(events):
    """A kernel takes what the closed form says on the device; what is gained is launch time."""
    launches = sum(group["terms_ns"]["launch"] for group in events["groups"])
    gained = events["objective_ns"] - events["timing"]["simulated_ns"]
    assert 0 < gained < launches
    assert events["timing"]["unfused_simulated_ns"] > events["timing"]["simulated_ns"]


def test_a_captured_graph_is_known_to_the_device_as_a_whole():
    """Each kernel pays its dispatch after the one before, as in the closed form; the difference is last waves alone."""
    found = plan("softmax", DEVICE, simulate="events", launch="graph")
    assert found.timing["simulated_ns"] == pytest.approx(found.objective_ns, rel=0.1)


def test_an_npu_has_no_event_simulator():
    with pytest.raises(InputError, match=r"--simulate events: profile .* is a npu"):
        plan("softmax", "mobile-npu", simulate="events")


def test_an_unknown_simulator_is_named():
    with pytest.raises(InputError, match="simulate 'magic': choose one of closed, events"):
        plan("softmax", DEVICE, simulate="magic")
