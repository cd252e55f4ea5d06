"""The golden sources are not only as they were: they are right."""

import pytest

from fusesolve.codegen.module import generate
from fusesolve.codegen.planned import read_plan
from fusesolve.reference import random_feeds
from fusesolve.validate.ladder import compare
from fusesolve.validate.simulate import SimulatedKernel
from tests.cudasim.conftest import needs_numba_cuda
from tests.golden.test_kernels import GOLDEN, golden_document

pytestmark = [needs_numba_cuda, pytest.mark.slow]


@pytest.mark.parametrize("name", ["pointwise_staged", "row_bf16_in_shared", "tensor_epilogue"])
def test_positions_of_64_bits_compute_the_same(name, simulator_of, monkeypatch):
    monkeypatch.setattr("fusesolve.codegen.kernel.NARROW_LIMIT", 1)
    test_golden_source_equals_the_reference(simulator_of, name)


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_source_equals_the_reference(simulator_of, name):
    graph, document = golden_document(name)
    planned = read_plan(document, graph)
    made = generate(planned)
    execute = SimulatedKernel(planned, made, simulator_of(made.text))
    groups, fault = compare(planned, execute, random_feeds(graph, 0), made.refused)
    assert fault is None
    assert groups[0].ok, groups[0].note
