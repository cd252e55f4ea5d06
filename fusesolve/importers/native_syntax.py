"""The inner form of a native graph: `name: dtype[shape; attrs]` and `name = op(args; attr=value) : dtype[shape]`.

Names with signs of their own (`/layers.0/Add:0`) are written in double quotes, with JSON's escapes.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias

from fusesolve.errors import InputError
from fusesolve.graph import AttrValue, DType, Literal, Operand, TensorType
from fusesolve.importers.native_text import is_unicode
from fusesolve.ops.rules import parse_dtype

_TOKEN = re.compile(r'\s*(?:("(?:[^"\\]|\\.)*")|([=();,:\[\]])|([^\s"=();,:\[\]]+))')
_SIGNS = frozenset("=();,:[]")
_INTEGER = re.compile(r"[+-]?\d{1,20}")
_FLOAT = re.compile(r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|inf|nan)")
_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*(?:/[A-Za-z0-9_.]+)*")
_RANGE = re.compile(r"(-?\d{1,18}):(-?\d{1,18})")
_ITEM = re.compile(r"-?\d+:-?\d+|[^-]+")
_WORDS: Mapping[str, bool] = {"true": True, "false": False}
_RESERVED = frozenset({"true", "false", "inf", "nan"})

# A dimension or an attribute before symbols are bound: a number or an expression in dimension names.
Dim: TypeAlias = int | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """A declared type; `attrs` are those of the value (alias_out, strides, external, source)."""

    dtype: DType
    shape: tuple[Dim, ...]
    attrs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One operator as it is written; `where` is its file and line."""

    results: tuple[str, ...]
    op: str
    operands: tuple[Operand, ...]
    attrs: Mapping[str, str]
    types: tuple[Declared, ...]
    where: str
    text: str


class _Scanner:
    """A position in the tokens of one entry; `head` is the token there, empty at the end."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.words: list[str] = []
        self.ends: list[int] = []
        position = 0
        for match in _TOKEN.finditer(text):
            if match.start() != position:
                break
            position = match.end()
            self.words.append(match[match.lastindex or 0])
            self.ends.append(position)
        if text[position:].strip():
            raise InputError(f"cannot read {text[position:].strip()[:20]!r}")
        self.words.append("")
        self.at = 0
        self.head = self.words[0]

    def step(self) -> None:
        """Go to the next token; at the end stay there."""
        if self.head:
            self.at += 1
            self.head = self.words[self.at]

    def accept(self, sign: str) -> bool:
        """True, one step on, where `sign` stands here."""
        if self.head == sign:
            self.step()
            return True
        return False

    def expect(self, sign: str) -> None:
        """One step on; InputError where `sign` does not stand here."""
        if not self.accept(sign):
            raise InputError(f"expected {sign!r}, found {self.found()}")

    def found(self) -> str:
        """What stands here, for a message."""
        return repr(self.head) if self.head else "the end"

    def until(self, stops: str) -> str:
        """The raw text up to one of the signs in `stops`, which is not taken, or to the end."""
        first = self.at
        while self.head and self.head not in stops:
            self.step()
        if self.at == first:
            return ""
        return self.text[self.ends[first] - len(self.words[first]) : self.ends[self.at - 1]]

    def name(self, what: str) -> str:
        """The name here, one step on; InputError where a sign or the end stands here."""
        word = self.head
        if not word or word in _SIGNS:
            raise InputError(f"expected {what}, found {self.found()}")
        self.step()
        found = unquote(word) if word[0] == '"' else word
        if not found:
            raise InputError(f"expected {what}, found an empty text")
        return found


def unquote(token: str) -> str:
    """The text of a quoted token; InputError where its escapes are wrong or spell half a character."""
    try:
        found = str(json.loads(token))
    except json.JSONDecodeError as error:
        raise InputError(f"{token} is not a quoted text: {error.msg}") from None
    if not is_unicode(found):
        raise InputError(f"{token} has half of a surrogate pair")
    return found


def quote(name: str) -> str:
    """`name` as it is written in an entry: bare where it reads the same again, else in double quotes."""
    if _BARE.fullmatch(name) and name not in _RESERVED:
        return name
    return json.dumps(name)


def parse_number(token: str) -> float | int | bool | None:
    """The number or truth value that `token` spells, or None where it is a name; InputError beyond an f64's range."""
    if token in _WORDS:
        return _WORDS[token]
    if _INTEGER.fullmatch(token):
        return int(token)
    if not _FLOAT.fullmatch(token):
        return None
    value = float(token)
    if math.isinf(value) and "inf" not in token:
        raise InputError(f"the number {token[:40]} is out of range")
    return value


def parse_declaration(text: str) -> tuple[str, Declared]:
    """`name: dtype[shape; attrs]` as a name and its type; InputError where it is anything else."""
    scan = _Scanner(text)
    name = scan.name("a name")
    scan.expect(":")
    declared = _type(scan)
    _at_end(scan)
    return name, declared


def parse_statement(text: str, where: str) -> Statement:
    """One operator; InputError, with `where` in front, where the text does not follow the form."""
    try:
        scan = _Scanner(text)
        results = [scan.name("a result's name")]
        while scan.accept(","):
            results.append(scan.name("a result's name"))
        scan.expect("=")
        op = scan.name("an operator")
        scan.expect("(")
        operands = _operands(scan)
        attrs = _pairs(scan, ",)", "attribute") if scan.accept(";") else {}
        scan.expect(")")
        types = _types(scan.until("")) if scan.accept(":") else ()
        _at_end(scan)
    except InputError as error:
        raise InputError(f"{where}: {error} in {text!r}") from None
    if types and len(types) != len(results):
        raise InputError(f"{where}: {len(results)} results but {len(types)} types in {text!r}")
    return Statement(
        results=tuple(results), op=op, operands=operands, attrs=attrs, types=types, where=where, text=text
    )


@lru_cache(maxsize=4096)
def _types(text: str) -> tuple[Declared, ...]:
    """The declared types after the colon, separated by commas; graphs repeat them, hence the cache."""
    scan = _Scanner(text)
    types = [_type(scan)]
    while scan.accept(","):
        types.append(_type(scan))
    _at_end(scan)
    return tuple(types)


def _operands(scan: _Scanner) -> tuple[Operand, ...]:
    found: list[Operand] = []
    while scan.head not in (";", ")", ""):
        number = parse_number(scan.head)
        if number is None:
            found.append(scan.name("an operand"))
        else:
            scan.step()
            found.append(Literal(number))
        if not scan.accept(",") and scan.head not in (";", ")"):
            raise InputError(f"expected ',', found {scan.found()}")
    return tuple(found)


def _pairs(scan: _Scanner, stops: str, what: str) -> dict[str, str]:
    found: dict[str, str] = {}
    while scan.head not in (")", "]", ""):
        key = scan.name(f"an {what}")
        scan.expect("=")
        value = scan.until(stops)
        if not value:
            raise InputError(f"the {what} {key} has no value")
        if key in found:
            raise InputError(f"the {what} {key} is given twice")
        found[key] = value
        if not scan.accept(","):
            break
    return found


def _type(scan: _Scanner) -> Declared:
    dtype = parse_dtype(scan.name("an element type"))
    shape: list[Dim] = []
    attrs: dict[str, str] = {}
    if scan.accept("["):
        while scan.head not in ("]", ";", ""):
            shape.append(_dim(scan.name("a dimension")))
            if not scan.accept(",") and scan.head not in ("]", ";"):
                raise InputError(f"expected ',' or ']' in the shape, found {scan.found()}")
        if scan.accept(";"):
            attrs = _pairs(scan, ",]", "attribute")
        scan.expect("]")
    return Declared(dtype=dtype, shape=tuple(shape), attrs=attrs)


_DIM_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_FACTOR = r"(?:\d{1,15}|[A-Za-z_][A-Za-z0-9_.]*)"
_DIM = re.compile(rf"{_FACTOR}(?:[*/]{_FACTOR})*")


def _dim(token: str) -> Dim:
    if _DIM.fullmatch(token):
        return int(token) if token.isdecimal() else token
    raise InputError(f"{token[:40]!r} is not a dimension: a whole number, a name, or names with * and /")


def _at_end(scan: _Scanner) -> None:
    if scan.head:
        raise InputError(f"unexpected {scan.head!r} at the end")


def dim_names(shape: tuple[Dim, ...]) -> set[str]:
    """Names of the symbolic dimensions in a shape."""
    return {name for dim in shape if isinstance(dim, str) for name in _DIM_NAME.findall(dim)}


def bind_dim(dim: Dim, bind: Mapping[str, int]) -> int:
    """The extent of a dimension, from left to right; InputError where a division has a remainder."""
    if isinstance(dim, int):
        return dim
    parts = re.split(r"([*/])", dim)
    value = _factor(parts[0], bind)
    for sign, part in zip(parts[1::2], parts[2::2], strict=True):
        factor = _factor(part, bind)
        if sign == "*":
            value *= factor
        elif factor and value % factor == 0:
            value //= factor
        else:
            raise InputError(f"the dimension {dim} is no whole number: {value} is not divisible by {factor}")
    return value


def _factor(part: str, bind: Mapping[str, int]) -> int:
    return int(part) if part.isdecimal() else bind[part]


def bind_type(declared: Declared, bind: Mapping[str, int]) -> TensorType:
    """The concrete type of a declaration; InputError where a dimension does not come out whole."""
    return TensorType(declared.dtype, tuple(bind_dim(dim, bind) for dim in declared.shape))


def parse_attr(text: str, bind: Mapping[str, int]) -> AttrValue:
    """The value of an attribute: a number, a truth value, a list, a quoted text, else a word."""
    if text[:1] == '"':
        return unquote(text)
    number = parse_number(text)
    if number is not None:
        return number
    items = _items(text)
    if items and all(_is_item(item, bind) for item in items):
        values = tuple(value for item in items for value in _item(item, bind))
        return values if len(items) > 1 or _RANGE.fullmatch(items[0]) else values[0]
    return text


def _items(text: str) -> list[str]:
    """The items of a list joined by '-', where a range may have signs of its own; empty where it is no list."""
    items: list[str] = []
    position = 0
    while True:
        match = _ITEM.match(text, position)
        if match is None:
            return []
        items.append(match.group())
        position = match.end() + 1
        if match.end() == len(text):
            return items
        if text[match.end()] != "-":
            return []


def _is_item(item: str, bind: Mapping[str, int]) -> bool:
    if (item.isdecimal() and len(item) < 19) or _RANGE.fullmatch(item):
        return True
    return bool(_DIM.fullmatch(item)) and all(name in bind for name in _DIM_NAME.findall(item))


def _item(item: str, bind: Mapping[str, int]) -> tuple[int, ...]:
    match = _RANGE.fullmatch(item)
    if match is None:
        return (bind_dim(item if not item.isdecimal() else int(item), bind),)
    low, high = int(match.group(1)), int(match.group(2))
    if high < low or high - low > 1_000_000:
        raise InputError(f"the range {item} must rise, by at most a million")
    return tuple(range(low, high + 1))


def format_attr(value: AttrValue) -> str:
    """An attribute's value as it is written; the inverse of `parse_attr` for non-empty tuples."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        if any(item < 0 for item in value) or len(value) == 1:
            return "-".join(f"{item}:{item}" for item in value)
        return "-".join(map(str, value))
    if isinstance(value, str):
        return quote(value)
    return repr(value)


def format_operand(item: Operand) -> str:
    """An operand as it is written."""
    return format_attr(item.value) if isinstance(item, Literal) else quote(item)
