"""Plans of the small graphs, and the simulator."""

import importlib.util
import json
from functools import cache
from unittest.mock import patch

import pytest

from fusesolve import plan
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
