"""Sizes, docstrings and habits of the package's source."""

import ast
import re
import statistics
from pathlib import Path

import pytest

from tests.architecture.source import PACKAGE, ROOT, files, functions, place, room_of, tree

LONGEST_FILE = 400
LONGEST_FUNCTION = 60
MEDIAN_FUNCTION = 12

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1


def test_files_stay_short():
    long = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in files()}
    assert not {name: lines for name, lines in long.items() if lines > LONGEST_FILE}


def test_functions_stay_short():
    long = [
        f"{place(path, node)}: {node.name} has {length(node)} lines"
        for path in files()
        for node in functions(path)
        if length(node) > LONGEST_FUNCTION
    ]
    assert not long, "\n".join(long)


def test_the_median_function_is_short():
    assert statistics.median(length(node) for path in files() for node in functions(path)) <= MEDIAN_FUNCTION


def public_without_docstring(path: Path, body: list[ast.stmt], owner: str = "") -> list[str]:
    missing = []
    for node in body:
        if isinstance(node, Definition) and not node.name.startswith("_"):
            if ast.get_docstring(node) is None and not _is_overload(node):
                missing.append(f"{place(path, node)}: {owner}{node.name}")
            if isinstance(node, ast.ClassDef):
                missing += public_without_docstring(path, node.body, f"{node.name}.")
    return missing


def _is_overload(node: Definition) -> bool:
    return any(ast.unparse(item).endswith(("overload", ".setter")) for item in node.decorator_list)


def test_every_public_name_has_a_docstring():
    missing = [f"{path}: module" for path in files() if ast.get_docstring(tree(path)) is None]
    missing += [line for path in files() for line in public_without_docstring(path, tree(path).body)]
    assert not missing, "\n".join(missing)


def test_no_drawer_for_odds_and_ends():
    assert not [path for path in files() if path.stem in {"utils", "util", "helpers", "common", "misc"}]


def calls(path: Path) -> list[tuple[str, ast.Call]]:
    return [(ast.unparse(node.func), node) for node in ast.walk(tree(path)) if isinstance(node, ast.Call)]


def test_only_the_command_line_prints_and_exits():
    banned = {"print", "input", "exit", "quit", "sys.exit", "os._exit", "os.getenv", "sys.stdout.write"}
    wrong = [
        f"{place(path, node)}: {name}()"
        for path in files()
        if room_of(path) not in {"cli", "__main__"}
        for name, node in calls(path)
        if name in banned
    ]
    assert not wrong, "\n".join(wrong)


def test_only_the_command_line_reads_the_environment():
    wrong = [
        place(path, node)
        for path in files()
        if room_of(path) != "cli" and "codegen/runtime" not in path.as_posix()
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "os.environ"
    ]
    assert not wrong, "\n".join(wrong)


def test_nothing_runs_code_from_a_file():
    banned = {"eval", "exec", "pickle.load", "pickle.loads", "marshal.loads", "yaml.load", "yaml.unsafe_load"}
    wrong = [f"{place(path, node)}: {name}()" for path in files() for name, node in calls(path) if name in banned]
    assert not wrong, "\n".join(wrong)


def test_only_the_entry_catches_everything():
    wrong = [
        place(path, node)
        for path in files()
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or ast.unparse(node.type) in {"Exception", "BaseException"})
        and not any(isinstance(inner, ast.Raise) and inner.exc is None for inner in ast.walk(node))
        and path.relative_to(PACKAGE).as_posix() != "cli/entry.py"
    ]
    assert not wrong, "\n".join(wrong)


def test_what_is_silenced_says_why():
    silence = re.compile(r"#\s*(type: ignore\S*|noqa\S*(:\s*[A-Z0-9, ]+)?)(?P<rest>.*)$")
    wrong = []
    for path in files():
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = silence.search(line)
            if match and not re.search(r"\w{3}", match["rest"]):
                wrong.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")
    assert not wrong, "\n".join(wrong)


def product_texts() -> list[Path]:
    documents = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), ROOT / "Makefile", ROOT / "pyproject.toml"]
    data = [*(ROOT / "hardware").rglob("*.yaml"), *(ROOT / "graphs").glob("*.yaml"), *(ROOT / "graphs").glob("*.py")]
    return [*files(), *documents, *data]


@pytest.mark.parametrize("word", ["TODO", "FIXME", "XXX", "raise NotImplementedError", "/home/", "/root/", "../shared"])
def test_no_loose_ends_in_the_product(word):
    wrong = [
        f"{path.relative_to(ROOT)}: {word}" for path in product_texts() if path.is_file() and word in path.read_text()
    ]
    assert not wrong, "\n".join(wrong)


def test_the_top_level_is_as_agreed():
    allowed = {
        "fusesolve", "hardware", "graphs", "tests", "docs", "benchmarks", "pyproject.toml", "Makefile", "README.md",
        "LICENSE", ".ci", ".gitignore",
    }  # fmt: skip
    tracked = _tracked_top_level()
    assert tracked <= allowed, f"not agreed: {sorted(tracked - allowed)}"


def _tracked_top_level() -> set[str]:
    import subprocess

    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip("not a git checkout: what is tracked cannot be told")
    return {name.split("/")[0] for name in done.stdout.splitlines()}
