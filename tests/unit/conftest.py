"""Fixtures of the tests of single rooms."""

from collections.abc import Callable

import pytest

from fusesolve.cli import main


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """`call("plan", graph, "--hw", "h100")` runs the command line: exit code, stdout and stderr."""

    def run_command(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([str(item) for item in arguments])
        return code, *capsys.readouterr()

    return run_command
