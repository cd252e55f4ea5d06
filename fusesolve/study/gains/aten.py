"""Traced ATen operators (a table of labels and shapes, no attributes) as a native graph.

Every ATen call becomes one source operator, and a call that PyTorch runs as several kernels becomes one source for
each (the bias of a convolution, the statistics of a norm), so that "every source alone" is what eager execution does.
What the table does not say (strides, paddings, reduced axes, constants) follows from the shapes: any value that gives
the listed result costs the same.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TypeAlias

from fusesolve.builder import GraphBuilder
from fusesolve.decompose import add_operator
from fusesolve.errors import FusesolveError
from fusesolve.graph import AttrValue, DType, Graph, Operand, TensorType

Shape: TypeAlias = tuple[int, ...]

DTYPES: Mapping[str, DType] = {
    "float32": DType.F32, "float16": DType.F16, "bfloat16": DType.BF16, "int64": DType.I64, "int32": DType.I32,
    "bool": DType.BOOL,
}  # fmt: skip


class NoFormError(ValueError):
    """An ATen call that has no native form; the text says which and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AtenOp:
    """One traced call: `inputs` are (label, shape), `flops` as the trace counts them (2 per multiply-add)."""

    op: str
    inputs: tuple[tuple[str, Shape], ...]
    outputs: tuple[Shape, ...]
    dtype: DType
    flops: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What a library does for one source operator beyond the graph.

    `kind`: the class of the call (`library`). `extra_write`: bytes that eager writes and a compiler drops (indices of a
    pooling). `taps` of a window. Of a convolution also its input `channels`, `dense` where it has one group, `last`
    where nothing but its bias comes behind it, `first` where its image is an input of the program.
    """

    kind: str
    extra_write: int = 0
    channels: int = 0
    taps: int = 1
    dense: bool = True
    first: bool = False
    last: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """A traced program as a graph; `calls` by source name, sources that are not in it are plain kernels."""

    graph: Graph
    calls: Mapping[str, Call]


@dataclass(kw_only=True)
class Lowering:
    """A graph under construction from traced calls."""

    builder: GraphBuilder
    last: int = -1  # number of the last call
    values: dict[str, list[str]] = field(default_factory=dict)  # "#3" -> the results of call 3
    leaves: dict[tuple[str, Shape], str] = field(default_factory=dict)
    calls: dict[str, Call] = field(default_factory=dict)

    def operand(self, label: str, shape: Shape, dtype: DType) -> str:
        """The value behind a label, reshaped where the trace looks at it through a view."""
        if not label.startswith("#"):
            return self.leaf(label, shape, dtype)
        results = self.values[label]
        size = prod(shape)
        fitting = [name for name in results if self.size(name) == size]
        name = fitting[0] if fitting else results[0]
        found = self.shape(name)
        if found == shape:
            return name
        return self.reshape(name, shape if fitting else _aligned(found, shape))

    def leaf(self, label: str, shape: Shape, dtype: DType = DType.F32) -> str:
        """An input or a parameter of the program: every `p` is one of its own, inputs are shared by label and shape."""
        key = (label, shape)
        if label.startswith("in") and key in self.leaves:
            return self.leaves[key]
        name = f"{label}_{len(self.leaves)}"
        self.leaves[key if label.startswith("in") else (name, shape)] = name
        return self.builder.input(name, TensorType(dtype, shape), weight=not label.startswith("in"))

    def shape(self, name: Operand) -> Shape:
        """Shape of a value."""
        return self.builder.type(name).shape

    def size(self, name: Operand) -> int:
        """Elements of a value."""
        return prod(self.shape(name))

    def reshape(self, name: str, shape: Shape) -> str:
        """The value under another shape of the same size (a view)."""
        if self.shape(name) == shape:
            return name
        return self.builder.one("reshape", (name,), {"to": shape}, source=f"view_{len(self.builder.value_names())}")

    def run(self, source: str, op: str, *inputs: Operand, call: Call | None = None, **attrs: AttrValue) -> str:
        """The first result of a native operator under the name of its source."""
        if call is not None:
            self.calls[source] = call
        return add_operator(self.builder, op, inputs, attrs, source=source)[0]


Lower: TypeAlias = Callable[[Lowering, str, AtenOp, list[str]], list[str]]


def parse_op(row: Mapping[str, str]) -> AtenOp:
    """One row of a table with the columns op, inputs, outputs, out_dtype and flops; ValueError where it is malformed.

    `inputs` are `label:AxBxC` joined by `;`, `outputs` shapes joined by `;`.
    """
    inputs = (item.rsplit(":", 1) for item in row["inputs"].split(";") if item)
    return AtenOp(
        op=row["op"], inputs=tuple((label, parse_shape(text)) for label, text in inputs),
        outputs=tuple(parse_shape(text) for text in row["outputs"].split(";") if text),
        dtype=DTYPES[row["out_dtype"].split(";")[0]], flops=float(row["flops"] or 0),
    )  # fmt: skip


def parse_shape(text: str) -> Shape:
    """`AxBxC` as extents."""
    return tuple(int(part) for part in text.split("x") if part)


def lower_trace(name: str, ops: Sequence[AtenOp], table: Mapping[str, Lower]) -> Traced:
    """The graph of traced calls in order; its results are the values that no call reads.

    NoFormError where a call has no native form.
    """
    lowering = Lowering(builder=GraphBuilder(name), last=len(ops) - 1)
    read = {label for op in ops for label, _ in op.inputs}
    for index, op in enumerate(ops):
        lower = table.get(op.op)
        if lower is None:
            raise NoFormError(f"the call {op.op} has no native form")
        try:
            inputs = [lowering.operand(label, shape, _operand_type(op)) for label, shape in op.inputs]
            results = lower(lowering, f"{op.op}_{index}", op, inputs)
        except (FusesolveError, StopIteration) as error:
            raise NoFormError(f"the call {op.op} cannot be built from its shapes: {error}") from error
        lowering.values[f"#{index}"] = results
        if f"#{index}" not in read:
            lowering.builder.output(results[0])
    return Traced(graph=lowering.builder.build(), calls=lowering.calls)


def _operand_type(op: AtenOp) -> DType:
    return DType.F32 if op.op in ("argmax", "argmin") else op.dtype


def _aligned(found: Shape, wanted: Shape) -> Shape:
    """`found` with extents of 1 put in so that it broadcasts to `wanted`; NoFormError where it does not."""
    rest = list(found)
    shape = tuple(rest.pop(0) if rest and rest[0] in (extent, 1) else 1 for extent in wanted)
    if rest or prod(shape) != prod(found):
        raise NoFormError(f"a value of {list(found)} cannot be seen as {list(wanted)}")
    return shape
