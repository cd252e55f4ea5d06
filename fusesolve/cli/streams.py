"""Where results and notes go: stdout, stderr, files written whole or not at all."""

import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from fusesolve.errors import InputError

if TYPE_CHECKING:
    from fusesolve.report.progress import ProgressEvent

WIDTH_WHEN_PIPED = 160


def note(message: str) -> None:
    """One line for the person at the terminal (stderr); a reader that left is no error."""
    try:
        sys.stderr.write(message.rstrip("\n") + "\n")
        sys.stderr.flush()
    except BrokenPipeError:
        return


def silent(message: str) -> None:
    """Take a note and show nothing (`--quiet`)."""


def notes(*, quiet: bool) -> Callable[[str], None]:
    """`note`, or `silent` where the user asked for quiet."""
    return silent if quiet else note


def shown_progress(
    *, quiet: bool, verbose: bool, every: float | None = None
) -> AbstractContextManager["Callable[[ProgressEvent], None] | None"]:
    """Progress on stderr: a live line on a terminal, a log with `verbose`, else nothing (the callback is None).

    `every`: for long work, a log line after so many seconds, and so on, where there is no terminal either.
    """
    from fusesolve.report.progress import progress

    terminal = sys.stderr.isatty()
    return progress(
        sys.stderr, live=terminal and not verbose, every=0.0 if verbose or every is None else every,
        shown=not quiet and (verbose or terminal or every is not None),
    )  # fmt: skip


def hold_interrupts() -> None:
    """Ignore Ctrl-C from here to the end of the process: the answer is known, and only its writing is left."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def colour_wanted() -> bool:
    """True where stdout is a terminal that has not asked for plain text (NO_COLOR, TERM=dumb)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def result_width(output: Path | None) -> int:
    """Columns for a table: those of the terminal, or of COLUMNS, or 160 where the result is piped or written."""
    if output is None and sys.stdout.isatty():
        return shutil.get_terminal_size().columns
    given = os.environ.get("COLUMNS", "")
    return int(given) if given.isdigit() and int(given) >= 40 else WIDTH_WHEN_PIPED


def check_writable(output: Path | None) -> None:
    """Raise InputError at once where `output` could not be written, before any long work."""
    if output is None or (output.exists() and not output.is_file() and not output.is_dir()):
        return
    if output.is_dir():
        raise InputError(f"cannot write {output}: it is a folder; name a file in it, such as {output / 'plan.json'}")
    folder = output.resolve().parent
    if not folder.is_dir():
        raise InputError(f"cannot write {output}: there is no folder {folder}; make it first, or write elsewhere")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"cannot write {output}: no permission to write in {folder}; write elsewhere")


def write_result(text: str, output: Path | None) -> None:
    """Write a result to stdout, or whole to the file `output` (through a temporary file beside it and a rename).

    Where the file cannot be written the old one stays as it was, the result goes to stdout so that nothing is lost,
    and an InputError says so. Ctrl-C is ignored from here on (`hold_interrupts`).
    """
    hold_interrupts()
    if output is None:
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    try:
        _put(text.encode(), output)
    except OSError as error:
        sys.stdout.write(text)
        raise InputError(f"cannot write {output}: {error.strerror}; the result went to stdout instead") from error


def write_bytes(data: bytes, output: Path | None) -> None:
    """Write a binary result as `write_result` writes text; InputError where stdout is a terminal."""
    hold_interrupts()
    if output is not None:
        try:
            _put(data, output)
        except OSError as error:
            raise InputError(f"cannot write {output}: {error.strerror}; write elsewhere") from error
    elif sys.stdout.isatty():
        raise InputError("this form is binary and stdout is a terminal: name a file with -o")
    else:
        sys.stdout.buffer.write(data)
        sys.stdout.flush()


def _put(data: bytes, output: Path) -> None:
    if output.exists() and not output.is_file():
        output.write_bytes(data)  # a device or a pipe cannot be replaced
    else:
        _replace_file(data, output)


def _replace_file(data: bytes, output: Path) -> None:
    target = output.resolve()
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        Path(name).chmod(_mode(target))
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _mode(target: Path) -> int:
    """Permissions of the finished file: those of the file it replaces, else what the process' mask allows."""
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
