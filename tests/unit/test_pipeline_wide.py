"""Concats of more operands than the arguments of one kernel can name, and other operators of many operands."""

import numpy as np
import pytest

from fusesolve.builder import GraphBuilder
from fusesolve.decompose import add_operator
from fusesolve.graph import DType, Graph, TensorType
from fusesolve.hardware_yaml import load_profile
from fusesolve.pipeline import plan
from fusesolve.pipeline.wide import fit_arguments, most_operands
from fusesolve.reference import run_reference


def _joined(extents: list[int], *, axis: int = 0) -> Graph:
    builder = GraphBuilder("wide")
    shapes = [(extent, 3) if axis == 0 else (3, extent) for extent in extents]
    names = [builder.input(f"x{n}", TensorType(DType.F32, shape)) for n, shape in enumerate(shapes)]
    add_operator(builder, "concat", names, {"axis": axis}, outputs=("y",), source="y")
    builder.output("y")
    return builder.build()


def test_a_kernel_names_as_many_operands_as_its_argument_bytes_hold():
    assert most_operands(load_profile("v100")) == (32764 - 16) // 56 - 1
    assert most_operands(load_profile("p100")) == (4096 - 16) // 56 - 1


@pytest.mark.parametrize("hardware", ["p100", "mobile-npu"])
def test_a_concat_that_fits_is_left_alone(hardware: str):
    graph = _joined([2] * 71)
    assert fit_arguments(graph, load_profile(hardware)) == (graph, ())


def test_the_lightest_neighbours_are_joined_first():
    heavy = [50] * 40 + [1] * 31 + [50] * 23  # 94 operands, 30 more than a step takes
    fitted, warnings = fit_arguments(_joined(heavy), load_profile("p100"))
    first, last = fitted.nodes
    assert first.inputs == tuple(f"x{n}" for n in range(40, 71))
    assert last.outputs == ("y",)
    assert len(last.inputs) == 64
    assert "94 operands are joined in steps of at most 64" in warnings[0]


def test_steps_leave_the_result_as_it_was():
    graph = _joined([1 + n % 3 for n in range(150)], axis=1)
    fitted, _ = fit_arguments(graph, load_profile("p100"))
    assert len(fitted.nodes) == 3
    random = np.random.default_rng(5)
    feeds = {name: random.random(graph.type_of(name).shape, dtype=np.float32) for name in graph.inputs}
    assert np.array_equal(run_reference(graph, feeds)["y"], run_reference(fitted, feeds)["y"])


def test_a_concat_of_more_operands_than_a_kernel_names_has_a_plan():
    found = plan(_joined([4] * 130), "p100")
    assert found.status == "OPTIMAL"
    assert len(found.groups) == 2  # the steps of 64 and of 4 share a launch
    assert [len(group.inputs) for group in found.groups] == [68, 64]
    assert {name.split("/")[0] for group in found.groups for name in group.nodes} == {"y"}
    assert any("130 operands" in line for line in found.warnings)


def test_an_opaque_operator_takes_its_operands_in_its_own_way():
    builder = GraphBuilder("vendor")
    names = [builder.input(f"x{n}", TensorType(DType.F32, (4,))) for n in range(700)]
    builder.add("opaque", names, {"kind": "vendor"}, outputs=("y",), types=(TensorType(DType.F32, (4,)),))
    builder.output("y")
    assert plan(builder.build(), "p100").status == "OPTIMAL"
