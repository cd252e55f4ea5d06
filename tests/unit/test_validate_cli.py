"""`fusesolve validate` through the command line: exit codes, the failing group, plans and their profiles."""

import json

import pytest

from tests.unit.test_validate_reference import CHAIN


@pytest.fixture
def files(tmp_path, call):
    graph, plan = tmp_path / "chain.yaml", tmp_path / "plan.json"
    graph.write_text(json.dumps(CHAIN))
    code, _, _ = call("plan", graph, "--hw", "a100", "-o", plan, "-q")
    assert code == 0
    return graph, plan


def test_a_graph_is_planned_and_holds(call, files):
    code, out, _ = call("validate", files[0], "--hw", "a100", "--on", "reference", "--format", "json")
    found = json.loads(out)
    assert code == 0 and found["format"] == "fusesolve-validation/1" and found["ok"] is True
    assert found["target"] is None and found["spearman"] is None


def test_a_plan_file_needs_no_profile(call, files):
    code, out, _ = call("validate", files[1], "--on", "reference")
    assert code == 0 and "groups hold" in out


def test_another_profile_is_refused_and_forced(call, files):
    code, _, err = call("validate", files[1], "--hw", "h100", "--on", "reference")
    assert code == 2 and "planned for" in err and "--force" in err
    code, _, err = call("validate", files[1], "--hw", "h100", "--on", "reference", "--force")
    assert code == 0 and "going on" in err
    code, _, _ = call("validate", files[1], "--hw", "a100", "--on", "reference")
    assert code == 0


def test_a_broken_plan_exits_with_5_and_names_the_group(call, files):
    document = json.loads(files[1].read_text())
    last = document["groups"][-1]
    last["nodes"] = last["nodes"][:-1] or ["p"]
    files[1].write_text(json.dumps(document))
    code, out, err = call("validate", files[1], "--on", "reference", "--format", "json")
    assert code == 5 and f"group {last['id']}" in err
    assert json.loads(out)["ok"] is False


def test_a_graph_without_a_profile_is_refused(call, files):
    code, _, err = call("validate", files[0], "--on", "reference")
    assert code == 2 and "--hw" in err


def test_a_plan_runs_on_this_cpu_and_its_times_are_shown(call, files):
    code, out, err = call("validate", files[1], "--on", "cpu", "--format", "json")
    document = json.loads(out)
    assert (code, document["ok"], document["on"]) == (0, True, "cpu"), err
    assert all(group["measured"]["latency_ns"] > 0 for group in document["groups"] if group["generated"])


def test_json_that_is_no_plan_is_taken_as_a_graph(call, tmp_path):
    path = tmp_path / "other.json"
    path.write_text('{"format": "fusesolve-sheet/1"}')
    code, _, err = call("validate", path, "--hw", "a100", "--on", "reference")
    assert code == 2 and "other.json" in err
