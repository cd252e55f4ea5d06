"""The JSON Schema of hardware profiles, made from the loader's table.

`python -m fusesolve.report.profile_schema FILE` writes it (`make docs`).
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from fusesolve.hardware_yaml.schema import CONSTANT_SHARES, CONSTANTS, DTYPES, FORMAT, KINDS, LEAVES, Leaf, Shape
from fusesolve.report.json import format_json
from fusesolve.units import Dimension

Schema: TypeAlias = dict[str, Any]

ABOUT = (
    "What a device can do. Quantities are text with a unit, such as '3.35 TB/s', or bare counts; any leaf may be "
    "{value, source, accuracy, note}, or null to take an inherited value away. `extends` inherits from another profile."
)
TEXT: Schema = {"type": "string", "minLength": 1}
REMARK: Schema = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
# The units that each dimension is written in (fusesolve.units).
UNITS: Mapping[Dimension, str] = {
    Dimension.BYTES: "([kKMGTPE]|[KMGT]i)?B",
    Dimension.BANDWIDTH: "([kKMGTPE]|[KMGT]i)?B/s",
    Dimension.SECONDS: "(m|u|µ|μ|n|p)?s",
    Dimension.HERTZ: "[kKMGTPE]?Hz",
    Dimension.FLOPS: "[kKMGTPE]?(FLOP/s|FLOPS|OP/s|OPS)",
}
NUMBER = r"^\s*\+?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*"


def profile_schema() -> Schema:
    """The schema of `fusesolve-hardware/1`: every key of the loader's table and no other."""
    root = _block()
    forms: dict[str, Schema] = {}
    for path, leaf in LEAVES.items():
        _put(root, path, _reference(leaf, forms))
    root["properties"] |= {
        "format": {"const": FORMAT},
        "kind": {"enum": list(KINDS)},
        "extends": TEXT | {"description": "Name or path of the profile whose keys this one inherits"},
        "calibration": _calibration(forms),
    }
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "urn:fusesolve:schema:hardware",
        "title": "Hardware profile", "description": ABOUT,
    }  # fmt: skip
    return {**head, **root, "required": ["format"], "$defs": dict(sorted(forms.items()))}


def _block() -> Schema:
    return {"type": ["object", "null"], "properties": {}, "additionalProperties": False}


def _put(root: Schema, path: str, leaf: Schema) -> None:
    """Place a leaf at its dotted path, making the blocks on the way; `*` stands for an element type."""
    *blocks, last = path.split(".")
    node = root
    for name in blocks:
        node = node["properties"].setdefault(name, _block())
    if last == "*":
        node["propertyNames"] = {"enum": sorted(DTYPES)}
        node["additionalProperties"] = leaf
    else:
        node["properties"][last] = leaf


def _reference(leaf: Leaf, forms: dict[str, Schema]) -> Schema:
    """A reference to the form of a leaf, which is added to `forms` where it is new."""
    measured = leaf.shape in (Shape.WHOLE, Shape.REAL)
    name = leaf.dimension.name.lower() if measured else leaf.shape.value
    if measured and leaf.share_of:
        name += "_or_share"
    forms.setdefault(name, _leaf(_value(leaf, measured=measured)))
    return {"$ref": f"#/$defs/{name}"}


def _leaf(value: Schema) -> Schema:
    said = {
        "type": "object",
        "properties": {"value": value, "source": REMARK, "accuracy": REMARK, "note": REMARK},
        "required": ["value"],
        "additionalProperties": False,
    }
    return {"anyOf": [value, said, {"type": "null"}]}


def _value(leaf: Leaf, *, measured: bool) -> Schema:
    if measured:
        return _quantity(leaf.dimension, share=leaf.share_of is not None)
    if leaf.shape is Shape.TEXT:
        return TEXT
    if leaf.shape is Shape.FLAG:
        return {"type": "boolean"}
    item: Schema = TEXT if leaf.shape is Shape.TEXTS else {"type": ["integer", "string"]}
    return {"type": "array", "items": item, "minItems": 1}


def _quantity(dimension: Dimension, *, share: bool) -> Schema:
    """Text with a unit; where a bare number is one (counts, ratios), a number or text of one."""
    unit = UNITS.get(dimension)
    if unit is None:
        pattern = f"{NUMBER}(%\\s*)?$" if share or dimension is Dimension.RATIO else f"{NUMBER}$"
        return {"type": ["number", "string"], "minimum": 0, "pattern": pattern}
    return {"type": "string", "pattern": f"{NUMBER}({unit}|%)\\s*$" if share else f"{NUMBER}({unit})\\s*$"}


def _calibration(forms: dict[str, Schema]) -> Schema:
    """Fitted constants, each a reference to the form of its dimension."""
    constants: Schema = {"uncalibrated": {"type": "boolean"}}
    for name, dimension in CONSTANTS.items():
        share = name in CONSTANT_SHARES
        form = f"fitted_{dimension.name.lower()}{'_or_share' if share else ''}"
        forms.setdefault(form, _fitted(dimension, share=share))
        constants[name] = {"$ref": f"#/$defs/{form}"}
    return {"type": ["object", "null"], "properties": constants, "additionalProperties": False}


def _fitted(dimension: Dimension, *, share: bool) -> Schema:
    """A quantity, or `{value, source, rows, error, note}`."""
    value = _quantity(dimension, share=share)
    properties = {
        "value": value, "source": REMARK, "rows": {"type": "integer", "minimum": 0},
        "error": _quantity(Dimension.RATIO, share=False), "note": REMARK,
    }  # fmt: skip
    fitted = {"type": "object", "properties": properties, "required": ["value"], "additionalProperties": False}
    return {"anyOf": [value, fitted, {"type": "null"}]}


def write_schema(arguments: Sequence[str]) -> None:
    """Write the schema to the one file named in `arguments`."""
    (target,) = arguments
    Path(target).write_text(format_json(profile_schema()), encoding="utf-8")


if __name__ == "__main__":
    write_schema(sys.argv[1:])
