"""JSON Schemas (draft 2020-12) of every format that fusesolve reads or writes, shipped as files in the package."""

import json
from importlib.resources import files
from typing import Any

from fusesolve.errors import InputError

# Name of the schema -> what it describes. The file is `fusesolve/schemas/NAME.json`.
SCHEMAS: dict[str, str] = {
    "plan": "fusesolve-plan/1: a fusion plan with its proof (JSON)",
    "graph": "fusesolve-graph/1: a graph of operators (YAML or JSON)",
    "hardware": "fusesolve-hardware/1: a hardware profile (YAML)",
    "partition": "fusesolve-partition/1: how another compiler grouped a graph (JSON)",
    "pins": "fusesolve-pins/1: operators that must or must not share a kernel (JSON)",
    "explanation": "fusesolve-explanation/1: why operators share a kernel or do not (JSON)",
    "compare": "fusesolve-compare/1: strategies and partitions side by side (JSON)",
    "diff": "fusesolve-diff/1: two plans told apart (JSON)",
    "validation": "fusesolve-validation/1: predictions against a toolchain or a device (JSON)",
    "accuracy": "fusesolve-accuracy/1: errors of the simulator on measured tables (JSON)",
    "whatif": "one row of a what-if study (CSV), as an object of column name to value",
    "thresholds": "fusesolve-thresholds/1: where the plan changes along a number of the profile (JSON)",
    "search": "fusesolve-search/1: the value of a number with which a plan meets a target (JSON)",
    "sensitivity": "fusesolve-sensitivity/1: what each number of a profile buys (JSON)",
}


def schema_text(name: str) -> str:
    """The schema `name` (a key of SCHEMAS) as JSON text; InputError lists the names where there is no such schema."""
    if name not in SCHEMAS:
        raise InputError(f"there is no schema {name!r}; the schemas are {', '.join(SCHEMAS)}")
    return (files("fusesolve") / "schemas" / f"{name}.json").read_text(encoding="utf-8")


def load_schema(name: str) -> dict[str, Any]:
    """The schema `name` as plain data; InputError as for `schema_text`."""
    document: dict[str, Any] = json.loads(schema_text(name))
    return document
