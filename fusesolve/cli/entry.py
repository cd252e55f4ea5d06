"""Entry of the command line: run a command, turn every outcome into one line and an exit code."""

import io
import os
import sys
from collections.abc import Sequence

import typer

from fusesolve.cli.streams import note
from fusesolve.errors import FusesolveError

INTERRUPTED = 130
BAD_USAGE = 2
BUG = 70


def run() -> None:
    """The console script: run the command of `sys.argv` and exit with its code.

    A terminal that cannot show a character gets a question mark for it, not an error.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    sys.exit(main(sys.argv[1:]))


def main(argv: Sequence[str]) -> int:
    """Run `fusesolve ARGV` and return its exit code.

    0 good, 2 bad input or options, 3 no plan, 4 something missing, 5 a validation failed, 70 a bug, 130 interrupted.
    A traceback is shown only where `--debug` is among the arguments. Leaves SIGINT ignored where a result was written.
    """
    try:
        code = _dispatch(argv)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        _silence_stdout()
        return 0


def _dispatch(argv: Sequence[str]) -> int:
    debug = "--debug" in argv
    try:
        return _invoke(argv)
    except BrokenPipeError:
        raise
    except FusesolveError as error:
        return _fail(str(error), error.exit_code, debug=debug)
    except typer.TyperException as error:
        return _fail(_usage_line(error), BAD_USAGE, debug=debug)
    except (KeyboardInterrupt, typer.Abort):
        return _fail("interrupted before there was a result", INTERRUPTED, debug=debug)
    except MemoryError:
        return _fail("out of memory; plan a smaller graph or give the process more memory", BAD_USAGE, debug=debug)
    except Exception as error:  # noqa: BLE001 -- the last line of defence: a bug becomes one line and exit code 70
        text = f"{type(error).__name__}: {error}".splitlines()[0]
        return _fail(f"internal error ({text}); please report it; --debug shows the traceback", BUG, debug=debug)


def _invoke(argv: Sequence[str]) -> int:
    from fusesolve.cli.app import app

    command = typer.main.get_command(app)
    result = command.main(args=list(argv) or ["--help"], prog_name="fusesolve", standalone_mode=False)
    if result == INTERRUPTED:
        raise KeyboardInterrupt
    return result if isinstance(result, int) else 0


def _fail(message: str, code: int, *, debug: bool) -> int:
    if debug:
        import traceback

        traceback.print_exc(file=sys.stderr)
    note(f"error: {message}")
    return code


def _usage_line(error: typer.TyperException) -> str:
    """The message of a usage error as one line that ends by naming the help of the right command."""
    text = " ".join(error.format_message().replace("Value error, ", "").split())
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "fusesolve"
    return f"{text.rstrip('.')} (see `{command} --help`)"


def _silence_stdout() -> None:
    """Point stdout at nothing, so that Python's own flush at exit does not complain about a reader that left."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
