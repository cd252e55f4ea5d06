"""The schemas are sound, complete, and agree with the code that reads and writes the formats."""

import json
from functools import cache
from importlib.resources import files

import jsonschema
import pytest
import yaml

from fusesolve.bundled import bundled_dir
from fusesolve.errors import InputError
from fusesolve.report.profile_schema import profile_schema, write_schema
from fusesolve.schema import SCHEMAS, load_schema, schema_text

GRAPHS, HARDWARE = bundled_dir("graphs"), bundled_dir("hardware")


@cache
def validator(name):
    return jsonschema.Draft202012Validator(load_schema(name))


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


def test_the_hardware_schema_is_current():
    assert load_schema("hardware") == profile_schema(), "the loader's table has changed: run `make docs`"


def test_the_hardware_schema_is_written_to_the_file_named(tmp_path):
    write_schema([str(tmp_path / "schema.json")])
    assert (tmp_path / "schema.json").read_text() == schema_text("hardware")


@pytest.mark.parametrize(
    ("path", "value", "good"),
    [
        ("memory.dram.bandwidth", "4 TB/s", True),
        ("memory.dram.bandwidth", "4TB/s", True),
        ("memory.dram.bandwidth", {"value": "4 TB/s", "source": ["a", "b"], "accuracy": "vendor_doc"}, True),
        ("memory.dram.bandwidth", None, True),
        ("memory.dram.bandwidth", "4 TB", False),
        ("memory.dram.bandwidth", 4, False),
        ("memory.dram.bandwidth", {"source": "a"}, False),
        ("memory.dram.bandwidth", {"value": "4 TB/s", "because": "a"}, False),
        ("memory.dram.sustained", "90 %", True),
        ("memory.l2.knee", "78 %", True),
        ("launch.stream", "2.4us", True),
        ("launch.stream", "78 %", False),
        ("compute.units", 132, True),
        ("compute.units", -1, False),
        ("compute.units", "many", False),
        ("compute.pipes.fma.per_clock.f32", 128, True),
        ("compute.pipes.fma.per_clock.f33", 128, False),
        ("compute.tensor.layouts", ["nn", "nt"], True),
        ("compute.tensor.layouts", "nn", False),
        ("calibration.gemm_t0", {"value": "1.87 us", "source": "fit", "rows": 100, "error": 0.05}, True),
        ("calibration.gemm_t0", 1.87, False),
        ("calibration.gemm_t1", "1.87 us", False),
    ],
    ids=str,
)
def test_the_hardware_schema_judges_values(path, value, good):
    document = {"format": "fusesolve-hardware/1"}
    *blocks, last = path.split(".")
    node = document
    for block in blocks:
        node = node.setdefault(block, {})
    node[last] = value
    assert validator("hardware").is_valid(document) is good


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
    assert validator("hardware").is_valid(yaml.safe_load(text)) is good


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
    assert validator("partition").is_valid(json.loads(json.dumps(document))) is good


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
    assert validator("pins").is_valid(document) is good


@pytest.mark.parametrize("path", sorted(GRAPHS.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_bundled_graph_is_as_the_schema_says(path):
    validator("graph").validate(yaml.safe_load(path.read_text()))


@pytest.mark.parametrize("path", sorted(HARDWARE.rglob("*.yaml")), ids=lambda path: path.stem)
def test_every_bundled_profile_is_as_the_schema_says(path):
    validator("hardware").validate(yaml.safe_load(path.read_text()))


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
    assert validator("graph").is_valid(document)
    assert not validator("graph").is_valid(document | change)
