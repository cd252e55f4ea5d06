"""The state of a sweep, beside its output: a line for each finished block, so that a killed sweep goes on.

It stays when the sweep is finished, with a last line that says so: the same command then has nothing left to do, and
another sweep may take its place.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fusesolve.errors import InputError
from fusesolve.whatif.rows import Cell

FORMAT = "fusesolve-sweep/1"
SUFFIX = ".state"

FINISHED = {"finished": True}

Rows = list[list[Cell]]


@dataclass(kw_only=True)
class Journal:
    """Finished blocks by number; kept in the file `path` (None: in memory only).

    A line is written whole, flushed and synced before the block counts as done; a last line that a crash tore is
    dropped when the file is read. `finished`: whether the table was written before
    this run; `kept`: points that were there before it.
    """

    path: Path | None
    done: dict[int, Rows] = field(default_factory=dict)
    finished: bool = False
    kept: int = 0

    def add(self, block: int, rows: Sequence[Sequence[Cell]]) -> None:
        """Record a finished block once; a second result for the same block is the same and is dropped."""
        if block in self.done:
            return
        self.done[block] = [list(row) for row in rows]
        if self.path is not None:
            _append(self.path, {"block": block, "rows": self.done[block]})

    def finish(self) -> None:
        """Note that the table is written."""
        if self.path is not None and not self.finished:
            _append(self.path, FINISHED)
        self.finished = True


def state_path(output: Path) -> Path:
    """Where the state of the sweep that writes `output` is kept."""
    return output.with_name(output.name + SUFFIX)


def open_journal(path: Path | None, study_sha256: str) -> Journal:
    """The journal of the study with this hash: what is there already, or a new one (over that of a finished sweep).

    Raises InputError where the file is that of another, unfinished sweep, or cannot be read or written.
    """
    if path is None:
        return Journal(path=None)
    head = {"format": FORMAT, "study": study_sha256}
    try:
        lines = path.read_bytes().split(b"\n") if path.exists() else []
        whole = [json.loads(line) for line in lines[:-1]]
        if not whole or _is_over(whole, head, path):
            path.write_bytes(_line(head))
            return Journal(path=path)
        finished = whole[-1] == FINISHED
        done = {entry["block"]: entry["rows"] for entry in whole[1:] if entry != FINISHED}
        if lines[-1]:  # torn by a crash: cut it off before the next line is appended
            path.write_bytes(b"".join(line + b"\n" for line in lines[:-1]))
    except OSError as error:
        raise InputError(f"cannot keep the state of the sweep in {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is not the state of a sweep; remove it, or choose another -o") from error
    return Journal(path=path, done=done, finished=finished, kept=sum(map(len, done.values())))


def _is_over(entries: Sequence[Any], head: dict[str, str], path: Path) -> bool:
    """Whether the file is that of another sweep that is finished; ValueError where it is none, InputError otherwise."""
    found = entries[0]
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ValueError(found)
    if found == head:
        return False
    if entries[-1] == FINISHED:
        return True
    raise InputError(
        f"{path} is the state of another sweep (other graphs, profiles, values, options or version); repeat that "
        "command, remove the file, or choose another -o"
    )


def _append(path: Path, entry: dict[str, Any]) -> None:
    with path.open("ab") as stream:
        stream.write(_line(entry))
        stream.flush()
        os.fsync(stream.fileno())


def _line(entry: dict[str, Any]) -> bytes:
    return (json.dumps(entry, separators=(",", ":"), allow_nan=False) + "\n").encode()
