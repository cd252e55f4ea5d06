"""The native graph format `fusesolve-graph/1`: parsing, and writing so that parsing gives the same graph again.

Beyond what a person writes, a written graph carries `source=NAME` after the type of a primitive that came from a
larger operator; such a statement is one primitive and is not decomposed again.
"""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from heapq import heapify, heappop, heappush
from typing import Any

from fusesolve.builder import GraphBuilder
from fusesolve.decompose import COMPOSITES
from fusesolve.errors import InputError
from fusesolve.graph import Graph, Node, Value
from fusesolve.importers.native_lower import Lowering, storage_attrs
from fusesolve.importers.native_syntax import (
    Declared,
    Statement,
    bind_type,
    dim_names,
    format_attr,
    format_operand,
    parse_declaration,
    parse_statement,
    quote,
)
from fusesolve.importers.native_text import FORMAT, Text, parse_document


def parse_native(text: str, origin: str, bind: Mapping[str, int], strict: bool) -> Graph:
    """The graph of a native file's `text` (YAML or JSON); `origin` is its name in messages.

    `bind` gives every symbolic dimension an extent. Operators may stand in any order. Unknown operators with a
    declared type become opaque with a warning, with `strict` an InputError. Raises InputError, one line with the
    file's line and the entry, for everything that does not fit.
    """
    document = parse_document(text, origin)
    declarations = [(item, *_declaration(item)) for item in document.inputs]
    statements = [parse_statement(item.value, item.where) for item in document.ops]
    _check_bindings(declarations, statements, bind, origin)
    builder = GraphBuilder(document.name)
    _declare_inputs(builder, declarations, document.weights, bind)
    lowering = Lowering(builder, bind, strict=strict)
    for statement in _sorted(statements, {name for _, name, _ in declarations}):
        lowering.lower(statement)
    lowering.finish()
    for item in document.outputs:
        if item.value not in builder:
            hint = _near(item.value, builder)
            raise InputError(f"{item.where}: the output {item.value!r} is no value of the graph{hint}")
        builder.output(item.value)
    if not document.outputs:
        raise InputError(f"{origin}: the graph has no outputs")
    try:
        return builder.build()
    except InputError as error:
        raise InputError(f"{origin}: {error}") from None


def _declaration(item: Text) -> tuple[str, Declared]:
    try:
        return parse_declaration(item.value)
    except InputError as error:
        raise InputError(f"{item.where}: {error} in {item.value!r}") from None


def _near(name: str, known: GraphBuilder | Mapping[str, int]) -> str:
    names = list(known.value_names()) if isinstance(known, GraphBuilder) else list(known)
    near = get_close_matches(name, names[:10_000], 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _check_bindings(
    declarations: Sequence[tuple[Text, str, Declared]],
    statements: Sequence[Statement],
    bind: Mapping[str, int],
    origin: str,
) -> None:
    """Every symbol has an extent and every extent a symbol, or InputError naming all of them."""
    declared = [item for _, _, item in declarations] + [item for s in statements for item in s.types]
    symbols = sorted(set[str]().union(*(dim_names(item.shape) for item in declared)))
    unbound = [name for name in symbols if name not in bind]
    if unbound:
        flags = " ".join(f"--bind {name}=SIZE" for name in unbound)
        raise InputError(f"{origin}: the dimensions {', '.join(unbound)} have no size; give {flags}")
    unused = [name for name in bind if name not in symbols]
    if unused:
        names = ", ".join(symbols) or "none"
        raise InputError(f"{origin}: no dimension is named {unused[0]!r}; the symbolic dimensions are: {names}")
    negative = [name for name in symbols if bind[name] < 0]
    if negative:
        raise InputError(f"{origin}: the size of {negative[0]} is {bind[negative[0]]}; it must be 0 or more")


def _declare_inputs(
    builder: GraphBuilder,
    declarations: Sequence[tuple[Text, str, Declared]],
    weights: Sequence[Text],
    bind: Mapping[str, int],
) -> None:
    names = {name for _, name, _ in declarations}
    for item in weights:
        if item.value not in names:
            raise InputError(f"{item.where}: the weight {item.value!r} is not among the inputs")
    constants = {item.value for item in weights}
    for text, name, declared in declarations:
        try:
            storage = storage_attrs(declared.attrs, bind, allowed=("alias_out", "external", "strides"))
            builder.input(
                name, bind_type(declared, bind), weight=name in constants, alias_out=storage.alias_out,
                external=storage.external, strides=storage.strides,
            )  # fmt: skip
        except InputError as error:
            raise InputError(f"{text.where}: {error} in {text.value!r}") from None


# order


def _sorted(statements: Sequence[Statement], inputs: set[str]) -> Sequence[Statement]:
    """The statements so that each follows what it reads, in the file's order where that already holds."""
    producer = _producers(statements, inputs)
    waits, readers = _dependencies(statements, producer, inputs)
    ready = [index for index, count in enumerate(waits) if count == 0]
    heapify(ready)
    order: list[int] = []
    while ready:
        index = heappop(ready)
        order.append(index)
        for reader in readers[index]:
            waits[reader] -= 1
            if waits[reader] == 0:
                heappush(ready, reader)
    if len(order) < len(statements):
        raise InputError(_cycle(statements, producer, {i for i, count in enumerate(waits) if count}))
    return [statements[index] for index in order]


def _producers(statements: Sequence[Statement], inputs: set[str]) -> dict[str, int]:
    producer: dict[str, int] = {}
    for index, statement in enumerate(statements):
        for name in statement.results:
            if name in producer or name in inputs:
                raise InputError(f"{statement.where}: the name {name!r} is given twice in {statement.text!r}")
            producer[name] = index
    return producer


def _dependencies(
    statements: Sequence[Statement], producer: Mapping[str, int], inputs: set[str]
) -> tuple[list[int], list[list[int]]]:
    """Statements that each one still waits for, and the readers of each one."""
    waits = [0] * len(statements)
    readers: list[list[int]] = [[] for _ in statements]
    for index, statement in enumerate(statements):
        for name in {item: None for item in statement.operands if isinstance(item, str)}:
            if name in producer:
                waits[index] += 1
                readers[producer[name]].append(index)
            elif name not in inputs:
                hint = _near(name, dict.fromkeys([*inputs, *producer], 0))
                raise InputError(f"{statement.where}: nothing is named {name!r}{hint} in {statement.text!r}")
    return waits, readers


def _cycle(statements: Sequence[Statement], producer: Mapping[str, int], stuck: set[int]) -> str:
    """The message that names one cycle among the statements that wait for each other."""
    path: list[int] = []
    index = min(stuck)
    while index not in path:
        path.append(index)
        index = next(
            producer[item]
            for item in statements[index].operands
            if isinstance(item, str) and producer.get(item) in stuck
        )
    loop = [*path[path.index(index) :], index]
    names = " <- ".join(statements[item].results[0] for item in loop)
    return f"{statements[index].where}: the operators form a cycle: {names}"


# writing


def native_document(graph: Graph) -> dict[str, Any]:
    """`graph` as the mapping of a native file, ready for JSON; parsing it gives an equal graph."""
    document: dict[str, Any] = {
        "format": FORMAT,
        "name": graph.name,
        "inputs": [f"{quote(name)}: {_type(graph.values[name])}" for name in (*graph.inputs, *graph.weights)],
    }
    if graph.weights:
        document["weights"] = list(graph.weights)
    document["ops"] = [_statement(graph, node) for node in graph.nodes]
    document["outputs"] = list(graph.outputs)
    return document


def format_native(graph: Graph) -> str:
    """`graph` as YAML text in the native format; parsing it gives an equal graph."""
    lines: list[str] = []
    for key, value in native_document(graph).items():
        if isinstance(value, str):
            lines.append(f"{key}: {_yaml_text(value)}")
        else:
            lines.append(f"{key}:" if value else f"{key}: []")
            lines.extend(f"  - {_yaml_text(item)}" for item in value)
    return "\n".join(lines) + "\n"


def _type(value: Value, source: str | None = None) -> str:
    attrs = []
    if value.alias_out is not None:
        attrs.append(f"alias_out={quote(value.alias_out)}")
    if value.external:
        attrs.append("external=1")
    if value.strides:
        attrs.append(f"strides={format_attr(value.strides)}")
    if source is not None:
        attrs.append(f"source={quote(source)}")
    tail = f"; {', '.join(attrs)}" if attrs else ""
    return f"{value.type.dtype.value}[{','.join(map(str, value.type.shape))}{tail}]"


def _statement(graph: Graph, node: Node) -> str:
    pairs = [f"{name}={format_attr(value)}" for name, value in node.attrs if value != ()]
    attrs = f"; {', '.join(pairs)}" if pairs else ""
    keep = node.source != node.outputs[0] or node.op in COMPOSITES
    sources = [node.source if keep else None, *(None for _ in node.outputs[1:])]
    types = ", ".join(_type(graph.values[n], s) for n, s in zip(node.outputs, sources, strict=True))
    results = ", ".join(map(quote, node.outputs))
    return f"{results} = {node.op}({', '.join(map(format_operand, node.inputs))}{attrs}) : {types}"


def _yaml_text(text: str) -> str:
    """`text` in YAML's double quotes, every sign outside printable ASCII escaped."""
    return '"' + "".join(_yaml_sign(sign) for sign in text) + '"'


def _yaml_sign(sign: str) -> str:
    code = ord(sign)
    if sign in '"\\':
        return "\\" + sign
    if 0x20 <= code < 0x7F:
        return sign
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
