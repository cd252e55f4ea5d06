"""Groups that a library computes: the calls in the generated file, run with stand-ins for the GPU and for CuPy."""

import json
import sys
from types import ModuleType
from unittest.mock import MagicMock

import numpy as np
import pytest

from fusesolve import plan
from fusesolve.importers.native import parse_native
from fusesolve.validate.ladder import generate_plan


def made_of(inputs, ops, outputs):
    document = {"format": "fusesolve-graph/1", "name": "g", "inputs": inputs, "ops": ops, "outputs": outputs}
    graph = parse_native(json.dumps(document), "g", {}, False)
    return generate_plan(plan(graph, "a100", implementation="library", strategy="unfused").to_dict())[1]


def load(text, monkeypatch, *, cupy):
    """The file as on a machine with a GPU whose memory is NumPy's, with CuPy or without."""
    numba = MagicMock()
    numba.config.ENABLE_CUDASIM = 0
    numba.cuda.to_device = lambda array: Memory(np.array(array))
    numba.cuda.device_array = lambda size, kind: Memory(np.empty(size, kind))
    stand_in = ModuleType("cupy")
    stand_in.asarray, stand_in.matmul = (lambda memory: memory.array), np.matmul
    monkeypatch.setitem(sys.modules, "numba", numba)
    monkeypatch.setitem(sys.modules, "numba.cuda", numba.cuda)
    monkeypatch.setitem(sys.modules, "cupy", stand_in if cupy else None)
    module = ModuleType("made")
    exec(compile(text, "made", "exec"), vars(module))
    return module


class Memory:
    """An array on the device."""

    def __init__(self, array):
        self.array = array

    def __getitem__(self, part):
        return Memory(self.array[part])

    def copy_to_host(self):
        return self.array.copy()

    def copy_to_device(self, array):
        self.array[:] = array


PRODUCTS = {
    "two": (["a: f32[24,40]", "b: f32[40,16]"], "matmul(a, b)", lambda a, b: a @ b),
    "batches of one matrix": (["a: f64[3,8,40]", "b: f64[40,16]"], "matmul(a, b)", lambda a, b: a @ b),
    "transposed": (["a: f32[40,24]", "b: f32[16,40]"], "matmul(a, b; transpose_a=1, transpose_b=1)",
                   lambda a, b: a.T @ b.T),
    "itself": (["a: f16[32,32]"], "matmul(a, a)", lambda a: a @ a),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_product_is_computed_by_the_library(name, monkeypatch):
    inputs, op, wanted = PRODUCTS[name]
    made = made_of(inputs, [f"y = {op}"], ["y"])
    assert list(made.refused.values()) == ["a library call: cuBLAS where CuPy is installed, else the host"]
    module = load(made.text, monkeypatch, cupy=True)
    types = [item.split(": ")[1] for item in inputs]
    kinds = {"f16": np.float16, "f32": np.float32, "f64": np.float64}
    rng = np.random.default_rng(7)
    arrays = [
        rng.standard_normal([int(n) for n in kind[4:-1].split(",")]).astype(kinds[kind[:3]]) for kind in types
    ]  # fmt: skip
    (found,) = module.run(arrays)
    np.testing.assert_array_equal(found, wanted(*arrays))


def test_a_product_of_a_reshaped_value_has_the_extents_of_the_product(monkeypatch):
    made = made_of(["a: f32[4,6,5]", "b: f32[5,3]"], ["r = reshape(a; to=24-5)", "y = matmul(r, b)"], ["y"])
    module = load(made.text, monkeypatch, cupy=True)
    a, b = np.arange(120, dtype=np.float32).reshape(4, 6, 5), np.ones((5, 3), np.float32)
    np.testing.assert_array_equal(module.run([a, b])[0], a.reshape(24, 5) @ b)


def test_memory_is_made_by_the_first_call_and_used_again(monkeypatch):
    made = made_of(["a: f32[4,4]"], ["b = matmul(a, a)", "c = matmul(b, b)", "d = matmul(c, c)"], ["d"])
    module = load(made.text, monkeypatch, cupy=True)
    eye = np.eye(4, dtype=np.float32)
    first, memory = module.run([2 * eye]), dict(module.KEPT)
    assert len(memory) == 2  # the third product is written over the first
    np.testing.assert_array_equal(module.run([eye]), [eye])
    np.testing.assert_array_equal(first, [256 * eye])
    assert {name: id(item) for name, item in module.KEPT.items()} == {name: id(item) for name, item in memory.items()}


def test_what_lies_by_strides_is_laid_out_so(monkeypatch):
    made = made_of(["x: f32[6,8; strides=1-9]", "y: f32[8,6]"], ["a = matmul(x, y)"], ["a"])
    assert "lies by strides" in made.refused[0]
    module = load(made.text, monkeypatch, cupy=True)
    assert module.GROUPS[0][1][0][0] == 1 + 5 + 7 * 9
    x = np.arange(48, dtype=np.float32).reshape(6, 8)
    memory = module.laid(x, *module.INPUTS[0])
    assert all(memory[i + 9 * j] == x[i, j] for i in range(6) for j in range(8))
    with pytest.raises(ValueError, match="extents"):
        module.laid(x[1:], *module.INPUTS[0])


def test_without_the_library_the_host_is_asked(monkeypatch):
    made = made_of(*(["a: f32[4,4]"], ["y = matmul(a, a)"], ["y"]))
    module = load(made.text, monkeypatch, cupy=False)
    eye = np.eye(4, dtype=np.float32)
    with pytest.raises(ValueError, match="host function"):
        module.run([eye])
    (found,) = module.run([eye], lambda group, arrays: [arrays[0] * 2])
    np.testing.assert_array_equal(found, 2 * eye)


def test_attention_that_a_library_does_is_left_to_the_host():
    inputs = ["q: f16[2,64,32]", "k: f16[2,32,64]", "v: f16[2,64,32]"]
    ops = ["s = matmul(q, k)", "p = softmax(s; axis=2)", "o = matmul(p, v)"]
    document = {"format": "fusesolve-graph/1", "name": "g", "inputs": inputs, "ops": ops, "outputs": ["o"]}
    graph = parse_native(json.dumps(document), "g", {}, False)
    found = plan(graph, "a100", implementation="library", together=(("s", "o"),)).to_dict()
    assert [group["implementation"] for group in found["groups"]] == ["library"]
    (reason,) = generate_plan(found)[1].refused.values()
    assert reason.startswith("a library call that CuPy does not reach (attention)")


@pytest.mark.parametrize(
    ("inputs", "op", "why"),
    [
        (["a: bf16[8,8]"], "matmul(a, a)", "products of bf16"),
        (["x: f32[1,4,8,8]", "w: f32[4,4,3,3]"], "conv2d(x, w; pad=1)", r"\(contraction\)"),
    ],
)
def test_what_the_library_has_no_call_for_says_so(inputs, op, why):
    made = made_of(inputs, [f"y = {op}"], ["y"])
    (reason,) = made.refused.values()
    assert reason.startswith("a library call that CuPy does not reach") and why.strip("\\()") in reason
    assert "cupy" not in made.text
