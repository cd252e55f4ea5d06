"""A native graph under construction: types are inferred and checked while its text is written."""

from collections.abc import Sequence

from fusesolve.builder import GraphBuilder
from fusesolve.decompose import add_operator
from fusesolve.graph import AttrValue, DType, Graph, Literal, Operand, TensorType


class Sheet:
    """Collects inputs, weights and operators and prints them as `fusesolve-graph/1`.

    An operator's name is its first result. Every method raises InputError, with the operator's name in front, where
    types, shapes or attributes do not fit.
    """

    def __init__(self, name: str, about: str) -> None:
        self.name, self.about = name, about
        self._builder = GraphBuilder(name)
        self._inputs: list[str] = []
        self._weights: list[str] = []
        self._ops: list[str] = []
        self._outputs: list[str] = []

    def input(self, name: str, dtype: str, *shape: int, alias_out: str | None = None) -> str:
        """Declare what the caller feeds; returns its name. The result `alias_out` is written back into it."""
        kind = TensorType(DType(dtype), shape)
        self._builder.input(name, kind, alias_out=alias_out)
        text = str(kind) if alias_out is None else f"{str(kind)[:-1]}; alias_out={alias_out}]"
        self._inputs.append(f"{name}: {text}")
        return name

    def weight(self, name: str, dtype: str, *shape: int) -> str:
        """Declare a constant of the model; returns its name."""
        kind = TensorType(DType(dtype), shape)
        self._builder.input(name, kind, weight=True)
        self._inputs.append(f"{name}: {kind}")
        self._weights.append(name)
        return name

    def op(self, name: str, operator: str, *operands: str | float, **attrs: AttrValue) -> str:
        """Append an operator, primitive or composite, with one result `name`; returns it."""
        return self.ops((name,), operator, *operands, **attrs)[0]

    def ops(self, names: Sequence[str], operator: str, *operands: str | float, **attrs: AttrValue) -> Sequence[str]:
        """Append an operator with the results `names`; returns them."""
        items: list[Operand] = [item if isinstance(item, str) else Literal(item) for item in operands]
        add_operator(self._builder, operator, items, attrs, outputs=names, source=names[0])
        inside = ", ".join(map(str, operands))
        if attrs:
            inside += "; " + ", ".join(f"{key}={_text(value)}" for key, value in attrs.items())
        kinds = ", ".join(str(self._builder.type(item)) for item in names)
        declared = f" : {kinds}" if len(names) == 1 else ""
        self._ops.append(f"{', '.join(names)} = {operator}({inside}){declared}")
        return names

    def output(self, *names: str) -> None:
        """Declare results of the graph."""
        for name in names:
            self._builder.output(name)
            self._outputs.append(name)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a value."""
        return self._builder.type(name).shape

    def dtype(self, name: str) -> str:
        """Element type of a value, as the word of the native format."""
        return self._builder.type(name).dtype.value

    def graph(self) -> Graph:
        """The graph as it stands, verified."""
        return self._builder.build()

    def text(self) -> str:
        """The graph in the native format, the same on every run."""
        lines = [f"# {self.about}", "# Written by graphs/generate.py: change that, then run `make graphs`."]
        lines += ["format: fusesolve-graph/1", f"name: {self.name}"]
        lines += _entries("inputs", self._inputs)
        if self._weights:
            lines.append(f"weights: [{', '.join(self._weights)}]")
        lines += ["ops:", *(f'  - "{item}"' for item in self._ops), f"outputs: [{', '.join(self._outputs)}]"]
        return "\n".join(lines) + "\n"


def _entries(key: str, items: Sequence[str]) -> list[str]:
    return [f"{key}:", *(f'  - "{item}"' for item in items)]


def _text(value: AttrValue) -> str:
    """An attribute as the native format writes it: lists joined by `-`, words bare."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "-".join(map(str, value))
    return str(value)
