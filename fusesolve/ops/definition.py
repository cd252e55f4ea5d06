"""What a primitive is: one `OpDef` holds all that the rest of fusesolve knows about an operator."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

from fusesolve.access import AccessMap
from fusesolve.graph import Node, TensorType

# Shape rule: (operand types, attributes) -> result types. A literal operand comes as a 0-d type. Raises InputError
# (without the node's name; the caller adds it) where shapes, types or attributes do not fit.
InferRule: TypeAlias = Callable[[Sequence[TensorType], Mapping[str, Any]], tuple[TensorType, ...]]
# Attribute rule: (operand types, attributes as given) -> canonical attributes: defaults filled in, negative axes
# resolved, single numbers widened to tuples. Idempotent. Raises InputError where a value has the wrong form.
PrepareRule: TypeAlias = Callable[[Sequence[TensorType], Mapping[str, Any]], dict[str, Any]]
# Access rule: (node, operand types, result types) -> access map.
AccessRule: TypeAlias = Callable[[Node, Sequence[TensorType], Sequence[TensorType]], AccessMap]
# NumPy reference: (operand arrays, attributes, result types) -> result arrays. Plain NumPy, no shortcuts.
Reference: TypeAlias = Callable[[Sequence[Any], Mapping[str, Any], Sequence[TensorType]], tuple[Any, ...]]


def keep_attrs(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> dict[str, Any]:
    """The attribute rule of operators whose attributes need no widening: a copy of `attrs`."""
    return dict(attrs)


class OpKind(StrEnum):
    """What the kernel space does with an operator."""

    ELEMENTWISE = "elementwise"  # one result element from one element of each operand (broadcast allowed)
    REDUCE = "reduce"  # folds axes with an associative operation
    CONTRACTION = "contraction"  # matmul, convolution: multiply and add over reduction axes
    VIEW = "view"  # reshape, squeeze: the same bytes under another shape; never a kernel
    MOVEMENT = "movement"  # transpose, slice, concat, pad, broadcast: injective (or constant) index maps
    GATHER = "gather"  # indices from data, read side
    WINDOW = "window"  # pooling, stencil: a small window per result element
    GENERATE = "generate"  # arange, fill: no tensor operand
    OPAQUE = "opaque"  # scan, sort, scatter, unknown: a kernel of its own


@dataclass(frozen=True, slots=True)
class Work:
    """Instructions per result element (per reduced element for reductions), by pipe, and the code they take.

    `instructions` is the number of machine instructions of one inlined copy; `scratch` the extra registers that
    the inlined sequence needs at its worst point. `vector` is what it takes on a CPU, in plain vector instructions, 0
    where that is `fma` + `alu`. `first_use` is the number of machine instructions that the first
    use in a kernel adds once (a shared slow path). Source of the numbers: see each table that fills them.
    """

    fma: float = 0.0
    alu: float = 0.0
    sfu: float = 0.0
    instructions: float = 1.0
    scratch: int = 0
    first_use: float = 0.0
    vector: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OpDef:
    """One primitive.

    `operands`: least and greatest number of operands (None: any number). `attrs`: the attributes it takes,
    name -> (required?, one-line meaning). `linear`: f(a*x) = a*f(x) in its tensor operand, which lets an online
    softmax rescale across it. `prepare` brings attributes to their canonical form before `infer` sees them.
    `declared`: the result types are declared by the model and not inferred, and any attribute is allowed (opaque).
    """

    name: str
    kind: OpKind
    doc: str
    operands: tuple[int, int | None]
    infer: InferRule
    access: AccessRule
    reference: Reference
    work: Work = field(default_factory=Work)
    attrs: Mapping[str, tuple[bool, str]] = field(default_factory=dict)
    linear: bool = False
    prepare: PrepareRule = keep_attrs
    declared: bool = False
