"""Lower a folded ONNX model to fusesolve's primitives: the last stage of the ONNX importer.

Every node goes to the handler of its operator, which emits primitives through a `GraphBuilder`; what has no handler
becomes one opaque kernel with a warning. Constants: one element beside a tensor becomes a literal; everything else is a
weight. A node that reads only constants is evaluated ahead (its result is a weight) where that makes the model no
larger; so transposed or sliced weights are weights, and dequantised ones stay kernels that read the small type.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import onnx_ir as ir

from fusesolve.builder import GraphBuilder
from fusesolve.errors import InputError, InternalError
from fusesolve.graph import DType, Graph, Literal, Operand, TensorType
from fusesolve.importers.onnx_fold import is_static
from fusesolve.importers.onnx_node import NodeView, label, tensor_type
from fusesolve.importers.onnx_proto import UNKNOWN_DOMAIN

# Emits one node; returns its results in order (None: that result is not computed), or None where only an opaque
# kernel can stand for it.
Handler: TypeAlias = Callable[[NodeView], Operand | Sequence[Operand | None] | None]

# An operator that the model's operator set has no more or not yet is read as the standard has it otherwise.
_HANDLED_DOMAINS = ("", "ai.onnx", UNKNOWN_DOMAIN)
_RANDOM = frozenset({
    "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli",
})  # fmt: skip


class Lowering:
    """One run over one model. `handlers`: by operator name, for the standard domain."""

    def __init__(self, model: ir.Model, weights: frozenset[str], handlers: Mapping[str, Handler], origin: str) -> None:
        self.model = model
        self.handlers = handlers
        self.origin = origin
        self.builder = GraphBuilder(model.graph.name or "onnx")
        self.constants = set(weights)
        self.operands: dict[str, Operand] = {}
        self.sources: set[str] = set()
        self.weights: set[str] = set()
        self.fed: set[str] = set()
        self.given: set[str] = set()
        self.views: dict[tuple[str, tuple[int, ...]], str] = {}

    def run(self, *, strict: bool) -> Graph:
        """The graph of the whole model; with `strict` an opaque node is an InputError."""
        graph = self.model.graph
        for value in graph.inputs:
            if value.name not in self.constants:
                name = self.builder.input(_name(value), tensor_type(value, self.origin))
                self.operands[name] = name
                self.fed.add(name)
        for node in graph:
            if not self._is_evaluated_ahead(node):
                self._lower(node, strict=strict)
        outputs = [self._output(value) for value in graph.outputs]
        for name in outputs:
            self.builder.output(name)
        built = _without_idle_weights(self.builder.build())
        names = self._final_names(outputs, built)
        return _renamed(built, names)

    # --- values ---

    def is_constant(self, value: ir.Value) -> bool:
        """Whether `value` is the same on every run: an initializer, a weight, or computed from those ahead."""
        return value.const_value is not None or value.name in self.constants

    def tensor(self, value: ir.Value) -> str:
        """Name of `value` in the builder; a constant becomes a weight on its first use."""
        name = _name(value)
        found = self.operands.get(name)
        if isinstance(found, str):
            return found
        if found is None and not self.is_constant(value):
            raise InternalError(f"{self.origin}: value '{name}' is read before anything produces it")
        self.operands[name] = made = self.derived_weight(name, tensor_type(value, self.origin))
        return made

    def is_weight(self, name: str) -> bool:
        """Whether a value of the builder is a constant of the model."""
        return name in self.weights

    def derived_weight(self, name: str, kind: TensorType) -> str:
        """Declare a weight under `name`, or under `name` and a mark where the builder has taken it already."""
        while name in self.builder:
            name += "~"
        self.weights.add(name)
        return self.builder.input(name, kind, weight=True)

    def weight_view(self, name: str, shape: tuple[int, ...]) -> str:
        """A weight under another shape: the same bytes, no operator."""
        key = (name, shape)
        if key not in self.views:
            kind = TensorType(self.builder.type(name).dtype, shape)
            self.views[key] = self.derived_weight(f"{name}@{'x'.join(map(str, shape))}", kind)
        return self.views[key]

    def operand(self, value: ir.Value) -> Operand:
        """`value` as a literal where it is a constant of one element, else its name."""
        constant = value.const_value
        if constant is None or constant.size != 1:
            return self.tensor(value)
        item = constant.numpy().reshape(()).item()
        dtype = tensor_type(value, self.origin).dtype
        return Literal(bool(item) if dtype is DType.BOOL else float(item) if dtype.is_float else int(item))

    def _is_evaluated_ahead(self, node: ir.Node) -> bool:
        """Mark the results of a constant node as constants where they are no larger than what it reads."""
        reads = [value for value in node.inputs if value is not None]
        graphs = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
        if not all(self.is_constant(value) for value in reads) or node.op_type in _RANDOM:
            return False
        if any(item.type in graphs for item in node.attributes.values()) or not all(map(is_static, node.outputs)):
            return False
        read = sum(tensor_type(value, self.origin).nbytes for value in reads)
        made = sum(tensor_type(value, self.origin).nbytes for value in node.outputs)
        if made > read and node.op_type not in ("Constant", "ConstantOfShape"):
            return False
        self.constants.update(_name(value) for value in node.outputs)
        return True

    # --- nodes ---

    def _lower(self, node: ir.Node, *, strict: bool) -> None:
        source = self._unique_source(label(node))
        view = NodeView(self, node, source)
        used = [value for value in node.outputs if value.name and (value.uses() or value.is_graph_output())]
        for value in used:
            self._check_static(value, view)
        handler = self.handlers.get(node.op_type) if node.domain in _HANDLED_DOMAINS else None
        try:
            results = handler(view) if handler else None
            if results is None:
                results = self._opaque(view, strict=strict)
            self._keep_results(view, [results] if isinstance(results, str | Literal) else results)
        except InputError as error:
            text = str(error).removeprefix(f"{source}: ")
            raise InputError(f"{self.origin}: node '{source}' ({node.op_type}): {text}") from None

    def _keep_results(self, view: NodeView, results: Sequence[Operand | None]) -> None:
        for value, result in zip(view.node.outputs, results, strict=False):
            if result is not None and value.name:
                self.operands[value.name] = view.adapt(result, tensor_type(value, "")) if view.uses(value) else result
        missing = [v for v in view.node.outputs if v.name and v.name not in self.operands and view.uses(v)]
        if missing:
            raise InternalError(f"{self.origin}: the handler of {view.node.op_type} gave no '{missing[0].name}'")

    def _check_static(self, value: ir.Value, view: NodeView) -> None:
        if is_static(value):
            return
        where = f"{self.origin}: node '{view.source}' ({view.node.op_type})"
        if value.type is not None and not isinstance(value.type, ir.TensorType):
            raise InputError(f"{where}: its result '{value.name}' is no tensor; only tensors can be planned")
        shape = "unknown" if value.shape is None else f"[{', '.join(map(str, value.shape))}]"
        raise InputError(
            f"{where}: the shape of its result '{value.name}' stays {shape}: it depends on data or is not declared"
        )

    def _opaque(self, view: NodeView, *, strict: bool) -> Sequence[Operand | None]:
        """One opaque kernel that reads what the node and its nested graphs read."""
        node = view.node
        kind = node.op_type if node.domain in _HANDLED_DOMAINS else f"{node.domain}::{node.op_type}"
        if strict:
            raise InputError(f"no primitives stand for {kind}; plan without --strict to price it as an opaque kernel")
        self.builder.warn(f"node '{view.source}' ({kind}) is planned as an opaque kernel")
        reads = dict.fromkeys(self.tensor(value) for value in (*node.inputs, *_captured(node)) if value is not None)
        known = [value for value in node.outputs if value.name and is_static(value)]
        made = view.emit_many("opaque", list(reads), types=[tensor_type(value, "") for value in known], kind=kind)
        by_name = {value.name: result for value, result in zip(known, made, strict=True)}
        return [by_name.get(value.name) for value in node.outputs]

    def _unique_source(self, name: str) -> str:
        found, count = name, 1
        while found in self.sources:
            found, count = f"{name}_{count}", count + 1
        self.sources.add(found)
        return found

    # --- outputs and names ---

    def _output(self, value: ir.Value) -> str:
        """Name of a graph output in the builder: what a node made for this output alone, else a copy of it.

        An input or a constant cannot be an output itself, and two outputs cannot be one value.
        """
        name = _name(value)
        found = self.operands.get(name)
        if isinstance(found, str) and found not in self.weights and found not in self.fed and found not in self.given:
            self.given.add(found)
            return found
        return self.builder.one("copy", [self.tensor(value)], source=self._unique_source(f"copy:{name}"))

    def _final_names(self, outputs: Sequence[str], built: Graph) -> Mapping[str, str]:
        """Name in the builder -> name in the model: outputs first, then all values in the model's order.

        A weight that is only read under another shape keeps its own name.
        """
        names: dict[str, str] = {}
        for made, value in zip(outputs, self.model.graph.outputs, strict=True):
            names.setdefault(made, _name(value))
        taken = set(names.values())
        wanted = [(made, name) for name, made in self.operands.items() if isinstance(made, str)]
        wanted += [(made, name) for (name, _), made in self.views.items()]
        for made, name in wanted:
            if made in built.values and made not in names and name not in taken:
                names[made] = name
                taken.add(name)
        return names


def _name(value: ir.Value) -> str:
    if value.name is None:
        raise InternalError("a value of the folded model has no name")
    return value.name


def _captured(node: ir.Node) -> Iterator[ir.Value]:
    """Values that the nested graphs of a node take from outside, in order of first use."""
    inside: set[ir.Value] = set()
    read: dict[ir.Value, None] = {}
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            graph = attribute.as_graph()
            inside.update(graph.inputs, graph.initializers.values())
            for inner in graph.all_nodes():
                inside.update(inner.outputs)
                read.update((value, None) for value in inner.inputs if value is not None)
                for nested in inner.attributes.values():
                    if nested.type == ir.AttributeType.GRAPH:
                        inside.update(nested.as_graph().inputs, nested.as_graph().initializers.values())
            read.update((value, None) for value in graph.outputs)
    yield from (value for value in read if value not in inside)


def _without_idle_weights(graph: Graph) -> Graph:
    """The graph without weights that nothing reads, such as those read only under another shape."""
    idle = {name for name in graph.weights if name not in graph.consumers and name not in graph.outputs}
    return replace(
        graph,
        weights=tuple(name for name in graph.weights if name not in idle),
        values={name: value for name, value in graph.values.items() if name not in idle},
    )


def _renamed(graph: Graph, names: Mapping[str, str]) -> Graph:
    """The graph with values renamed; a name that the builder chose and the model also has gets a suffix."""
    full = dict(names)
    taken = set(names.values())
    for name in graph.values:
        if name not in full:
            target = name
            while target in taken:
                target += "~"
            full[name] = target
            taken.add(target)

    def new(operand: Operand) -> Operand:
        return full[operand] if isinstance(operand, str) else operand

    nodes = tuple(
        replace(node, inputs=tuple(map(new, node.inputs)), outputs=tuple(full[name] for name in node.outputs))
        for node in graph.nodes
    )
    return replace(
        graph,
        inputs=tuple(full[name] for name in graph.inputs),
        weights=tuple(full[name] for name in graph.weights),
        outputs=tuple(full[name] for name in graph.outputs),
        nodes=nodes,
        values={full[name]: replace(value, name=full[name]) for name, value in graph.values.items()},
    )

