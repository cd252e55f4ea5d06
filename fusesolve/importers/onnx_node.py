"""What a handler sees of one ONNX node: operands, attributes, types, and ways to emit primitives for it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import onnx_ir as ir

from fusesolve.builder import GraphBuilder
from fusesolve.decompose import expand_composite
from fusesolve.errors import InputError, InternalError
from fusesolve.graph import AttrValue, DType, Literal, Operand, TensorType

_DTYPES = {
    ir.DataType.DOUBLE: DType.F64, ir.DataType.FLOAT: DType.F32, ir.DataType.FLOAT16: DType.F16,
    ir.DataType.BFLOAT16: DType.BF16, ir.DataType.FLOAT8E4M3FN: DType.F8E4M3, ir.DataType.FLOAT8E5M2: DType.F8E5M2,
    ir.DataType.INT64: DType.I64, ir.DataType.INT32: DType.I32, ir.DataType.INT16: DType.I16,
    ir.DataType.INT8: DType.I8,
    ir.DataType.UINT64: DType.U64, ir.DataType.UINT32: DType.U32, ir.DataType.UINT16: DType.U16,
    ir.DataType.UINT8: DType.U8, ir.DataType.BOOL: DType.BOOL,
}  # fmt: skip


def label(node: ir.Node) -> str:
    """Name of a node as plans show it: its own, or `op_type:first_output` where it is empty."""
    return node.name or f"{node.op_type}:{next((value.name for value in node.outputs if value.name), '')}"


def dtype_of(code: int) -> DType:
    """The element type of an ONNX type number; InputError where fusesolve has none (strings, 4-bit, complex)."""
    try:
        return _DTYPES[ir.DataType(code)]
    except (KeyError, ValueError):
        name = ir.DataType(code).name if code in list(ir.DataType) else code
        raise InputError(f"element type {name} has no counterpart here; the types are {' '.join(DType)}") from None


def tensor_type(value: ir.Value, origin: str) -> TensorType:
    """Static type of a value; InputError naming it (after `origin`, where given) for a type fusesolve does not have."""
    if value.dtype is None or value.shape is None:
        raise InternalError(f"the type of '{value.name}' was taken before it was known")
    try:
        return TensorType(dtype_of(value.dtype), tuple(value.shape.numpy()))
    except InputError as error:
        raise InputError(f"{origin}{': ' if origin else ''}'{value.name}': {error}") from None


def resolve_shape(kind: TensorType, shape: Sequence[int]) -> tuple[int, ...]:
    """`shape` with an extent of -1 computed from the elements of `kind`."""
    known = math.prod(extent for extent in shape if extent != -1)
    return tuple((kind.size // known if known else 0) if extent == -1 else extent for extent in shape)


class Values(Protocol):
    """The part of the lowering that nodes are read through."""

    builder: GraphBuilder
    model: ir.Model

    def tensor(self, value: ir.Value) -> str:
        """Name of a value in the builder, constants as weights."""

    def operand(self, value: ir.Value) -> Operand:
        """The same, constants of one element as literals."""

    def is_weight(self, name: str) -> bool:
        """Whether a value of the builder is a constant of the model."""

    def weight_view(self, name: str, shape: tuple[int, ...]) -> str:
        """A weight under another shape: the same bytes, no operator."""

    def derived_weight(self, name: str, kind: TensorType) -> str:
        """A weight that is computed ahead from other weights alone."""


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node during lowering; `source` is the name under which plans report it."""

    values: Values
    node: ir.Node
    source: str

    # --- what the node says ---

    @property
    def opset(self) -> int:
        """Version of the standard operator set."""
        imports = self.values.model.opset_imports
        return imports.get("", imports.get("ai.onnx", 1))

    def has(self, index: int) -> bool:
        """Whether operand `index` is there (optional ones may be left out)."""
        return index < len(self.node.inputs) and self.node.inputs[index] is not None

    @property
    def count(self) -> int:
        """Number of operands, absent ones in the middle included."""
        return len(self.node.inputs)

    def value(self, index: int) -> ir.Value:
        """Operand `index`; InputError where it is absent."""
        value = self.node.inputs[index] if index < len(self.node.inputs) else None
        if value is None:
            raise InputError(f"operand {index} is missing")
        return value

    @staticmethod
    def uses(value: ir.Value) -> bool:
        """Whether anything reads the result `value`."""
        return bool(value.uses()) or value.is_graph_output()

    def wants(self, index: int) -> bool:
        """Whether result `index` exists and is read."""
        return index < len(self.node.outputs) and bool(self.node.outputs[index].name) and self.uses(
            self.node.outputs[index]
        )

    def type(self, index: int) -> TensorType:
        """Type of operand `index`."""
        return tensor_type(self.value(index), "")

    def result(self, index: int = 0) -> TensorType:
        """Type of result `index`, as the standard's inference found it."""
        return tensor_type(self.node.outputs[index], "")

    def attr(self, name: str, default: Any = None) -> Any:
        """Attribute `name` as a Python value, or `default`."""
        found = self.node.attributes.get(name)
        return default if found is None else found.value

    def ints(self, index: int, name: str) -> tuple[int, ...] | None:
        """A list of integers that is operand `index` in newer operator sets and attribute `name` in older ones.

        None where the node has neither; InputError where the operand is not constant.
        """
        if name in self.node.attributes:
            return tuple(int(item) for item in self.attr(name))
        if not self.has(index):
            return None
        found = self.array(index)
        if found is None:
            raise InputError(f"operand {index} ({name}) depends on data: only constants can be planned")
        return tuple(int(item) for item in found.reshape(-1))

    def array(self, index: int) -> np.ndarray | None:
        """Data of operand `index` where it is a materialised constant, else None."""
        constant = self.node.inputs[index].const_value if self.has(index) else None  # type: ignore[union-attr]  # has()
        return None if constant is None else constant.numpy()

    def scalar(self, index: int) -> float | int | bool | None:
        """Operand `index` as a number where it is a constant of one element, else None."""
        found = self.array(index)
        if found is None or found.size != 1:
            return None
        item: float | int | bool = found.reshape(()).item()
        return item

    # --- operands for primitives ---

    def tensor(self, index: int) -> str:
        """Name of operand `index`; a constant is a weight."""
        return self.values.tensor(self.value(index))

    def operand(self, index: int) -> Operand:
        """Operand `index`; a constant of one element is a literal, whatever its rank."""
        return self.values.operand(self.value(index))

    def elementwise(self) -> list[Operand]:
        """All operands for an elementwise primitive: literals where the result's shape does not need their rank."""
        operands = [self.operand(index) for index in range(self.count)]
        shapes = [self.type(index).shape for index, item in enumerate(operands) if isinstance(item, str)]
        if shapes and np.broadcast_shapes(*shapes) == self.result().shape:
            return operands
        return [self.tensor(index) for index in range(self.count)]

    def warn(self, message: str) -> None:
        """Tell the user something about this node."""
        self.values.builder.warn(f"node '{self.source}' ({self.node.op_type}): {message}")

    # --- emitting ---

    def emit(self, op: str, *operands: Operand, **attrs: AttrValue) -> str:
        """Add one primitive with one result; returns the name of the result."""
        return self.values.builder.one(op, operands, attrs, source=self.source)

    def emit_many(self, op: str, operands: Sequence[Operand], types: Sequence[TensorType] | None = None,
                  **attrs: AttrValue) -> tuple[str, ...]:  # fmt: skip
        """Add one primitive with several results; `types` declares them for an opaque one."""
        return self.values.builder.add(op, operands, attrs, source=self.source, types=types)

    def composite(self, name: str, *operands: Operand, **attrs: AttrValue) -> tuple[str, ...]:
        """Add the primitives of a composite of `COMPOSITES`; returns the names of its results."""
        return expand_composite(self.values.builder, name, operands, attrs, source=self.source)

    def constant(self, name: str) -> bool:
        """Whether an emitted value or operand is a weight."""
        return self.values.is_weight(name)

    def weight(self, suffix: str, kind: TensorType) -> str:
        """A weight of this node that is computed ahead from its constant operands."""
        return self.values.derived_weight(f"{self.source}/{suffix}", kind)

    def known(self, name: Operand) -> TensorType:
        """Type of an emitted value."""
        return self.values.builder.type(name)

    def reshape(self, name: Operand, shape: Sequence[int]) -> str:
        """`name` under another shape: nothing is emitted where it has it, or where it is a weight."""
        if isinstance(name, str):
            kind = self.known(name)
            wanted = resolve_shape(kind, shape)
            if kind.shape == wanted:
                return name
            if self.values.is_weight(name):
                return self.values.weight_view(name, wanted)
        return self.emit("reshape", name, to=tuple(shape))

    def cast(self, name: Operand, dtype: DType) -> str:
        """`name` in another element type: nothing is emitted where it has it."""
        if isinstance(name, str) and self.known(name).dtype is dtype:
            return name
        return self.emit("cast", name, to=dtype.value)

    def adapt(self, result: Operand, wanted: TensorType) -> Operand:
        """A result brought to the type of the standard: NumPy widens sums of integers, the standard does not."""
        if isinstance(result, Literal):
            return result
        found = self.known(result)
        if found.dtype is not wanted.dtype:
            result = self.cast(result, wanted.dtype)
        if found.shape != wanted.shape:
            if found.size != wanted.size:
                raise InputError(f"primitives give {found}, the model says {wanted}")
            result = self.reshape(result, wanted.shape)
        return result
