"""The `fusesolve-partition/1` document."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fusesolve.errors import InputError

FORMAT = "fusesolve-partition/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerPartition:
    """How another compiler grouped the nodes of a graph; see FORMAT in the documentation.

    `groups`: node names of each kernel, empty for a kernel without a source node. `unassigned`: nodes that the peer
    treats as views. `origin`: the file it came from, for messages.
    """

    peer: str
    target: str | None
    groups: tuple[tuple[str, ...], ...]
    unassigned: tuple[str, ...]
    origin: str

    @property
    def name(self) -> str:
        """`peer.target`, or the peer alone where the document names no target."""
        return self.peer if self.target is None else f"{self.peer}.{self.target}"


def load_partition(path: Path | str) -> PeerPartition:
    """Read a partition file; InputError names what is wrong with it."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text (byte {error.start}); expected JSON") from error
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{path}: not JSON, line {error.lineno} column {error.colno}: {error.msg}") from error
    except RecursionError as error:
        raise InputError(f"{path}: nested too deeply to be a partition") from error
    return parse_partition(document, str(path))


def parse_partition(document: Any, origin: str) -> PeerPartition:
    """A partition from plain data; `origin` names it in messages. InputError at the first fault."""
    if not isinstance(document, Mapping):
        raise InputError(f"{origin}: expected an object with the keys format, peer and groups")
    if document.get("format") != FORMAT:
        raise InputError(f"{origin}: format is {document.get('format')!r}, expected {FORMAT!r}")
    peer = document.get("peer")
    if not isinstance(peer, str) or not peer:
        raise InputError(f"{origin}: peer must be the name of a compiler, not {peer!r}")
    target = document.get("target")
    if target is not None and not isinstance(target, str):
        raise InputError(f"{origin}: target must be a name, not {target!r}")
    groups = document.get("groups")
    if not isinstance(groups, list):
        raise InputError(f"{origin}: groups must be a list of lists of node names")
    return PeerPartition(
        peer=peer, target=target or None, origin=origin,
        groups=tuple(_names(group, f"{origin}: groups[{place}]") for place, group in enumerate(groups)),
        unassigned=_names(document.get("unassigned", []), f"{origin}: unassigned"),
    )  # fmt: skip


def _names(items: Any, where: str) -> tuple[str, ...]:
    if not isinstance(items, list) or not all(isinstance(item, str) and item for item in items):
        raise InputError(f"{where} must be a list of node names")
    return tuple(dict.fromkeys(items))
