"""A plain definition checked key by key into numbers in base units, with every problem at its `$.path`."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from fusesolve.errors import InputError
from fusesolve.hardware import Constant, Provenance
from fusesolve.hardware_yaml.schema import (
    CONSTANT_SHARES,
    CONSTANTS,
    DEFAULTS,
    DTYPES,
    FORMAT,
    KINDS,
    LEAVES,
    Leaf,
    Need,
    Shape,
    known_children,
)
from fusesolve.hardware_yaml.strict import Plain, Problem
from fusesolve.units import Dimension, has_unit, parse_count, parse_quantity

_LEAF_KEYS = ("value", "source", "accuracy", "note")
_CONSTANT_KEYS = ("value", "source", "rows", "error", "note")


@dataclass(slots=True)
class Checked:
    """What a definition says: `values` by dotted path in base units, with sources, constants and problems.

    `definition` is the input with its keys in the table's order.
    """

    values: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, Provenance] = field(default_factory=dict)
    constants: dict[str, Constant] = field(default_factory=dict)
    definition: dict[str, Plain] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    uncalibrated: bool = False

    def complain(self, path: str, message: str) -> None:
        """Note a problem at dotted `path` ("" for the whole file)."""
        self.problems.append(Problem(f"$.{path}" if path else "$", message))


def check_definition(definition: Mapping[str, Plain]) -> Checked:
    """Check every key and number of a resolved definition; problems are collected, nothing is raised."""
    checked = Checked()
    body = {key: value for key, value in definition.items() if key != "calibration"}
    checked.definition = _block(checked, "", body)
    if "calibration" in definition:
        _calibration(checked, definition["calibration"])
    _head(checked)
    _shares(checked)
    _required(checked)
    if not checked.problems:
        _defaults(checked)
        _relations(checked)
    return checked


def _block(checked: Checked, prefix: str, block: Mapping[str, Plain]) -> dict[str, Plain]:
    """Check the keys of one block; returns it in the table's order."""
    known = known_children(prefix)
    kept: dict[str, Plain] = {}
    for key, value in block.items():
        path = f"{prefix}.{key}" if prefix else key
        if "*" in known:
            if key in DTYPES:
                kept[key] = _leaf(checked, path, LEAVES[f"{prefix}.*"], value)
            else:
                checked.complain(path, f"unknown element type '{key}'{_near(key, DTYPES)}")
        elif key not in known:
            checked.complain(path, f"unknown key '{key}'{_near(key, known)}")
        elif not known[key]:
            kept[key] = _leaf(checked, path, LEAVES[path], value)
        elif isinstance(value, Mapping):
            kept[key] = _block(checked, path, value)
        else:
            checked.complain(path, f"expected a block ({', '.join(known_children(path))}), got {value!r}")
    order = list(known) if "*" not in known else sorted(kept)
    return {key: kept[key] for key in order if key in kept}


def _near(key: str, known: Iterable[str]) -> str:
    """A hint at the names that look like `key`, or at what there is."""
    names = sorted(known)
    close = get_close_matches(key, names, n=2, cutoff=0.6)
    return f": did you mean {' or '.join(map(repr, close))}?" if close else f": known here are {', '.join(names)}"


def _leaf(checked: Checked, path: str, leaf: Leaf, given: Plain) -> Plain:
    """Check one leaf, bare or `{value, source, accuracy, note}`; returns it in its stable form."""
    raw: Plain = given
    if isinstance(given, Mapping):
        for key in given:
            if key not in _LEAF_KEYS:
                checked.complain(f"{path}.{key}", f"unknown key '{key}'{_near(key, _LEAF_KEYS)}")
        if "value" not in given:
            checked.complain(path, f"expected a number or {{value: ..., source: ...}}, got keys {sorted(given)}")
            return dict(given)
        raw = given["value"]
        said = {key: _said(checked, f"{path}.{key}", given.get(key)) for key in _LEAF_KEYS[1:]}
        checked.sources[path] = Provenance(**said)
    try:
        checked.values[path] = _value(leaf, raw)
    except InputError as error:
        checked.complain(path, str(error))
    return {key: given[key] for key in _LEAF_KEYS if key in given} if isinstance(given, Mapping) else given


def _said(checked: Checked, path: str, text: Plain) -> str | None:
    """The text of a source, accuracy or note (a list of sources is joined); None where there is none."""
    if text is None or isinstance(text, str):
        return text
    if isinstance(text, list) and all(isinstance(item, str) for item in text):
        return ", ".join(text)
    checked.complain(path, f"expected text, got {text!r}")
    return None


def _value(leaf: Leaf, raw: Plain) -> Any:
    """The value of a leaf in base units. Raises InputError without the path."""
    if leaf.shape is Shape.TEXT:
        if not isinstance(raw, str) or not raw.strip():
            raise InputError(f"expected text, got {raw!r}" + (": put it in quotes" if raw is not None else ""))
        return raw
    if leaf.shape is Shape.TEXTS:
        if not isinstance(raw, list) or not all(isinstance(item, str) for item in raw):
            raise InputError(f"expected a list of words, got {raw!r}")
        return tuple(raw)
    if leaf.shape in (Shape.WHOLES, Shape.EXTENTS):
        return _list(leaf, raw)
    if leaf.share_of and has_unit(raw, Dimension.RATIO):
        return _Share(_positive(parse_quantity(raw, Dimension.RATIO), raw, zero=False))
    parse = parse_count if leaf.shape is Shape.WHOLE else parse_quantity
    return _positive(parse(raw, leaf.dimension), raw, zero=leaf.zero)


def _positive(number: float, raw: Plain, *, zero: bool) -> float:
    """`number`, refused where it is 0 and 0 is impossible."""
    if number == 0 and not zero:
        raise InputError(f"{raw!r} is impossible: it must be above 0")
    return number


def _list(leaf: Leaf, raw: Plain) -> tuple[int, ...]:
    """A list of whole quantities, ascending where the leaf asks for it."""
    if not isinstance(raw, list) or not raw:
        raise InputError(f"expected a list of numbers, got {raw!r}")
    numbers = tuple(int(_positive(parse_count(item, leaf.dimension), item, zero=leaf.zero)) for item in raw)
    if leaf.shape is Shape.WHOLES and list(numbers) != sorted(set(numbers)):
        raise InputError(f"expected ascending numbers, got {raw!r}")
    return numbers


@dataclass(frozen=True, slots=True)
class _Share:
    """A leaf given as a share of another one, to be resolved when that one is known."""

    ratio: float


def _calibration(checked: Checked, block: Plain) -> None:
    """Check the calibrated constants; zero is allowed, unknown names are not."""
    if not isinstance(block, Mapping):
        checked.complain("calibration", f"expected constants, got {block!r}")
        return
    kept: dict[str, Plain] = {}
    for name, given in block.items():
        path = f"calibration.{name}"
        if name == "uncalibrated":
            if not isinstance(given, bool):
                checked.complain(path, f"expected true or false, got {given!r}")
            checked.uncalibrated = given is True
            kept[name] = given
        elif name in CONSTANTS:
            kept[name] = _constant(checked, path, name, given)
        else:
            checked.complain(path, f"unknown constant '{name}'{_near(name, [*CONSTANTS, 'uncalibrated'])}")
    order = ["uncalibrated", *CONSTANTS]
    checked.definition["calibration"] = {name: kept[name] for name in order if name in kept}


def _constant(checked: Checked, path: str, name: str, given: Plain) -> Plain:
    """Check one constant: a quantity, or `{value, source, rows, error, note}`."""
    fields: Mapping[str, Plain] = given if isinstance(given, Mapping) else {"value": given}
    for key in fields:
        if key not in _CONSTANT_KEYS:
            checked.complain(f"{path}.{key}", f"unknown key '{key}'{_near(key, _CONSTANT_KEYS)}")
    if "value" not in fields:
        checked.complain(path, "expected a number or {value: ..., source: ..., rows: ..., error: ...}")
        return dict(fields)
    try:
        rows, error = fields.get("rows"), fields.get("error")
        checked.constants[name] = Constant(
            value=_constant_value(checked, name, fields["value"]),
            source=_said(checked, f"{path}.source", fields.get("source")),
            rows=None if rows is None else parse_count(rows, Dimension.COUNT),
            error=None if error is None else parse_quantity(error, Dimension.RATIO),
        )
    except InputError as error_found:
        checked.complain(path, str(error_found))
    if isinstance(given, Mapping):
        checked.sources[path] = Provenance(
            source=_said(checked, f"{path}.source", fields.get("source")),
            note=_said(checked, f"{path}.note", fields.get("note")),
        )
        return {key: given[key] for key in _CONSTANT_KEYS if key in given}
    return given


def _constant_value(checked: Checked, name: str, raw: Plain) -> float:
    """A constant in base units; a percentage is of the leaves that `CONSTANT_SHARES` names. Raises InputError."""
    share = CONSTANT_SHARES.get(name)
    if share is None or not has_unit(raw, Dimension.RATIO):
        return parse_quantity(raw, CONSTANTS[name])
    whole, parts = (checked.values.get(path, 1 if not path else None) for path in (share.of, share.per or ""))
    if not isinstance(whole, int | float) or not isinstance(parts, int | float):
        raise InputError(f"is a share of {share.of}, which is missing or wrong")
    return parse_quantity(raw, Dimension.RATIO) * whole / parts


def _head(checked: Checked) -> None:
    """Check what the format and kind may say."""
    values = checked.values
    if values.get("format", FORMAT) != FORMAT:
        checked.complain("format", f"expected '{FORMAT}', got {values['format']!r}")
    if values.get("kind", "gpu") not in KINDS:
        checked.complain("kind", f"expected one of {', '.join(KINDS)}, got {values['kind']!r}")


def _shares(checked: Checked) -> None:
    """Resolve leaves that are given as a percentage of another one."""
    for path, value in list(checked.values.items()):
        if not isinstance(value, _Share):
            continue
        leaf = LEAVES[path]
        whole = checked.values.get(leaf.share_of or "")
        if not isinstance(whole, int | float):
            del checked.values[path]
            checked.complain(path, f"is a share of {leaf.share_of}, which is missing or wrong")
        else:
            share = (whole - checked.values.get(leaf.less or "", 0)) * value.ratio
            checked.values[path] = int(share) if leaf.shape is Shape.WHOLE else share


def _required(checked: Checked) -> None:
    """Complain of each leaf that the kind, or its own block, needs and that is not given at all."""
    given = {problem.path.removeprefix("$.") for problem in checked.problems} | set(checked.values)
    blocks = {path.rpartition(".")[0] for path in checked.values}
    gpu = checked.values.get("kind") == "gpu"
    for path, leaf in LEAVES.items():
        if path in given or any(path.startswith(f"{problem}.") for problem in given):
            continue
        in_block = path.rpartition(".")[0] in blocks and not path.startswith("launch.")
        if (
            leaf.need is Need.ALWAYS
            or (leaf.need is Need.GPU and (gpu or in_block))
            or (leaf.need is Need.BLOCK and in_block)
        ):
            checked.complain(path, f"missing: {_expected(leaf)}")
    if gpu and not any(path.startswith("compute.pipes.fma.") for path in given):
        checked.complain("compute.pipes.fma.per_clock.f32", "missing: a GPU needs its FMA results per clock and SM")


def _expected(leaf: Leaf) -> str:
    """What a missing leaf should hold."""
    return "expected text" if leaf.shape is Shape.TEXT else f"expected {leaf.dimension.value}"


def _defaults(checked: Checked) -> None:
    """Fill the optional leaves of blocks that are given, each with its reason as its source."""
    values = checked.values
    blocks = {path.rpartition(".")[0] for path in values}
    for path, default in DEFAULTS.items():
        block = path.rpartition(".")[0]
        if path in values or block not in blocks or (path == "launch.graph" and "launch.stream" not in values):
            continue
        values[path] = default.value(lambda name: values[name])
        checked.sources[path] = Provenance(source=f"default: {default.source}", accuracy="estimate")


# No leaf on the left may be larger than the leaf on the right.
_AT_MOST = (
    ("compute.sustained_clock", "compute.clock"),
    ("registers.per_thread_max", "registers.per_unit"),
    ("registers.per_block_max", "registers.per_unit"),
    ("registers.allocation_unit", "registers.per_unit"),
    ("registers.partitions", "registers.per_unit"),
    ("memory.shared.per_block_max", "memory.shared.per_unit"),
    ("memory.shared.reserved_per_block", "memory.shared.per_unit"),
    ("memory.shared.granularity", "memory.shared.per_unit"),
    ("memory.l2.knee", "memory.l2.size"),
    ("memory.dram.sustained", "memory.dram.bandwidth"),
    ("limits.threads_per_block", "limits.threads_per_unit"),
    ("limits.warp_size", "limits.threads_per_block"),
    ("limits.blocks_per_unit", "limits.threads_per_unit"),
)  # fmt: skip


def _relations(checked: Checked) -> None:
    """Complain of numbers that contradict each other."""
    values = checked.values
    for small, large in _AT_MOST:
        if small in values and large in values and values[small] > values[large]:
            checked.complain(small, f"{values[small]:,.6g} is more than {large} = {values[large]:,.6g}: impossible")
    size, threads = values.get("limits.warp_size"), values.get("limits.threads_per_unit")
    if size and threads and values["limits.warps_per_unit"] * size != threads:
        checked.complain(
            "limits.warps_per_unit",
            f"{values['limits.warps_per_unit']} warps of {size} threads are not limits.threads_per_unit = {threads}",
        )
    if values["kind"] != "gpu" and not any(path.startswith("launch.") for path in values):
        checked.complain("launch.dispatch", "missing: expected seconds that one kernel's dispatch takes")
