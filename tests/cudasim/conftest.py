"""Plans of the small graphs, and the simulator."""

import importlib.util
import json
from contextlib import ExitStack
from functools import cache
from unittest.mock import patch

import pytest

from fusesolve import plan
from fusesolve.codegen.runtime import Simulator
from fusesolve.pipeline import packing
from tests.cudasim.graphs import case_graph

needs_numba_cuda = pytest.mark.skipif(
    importlib.util.find_spec("numba_cuda") is None, reason="numba-cuda is not installed: pip install 'fusesolve[cuda]'"
)


@cache
def planned_document(name: str, strategy: str = "cpsat") -> str:
    """The plan of a small graph, without packs: each kernel in a launch of its own."""
    with patch.object(packing, "MOST_OPERATORS", 0):
        return _planned(name, strategy)


def _planned(name: str, strategy: str) -> str:
    found = plan(case_graph(name), "a100", implementation="generated", strategy=strategy, time_limit=60.0)
    return json.dumps(found.to_dict())


@pytest.fixture
def document_of():
    """`document_of("unary")`: the plan document of a small graph, every contraction generated."""
    return lambda name, **options: json.loads(planned_document(name, **options))


@pytest.fixture(scope="session")
def simulator_of():
    """`simulator_of(text)`: a simulator of a generated file, one process for all tests while no kernel ends it."""
    with ExitStack() as open_:
        made: list[Simulator] = []

        def load(text: str) -> Simulator:
            if made and made[-1].running:
                made[-1].load(text)
            else:
                made.append(open_.enter_context(Simulator(text)))
            return made[-1]

        yield load
