"""Run the command line in this process and look at what a person would see."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from fusesolve.cli import main


@dataclass(frozen=True)
class Outcome:
    """Exit code and what went to the two streams."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The one error line, without its prefix; fails where there is none, or a traceback."""
        assert "Traceback" not in self.err
        lines = [line for line in self.err.splitlines() if line.startswith("error: ")]
        assert len(lines) == 1, self.err
        return lines[0].removeprefix("error: ")


@pytest.fixture
def cli(capsys) -> Callable[..., Outcome]:
    """`cli("plan", "--hw", "h100")` runs the command line."""

    def call(*argv: object) -> Outcome:
        capsys.readouterr()
        code = main([str(item) for item in argv])
        out, err = capsys.readouterr()
        return Outcome(code, out, err)

    return call
