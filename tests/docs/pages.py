"""README.md and docs/*.md as data: commands, links, and blocks of output that are kept current.

`python -m tests.docs.pages [PAGE...]` writes the output blocks anew (`make docs`; without PAGE those of all pages but
the studies, which take minutes: name `docs/studies/*.md` for them). A block of output is marked by a comment on
the line before it: `<!-- output: fusesolve plan --hw h100.yaml -->`. Pictures follow their tables (`pictures.py`).
"""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.docs.pictures import PICTURE, draw_picture

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
STUDIES = sorted((ROOT / "docs" / "studies").glob("*.md"))
FENCE = re.compile(r"^```[a-z]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
OUTPUT = re.compile(
    r"(<!-- output: (?P<command>[^\n]*) -->\n```[a-z]*\n)(?P<shown>.*?)(^```$)", re.DOTALL | re.MULTILINE
)
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")
COLUMNS = "100"


def commands(page: Path) -> Iterator[str]:
    """Command lines in the fenced blocks of a page that are not output: `fusesolve …` and `make …`, comments cut."""
    text = OUTPUT.sub("", page.read_text())
    for block in FENCE.findall(text):
        for line in block.splitlines():
            bare = line.removeprefix("$ ").split("  #")[0].strip()
            if bare.startswith(("fusesolve ", "make ", "python -m fusesolve")):
                yield bare


def links(page: Path) -> Iterator[str]:
    """Targets of the links of a page that are not on the web."""
    return (target for target in LINK.findall(page.read_text()) if "://" not in target)


def outputs(page: Path) -> Iterator[tuple[str, str]]:
    """Each marked block: the command and what the page shows for it."""
    for match in OUTPUT.finditer(page.read_text()):
        yield match["command"], match["shown"]


def output_of(command: str) -> str:
    """What a `fusesolve` command prints, without the line that tells seconds."""
    program, *arguments = shlex.split(command)
    assert program == "fusesolve"
    done = subprocess.run(
        [sys.executable, "-m", "fusesolve", *arguments],
        capture_output=True, text=True, check=True, cwd=ROOT, timeout=900,
        env={"COLUMNS": COLUMNS, "PYTHONPATH": str(ROOT), "PATH": ""},
    )  # fmt: skip
    return "".join(line for line in done.stdout.splitlines(keepends=True) if not line.startswith("search "))


def refresh(text: str) -> str:
    """A page with every marked block as the command prints it now."""
    return OUTPUT.sub(lambda match: match[1] + output_of(match["command"]) + match[4], text)


def main(pages: Sequence[Path]) -> None:
    """Write every one of these pages that has marked blocks anew, and the picture of its first one if it shows one."""
    for page in pages:
        text = page.read_text()
        if OUTPUT.search(text):
            page.write_text(refresh(text))
        if PICTURE.search(text):
            draw_picture(page, next(shown for _, shown in outputs(page)))


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]] or PAGES)
