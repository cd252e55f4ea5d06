"""What composites are made with: the row type of their table and a short way to append primitives.

Composites of f16, bf16 and 8-bit floats compute in f32 between one cast at each operand and one at the result, as
frameworks do; f64 and f32 stay as they are.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from fusesolve.builder import GraphBuilder
from fusesolve.errors import InputError
from fusesolve.graph import AttrValue, DType, Literal, Operand, TensorType
from fusesolve.ops.rules import number, promote, resolve_axis

Attrs: TypeAlias = Mapping[str, AttrValue]


@dataclass(frozen=True, slots=True)
class Emit:
    """Appends primitives that share one source operator; numbers are taken as literals."""

    builder: GraphBuilder
    source: str

    def __call__(self, op: str, *operands: Operand | float | int, **attrs: AttrValue) -> str:
        """Append `op` and return the name of its one result."""
        inputs = [Literal(item) if isinstance(item, int | float) else item for item in operands]
        return self.builder.one(op, inputs, attrs, source=self.source)

    def type(self, name: Operand) -> TensorType:
        """Type of an operand."""
        return self.builder.type(name)

    def shape(self, name: Operand) -> tuple[int, ...]:
        """Shape of an operand."""
        return self.builder.type(name).shape

    def cast(self, name: Operand, dtype: DType) -> Operand:
        """`name` in `dtype`; itself where it has that type already or is a literal."""
        if isinstance(name, Literal) or self.type(name).dtype is dtype:
            return name
        return self("cast", name, to=dtype.value)

    def wide(self, name: Operand) -> Operand:
        """`name` cast to f32 where it is a float of fewer bits, else itself."""
        dtype = self.type(name).dtype
        return self.cast(name, DType.F32) if dtype.is_float and dtype.itemsize < 4 else name

    def reshape(self, name: Operand, shape: tuple[int, ...]) -> Operand:
        """`name` under another shape; itself where it has that shape already."""
        return name if self.shape(name) == shape else self("reshape", name, to=shape)

    def along(self, name: Operand, rank: int, axes: tuple[int, ...]) -> Operand:
        """A parameter over the ascending `axes` of a tensor of `rank`, reshaped so that it broadcasts against it.

        A parameter that already has `rank` dimensions, and one over the last axes, is returned as it is.
        """
        shape = self.shape(name)
        if len(shape) in (0, rank) or axes == tuple(range(rank - len(axes), rank)):
            return name
        if len(shape) != len(axes):
            raise InputError(f"a parameter of shape {list(shape)} does not fit the {len(axes)} axes {list(axes)}")
        extents = dict(zip(axes, shape, strict=True))
        return self.reshape(name, tuple(extents.get(axis, 1) for axis in range(rank)))


# Expansion: (emitter, operands, attributes as given) -> results. Raises InputError where they do not fit.
Expand: TypeAlias = Callable[[Emit, Sequence[Operand], Attrs], tuple[Operand, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Composite:
    """An operator that is written as primitives.

    `operands` and `attrs` are as in `OpDef`; `expand` appends the primitives and returns the results in order.
    """

    name: str
    doc: str
    operands: tuple[int, int | None]
    expand: Expand
    attrs: Mapping[str, tuple[bool, str]] = field(default_factory=dict)


def float_attr(attrs: Attrs, name: str, default: float) -> float:
    """The attribute `name` as a float, or `default`; InputError where it is no number."""
    return float(number(attrs.get(name, default), name))


def axes_attr(attrs: Attrs, rank: int, default: AttrValue = -1) -> tuple[int, ...]:
    """The attribute `axis` as ascending axes of a tensor of `rank`; the last axis by default."""
    value = attrs.get("axis", default)
    items = value if isinstance(value, tuple) else (value,)
    return tuple(sorted({resolve_axis(item, rank) for item in items}))


def tensor_operand(inputs: Sequence[Operand], position: int) -> Operand | None:
    """The operand at `position`, or None where there are fewer."""
    return inputs[position] if position < len(inputs) else None


def unary(body: Callable[[Emit, Operand, Attrs], Operand]) -> Expand:
    """Expansion of a function of one tensor: widen, `body`, narrow again; integers and bool compute and stay in f32."""

    def expand(emit: Emit, inputs: Sequence[Operand], attrs: Attrs) -> tuple[Operand, ...]:
        dtype = emit.type(inputs[0]).dtype
        if not dtype.is_float:
            return (body(emit, emit.cast(inputs[0], DType.F32), attrs),)
        return (emit.cast(body(emit, emit.wide(inputs[0]), attrs), dtype),)

    return expand


def common_float(emit: Emit, inputs: Sequence[Operand]) -> DType:
    """The promoted type of several operands; InputError where it is no float."""
    dtype = emit.type(inputs[0]).dtype
    for item in inputs[1:]:
        dtype = promote(dtype, emit.type(item).dtype)
    if not dtype.is_float:
        raise InputError(f"needs float tensors, not {dtype.value}; cast them first")
    return dtype
