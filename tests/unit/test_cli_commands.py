"""The commands for real: plan, profiles, graph, on bundled graphs and profiles."""

import json
import os
import pty
import subprocess
import sys

import jsonschema
import pytest
import yaml

from fusesolve.schema import load_schema


@pytest.fixture
def run(call):
    """Run a command that is expected to work; returns what it printed on stdout."""

    def worked(*argv):
        code, out, err = call(*argv)
        assert code == 0, err
        return out

    return worked


def test_a_plan_is_a_valid_document_that_adds_up(run):
    plan = json.loads(run("plan", "softmax", "--hw", "h100", "--format", "json"))
    jsonschema.validate(plan, load_schema("plan"))
    assert plan["status"] == "OPTIMAL"
    assert plan["objective_ns"] == plan["bound_ns"] == sum(group["latency_ns"] for group in plan["groups"])
    assert plan["gap"] == 0
    assert plan["dram_bytes"] == sum(group["dram_bytes"] for group in plan["groups"])
    # one kernel that reads and writes 8192 x 4096 values of 4 bytes once
    assert [group["template"] for group in plan["groups"]] == ["row"]
    assert plan["dram_bytes"] == 2 * 8192 * 4096 * 4


def test_the_definitions_in_a_plan_are_of_their_schemas(run):
    plan = json.loads(run("plan", "softmax", "--hw", "h100", "--format", "json"))
    jsonschema.validate(plan["graph"]["definition"], load_schema("graph"))
    jsonschema.validate(plan["hardware"]["definition"], load_schema("hardware"))


def without_seconds(text):
    document = json.loads(text)
    del document["seconds"]
    return json.dumps(document, sort_keys=False)


def test_two_processes_with_other_hash_seeds_and_workers_write_the_same_bytes(tmp_path):
    texts = []
    for seed, workers in (("1", "1"), ("2", "2")):
        done = subprocess.run(
            [sys.executable, "-m", "fusesolve", "plan", "layer_norm", "--hw", "a100", "--format", "json", "--workers",
             workers],
            capture_output=True, text=True, check=True, timeout=120, env=os.environ | {"PYTHONHASHSEED": seed},
        )  # fmt: skip
        texts.append(without_seconds(done.stdout))
    assert texts[0] == texts[1]


def test_pins_change_the_plan_and_are_obeyed(run, tmp_path):
    def kernels_of(*options):
        plan = json.loads(run("plan", "softmax", "--hw", "h100", "--format", "json", *options))
        return [set(group["nodes"]) for group in plan["groups"]]

    assert len(kernels_of()) == 1
    assert not any({"centred", "y"} <= nodes for nodes in kernels_of("--apart", "centred,y"))
    (tmp_path / "pins.json").write_text('{"apart": [["centred", "y"]]}')
    assert not any({"centred", "y"} <= nodes for nodes in kernels_of("--pins", tmp_path / "pins.json"))


def test_a_profile_of_three_lines_changes_the_plan(run, tmp_path):
    memory = "memory: {dram: {bandwidth: 335 GB/s, sustained: 90 %}}"
    (tmp_path / "slow.yaml").write_text(f"format: fusesolve-hardware/1\nextends: h100\nname: slow\n{memory}\n")
    fast = json.loads(run("plan", "softmax", "--hw", "h100", "--format", "json"))
    slow = json.loads(run("plan", "softmax", "--hw", tmp_path / "slow.yaml", "--format", "json"))
    assert slow["objective_ns"] > 5 * fast["objective_ns"]


def test_the_python_call_is_the_command(run):
    import fusesolve

    plan = fusesolve.plan("softmax", "h100", recompute=False)
    told = json.loads(run("plan", "softmax", "--hw", "h100", "--no-recompute", "--format", "json"))
    assert plan.objective_ns == told["objective_ns"]
    assert plan.options == told["options"]
    # importing the modules of these names must not hide the functions
    from fusesolve.plan import Plan

    assert isinstance(plan, Plan)
    assert callable(fusesolve.plan)
    assert callable(fusesolve.explain)


def test_progress_is_a_live_line_on_a_terminal_and_leaves_nothing_on_stdout():
    leader, follower = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "fusesolve", "plan", "gpt2_block", "--hw", "h100", "--format", "json"],
        stdout=subprocess.PIPE, stderr=follower, text=True, env=os.environ | {"TERM": "xterm"},
    )  # fmt: skip
    os.close(follower)
    out, _ = child.communicate(timeout=120)
    seen = b""
    try:
        while chunk := os.read(leader, 65536):
            seen += chunk
    except OSError:
        pass  # the terminal's other side is closed: everything was read
    os.close(leader)
    assert child.returncode == 0
    assert json.loads(out)["status"] == "OPTIMAL"
    text = seen.decode()
    assert "enumerate" in text
    assert "no GRAPH" not in text


def test_the_list_of_profiles(run):
    rows = json.loads(run("profiles", "list", "--format", "json"))["profiles"]
    names = {row["file"] for row in rows}
    assert {"a100", "h100", "h200", "t4", "mi300x", "mobile-npu", "ethos-u55-128"} <= names
    (h100,) = [row for row in rows if row["file"] == "h100"]
    assert (h100["units"], h100["dram_bandwidth"]) == (132, pytest.approx(3.35e12, rel=0.01))
    table = run("profiles", "list")
    assert all(name in table for name in names)


def test_one_profile(run):
    table = run("profiles", "show", "h100")
    (line,) = [line for line in table.splitlines() if line.startswith("memory.dram.bandwidth")]
    assert "3.35 TB/s" in line
    definition = json.loads(run("profiles", "show", "h100", "--format", "json"))
    jsonschema.validate(definition, load_schema("hardware"))


def test_this_machine_as_a_profile_checks_clean(run, tmp_path):
    run("profiles", "detect", "-o", tmp_path / "here.yaml")
    assert run("profiles", "check", tmp_path / "here.yaml") == f"{tmp_path / 'here.yaml'}: ok\n"
    jsonschema.validate(yaml.safe_load((tmp_path / "here.yaml").read_text()), load_schema("hardware"))


def test_the_list_of_graphs(run):
    rows = json.loads(run("graph", "list", "--format", "json"))["graphs"]
    names = {row["name"] for row in rows}
    assert {"softmax", "gpt2_block", "resnet50_bottleneck"} <= names
    assert all(row["primitives"] >= row["operators"] >= 1 for row in rows)
    assert "gpt2_block" in run("graph", "list")


def test_one_graph(run):
    shown = json.loads(run("graph", "show", "softmax", "--format", "json"))
    assert shown["values"]["x"] == "f32[8192,4096]"
    assert [node["op"] for node in shown["nodes"]] == ["reduce_max", "sub", "exp", "reduce_sum", "div"]
    table = run("graph", "show", "softmax")
    assert "5 primitives of 5 operators" in table


@pytest.mark.parametrize("suffix", [".yaml", ".json"])
@pytest.mark.parametrize("name", ["softmax", "gpt2_block", "conv_bn_relu"])
def test_a_converted_graph_is_the_same_graph(run, tmp_path, name, suffix):
    copy = tmp_path / f"copy{suffix}"
    run("graph", "convert", name, "-o", copy)
    assert copy.read_text().startswith("{") is (suffix == ".json")
    shown = json.loads(run("graph", "show", name, "--format", "json"))
    copied = json.loads(run("graph", "show", copy, "--format", "json"))
    assert [node["op"] for node in copied["nodes"]] == [node["op"] for node in shown["nodes"]]
    assert copied["values"] == shown["values"]


def test_the_list_of_schemas(run):
    listing = run("schema")
    assert "fusesolve-plan/1" in listing
    assert {line.split()[0] for line in listing.splitlines()} >= {"plan", "graph", "hardware", "explanation"}
    assert json.loads(run("schema", "graph")) == load_schema("graph")
