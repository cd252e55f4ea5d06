"""The graph: values, nodes, types. Immutable, in the vocabulary of the ONNX standard.

A graph holds primitives only (see `fusesolve.ops.OPS`) and no weight data: planning needs shapes and types.
Every dimension is a concrete integer; symbolic dimensions are bound by the importers.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import TypeAlias

AttrValue: TypeAlias = int | float | str | bool | tuple[int, ...]


class DType(StrEnum):
    """Element types, by their names in the native format."""

    F64 = "f64"
    F32 = "f32"
    F16 = "f16"
    BF16 = "bf16"
    F8E4M3 = "f8e4m3"
    F8E5M2 = "f8e5m2"
    I64 = "i64"
    I32 = "i32"
    I16 = "i16"
    I8 = "i8"
    U64 = "u64"
    U32 = "u32"
    U16 = "u16"
    U8 = "u8"
    BOOL = "bool"

    @property
    def itemsize(self) -> int:
        """Bytes of one element, 1 to 8."""
        return _ITEMSIZE[self]

    @property
    def is_float(self) -> bool:
        """True for every floating-point type, 8-bit ones included."""
        return self in _FLOATS


_FLOATS = frozenset({DType.F64, DType.F32, DType.F16, DType.BF16, DType.F8E4M3, DType.F8E5M2})
_ITEMSIZE = {
    DType.F64: 8, DType.F32: 4, DType.F16: 2, DType.BF16: 2, DType.F8E4M3: 1, DType.F8E5M2: 1,
    DType.I64: 8, DType.I32: 4, DType.I16: 2, DType.I8: 1,
    DType.U64: 8, DType.U32: 4, DType.U16: 2, DType.U8: 1, DType.BOOL: 1,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TensorType:
    """An element type and a concrete shape (every dimension >= 0; `()` is a scalar)."""

    dtype: DType
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of elements (1 for a scalar, 0 if any dimension is 0)."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the dense tensor."""
        return self.size * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.dtype.value}[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class Literal:
    """A scalar constant used as an operand; it costs no memory traffic."""

    value: float | int | bool


Operand: TypeAlias = str | Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A tensor by name.

    `alias_out`: name of the result that is written back into this input's storage, or None.
    `external`: the storage belongs to the caller and must hold the value when the graph ends.
    `strides`: element strides where the storage is not dense row-major, else None.
    """

    name: str
    type: TensorType
    alias_out: str | None = None
    external: bool = False
    strides: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One primitive operation.

    `op` is a key of `fusesolve.ops.OPS`. `inputs` are value names or literals, in the operator's order.
    `source` is the name of the operator of the user's model that this node came from (several nodes share
    it after a decomposition).
    """

    name: str
    op: str
    inputs: tuple[Operand, ...]
    outputs: tuple[str, ...]
    attrs: tuple[tuple[str, AttrValue], ...] = ()
    source: str = ""

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of the values read, literals left out, repeats kept."""
        return tuple(item for item in self.inputs if isinstance(item, str))

    def attr(self, name: str, default: AttrValue | None = None) -> AttrValue | None:
        """The attribute `name`, or `default` where the node does not carry it."""
        for key, value in self.attrs:
            if key == name:
                return value
        return default


@dataclass(frozen=True, kw_only=True)
class Graph:
    """A whole model: nodes in topological order over named values.

    `inputs` are what the caller feeds on each run; `weights` are constants of the model (also read from
    memory, never produced). `values` has every value: inputs, weights and all node outputs.
    """

    name: str
    inputs: tuple[str, ...]
    weights: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    values: Mapping[str, Value]
    warnings: tuple[str, ...] = field(default=(), compare=False)

    @cached_property
    def producer(self) -> Mapping[str, int]:
        """Index of the node that produces each value (inputs and weights are absent)."""
        return {name: index for index, node in enumerate(self.nodes) for name in node.outputs}

    @cached_property
    def consumers(self) -> Mapping[str, tuple[int, ...]]:
        """Indices of the nodes that read each value, ascending; values that nobody reads are absent."""
        found: dict[str, list[int]] = {}
        for index, node in enumerate(self.nodes):
            for name in dict.fromkeys(node.reads):
                found.setdefault(name, []).append(index)
        return {name: tuple(readers) for name, readers in found.items()}

    def type_of(self, name: str) -> TensorType:
        """Type of the value `name`; KeyError where there is no such value."""
        return self.values[name].type
