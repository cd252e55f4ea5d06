"""The outer form of a native graph file: strict YAML or JSON with the keys of `fusesolve-graph/1`.

YAML is read as events and nodes, never as objects: no tags, no anchors, no duplicate keys, bounded size and depth.
Every text keeps its line, so that later errors can name it.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import yaml

from fusesolve.errors import InputError

FORMAT = "fusesolve-graph/1"
MAX_BYTES = 256 * 2**20
MAX_DEPTH = 8
_LISTS = ("inputs", "weights", "ops", "outputs")
_KEYS = ("format", "name", *_LISTS)
_SURROGATE = re.compile("[\ud800-\udfff]")
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class Text:
    """One entry of the file and where it stands ("file:12" or "file: ops[3]")."""

    value: str
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A native graph file before its entries are understood."""

    name: str
    inputs: tuple[Text, ...]
    weights: tuple[Text, ...]
    ops: tuple[Text, ...]
    outputs: tuple[Text, ...]


def parse_document(text: str, origin: str) -> Document:
    """The entries of a native graph file; InputError with file and line where its outer form is wrong.

    `origin` is the file's name in messages. JSON is chosen where the text starts with `{`.
    """
    if len(text) > MAX_BYTES:
        raise InputError(f"{origin}: {len(text)} characters, the limit is {MAX_BYTES}; split the graph")
    if text.lstrip()[:1] == "{":
        return _from_json(text, origin)
    return _from_yaml(text, origin)


def is_unicode(text: str) -> bool:
    """False where `text` has half of a surrogate pair, which JSON can spell and no file can hold."""
    return _SURROGATE.search(text) is None


# JSON


def _from_json(text: str, origin: str) -> Document:
    def pairs(items: list[Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in items:
            if key in found:
                raise InputError(f"{origin}: the key {key!r} is given twice")
            found[key] = value
        return found

    try:
        data = json.loads(text, object_pairs_hook=pairs)
    except json.JSONDecodeError as error:
        raise InputError(f"{origin}:{error.lineno}: not JSON: {error.msg}") from None
    except ValueError:  # Python refuses to read a number of thousands of digits
        raise InputError(f"{origin}: not JSON that a graph may hold: a number is too long") from None
    except RecursionError:
        raise InputError(f"{origin}: nested too deeply for a graph") from None
    _check_keys(data, origin)
    return _document({key: _json_entry(key, value, origin) for key, value in data.items()}, origin)


def _json_entry(key: str, value: Any, origin: str) -> str | list[Text]:
    if key not in _LISTS:
        if not isinstance(value, str) or not is_unicode(value):
            raise InputError(f"{origin}: {key} must be a text")
        return value
    if not isinstance(value, list):
        raise InputError(f"{origin}: {key} must be a list of texts")
    for index, item in enumerate(value):
        if not isinstance(item, str) or not is_unicode(item):
            raise InputError(f"{origin}: {key}[{index}] must be a text, not {item!r}")
    return [Text(item, f"{origin}: {key}[{index}]") for index, item in enumerate(value)]


# YAML


def _from_yaml(text: str, origin: str) -> Document:
    try:
        _check_events(text, origin)
        root = yaml.compose(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark is not None else ""
        raise InputError(f"{origin}{line}: not YAML: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise InputError(f"{origin}: not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(root, yaml.MappingNode):
        raise InputError(f"{origin}: a graph is a mapping with the keys {', '.join(_KEYS)}")
    entries: dict[str, str | list[Text]] = {}
    for key_node, value_node in root.value:
        key = str(key_node.value)
        _check_key(key, _line(origin, key_node))
        if key in entries:
            raise InputError(f"{_line(origin, key_node)}: the key {key!r} is given twice")
        entries[key] = _yaml_entry(key, value_node, origin)
    _check_keys(entries, origin)
    return _document(entries, origin)


def _check_events(text: str, origin: str) -> None:
    """Refuse anchors, aliases, tags and deep nesting before anything is built from them."""
    depth = 0
    events: Iterable[Any] = yaml.parse(text, Loader=_LOADER)
    for event in events:
        where = f"{origin}:{event.start_mark.line + 1}"
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise InputError(f"{where}: anchors and aliases are not part of {FORMAT}; write the entry out")
        if getattr(event, "tag", None):
            raise InputError(f"{where}: the tag {event.tag} is not part of {FORMAT}")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise InputError(f"{where}: nested too deeply for a graph")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _yaml_entry(key: str, node: Any, origin: str) -> str | list[Text]:
    if key not in _LISTS:
        if not isinstance(node, yaml.ScalarNode):
            raise InputError(f"{_line(origin, node)}: {key} must be a text")
        return str(node.value)
    if isinstance(node, yaml.ScalarNode) and node.value in ("", "~", "null"):
        return []
    if not isinstance(node, yaml.SequenceNode):
        raise InputError(f"{_line(origin, node)}: {key} must be a list of texts")
    return [_yaml_text(key, item, origin) for item in node.value]


def _yaml_text(key: str, node: Any, origin: str) -> Text:
    where = _line(origin, node)
    if isinstance(node, yaml.ScalarNode):
        return Text(str(node.value), where)
    if isinstance(node, yaml.MappingNode) and len(node.value) == 1:
        raise InputError(f'{where}: an entry of {key} must be one text: put it in quotes ("x: f32[8]")')
    raise InputError(f"{where}: an entry of {key} must be one text")


def _line(origin: str, node: Any) -> str:
    return f"{origin}:{node.start_mark.line + 1}"


# both


def _check_keys(data: Any, origin: str) -> None:
    if not isinstance(data, Mapping):
        raise InputError(f"{origin}: a graph is a mapping with the keys {', '.join(_KEYS)}")
    for key in data:
        _check_key(str(key), origin)
    for key in ("format", "ops", "outputs"):
        if key not in data:
            raise InputError(f"{origin}: the key {key!r} is missing")
    if data["format"] != FORMAT:
        raise InputError(f"{origin}: format is {data['format']!r}, this version reads {FORMAT!r}")


def _check_key(key: str, where: str) -> None:
    if key not in _KEYS:
        near = get_close_matches(key, _KEYS, 1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; the keys are {', '.join(_KEYS)}"
        raise InputError(f"{where}: unknown key {key!r}{hint}")


def _document(entries: Mapping[str, str | Sequence[Text]], origin: str) -> Document:
    lists = {key: tuple(item for item in entries.get(key, ()) if isinstance(item, Text)) for key in _LISTS}
    return Document(name=str(entries.get("name", "graph")), **lists)
