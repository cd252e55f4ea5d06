"""The plan that a command works on: read from a plan file, or made from a graph and a profile."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fusesolve.cli.options import parse_bindings
from fusesolve.cli.request import DEFAULT_GRAPH, resolve_hardware
from fusesolve.errors import InputError, NoPlanError


def load_plan_document(
    subject: str | None, hardware: str | None, *, force: bool, say: Callable[[str], None],
    bind: Sequence[str] | None, strict: bool, as_dtype: str | None, implementation: str, time_limit: float,
    progress: Any,
) -> Mapping[str, Any]:  # fmt: skip
    """The `fusesolve-plan/1` document of `subject`: a plan file as it is, a graph planned for `hardware` first.

    InputError where a graph comes without a profile, and where `hardware` is not the plan's own profile and not
    `force`; NoPlanError where the graph has no plan.
    """
    document = None if subject is None else read_plan_file(subject)
    if document is not None:
        _check_profile(document, hardware, subject, force=force, say=say)
        return document
    if hardware is None:
        raise InputError("a graph needs a profile to be planned for: give --hw PROFILE, or a plan file")
    if not 0 < time_limit < float("inf"):
        raise InputError(f"--time-limit {time_limit:g}: expected a number above 0")
    if subject is None:
        say(f"no GRAPH given: planning the bundled transformer block {DEFAULT_GRAPH}")
    from fusesolve import plan

    found = plan(
        subject or DEFAULT_GRAPH, resolve_hardware(hardware, say), bind=parse_bindings(bind), strict=strict,
        as_dtype=as_dtype, implementation=implementation, time_limit=time_limit, progress=progress,
    )  # fmt: skip
    if not found.groups:
        raise NoPlanError(f"the graph has no plan on {hardware} ({found.status}): there is nothing to run")
    return found.to_dict()


def read_plan_file(subject: str) -> Mapping[str, Any] | None:
    """The plan document in the file `subject`; None where that is no JSON file with a plan in it."""
    path = Path(subject)
    if path.suffix.lower() != ".json" or not path.is_file():
        return None
    from fusesolve.codegen.planned import is_plan

    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InputError(f"{path}: not JSON: {error}") from error
    return document if is_plan(document) else None


def _check_profile(
    document: Mapping[str, Any], hardware: str | None, subject: str | None, *, force: bool, say: Callable[[str], None]
) -> None:
    """A plan goes with its own profile; another one is refused, or named where the caller insists."""
    if hardware is None:
        return
    from fusesolve.hardware import HardwareProfile
    from fusesolve.hardware_yaml import load_profile

    given = resolve_hardware(hardware, say)
    profile = given if isinstance(given, HardwareProfile) else load_profile(given)
    own = document.get("hardware", {})
    if profile.sha256 == own.get("sha256"):
        return
    if not force:
        raise InputError(
            f"{subject} was planned for {own.get('name')}, --hw names {profile.name}; leave --hw out, plan again, "
            "or --force"
        )
    say(f"{subject} was planned for {own.get('name')}, not for {profile.name}; going on because of --force")
