"""Transposes through shared memory: both ways of a tile, in the emitted source and in the simulator."""

import json

import pytest

from fusesolve.codegen.module import generate
from fusesolve.codegen.planned import read_plan
from fusesolve.codegen.runtime import Simulator
from fusesolve.importers.native import parse_native
from fusesolve.reference import random_feeds
from fusesolve.validate.ladder import compare
from fusesolve.validate.simulate import SimulatedKernel
from tests.cudasim.conftest import needs_numba_cuda
from tests.unit.test_cost_layout import workload_of

TURN = ["r = relu(x)", "t = transpose(r; perm=1-0)", "e = exp(r)"]


def staged(inputs, ops, outputs, threads=256, per_thread=4):
    """The plan of one group and its generated file."""
    text = json.dumps({"format": "fusesolve-graph/1", "name": "one", "inputs": inputs, "ops": ops, "outputs": outputs})
    graph = parse_native(text, "one", {}, False)
    group = {
        "id": 0, "nodes": list(dict.fromkeys(node.source for node in graph.nodes)), "inputs": list(graph.inputs),
        "outputs": outputs, "template": "pointwise", "implementation": "generated",
        "tiling": {"threads": threads, "per_thread": per_thread},
    }  # fmt: skip
    planned = read_plan({"groups": [group], "status": "OPTIMAL"}, graph)
    return graph, planned, generate(planned)


def tiles(*case, **tiling) -> list[str]:
    body = staged(*case, **tiling)[2].kernels[0][0].emitted.body
    return [line.strip() for line in body if "shared.array" in line]


@needs_numba_cuda
@pytest.mark.slow
def test_what_is_written_the_other_way_goes_through_a_tile():
    graph, planned, made = staged(["x: bf16[33,40]"], TURN, ["t", "e"])
    assert "cuda.shared.array(1056, u16)" in made.text
    with Simulator(made.text) as simulator:
        groups, fault = compare(
            planned, SimulatedKernel(planned, made, simulator), random_feeds(graph, 0), made.refused
        )  # fmt: skip
    assert fault is None
    assert groups[0].ok, groups[0].note


def test_tiles_are_as_priced():
    """A tile of 32 x 33 elements for each turned array, as wide as the kernel's widest type."""
    assert tiles(["x: f32[64,48]"], TURN, ["t", "e"]) == ["s0 = cuda.shared.array(1056, f32)"]
    two = ["t = transpose(x; perm=1-0)", "u = transpose(y; perm=1-0)", "a = add(t, u)"]
    assert tiles(["x: f16[64,48]", "y: f32[64,48]"], two, ["a"]) == [
        "s0 = cuda.shared.array(1056, f32)", "s1 = cuda.shared.array(1056, f32)"
    ]  # fmt: skip
    assert workload_of("x: f16[64,48]; y: f32[64,48]", *two).staged == 2


@pytest.mark.parametrize(
    ("inputs", "ops", "threads"),
    [
        (["x: f32[64,8]"], ["t = transpose(x; perm=1-0)"], 256),  # eight columns: most of a tile would idle
        (["x: f32[64,48]"], ["t = transpose(x; perm=1-0)"], 128),  # a block of 512 points is no tile
        (["x: f32[32,32,32]", "y: f32[32,32,32]", "z: f32[32,32,32]"],
         ["a = transpose(x; perm=2-1-0)", "b = transpose(y; perm=0-2-1)", "t = add(a, b)"], 256),  # three ways
        (["x: f32[64,48]"], ["t = relu(x)"], 256),
    ],
)  # fmt: skip
def test_other_groups_have_no_tiles(inputs, ops, threads):
    assert tiles(inputs, ops, ["t"], threads=threads) == []
