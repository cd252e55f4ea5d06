"""Where the files that ship with fusesolve are: inside an installed wheel, or at the top of a checkout."""

from importlib.resources import files
from pathlib import Path
from typing import Literal

from fusesolve.errors import InternalError


def bundled_dir(kind: Literal["hardware", "graphs"]) -> Path:
    """The folder of the bundled profiles or graphs.

    An installed package carries them as `fusesolve/_bundled/<kind>`; a checkout has them at its top. Raises
    InternalError where neither is there (a broken installation).
    """
    package = Path(str(files("fusesolve")))
    for folder in (package / "_bundled" / kind, package.parent / kind):
        if folder.is_dir():
            return folder
    raise InternalError(f"the bundled {kind} files are missing beside {package}: install fusesolve again")
