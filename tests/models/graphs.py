"""Real models as graphs, by the names of `fetch.py`."""

from fusesolve.graph import Graph
from fusesolve.importers.onnx import load_onnx
from tests.models.fetch import LIGHT_CNNS, REAL_MODELS, fetch, light_path


def load_model(name: str) -> Graph:
    """The model `name` of `LIGHT_CNNS` or `REAL_MODELS`, its dimensions bound; FetchError where it cannot be had."""
    if name in LIGHT_CNNS:
        return load_onnx(light_path(name), bind={}, strict=False)
    return load_onnx(fetch(name), bind=REAL_MODELS[name].bind, strict=False)


def named_graph(name: str) -> Graph | str:
    """A real model by its name; any other name as it is, for a bundled graph or a path."""
    return load_model(name) if name in LIGHT_CNNS or name in REAL_MODELS else name
