"""GPT-2 layer upon layer: a layer is walked once, candidates grow in line, and the proof holds at twelve layers."""

import runpy
import sys
from functools import cache
from pathlib import Path

import pytest

from fusesolve import plan
from fusesolve.candidates.program import build_program
from fusesolve.candidates.space import enumerate_kernels

FOLDER = Path(__file__).parents[2] / "graphs"


@cache
def builder():
    before = list(sys.path)
    sys.path.insert(0, str(FOLDER))
    try:
        return runpy.run_path(str(FOLDER / "transformers.py"))["gpt2"]
    finally:
        sys.path[:] = before


@cache
def layers(count):
    return builder()(count).graph()


@cache
def space(count, recompute):
    return enumerate_kernels(build_program(layers(count)), recompute=recompute)


def test_one_layer_is_the_bundled_block():
    assert builder()(1).text() == (FOLDER / "gpt2_block.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize("recompute", [False, True])
def test_a_layer_is_walked_once_however_often_it_repeats(recompute):
    """First, inner and last layers differ at their ends; a fourth inner layer adds nothing new."""
    three, six = space(3, recompute), space(6, recompute)
    assert six.walked == three.walked
    assert len(six.workloads) == len(three.workloads)
    per_layer = (len(six.kernels) - len(three.kernels)) / 3
    four = space(4, recompute)
    assert len(four.kernels) - len(three.kernels) == per_layer


@pytest.mark.parametrize("recompute", [False, True])
def test_twelve_layers_are_planned_with_a_proof(recompute):
    """About 800 operators, within the default time limit; the benchmark prints how long each stage takes."""
    found = plan(layers(12), "a100", recompute=recompute)
    assert found.status == "OPTIMAL" or (found.gap is not None and found.gap <= 0.01)
    assert [cut for cut in found.space.cut_by if not cut.startswith("packs: ")] == []  # 48 casts at one level
    assert len(found.groups) <= 12 * 8


def test_equal_layers_get_equal_kernels():
    """Six layers: those between the first and the last are cut alike."""
    found = plan(layers(6), "a100", recompute=False)
    cuts = {}
    for group in found.groups:
        owners = {node.split("_")[0] for node in group.nodes}
        if len(owners) == 1:
            owner = owners.pop()
            cuts.setdefault(owner, []).append(tuple(node.removeprefix(f"{owner}_") for node in group.nodes))
    assert cuts["h1"] == cuts["h2"] == cuts["h3"] == cuts["h4"]


def test_layers_cost_in_proportion():
    one, two, four = (plan(layers(count), "a100", recompute=False).objective_ns for count in (1, 2, 4))
    assert one < two < 2.02 * one
    assert four - two == pytest.approx(2 * (two - one), rel=0.05)
