"""Find, read, inherit, check and build hardware profiles."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from fusesolve.bundled import bundled_dir
from fusesolve.errors import InputError
from fusesolve.hardware import (
    Code,
    Compute,
    Dma,
    Dram,
    Fusion,
    HardwareProfile,
    L1Cache,
    L2Cache,
    Launch,
    Limits,
    Memory,
    Pipe,
    Pipes,
    Registers,
    SharedMemory,
    Tensor,
    replace_leaf,
)
from fusesolve.hardware_yaml.check import Checked, check_definition
from fusesolve.hardware_yaml.strict import LARGEST_FILE, Plain, Problem, parse_strict

_SUFFIXES = ("", ".yaml", ".yml")
_LONGEST_CHAIN = 16
_T = TypeVar("_T")


def load_profile(path_or_name: str) -> HardwareProfile:
    """The profile in the file `path_or_name` if such a file exists, else the bundled one of that name.

    A bundled name may carry `.yaml`. Raises InputError: no such profile (with near matches), or all problems of the
    file, one line each.
    """
    path = find_profile(path_or_name)
    return parse_profile(_read(path), str(path))


def find_profile(path_or_name: str, origin: Path | None = None) -> Path:
    """Where the profile `path_or_name` is: a file, or a bundled one.

    Files are looked for in the current folder or, where the file `origin` extends them, beside that. A bare name never
    means `origin` itself: `h100.yaml` may extend the bundled `h100`. Raises InputError with near matches where there is
    none.
    """
    if _is_file(file := (origin.parent if origin else Path()) / path_or_name):
        return file
    bundled = bundled_dir("hardware")
    if Path(path_or_name).name == path_or_name:
        for folder in [*([origin.parent] if origin else []), bundled, bundled / "base"]:
            for suffix in _SUFFIXES:
                path = folder / f"{path_or_name}{suffix}"
                if path != origin and _is_file(path):
                    return path
    names = bundled_names()
    close = get_close_matches(path_or_name.lower().removesuffix(".yaml"), names, n=3, cutoff=0.5)
    hint = f"did you mean {', '.join(close)}?" if close else f"bundled are {', '.join(names)}"
    raise InputError(f"no hardware profile '{path_or_name}': no such file and no bundled profile of that name; {hint}")


def _is_file(path: Path) -> bool:
    """Is there such a file? A name that no file system takes, or a folder that is closed to us, is none."""
    try:
        return path.is_file()
    except OSError:
        return False


def bundled_names() -> list[str]:
    """Names of the bundled profiles, sorted; the base files they inherit from are not among them."""
    return sorted(path.stem for path in bundled_dir("hardware").glob("*.yaml"))


def parse_profile(text: str, origin: str) -> HardwareProfile:
    """The profile that a YAML text holds.

    `origin` names it in errors and, where it is a path, is where relative `extends` start. Raises InputError with
    every problem, one per line, after a first line that counts them.
    """
    tree, problems = parse_strict(text, origin)
    chain = [Path(origin).resolve()]
    definition = _resolve(tree, problems, Path(origin), chain)
    return _build(definition, problems, origin)


def profile_from_definition(definition: Mapping[str, Plain], origin: str) -> HardwareProfile:
    """The profile of a resolved plain definition (from a plan, or after `replace_leaf`); raises as `parse_profile`."""
    if "extends" in definition:
        raise InputError(f"{origin}: $.extends: a resolved definition cannot inherit")
    return _build(definition, [], origin)


def with_value(profile: HardwareProfile, path: str, value: Plain) -> HardwareProfile:
    """`profile` with the leaf at dotted `path` (`memory.dram.bandwidth`) set to `value`, checked again as a whole."""
    changed = replace_leaf(profile.definition, path, value)
    return profile_from_definition(changed, f"{profile.name} with {path} = {value}")


def _read(path: Path) -> str:
    """The text of a profile file; InputError where it is too large, unreadable or not UTF-8."""
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise InputError(f"{path}: {path.stat().st_size} bytes: the limit is {LARGEST_FILE}, is this a profile?")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot read the hardware profile: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text (byte {error.start}): is this a hardware profile?") from error


def _resolve(tree: dict[str, Plain], problems: list[Problem], origin: Path, chain: list[Path]) -> dict[str, Plain]:
    """`tree` merged over all that it inherits; the key `extends` is gone."""
    own = {key: value for key, value in tree.items() if key != "extends"}
    if "extends" not in tree:
        return own
    parent = tree["extends"]
    if not isinstance(parent, str):
        problems.append(Problem("$.extends", f"expected the name or path of a profile, got {parent!r}"))
        return own
    path = find_profile(parent, origin)
    if path.resolve() in chain:
        names = " -> ".join(step.name for step in [*chain, path])
        raise InputError(f"{origin}: $.extends: profiles inherit in a circle: {names}")
    if len(chain) >= _LONGEST_CHAIN:
        raise InputError(f"{origin}: $.extends: more than {_LONGEST_CHAIN} profiles inherit from each other")
    chain.append(path.resolve())
    inherited, found = parse_strict(_read(path), str(path))
    problems.extend(Problem(f"{path.name}: {problem.path}", problem.message) for problem in found)
    return _merge(_resolve(inherited, problems, path, chain), own)


def _merge(base: Mapping[str, Plain], over: Mapping[str, Plain]) -> dict[str, Plain]:
    """`base` with the keys of `over`: blocks merge, leaves replace, null takes an inherited key away."""
    result = dict(base)
    for key, value in over.items():
        held = result.get(key)
        if value is None and key in result:
            del result[key]
        elif isinstance(held, Mapping) and isinstance(value, Mapping) and not {"value"} & (held.keys() | value.keys()):
            result[key] = _merge(held, value)
        else:
            result[key] = value
    return result


def _build(definition: Mapping[str, Plain], problems: list[Problem], origin: str) -> HardwareProfile:
    """The profile of a resolved definition, or one InputError with all problems."""
    checked = check_definition(definition)
    found = problems + checked.problems
    if found:
        lines = dict.fromkeys(str(problem) for problem in found)
        count = f"{len(lines)} problem{'s' if len(lines) > 1 else ''}"
        raise InputError("\n  ".join([f"{origin}: {count} in the hardware profile", *lines]))
    return _profile(checked)


def _profile(checked: Checked) -> HardwareProfile:
    """The dataclasses of a checked definition."""
    values = checked.values
    text = json.dumps(checked.definition, separators=(",", ":"), sort_keys=True, ensure_ascii=True)
    return HardwareProfile(
        name=values["name"],
        vendor=values["vendor"],
        kind=values["kind"],
        description=values.get("description"),
        compute_capability=values.get("compute_capability"),
        compute=_compute(values),
        registers=_part(Registers, "registers", values),
        memory=_memory(values),
        limits=_part(Limits, "limits", values),
        code=_part(Code, "code", values),
        launch=_part(Launch, "launch", values) or Launch(),
        dma=_part(Dma, "dma", values),
        fusion=_part(Fusion, "fusion", values),
        calibration=checked.constants,
        uncalibrated=checked.uncalibrated,
        sources=checked.sources,
        definition=checked.definition,
        sha256=hashlib.sha256(text.encode()).hexdigest(),
    )


def _part(kind: type[_T], prefix: str, values: Mapping[str, Any], **given: Any) -> _T | None:
    """A block dataclass from the leaves at `prefix`; None where there are none."""
    names = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]  # every block is a dataclass
    found = {name: values[f"{prefix}.{name}"] for name in names if f"{prefix}.{name}" in values}
    return kind(**found, **given) if found or any(given.values()) else None


def _rates(prefix: str, values: Mapping[str, Any]) -> dict[str, float]:
    """The per-clock table at `prefix`, by element type."""
    start = f"{prefix}.per_clock."
    return {path.removeprefix(start): float(rate) for path, rate in values.items() if path.startswith(start)}


def _compute(values: Mapping[str, Any]) -> Compute:
    """The compute block."""
    pipes = {name: _rates(f"compute.pipes.{name}", values) for name in ("fma", "alu", "sfu")}
    tensor = _rates("compute.tensor", values)
    return Compute(
        units=values["compute.units"],
        clock=values["compute.clock"],
        sustained_clock=values["compute.sustained_clock"],
        pipes=Pipes(**{name: Pipe(per_clock=rates) for name, rates in pipes.items() if rates}),
        tensor=_part(Tensor, "compute.tensor", values, per_clock=tensor) if tensor else None,
    )


def _memory(values: Mapping[str, Any]) -> Memory:
    """The memory block; DRAM is always there."""
    dram = _part(Dram, "memory.dram", values)
    assert dram is not None
    return Memory(
        dram=dram,
        shared=_part(SharedMemory, "memory.shared", values),
        l1=_part(L1Cache, "memory.l1", values),
        l2=_part(L2Cache, "memory.l2", values),
    )
