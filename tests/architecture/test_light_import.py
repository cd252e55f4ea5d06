"""`import fusesolve` and every --help are quick: they load no solver, compiler, model or array library."""

import subprocess
import sys

import pytest

HEAVY = ("ortools", "numba", "llvmlite", "onnx", "onnx_ir", "onnxscript", "numpy", "pandas", "ml_dtypes", "joblib")
PROGRAM = """
import sys
{program}
heavy = sorted({{name.split(".")[0] for name in sys.modules}} & set({heavy!r}))
sys.stderr.write("loaded: " + " ".join(heavy))
sys.exit(bool(heavy))
"""


def loaded_by(program: str) -> str:
    text = PROGRAM.format(program=program, heavy=HEAVY)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr.endswith("loaded: "), done.stderr
    return done.stdout


def test_importing_the_package_is_light():
    loaded_by("import fusesolve; fusesolve.plan; fusesolve.Plan")


@pytest.mark.parametrize(
    "argv",
    [
        ["--help"],
        ["--version"],
        ["plan", "--help"],
        ["explain", "--help"],
        ["whatif", "--help"],
        ["schema", "--help"],
        ["schema", "plan"],
        ["profiles", "--help"],
        ["profiles", "list", "--help"],
        ["profiles", "detect", "--help"],
        ["graph", "convert", "--help"],
    ],
    ids=" ".join,
)
def test_the_command_line_is_light(argv):
    out = loaded_by(f"from fusesolve.cli import main; assert main({argv!r}) == 0")
    assert out.strip()


def test_a_heavy_import_would_be_seen():
    """The test above can fail: a program that loads numpy is told so."""
    text = PROGRAM.format(program="import numpy", heavy=HEAVY)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "numpy" in done.stderr
