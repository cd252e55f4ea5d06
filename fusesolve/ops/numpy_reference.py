"""What every primitive computes, in plain NumPy: the meaning that kernels are compared with.

f16, bf16 and the 8-bit floats are widened to f32, computed there and rounded once to the result's type, which is
what a device with f32 arithmetic does; f8e4m3 is the finite variant (overflow gives NaN). Division by zero, overflow
and invalid values follow IEEE 754 without warnings.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from fusesolve.errors import InputError, InternalError
from fusesolve.graph import DType, TensorType
from fusesolve.ops.numpy_contractions import CONTRACTION_REFERENCES
from fusesolve.ops.numpy_movement import MOVEMENT_REFERENCES
from fusesolve.ops.numpy_windows import WINDOW_REFERENCES

_DTYPES: Mapping[DType, Any] = {
    DType.F64: np.float64, DType.F32: np.float32, DType.F16: np.float16, DType.BF16: ml_dtypes.bfloat16,
    DType.F8E4M3: ml_dtypes.float8_e4m3fn, DType.F8E5M2: ml_dtypes.float8_e5m2,
    DType.I64: np.int64, DType.I32: np.int32, DType.I16: np.int16, DType.I8: np.int8,
    DType.U64: np.uint64, DType.U32: np.uint32, DType.U16: np.uint16, DType.U8: np.uint8, DType.BOOL: np.bool_,
}  # fmt: skip
_NARROW = frozenset(np.dtype(_DTYPES[item]) for item in (DType.F16, DType.BF16, DType.F8E4M3, DType.F8E5M2))

Array = NDArray[Any]


def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """The NumPy type of an element type; bf16 and the 8-bit floats are those of `ml_dtypes`."""
    found: np.dtype[Any] = np.dtype(_DTYPES[dtype])
    return found


def run(
    name: str, arrays: Sequence[Any], attrs: Mapping[str, Any], results: Sequence[TensorType]
) -> tuple[Array, ...]:
    """Result arrays of the primitive `name`, exactly of the types `results`.

    `arrays` are the operands in order, literals as 0-d arrays. InputError for an opaque operator.
    """
    wide = [widen(np.asarray(item)) for item in arrays]
    with np.errstate(all="ignore"):
        found = REFERENCES[name](wide, attrs, results)
        typed = tuple(np.asarray(a).astype(numpy_dtype(t.dtype), "C") for a, t in zip(found, results, strict=True))
    for array, kind in zip(typed, results, strict=True):
        if array.shape != kind.shape:
            raise InternalError(f"the reference of {name} gives {list(array.shape)}, its shape rule {kind}")
    return typed


def widen(array: Array) -> Array:
    """`array` in f32 where its element type has fewer than 32 bits of floating point, else as it is."""
    return array.astype(np.float32) if array.dtype in _NARROW else array


Rule = Callable[[Sequence[Array], Mapping[str, Any], Sequence[TensorType]], Sequence[Array]]


def _plain(function: Callable[..., Any]) -> Rule:
    """A rule that ignores attributes and has one result."""

    def rule(arrays: Sequence[Array], attrs: Mapping[str, Any], results: Sequence[TensorType]) -> Sequence[Array]:
        return (np.asarray(function(*arrays)),)

    return rule


def _floating(function: Callable[..., Any]) -> Rule:
    """A rule that computes in the result's type, or in f32 where that is narrower."""

    def rule(arrays: Sequence[Array], attrs: Mapping[str, Any], results: Sequence[TensorType]) -> Sequence[Array]:
        kind = np.float64 if results[0].dtype is DType.F64 else np.float32
        return (np.asarray(function(*(item.astype(kind) for item in arrays))),)

    return rule


def _rounding(function: Callable[..., Any]) -> Rule:
    """A rule that leaves integers and bool as they are."""
    return _plain(lambda x: x if x.dtype.kind in "iub" else function(x))


_erf = np.frompyfunc(math.erf, 1, 1)


def _erf_rule(x: Array) -> Array:
    return np.asarray(_erf(x)).astype(x.dtype)


def _truncated_quotient(a: Array, b: Array) -> Array:
    safe = np.where(b == 0, np.ones_like(b), b)
    floor = np.floor_divide(a, safe)
    inexact = (a - floor * safe) != 0
    quotient = floor + (inexact & ((a < 0) != (safe < 0))).astype(floor.dtype)
    return np.asarray(np.where(b == 0, np.zeros_like(quotient), quotient))


def _power(a: Array, b: Array) -> Array:
    if b.dtype.kind == "i" and a.dtype.kind in "iu" and np.any(b < 0):
        return np.asarray(np.trunc(np.float_power(a, b)))
    return np.asarray(np.power(a, b))


def _integer_safe(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` with integer remainders by zero defined as zero."""

    def rule(a: Array, b: Array) -> Array:
        if a.dtype.kind in "iu" and b.dtype.kind in "iu":
            return np.where(b == 0, 0, function(a, np.where(b == 0, 1, b)))
        return np.asarray(function(a, b))

    return rule


def _clip(arrays: Sequence[Array], attrs: Mapping[str, Any], results: Sequence[TensorType]) -> Sequence[Array]:
    x = arrays[0]
    if "min" in attrs:
        x = np.maximum(x, attrs["min"])
    if "max" in attrs:
        x = np.minimum(x, attrs["max"])
    return (x,)


def _fold(function: Callable[..., Any], *, typed: bool) -> Rule:
    """A reduction; `typed` passes an accumulator type (the result's, f32 for narrower floats)."""

    def rule(arrays: Sequence[Array], attrs: Mapping[str, Any], results: Sequence[TensorType]) -> Sequence[Array]:
        kind = np.float32 if numpy_dtype(results[0].dtype) in _NARROW else numpy_dtype(results[0].dtype)
        extra: dict[str, Any] = {"dtype": kind} if typed else {}
        return (np.asarray(function(arrays[0], axis=attrs["axis"], keepdims=attrs["keepdims"], **extra)),)

    return rule


def _arg(function: Callable[..., Any]) -> Rule:
    def rule(arrays: Sequence[Array], attrs: Mapping[str, Any], results: Sequence[TensorType]) -> Sequence[Array]:
        return (np.asarray(function(arrays[0], axis=attrs["axis"][0], keepdims=attrs["keepdims"])),)

    return rule


def _opaque(arrays: Sequence[Array], attrs: Mapping[str, Any], results: Sequence[TensorType]) -> Sequence[Array]:
    raise InputError(f"the opaque operator {attrs.get('kind', 'opaque')} has no reference; run a graph without it")


REFERENCES: Mapping[str, Rule] = {
    "add": _plain(np.add), "sub": _plain(np.subtract), "mul": _plain(np.multiply), "div": _plain(np.true_divide),
    "intdiv": _plain(_truncated_quotient), "pow": _plain(_power),
    "maximum": _plain(np.maximum), "minimum": _plain(np.minimum),
    "mod": _plain(_integer_safe(np.mod)), "fmod": _plain(_integer_safe(np.fmod)), "atan2": _floating(np.arctan2),
    "equal": _plain(np.equal), "not_equal": _plain(np.not_equal), "less": _plain(np.less),
    "less_equal": _plain(np.less_equal), "greater": _plain(np.greater), "greater_equal": _plain(np.greater_equal),
    "and": _plain(np.bitwise_and), "or": _plain(np.bitwise_or), "xor": _plain(np.bitwise_xor),
    "shift_left": _plain(np.left_shift), "shift_right": _plain(np.right_shift),
    "neg": _plain(np.negative), "abs": _plain(np.abs), "sign": _plain(np.sign), "square": _plain(np.square),
    "relu": _plain(lambda x: np.maximum(x, np.zeros((), x.dtype))),
    "floor": _rounding(np.floor), "ceil": _rounding(np.ceil), "round": _rounding(np.rint), "trunc": _rounding(np.trunc),
    "exp": _floating(np.exp), "expm1": _floating(np.expm1), "log": _floating(np.log), "log1p": _floating(np.log1p),
    "sqrt": _floating(np.sqrt), "rsqrt": _floating(lambda x: 1 / np.sqrt(x)), "reciprocal": _floating(lambda x: 1 / x),
    "tanh": _floating(np.tanh), "sigmoid": _floating(lambda x: 1 / (1 + np.exp(-x))), "erf": _floating(_erf_rule),
    "sin": _floating(np.sin), "cos": _floating(np.cos), "tan": _floating(np.tan), "asin": _floating(np.arcsin),
    "acos": _floating(np.arccos), "atan": _floating(np.arctan), "sinh": _floating(np.sinh), "cosh": _floating(np.cosh),
    "asinh": _floating(np.arcsinh), "acosh": _floating(np.arccosh), "atanh": _floating(np.arctanh),
    "not": _plain(np.invert), "isnan": _plain(np.isnan), "isinf": _plain(np.isinf),
    "where": _plain(np.where), "clip": _clip, "cast": _plain(lambda x: x),
    "reduce_sum": _fold(np.sum, typed=True), "reduce_mean": _fold(np.mean, typed=True),
    "reduce_prod": _fold(np.prod, typed=True), "reduce_max": _fold(np.max, typed=False),
    "reduce_min": _fold(np.min, typed=False), "argmax": _arg(np.argmax), "argmin": _arg(np.argmin),
    "opaque": _opaque, **CONTRACTION_REFERENCES, **WINDOW_REFERENCES, **MOVEMENT_REFERENCES,
}  # fmt: skip
