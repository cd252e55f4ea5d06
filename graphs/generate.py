"""Writes the bundled graphs: `python graphs/generate.py [FOLDER]` (default: the folder of this file).

Each graph is a model part with the shapes that it has in practice; `fusesolve-graph/1` text comes out the same on
every run. Types of results are inferred by the very builder that the importers use, so a graph that is written is a
graph that fits together.
"""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from fusesolve.builder import GraphBuilder
from fusesolve.decompose import add_operator
from fusesolve.graph import AttrValue, DType, Graph, Literal, Operand, TensorType
from fusesolve.importers.native_types import parse_type


class Sheet:
    """A graph under construction together with its text; every operator's name is its first result."""

    def __init__(self, name: str, about: str) -> None:
        self.name, self.about = name, about
        self._builder = GraphBuilder(name)
        self._inputs: list[str] = []
        self._weights: list[str] = []
        self._ops: list[str] = []
        self._outputs: list[str] = []

    def input(self, name: str, type_: str) -> str:
        """Declare what the caller feeds, such as `x` of `f16[1,1024,768]`; returns its name."""
        self._builder.input(name, parse_type(type_))
        self._inputs.append(f"{name}: {type_}")
        return name

    def weight(self, name: str, type_: str) -> str:
        """Declare a constant of the model; returns its name."""
        self._builder.input(name, parse_type(type_), weight=True)
        self._inputs.append(f"{name}: {type_}")
        self._weights.append(name)
        return name

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a value."""
        return self._builder.type(name).shape

    def dtype(self, name: str) -> str:
        """Element type of a value, as text."""
        return self._builder.type(name).dtype.value
