"""The schemas are sound, complete, and agree with the code that reads and writes the formats."""

import json
from importlib.resources import files

import jsonschema
import pytest
import yaml

from fusesolve.bundled import bundled_dir
from fusesolve.errors import InputError
from fusesolve.hardware_yaml.schema import LEAVES
from fusesolve.schema import SCHEMAS, load_schema, schema_text

GRAPHS, HARDWARE = bundled_dir("graphs"), bundled_dir("hardware")


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_schema_is_a_schema(name):
    schema = load_schema(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["title"]
    assert schema["$id"] == f"urn:fusesolve:schema:{name}"
    assert schema_text(name).endswith("}\n")


def test_every_file_is_in_the_table():
    names = {path.name.removesuffix(".json") for path in (files("fusesolve") / "schemas").iterdir()}
    assert names == set(SCHEMAS)


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(InputError, match=r"no schema 'plam'.*plan, graph, hardware"):
        schema_text("plam")


def test_the_hardware_schema_has_every_key_of_the_loader():
    for path in LEAVES:
        node = load_schema("hardware")
        for key in path.removesuffix(".*").split("."):
            node = node["properties"][key]
        assert not path.endswith(".*") or isinstance(node["additionalProperties"], dict), path


def test_the_hardware_schema_has_no_key_that_the_loader_refuses():
    known = {path.removesuffix(".*") for path in LEAVES} | {"extends", "calibration"}
    wrong = [path for path in _leaves(load_schema("hardware"), "") if path not in known]
    assert not wrong


def _leaves(node, prefix):
    for key, child in node["properties"].items():
        path = f"{prefix}{key}"
        if child.get("properties"):
            yield from _leaves(child, f"{path}.")
        else:
            yield path


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("{format: fusesolve-hardware/1, extends: h100, name: wide, memory: {shared: {per_unit: 456 KiB}}}", True),
        ("{format: fusesolve-hardware/1, memory: {dram: {bandwidth: {value: 4 TB/s, source: what-if}}}}", True),
        ("{format: fusesolve-hardware/1, memory: {dram: {bandwidth: 4 TB}}}", False),
        ("{format: fusesolve-hardware/1, memory: {dram: {bandwith: 4 TB/s}}}", False),
        ("{format: fusesolve-hardware/2, name: x}", False),
        ("{format: fusesolve-hardware/1, kind: tpu}", False),
    ],
)
def test_the_hardware_schema_judges_profiles(text, good):
    validator = jsonschema.Draft202012Validator(load_schema("hardware"))
    assert validator.is_valid(yaml.safe_load(text)) is good


@pytest.mark.parametrize(
    ("change", "good"),
    [
        ({}, True),
        ({"groups": [[], ["a"]]}, True),
        ({"target": "cuda", "duplicated": {"a": 2}, "unassigned": ["v"], "kernels": 3}, True),
        ({"groups": ["a"]}, False),
        ({"format": "fusesolve-partition/2"}, False),
        ({"peer": None}, False),
    ],
)
def test_the_partition_schema_judges_partitions(change, good):
    document = {"format": "fusesolve-partition/1", "peer": "xla", "groups": [["a", "b"]]} | change
    assert jsonschema.Draft202012Validator(load_schema("partition")).is_valid(json.loads(json.dumps(document))) is good


@pytest.mark.parametrize(
    ("document", "good"),
    [
        ({"together": [["a", "b"]]}, True),
        ({"format": "fusesolve-pins/1", "apart": [["a", "b", "c"]]}, True),
        ({"together": [["a"]]}, False),
        ({"together": [["a", "a"]]}, False),
        ({"together": "a,b"}, False),
        ({"with": []}, False),
    ],
)
def test_the_pins_schema_judges_pins(document, good):
    assert jsonschema.Draft202012Validator(load_schema("pins")).is_valid(document) is good


@pytest.mark.parametrize("path", sorted(GRAPHS.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_bundled_graph_is_as_the_schema_says(path):
    jsonschema.validate(yaml.safe_load(path.read_text()), load_schema("graph"))


@pytest.mark.parametrize("path", sorted(HARDWARE.rglob("*.yaml")), ids=lambda path: path.stem)
def test_every_bundled_profile_is_as_the_schema_says(path):
    jsonschema.validate(yaml.safe_load(path.read_text()), load_schema("hardware"))


@pytest.mark.parametrize(
    "change",
    [
        {"format": "fusesolve-graph/2"},
        {"ops": ["relu(x)"]},
        {"inputs": ["x"]},
        {"outputs": []},
        {"ops": "y = relu(x)"},
    ],
    ids=str,
)
def test_the_graph_schema_refuses_what_is_no_graph(change):
    document = {
        "format": "fusesolve-graph/1", "inputs": ["x: f32[8; alias_out=y]"], "ops": ["y = relu(x)"], "outputs": ["y"],
    }  # fmt: skip
    validator = jsonschema.Draft202012Validator(load_schema("graph"))
    assert validator.is_valid(document)
    assert not validator.is_valid(document | change)
