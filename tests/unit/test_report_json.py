"""JSON is strict, deterministic and as the schema says."""

import json

import jsonschema
import pytest

from fusesolve.errors import InternalError
from fusesolve.report.json import format_json
from fusesolve.schema import load_schema


def test_a_plan_is_as_its_schema_says(plan_with):
    document = json.loads(format_json(plan_with().to_dict()))
    jsonschema.validate(document, load_schema("plan"))
    assert document["format"] == "fusesolve-plan/1"
    assert list(document)[:3] == ["format", "fusesolve_version", "graph"]


def test_an_infeasible_plan_is_as_its_schema_says(infeasible):
    document = json.loads(format_json(infeasible.to_dict()))
    jsonschema.validate(document, load_schema("plan"))
    assert document["groups"] == []
    assert document["gap"] is None


@pytest.mark.parametrize(
    "change",
    [
        {"status": "GOOD"},
        {"status": "OPTIMAL", "gap": None},
        {"status": "INFEASIBLE"},
        {"objective_ns": None},
        {"objective_ns": 1.5},
        {"gap": -0.1},
    ],
    ids=str,
)
def test_the_schema_refuses_what_a_plan_cannot_be(plan_with, change):
    document = json.loads(format_json(plan_with().to_dict())) | change
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, load_schema("plan"))


def test_text_ends_with_one_newline_keeps_the_order_and_is_ascii():
    text = format_json({"b": 1, "a": "µs"})
    assert text == '{\n  "b": 1,\n  "a": "\\u00b5s"\n}\n'
    assert json.loads(text) == {"b": 1, "a": "µs"}


@pytest.mark.parametrize(
    "bad", [float("nan"), float("inf"), -float("inf"), {1, 2}, object()], ids=["nan", "inf", "-inf", "set", "object"]
)
def test_what_json_cannot_hold_is_a_bug_not_a_file(bad):
    with pytest.raises(InternalError, match="cannot be written as JSON"):
        format_json({"x": [bad]})
