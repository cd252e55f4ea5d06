"""The report on an explanation."""

import json

import jsonschema
import pytest

from fusesolve.report.explanation import explanation_table
from fusesolve.report.json import format_json
from fusesolve.schema import load_schema


def document(**changes):
    base = {
        "format": "fusesolve-explanation/1",
        "between": ["ln", "matmul"],
        "together_ns": 42_000,
        "apart_ns": 50_000,
        "delta_ns": -8_000,
        "because": [
            {"term": "dram", "delta_ns": -6_000, "message": "the normalised rows are not written and read back"},
            {"term": "launch", "delta_ns": -2_400, "message": "one launch less"},
            {"term": "fma", "delta_ns": 400, "message": "the prologue is computed again for each tile"},
        ],
        "rule": None,
        "numbers": {},
        "lever": None,
    }
    return base | changes


def show(**changes):
    return explanation_table(document(**changes), width=100, colour=False)


def test_a_gain_is_told_term_by_term():
    lines = [" ".join(line.split()) for line in show().splitlines()]
    assert lines[0] == "between ln and matmul: together saves 8 us"
    assert "dram -6 us the normalised rows are not written and read back" in lines
    assert "fma +400 ns the prologue is computed again for each tile" in lines
    assert "together 42 us" in lines
    assert "difference -8 us" in lines


@pytest.mark.parametrize(
    ("delta", "verdict"), [(8_000, "together costs 8 us"), (0, "together and apart cost the same")]
)
def test_the_verdict_has_the_right_sign(delta, verdict):
    assert show(delta_ns=delta).splitlines()[0].endswith(verdict)


def test_a_refusal_names_rule_numbers_and_lever():
    text = show(
        together_ns=None, delta_ns=None, because=[], rule="shared-memory-per-block",
        numbers={"need": 300_000, "limit": 232_448, "message": "too much"}, lever="a smaller tile",
    )  # fmt: skip
    assert "they cannot share a kernel (shared-memory-per-block)" in text
    assert "need 300000, limit 232448\n" in text
    assert "because  too much" in text
    assert "a smaller tile" in text
    assert "None" not in text


def test_a_kernel_is_named_by_its_number():
    plain = document(group=3)
    del plain["between"]
    assert explanation_table(plain, width=80, colour=False).startswith("kernel 3: together saves 8 us")


def test_the_schema_takes_exactly_one_subject():
    schema = load_schema("explanation")
    jsonschema.validate(json.loads(format_json(document())), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document(group=1), schema)
    neither = document()
    del neither["between"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(neither, schema)
