"""Elementwise primitives: one result element from one element of each operand.

Work is instructions per result element. Source: more than 400 compiled f32 kernels on sm_80 (Numba CUDA, standard
mathematics), column "each further copy"; what the first use adds once is `first_use`. `scratch` is the same study's
worst-point registers. Rows marked `_estimate` were not in the study: the note beside them says what they follow.
The special-function count is the number of MUFU results in the documented algorithm.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fusesolve.errors import InputError
from fusesolve.graph import DType, TensorType
from fusesolve.ops.definition import InferRule, OpDef, OpKind, PrepareRule, Work, keep_attrs
from fusesolve.ops.lazy import NumpyReference
from fusesolve.ops.rules import (
    broadcast_shapes,
    elementwise_access,
    float_type,
    is_integer,
    number,
    parse_dtype,
    promote_all,
)

_FMA = Work(fma=1, instructions=1)
_ALU = Work(alu=1, instructions=1)
_CALL = 400.0  # a call of the C library an element, which no vector holds
# What operators take on a CPU beside one multiply-add (`Work.vector`): times of f32 kernels of the CPU emitter, of one
# function alone and of functions among plain operators, in a Zen 3 core's first-level cache (`cost.cpu` says how they
# add up; what a division or square root takes alone is hidden among others, which need other pipes). Those that are not
# here take their `fma` + `alu`.
_VECTOR: Mapping[str, float] = {
    "exp": 20, "expm1": 30, "erf": 25, "tanh": 36, "sigmoid": 25, "div": 6, "reciprocal": 6, "sqrt": 6, "rsqrt": 12,
    "mod": 40, "maximum": 2, "minimum": 2, "pow": 2 * _CALL,
    **dict.fromkeys(("fmod", "atan2", "log", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh",
                     "asinh", "acosh", "atanh"), _CALL),
}  # fmt: skip


def _shape(types: Sequence[TensorType]) -> tuple[int, ...]:
    return broadcast_shapes([item.shape for item in types])


def _rule(dtype_of: Callable[[DType], DType]) -> InferRule:
    def infer(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> tuple[TensorType, ...]:
        return (TensorType(dtype_of(promote_all([item.dtype for item in types])), _shape(types)),)

    return infer


def _no_bool(dtype: DType) -> DType:
    if dtype is DType.BOOL:
        raise InputError("no arithmetic on bool here; cast the operand first")
    return dtype


def _true_quotient(dtype: DType) -> DType:
    return dtype if dtype.is_float else DType.F64


def _to_bool(dtype: DType) -> DType:
    return DType.BOOL


def _whole_number(dtype: DType) -> DType:
    if dtype.is_float:
        raise InputError(f"needs integers or bool, not {dtype.value}")
    return dtype


def _integer_only(dtype: DType) -> DType:
    if not is_integer(dtype):
        raise InputError(f"needs integers, not {dtype.value}")
    return dtype


def _keep(dtype: DType) -> DType:
    return dtype


def _infer_where(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> tuple[TensorType, ...]:
    if types[0].dtype is not DType.BOOL:
        raise InputError(f"the condition of where must be bool, not {types[0].dtype.value}; compare it first")
    return (TensorType(promote_all([types[1].dtype, types[2].dtype]), _shape(types)),)


def _infer_cast(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> tuple[TensorType, ...]:
    return (TensorType(parse_dtype(attrs["to"]), types[0].shape),)


def _prepare_cast(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> dict[str, Any]:
    if "to" not in attrs:
        raise InputError("cast needs the element type `to`, or a declared result type")
    return {"to": parse_dtype(attrs["to"]).value}


def _prepare_clip(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: number(value, name) for name, value in attrs.items()}
    if not found:
        raise InputError("clip needs min, max or both")
    if found.get("min", float("-inf")) > found.get("max", float("inf")):
        raise InputError(f"clip has min {found['min']} above max {found['max']}")
    return found


def _row(
    name: str,
    operands: int,
    infer: InferRule,
    work: Work,
    doc: str,
    *,
    linear: bool = False,
    prepare: PrepareRule = keep_attrs,
    attrs: Mapping[str, tuple[bool, str]] | None = None,
) -> OpDef:
    return OpDef(
        name=name, kind=OpKind.ELEMENTWISE, doc=doc, operands=(operands, operands), infer=infer,
        access=elementwise_access, reference=NumpyReference(name),
        work=replace(work, vector=_VECTOR.get(name, 0.0)), attrs=attrs or {}, linear=linear,
        prepare=prepare,
    )  # fmt: skip


def _estimate(fma: float, alu: float, sfu: float, scratch: int = 0, first_use: float = 0.0) -> Work:
    """Work of an operator that the study did not compile: the sum of the sequence that the caller's note names."""
    return Work(fma=fma, alu=alu, sfu=sfu, instructions=fma + alu + sfu, scratch=scratch, first_use=first_use)


_ARITHMETIC = _rule(_keep)
_STRICT = _rule(_no_bool)
_FLOAT = _rule(float_type)
_COMPARE = _rule(_to_bool)
_LOGIC = _rule(_whole_number)
_INTEGER = _rule(_integer_only)
_DIV = Work(fma=10, alu=4, sfu=1, instructions=15, scratch=5, first_use=103)
_SIN = Work(fma=60, alu=49, sfu=1, instructions=110, scratch=12, first_use=8)

BINARY: tuple[OpDef, ...] = (
    _row("add", 2, _ARITHMETIC, _FMA, "a + b (bool: or)."),
    _row("sub", 2, _STRICT, _FMA, "a - b; not for bool."),
    _row("mul", 2, _ARITHMETIC, _FMA, "a * b (bool: and).", linear=True),
    _row("div", 2, _rule(_true_quotient), _DIV, "a / b, IEEE; integers give f64.", linear=True),
    _row("intdiv", 2, _INTEGER, Work(fma=3, alu=20, sfu=1, instructions=24, first_use=6),
         "Integer quotient rounded towards zero; 0 where b is 0."),
    _row("pow", 2, _STRICT, Work(fma=44, alu=40, sfu=2, instructions=86, scratch=5, first_use=11), "a ** b."),
    _row("maximum", 2, _ARITHMETIC, _FMA, "The greater of a and b; NaN if either is NaN."),
    _row("minimum", 2, _ARITHMETIC, _FMA, "The lesser of a and b; NaN if either is NaN."),
    _row("mod", 2, _STRICT, Work(fma=14, alu=13, sfu=1, instructions=28, scratch=4, first_use=111),
         "Remainder with the sign of b (Python's %); integers by 0 give 0."),
    _row("fmod", 2, _STRICT, Work(fma=40, alu=30, sfu=1, instructions=71, scratch=2, first_use=5),
         "Remainder with the sign of a (C's fmod); integers by 0 give 0."),
    _row("atan2", 2, _FLOAT, _estimate(25, 14, 1, 5, 103), "Angle of (b, a), rad; work: a division, a polynomial."),
    _row("equal", 2, _COMPARE, _FMA, "a == b as bool."),
    _row("not_equal", 2, _COMPARE, _FMA, "a != b as bool."),
    _row("less", 2, _COMPARE, _FMA, "a < b as bool."),
    _row("less_equal", 2, _COMPARE, _FMA, "a <= b as bool."),
    _row("greater", 2, _COMPARE, _FMA, "a > b as bool."),
    _row("greater_equal", 2, _COMPARE, _FMA, "a >= b as bool."),
    _row("and", 2, _LOGIC, _ALU, "Logical and of bools, bitwise and of integers."),
    _row("or", 2, _LOGIC, _ALU, "Logical or of bools, bitwise or of integers."),
    _row("xor", 2, _LOGIC, _ALU, "Exclusive or of bools, bitwise of integers."),
    _row("shift_left", 2, _INTEGER, _ALU, "a << b."),
    _row("shift_right", 2, _INTEGER, _ALU, "a >> b, arithmetic for signed types."),
)  # fmt: skip

UNARY: tuple[OpDef, ...] = (
    _row("neg", 1, _STRICT, _FMA, "-x; not for bool.", linear=True),
    _row("abs", 1, _ARITHMETIC, _FMA, "|x|."),
    _row("sign", 1, _STRICT, Work(fma=1, alu=2, instructions=3), "-1, 0 or 1; work: one compare, two selects."),
    _row("square", 1, _STRICT, _FMA, "x * x."),
    _row("relu", 1, _STRICT, _FMA, "max(x, 0); NaN stays NaN."),
    _row("floor", 1, _ARITHMETIC, _ALU, "Greatest integer not above x; integers unchanged."),
    _row("ceil", 1, _ARITHMETIC, _ALU, "Least integer not below x; integers unchanged."),
    _row("round", 1, _ARITHMETIC, _ALU, "Nearest integer, halves to even; integers unchanged."),
    _row("trunc", 1, _ARITHMETIC, _ALU, "Integer part, towards zero; integers unchanged."),
    _row("exp", 1, _FLOAT, Work(fma=5, alu=1, sfu=1, instructions=7, scratch=2, first_use=2), "e ** x."),
    _row("expm1", 1, _FLOAT, Work(fma=14, alu=6, sfu=1, instructions=21, scratch=2, first_use=3), "e ** x - 1."),
    _row("log", 1, _FLOAT, Work(fma=16, alu=8, sfu=1, instructions=25, scratch=3, first_use=5), "Natural logarithm."),
    _row("log1p", 1, _FLOAT, Work(fma=20, alu=9, instructions=29, scratch=3, first_use=2), "log(1 + x), exact near 0."),
    _row("sqrt", 1, _FLOAT, Work(fma=9, alu=5, sfu=1, instructions=15, scratch=3, first_use=23), "Square root, IEEE."),
    _row("rsqrt", 1, _FLOAT, Work(fma=3, sfu=1, instructions=4), "1 / sqrt(x) (libdevice rsqrtf)."),
    _row("reciprocal", 1, _FLOAT, Work(fma=9, alu=4, sfu=1, instructions=14, scratch=5, first_use=53), "1 / x, IEEE."),
    _row("tanh", 1, _FLOAT, Work(fma=9, alu=4, sfu=2, instructions=15, scratch=2, first_use=2), "Hyperbolic tangent."),
    _row("sigmoid", 1, _FLOAT, Work(fma=14, alu=8, sfu=2, instructions=24, scratch=3, first_use=54),
         "1 / (1 + exp(-x))."),
    _row("erf", 1, _FLOAT, Work(fma=16, alu=4, instructions=20, scratch=3, first_use=11), "Error function."),
    _row("sin", 1, _FLOAT, _SIN, "Sine of radians, full range reduction."),
    _row("cos", 1, _FLOAT, _SIN, "Cosine of radians, full range reduction."),
    _row("tan", 1, _FLOAT, _estimate(66, 53, 2, 12, 61), "Tangent of radians; work: sine and one reciprocal."),
    _row("asin", 1, _FLOAT, _estimate(20, 8, 1, 3, 23), "Inverse sine; work: one square root and a polynomial."),
    _row("acos", 1, _FLOAT, _estimate(20, 8, 1, 3, 23), "Inverse cosine; work as asin."),
    _row("atan", 1, _FLOAT, _estimate(18, 6, 1, 3, 53), "Inverse tangent; work: one reciprocal and a polynomial."),
    _row("sinh", 1, _FLOAT, _estimate(18, 7, 2, 3, 56), "Hyperbolic sine; work: expm1 and a reciprocal."),
    _row("cosh", 1, _FLOAT, _estimate(16, 6, 2, 3, 55), "Hyperbolic cosine; work: exp and a reciprocal."),
    _row("asinh", 1, _FLOAT, _estimate(29, 14, 2, 3, 28), "Inverse hyperbolic sine; work: log1p and a square root."),
    _row("acosh", 1, _FLOAT, _estimate(29, 14, 2, 3, 28), "Inverse hyperbolic cosine; work as asinh."),
    _row("atanh", 1, _FLOAT, _estimate(30, 13, 1, 5, 105), "Inverse hyperbolic tangent; work: log1p and a division."),
    _row("not", 1, _LOGIC, _ALU, "Logical not of bools, bitwise complement of integers."),
    _row("isnan", 1, _COMPARE, _FMA, "True where x is NaN."),
    _row("isinf", 1, _COMPARE, Work(fma=2, instructions=2), "True where x is an infinity; work: |x| and one compare."),
)  # fmt: skip

CHOICE: tuple[OpDef, ...] = (
    _row("where", 3, _infer_where, _ALU, "b where the bool c holds, else a third operand."),
    _row("clip", 1, _STRICT, Work(fma=2, instructions=2), "min(max(x, min), max).", prepare=_prepare_clip,
         attrs={"min": (False, "least value, a number"), "max": (False, "greatest value, a number")}),
    _row("cast", 1, _infer_cast, _ALU, "x in another element type; floats to integers truncate.", linear=True,
         prepare=_prepare_cast, attrs={"to": (True, "element type of the result")}),
)  # fmt: skip

ELEMENTWISE: tuple[OpDef, ...] = (*BINARY, *UNARY, *CHOICE)
