"""The generated source, run by Numba's CUDA simulator in a process of its own, equals the reference."""

import pytest

from fusesolve.codegen.runtime import KernelError, Simulator
from fusesolve.reference import random_feeds
from fusesolve.validate import ladder
from fusesolve.validate.ladder import StepOptions, generate_plan, plan_graph, validate_plan
from tests.cudasim.conftest import needs_numba_cuda
from tests.cudasim.graphs import CASES

pytestmark = [needs_numba_cuda, pytest.mark.slow]


@pytest.mark.parametrize("name", CASES)
def test_every_group_is_generated_and_equals_the_reference(document_of, name):
    found = validate_plan(document_of(name), "cudasim")
    assert found.failure() is None
    assert all(item.generated for item in found.groups)
    assert all(item.ok for item in found.groups), [item.note for item in found.groups]


def test_groups_of_a_plan_that_stays_large_are_run_alone(document_of, monkeypatch):
    monkeypatch.setattr(ladder, "MOST_THREADS", 0)
    document = document_of("block")
    found = validate_plan(document, "cudasim")
    assert [item.id for item in found.groups] == [group["id"] for group in document["groups"]]
    assert all(item.ok and item.generated for item in found.groups), [item.note for item in found.groups]
    monkeypatch.setattr(ladder, "MOST_ALONE", 0)
    assert {item.ok for item in validate_plan(document, "cudasim").groups} == {None}


def test_run_executes_the_whole_plan(document_of, tmp_path):
    import os
    import subprocess
    import sys

    import numpy as np

    from fusesolve.reference import run_reference

    document = document_of("attention")
    _, made = generate_plan(document)
    graph = plan_graph(document)
    feeds = random_feeds(graph, 1)
    (tmp_path / "kernels.py").write_text(made.text)
    np.savez(tmp_path / "in.npz", *(feeds[name] for name in (*graph.inputs, *graph.weights)))
    program = (
        "import numpy as np, kernels\n"
        "fed = np.load('in.npz')\n"
        "np.savez('out.npz', *kernels.run([fed[name] for name in fed.files]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    out = np.load(tmp_path / "out.npz")
    wanted = run_reference(graph, feeds)
    for name, key in zip(graph.outputs, out.files, strict=True):
        assert out[key].shape == wanted[name].shape
        np.testing.assert_allclose(out[key].astype(float), wanted[name].astype(float), atol=4e-3)


def test_another_seed_is_another_input_and_holds(document_of):
    assert validate_plan(document_of("reductions"), "cudasim", StepOptions(seed=7)).ok


def test_a_kernel_that_raises_is_named(document_of):
    document = document_of("unary")
    _, made = generate_plan(document)
    with Simulator(made.text.replace("def g0(", "def g0_gone(")) as simulator, pytest.raises(KernelError, match="g0"):
        simulator.run(0, [])
