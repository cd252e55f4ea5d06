"""Building a graph: values and primitives are added one by one, checked at once, named at the end.

Names of nodes follow from their sources: a source operator that became one primitive gives the node its name; one
that became several gives `source/primitive`, then `source/primitive_1`, and so on in the order of the graph.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Protocol

from fusesolve.errors import FusesolveError, InputError, InternalError
from fusesolve.graph import AttrValue, Graph, Literal, Node, Operand, TensorType, Value
from fusesolve.ops import OPS, STORED_TYPE, infer_results
from fusesolve.ops.rules import resolve_operands
from fusesolve.verify import check_graph

_NO_ATTRS: Mapping[str, AttrValue] = MappingProxyType({})


@dataclass(slots=True)
class _Draft:
    """A node before it has a name."""

    op: str
    inputs: list[Operand]
    outputs: list[str]
    attrs: tuple[tuple[str, AttrValue], ...]
    source: str


class GraphBuilder:
    """Collects values and nodes in topological order and freezes them into a `Graph`.

    Every method that takes a name raises InputError, with the operator's name in front, where a shape, a type or an
    attribute does not fit, and where a name is unknown or taken.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._inputs: list[str] = []
        self._weight_names: set[Operand] = set()
        self._outputs: list[str] = []
        self._values: dict[str, Value] = {}
        self._drafts: list[_Draft] = []
        self._producer: dict[str, _Draft] = {}
        self._readers: dict[str, list[_Draft]] = {}
        self._suffix: Counter[str] = Counter()
        self._warnings: list[str] = []

    def input(
        self,
        name: str,
        type: TensorType,  # noqa: A002  the public word for a value's element type and shape
        *,
        weight: bool = False,
        alias_out: str | None = None,
        external: bool = False,
        strides: tuple[int, ...] | None = None,
    ) -> str:
        """Declare what the caller feeds (or, with `weight`, a constant of the model); returns `name`.

        `strides` in elements, one per dimension; `alias_out` is the result written back into this storage.
        """
        if strides is not None and len(strides) != len(type.shape):
            raise InputError(f"{name}: {len(strides)} strides for {type}, which has {len(type.shape)} dimensions")
        self._declare(Value(name=name, type=type, alias_out=alias_out, external=external, strides=strides))
        if weight:
            self._weight_names.add(name)
        else:
            self._inputs.append(name)
        return name

    def inputs_of(self, graph: Graph, type_of: Callable[[str], TensorType], *, strides: bool = True) -> None:
        """Take over the warnings, inputs and weights of a graph, each in the type that `type_of` gives its name."""
        for warning in graph.warnings:
            self.warn(warning)
        weights = set(graph.weights)
        for name in (*graph.inputs, *graph.weights):
            value = graph.values[name]
            self.input(
                name, type_of(name), weight=name in weights, alias_out=value.alias_out, external=value.external,
                strides=value.strides if strides else None,
            )  # fmt: skip

    def add(
        self,
        op: str,
        inputs: Sequence[Operand],
        attrs: Mapping[str, AttrValue] = _NO_ATTRS,
        *,
        outputs: Sequence[str] | None = None,
        source: str = "",
        types: Sequence[TensorType] | None = None,
    ) -> tuple[str, ...]:
        """Append one primitive and return the names of its results.

        `outputs` names the results; where it is None fresh names are made from `source` (`source/op`,
        `source/op_1`, ...). An empty `source` is the first result's name. `types` declares the result types of an
        opaque operator and is checked against the inferred ones for any other.
        """
        try:
            results, canonical = self._infer(op, inputs, attrs, types)
            names = list(outputs) if outputs is not None else self._fresh(source or op, op, len(results))
            if len(names) != len(results):
                raise InputError(f"{op} has {len(results)} results, {len(names)} names were given")
            for result, type_ in zip(names, results, strict=True):
                self._declare(Value(name=result, type=type_))
        except FusesolveError as error:
            where = source or (outputs[0] if outputs else op)
            raise error.__class__(f"{where}: {error}") from None
        draft = _Draft(op, list(inputs), names, canonical, source or names[0])
        self._drafts.append(draft)
        self._producer.update(dict.fromkeys(names, draft))
        for item in inputs:
            if isinstance(item, str):
                self._readers.setdefault(item, []).append(draft)
        return tuple(names)

    def one(
        self,
        op: str,
        inputs: Sequence[Operand],
        attrs: Mapping[str, AttrValue] = _NO_ATTRS,
        *,
        output: str | None = None,
        source: str = "",
    ) -> str:
        """`add` for an operator with exactly one result; returns its name."""
        (result,) = self.add(op, inputs, attrs, outputs=None if output is None else (output,), source=source)
        return result

    def rename(self, old: str, new: str) -> str:
        """Give the result `old` the name `new`, with its readers so far; returns `new`.

        Raises InternalError where `old` is no result of a node or is already an output.
        """
        if old == new:
            return new
        draft = self._producer.get(old)
        if draft is None or old in self._outputs:
            raise InternalError(f"{old} cannot be renamed to {new}: it is no result of a node, or it is an output")
        self._declare(replace(self._values[old], name=new))
        draft.outputs[draft.outputs.index(old)] = new
        for reader in self._readers.get(old, ()):
            reader.inputs = [new if item == old else item for item in reader.inputs]
        self._readers[new] = self._readers.pop(old, [])
        del self._values[old], self._producer[old]
        self._producer[new] = draft
        return new

    def mark(self, name: str, *, external: bool = False, strides: tuple[int, ...] | None = None) -> None:
        """Set the storage attributes of the result `name`; InputError where the strides do not fit its shape."""
        value = self._values[name]
        if strides is not None and len(strides) != len(value.type.shape):
            raise InputError(f"{name}: {len(strides)} strides for {value.type}")
        self._values[name] = replace(value, external=external, strides=strides)

    def type(self, name: Operand) -> TensorType:
        """Type of a value; a literal alone is f64, i64 or bool. InputError where the name is unknown."""
        if isinstance(name, Literal):
            return resolve_operands([name], {})[0]
        if name not in self._values:
            raise InputError(f"there is no value named {name!r}")
        return self._values[name].type

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def is_weight(self, name: Operand) -> bool:
        """True where `name` is a constant of the model."""
        return name in self._weight_names

    def value_names(self) -> tuple[str, ...]:
        """Names of all values so far, in the order of their declaration."""
        return tuple(self._values)

    def output(self, name: str) -> None:
        """Declare the value `name` a result of the graph; a repeat is kept once."""
        self.type(name)
        if name not in self._outputs:
            self._outputs.append(name)

    def warn(self, message: str) -> None:
        """Keep a message for the user beside the graph."""
        self._warnings.append(message)

    def build(self) -> Graph:
        """The finished graph, verified.

        Results that are written back into an input (`alias_out`) or that live in the caller's storage (`external`)
        become outputs. Nodes that reach no output are dropped, with one warning that names them; weights that nothing
        reads are dropped, the others stand in the order of their first readers.
        """
        for value in list(self._values.values()):
            if value.alias_out is not None:
                self._check_alias(value)
                self.output(value.alias_out)
            if value.external and value.name in self._producer:
                self.output(value.name)
        kept = self._live_drafts()
        produced = {name for draft in kept for name in draft.outputs}
        read = dict.fromkeys([item for draft in kept for item in draft.inputs] + list(self._outputs))
        weights = tuple(str(name) for name in read if name in self._weight_names)
        known = {*produced, *self._inputs, *weights}
        graph = Graph(
            name=self.name,
            inputs=tuple(self._inputs),
            weights=weights,
            outputs=tuple(self._outputs),
            nodes=tuple(_named(kept)),
            values={name: value for name, value in self._values.items() if name in known},
            warnings=tuple(self._warnings),
        )
        check_graph(graph, "build")
        return graph

    def _infer(
        self,
        op: str,
        inputs: Sequence[Operand],
        attrs: Mapping[str, AttrValue],
        types: Sequence[TensorType] | None,
    ) -> tuple[Sequence[TensorType], tuple[tuple[str, AttrValue], ...]]:
        row = OPS.get(op)
        if row is None:
            raise InternalError(f"there is no primitive named {op!r}")
        check_call(row, len(inputs), {} if row.declared else {k: v for k, v in attrs.items() if k != STORED_TYPE})
        operands = resolve_operands(inputs, {item: self.type(item) for item in inputs if isinstance(item, str)})
        if row.declared:
            if types is None:
                raise InputError(f"{op} needs declared result types")
            return types, tuple(sorted(attrs.items()))
        results, canonical = infer_results(row, operands, attrs)
        frozen = tuple(sorted(canonical.items()))
        if types is not None and tuple(types) != results:
            texts = [", ".join(map(str, item)) for item in (types, results)]
            raise InputError(f"declared {texts[0]}, but {op} gives {texts[1]}")
        return results, frozen

    def _declare(self, value: Value) -> None:
        if value.name in self._values:
            raise InputError(f"the name {value.name!r} is given twice")
        self._values[value.name] = value

    def _fresh(self, source: str, op: str, count: int) -> list[str]:
        names: list[str] = []
        base = f"{source}/{op}"
        while len(names) < count:
            number = self._suffix[base]
            self._suffix[base] += 1
            name = f"{base}_{number}" if number else base
            if name not in self._values:
                names.append(name)
        return names

    def _check_alias(self, value: Value) -> None:
        target = self._values.get(value.alias_out or "")
        if target is None or target.name not in self._producer:
            raise InputError(f"{value.name}: alias_out={value.alias_out} is no result of this graph")
        if target.type != value.type:
            raise InputError(f"{value.name}: alias_out={target.name} is {target.type}, the storage holds {value.type}")

    def _live_drafts(self) -> list[_Draft]:
        needed, kept, dropped = set(self._outputs), [], []
        for draft in reversed(self._drafts):
            if needed.isdisjoint(draft.outputs):
                dropped.append(draft.source)
                continue
            kept.append(draft)
            needed.update(item for item in draft.inputs if isinstance(item, str))
        alive = {draft.source for draft in kept}
        gone = [name for name in dict.fromkeys(reversed(dropped)) if name not in alive]
        if gone:
            shown = ", ".join(gone[:5]) + (", ..." if len(gone) > 5 else "")
            self.warn(f"{len(gone)} operators reach no output and are left out: {shown}")
        return kept[::-1]


class Signature(Protocol):
    """What a call is checked against: a primitive or a composite."""

    @property
    def name(self) -> str:
        """Name of the operator."""

    @property
    def operands(self) -> tuple[int, int | None]:
        """Least and greatest number of operands (None: any number)."""

    @property
    def attrs(self) -> Mapping[str, tuple[bool, str]]:
        """Attributes: name -> (required?, meaning)."""


def check_call(row: Signature, operands: int, attrs: Mapping[str, object]) -> None:
    """InputError where the number of operands or an attribute's name does not fit the operator."""
    least, most = row.operands
    if operands < least or (most is not None and operands > most):
        span = str(least) if least == most else f"{least} or more" if most is None else f"{least} to {most}"
        raise InputError(f"{row.name} takes {span} operands, got {operands}")
    unknown = [name for name in attrs if name not in row.attrs]
    if unknown:
        known = ", ".join(row.attrs) or "none"
        raise InputError(f"{row.name} has no attribute {unknown[0]!r}; it takes {known}")


def _named(drafts: Sequence[_Draft]) -> list[Node]:
    parts = Counter(draft.source for draft in drafts)
    taken = {source for source, count in parts.items() if count == 1}
    suffix: Counter[str] = Counter()
    nodes = []
    for draft in drafts:
        single = parts[draft.source] == 1
        nodes.append(
            Node(
                name=draft.source if single else _part_name(f"{draft.source}/{draft.op}", suffix, taken),
                op=draft.op,
                inputs=tuple(draft.inputs),
                outputs=tuple(draft.outputs),
                attrs=draft.attrs,
                source=draft.source,
            )
        )
    return nodes


def _part_name(base: str, suffix: Counter[str], taken: set[str]) -> str:
    """The first of `base`, `base_1`, `base_2`, ... that is not taken; takes it."""
    name = base
    while name in taken or suffix[base]:
        name = f"{base}_{suffix[base]}" if suffix[base] else base
        suffix[base] += 1
        if name not in taken:
            break
    suffix[base] = max(suffix[base], 1)
    taken.add(name)
    return name
