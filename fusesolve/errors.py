"""Errors that reach a user, each with its exit code.

Every message is one clear line: what is wrong, where, the number, and what to change.
"""

from typing import ClassVar


class FusesolveError(Exception):
    """Base of all errors that fusesolve raises on purpose; `exit_code` is what the command line returns."""

    exit_code: ClassVar[int] = 70


class InputError(FusesolveError):
    """Bad input or options: a file, a profile, a graph, a flag (exit 2)."""

    exit_code: ClassVar[int] = 2


class NoPlanError(FusesolveError):
    """No plan exists, or none was found within the limit (exit 3)."""

    exit_code: ClassVar[int] = 3


class MissingError(FusesolveError):
    """A device, an optional extra or a toolchain that is not there (exit 4)."""

    exit_code: ClassVar[int] = 4


class ValidationError(FusesolveError):
    """A validation step ran and failed (exit 5)."""

    exit_code: ClassVar[int] = 5


class InternalError(FusesolveError):
    """A broken promise between two rooms of fusesolve: a bug (exit 70)."""

    exit_code: ClassVar[int] = 70
