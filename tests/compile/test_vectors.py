"""Vectors of pointwise kernels: which accesses become one of up to 16 bytes, in the emitted source and in the PTX."""

import json
import re
import subprocess
import sys

import pytest

from fusesolve.codegen.module import generate
from fusesolve.codegen.planned import read_plan
from fusesolve.importers.native import parse_native
from tests.cudasim.conftest import needs_numba_cuda

PTX = """
import importlib.util, sys
from numba import types
from numba.cuda import compile as build
from numba.cuda.types import bfloat16
spec = importlib.util.spec_from_file_location("made", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
known = {"f32": types.float32, "f16": types.float16, "bf16": bfloat16, "i64": types.int64}
kinds = tuple(types.Array(known[kind], 1, "C") for kind in sys.argv[2].split(","))
print(build(module.k0.py_func, kinds, cc=(8, 0), device=False, abi="numba", output="ptx")[0])
"""


def made(inputs, ops, per_thread, template="pointwise"):
    """The emitted kernel of one group and its file."""
    output = ops[-1].split("=")[0].strip()
    text = json.dumps({"format": "fusesolve-graph/1", "name": "one", "inputs": inputs, "ops": ops, "outputs": [output]})
    graph = parse_native(text, "one", {}, False)
    group = {
        "id": 0, "nodes": list(dict.fromkeys(node.source for node in graph.nodes)), "inputs": list(graph.inputs),
        "outputs": [output], "template": template, "implementation": "generated",
        "tiling": {"threads": 128, "per_thread": per_thread},
    }  # fmt: skip
    found = generate(read_plan({"groups": [group], "status": "OPTIMAL"}, graph))
    return "\n".join(found.kernels[0][0].emitted.body), found.text


def accesses(body: str) -> list[str]:
    return sorted(re.findall(r"\b(?:load|store)\d+", body))


@pytest.mark.parametrize(
    ("inputs", "ops", "per_thread", "wanted"),
    [
        (["x: f32[8,64]"], ["r = relu(x)"], 4, ["load4", "store4"]),
        (["x: f32[8,64]"], ["r = relu(x)"], 8, ["load4", "store4"]),  # two vectors of 16 bytes
        (["x: f16[8,64]"], ["r = relu(x)"], 8, ["load8", "store8"]),
        (["x: f16[8,64]", "y: f32[8,64]"], ["a = add(x, y)"], 8, ["load4", "load4", "store4"]),  # the widest type rules
        (["x: f16[8,64]", "y: f32[8,1]"], ["a = mul(x, y)", "h = cast(a; to=f16)"], 8, ["load8", "store8"]),
        (["x: f32[8,64]"], ["r = relu(x)"], 1, []),
        (["x: f32[5,7,7]"], ["r = relu(x)"], 4, []),  # 245 points
        (["x: f32[4,7,7]"], ["r = relu(x)"], 4, ["load4", "store4"]),  # flat: rows of 7 do not matter
        (["x: f32[4,7,7]", "y: f32[7]"], ["a = add(x, y)"], 4, []),  # rows of 7 do
        (["x: f32[8,64]"], ["s = slice(x; axis=1, start=2, end=34)", "r = relu(s)"], 4, ["load2", "store2"]),
        (["x: f32[8,64]"], ["s = slice(x; axis=1, start=1, end=33)", "r = relu(s)"], 4, []),
        (["x: f32[8,66]"], ["s = slice(x; axis=1, start=4, end=36)", "r = relu(s)"], 4, ["load2", "store2"]),
        (["x: f32[8,64]"], ["t = transpose(x; perm=1-0)", "r = relu(t)"], 4, []),
        (["x: f32[8,6,64]"], ["t = transpose(x; perm=1-0-2)", "r = relu(t)"], 4, ["load4", "store4"]),
        (["x: f32[8,32]", "y: f32[8,32]"], ["c = concat(x, y; axis=1)", "r = relu(c)"], 4, []),  # behind a test
        (["x: f32[8,64]", "y: f32[8,64]"], ["c = less(x, y)"], 4, []),  # bool
    ],
)  # fmt: skip
def test_accesses_are_as_wide_as_shapes_prove(inputs, ops, per_thread, wanted):
    assert accesses(made(inputs, ops, per_thread)[0]) == wanted


def test_a_body_that_the_compiler_would_not_unroll_has_no_vectors():
    chain = ["a0 = erf(x)", *(f"a{n} = pow(a{n - 1}, a{n - 1})" for n in range(1, 4))]
    assert accesses(made(["x: f16[8,64]"], chain, 8)[0]) == ["load2", "store2"]


@needs_numba_cuda
@pytest.mark.slow
@pytest.mark.parametrize(
    ("inputs", "ops", "kinds", "loads"),
    [
        (["x: f32[8,64]", "y: f32[64]"], ["a = add(x, y)"], "f32,f32,f32", 2),
        (["x: f16[8,64]"], ["r = neg(x)"], "f16,f16", 1),
        (["x: bf16[8,64]"], ["r = neg(x)"], "bf16,bf16", 1),
    ],
)
def test_the_compiler_makes_one_access_of_a_vector(inputs, ops, kinds, loads, tmp_path):
    (tmp_path / "made.py").write_text(made(inputs, ops, 8)[1])
    command = [sys.executable, "-W", "ignore", "-c", PTX, str(tmp_path / "made.py"), kinds]
    ptx = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path).stdout
    count = 2 if "f32" in kinds else 1  # vectors a thread
    assert len(re.findall(r"ld\.global(?:\.nc)?\.v4", ptx)) == loads * count
    assert len(re.findall(r"st\.global\.v4", ptx)) == count
    assert not re.findall(r"(?:ld|st)\.global(?:\.nc)?\.[buf]", ptx)
