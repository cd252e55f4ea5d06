"""The command line (the only room that prints, reads the environment or exits).

`main` maps every outcome to an exit code; the commands are in modules of their own.
"""

from fusesolve.cli.entry import main, run

__all__ = ["main", "run"]
