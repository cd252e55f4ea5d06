"""YAML read strictly: no duplicate keys, aliases, tags, deep nesting or huge files; YAML 1.1 surprises are text.

PyYAML alone silently keeps the last of two equal keys, expands aliases without limit, and reads `on`, `1:30` and
`010` as things that nobody meant. Here a plain scalar is null, true, false, a decimal number, or text.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import yaml

from fusesolve.errors import InputError

Plain: TypeAlias = Any  # None, bool, int, float, str, list[Plain], dict[str, Plain]: what JSON can hold

LARGEST_FILE = 1 << 20  # bytes; the bundled profiles are below 16 KiB
DEEPEST = 16  # levels of nesting; the format needs 6
_INTEGER = re.compile(r"[+-]?(0|[1-9][0-9_]*)", re.ASCII)
_FLOAT = re.compile(r"[+-]?([0-9]+\.[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)
_WORDS: dict[str, Plain] = {"": None, "~": None, "null": None, "true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: where (`$.memory.l2.size`) and what, in one line."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


@dataclass(slots=True)
class _Reader:
    """Builds plain values from a stream of YAML events, collecting problems on the way."""

    events: Iterator[yaml.Event]
    problems: list[Problem] = field(default_factory=list)

    def value(self, event: yaml.Event, path: str, depth: int) -> Plain:
        """The value that starts at `event`."""
        if isinstance(event, yaml.AliasEvent):
            self.problems.append(Problem(path, f"alias '*{event.anchor}' is not allowed: write the value out"))
            return None
        if depth > DEEPEST:
            raise InputError(f"{path[:60]}: nested more than {DEEPEST} levels deep{_line(event)}")
        if getattr(event, "tag", None) not in (None, "!"):
            self.problems.append(Problem(path, "YAML tags are not allowed: remove the '!...'"))
        if isinstance(event, yaml.MappingStartEvent):
            return self._mapping(path, depth)
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(path, depth)
        assert isinstance(event, yaml.ScalarEvent)
        return self._scalar(event, path)

    def _mapping(self, path: str, depth: int) -> dict[str, Plain]:
        """The rest of a mapping, its duplicate and non-text keys reported; the first of equal keys is kept."""
        result: dict[str, Plain] = {}
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            key = self.value(event, path, depth + 1)
            name = str(key)
            value = self.value(next(self.events), f"{path}.{name}", depth + 1)
            if not isinstance(key, str):
                self.problems.append(Problem(path, f"key {_shown(key)} is not text: put it in quotes"))
            elif name in result:
                self.problems.append(Problem(f"{path}.{name}", f"duplicate key{_line(event)}"))
            result.setdefault(name, value)
        return result

    def _sequence(self, path: str, depth: int) -> list[Plain]:
        """The rest of a sequence."""
        result: list[Plain] = []
        while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
            result.append(self.value(event, f"{path}[{len(result)}]", depth + 1))
        return result

    def _scalar(self, event: yaml.ScalarEvent, path: str) -> Plain:
        """A scalar: text if quoted, else null, a truth value, a number or text."""
        text: str = event.value
        if not event.implicit[0]:
            return text
        if text in _WORDS:
            return _WORDS[text]
        if len(text) <= 64 and _INTEGER.fullmatch(text):
            return int(text)
        if len(text) <= 64 and _FLOAT.fullmatch(text):
            return float(text)
        if len(text) > 4096:
            self.problems.append(Problem(path, f"text of {len(text)} characters: the limit is 4096"))
        return text


def parse_strict(text: str, origin: str) -> tuple[dict[str, Plain], list[Problem]]:
    """The mapping that a YAML (or JSON) text holds, and all problems of its form with their `$.path`.

    Raises InputError, naming `origin` and the line, where the text is no YAML at all, too large, too deep, or not one
    mapping.
    """
    if len(text) > LARGEST_FILE:
        raise InputError(f"{origin}: {len(text)} characters: the limit is {LARGEST_FILE}, is this a hardware profile?")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return _parse(iter(yaml.parse(text, Loader=loader)), origin)
    except yaml.YAMLError as error:
        raise InputError(f"{origin}: not valid YAML: {_one_line(error)}") from error
    except InputError as error:
        raise InputError(f"{origin}: {error}") from error


def _parse(events: Iterator[yaml.Event], origin: str) -> tuple[dict[str, Plain], list[Problem]]:
    """The one document of an event stream."""
    reader = _Reader(events)
    next(events)
    if isinstance(next(events), yaml.StreamEndEvent):
        raise InputError("the file is empty: a hardware profile starts with 'format: fusesolve-hardware/1'")
    value = reader.value(next(events), "$", 0)
    next(events)
    if not isinstance(next(events), yaml.StreamEndEvent):
        raise InputError("more than one YAML document: keep one profile per file")
    if not isinstance(value, dict):
        raise InputError(f"expected keys and values ('name: ...'), got {_shown(value)}")
    return value, reader.problems


def _line(event: yaml.Event) -> str:
    """Where an event starts: `, line 12`."""
    return f", line {event.start_mark.line + 1}" if event.start_mark else ""


def _one_line(error: yaml.YAMLError) -> str:
    """What a YAML error says, with its line, in one line."""
    mark = getattr(error, "problem_mark", None)
    said = getattr(error, "problem", None) or str(error).splitlines()[0]
    return f"line {mark.line + 1}, column {mark.column + 1}: {said}" if mark else str(said)


def _shown(value: Plain) -> str:
    """`value` cut to a line."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
