"""Generators (no tensor operand) and the opaque operator.

Work per result element: `arange` one multiply-add; `fill` one move; `random_uniform` the ten rounds of Philox 4x32
(Salmon et al., SC 2011: two wide multiplies and four logic operations a round for four results, 15 integer
instructions per result) and one scaling.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from fusesolve.access import WHOLE, AccessMap
from fusesolve.errors import InputError
from fusesolve.graph import Node, TensorType
from fusesolve.ops.definition import OpDef, OpKind, Work
from fusesolve.ops.lazy import NumpyReference
from fusesolve.ops.rules import attr_tuple, integers, number, parse_dtype


def _no_operands(node: Node, types: Sequence[TensorType], results: Sequence[TensorType]) -> AccessMap:
    return AccessMap(())


def _prepare_arange(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> dict[str, Any]:
    start, step = (number(attrs.get(name, default), name) for name, default in (("start", 0), ("step", 1)))
    if "n" in attrs:
        count = integers(attrs["n"], "n", 1, least=0)[0]
    elif "end" in attrs and step:
        count = max(0, int(-(-(number(attrs["end"], "end") - start) // step)))
    else:
        raise InputError("arange needs the count n, or end and a step that is not 0")
    kind = "f32" if isinstance(start, float) or isinstance(step, float) else "i64"
    return {"n": count, "start": start, "step": step, "to": parse_dtype(attrs.get("to", kind)).value}


def _infer_arange(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> tuple[TensorType, ...]:
    return (TensorType(parse_dtype(attrs["to"]), (attrs["n"],)),)


def _prepare_fill(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> dict[str, Any]:
    value = attrs.get("const")
    if not isinstance(value, int | float):
        raise InputError("fill needs const, the value of every element")
    kind = "bool" if isinstance(value, bool) else "f32" if isinstance(value, float) else "i64"
    shape = integers(attrs.get("shape", ()), "shape", least=0)
    return {"const": value, "shape": shape, "to": parse_dtype(attrs.get("to", kind)).value}


def _prepare_random(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> dict[str, Any]:
    dtype = parse_dtype(attrs.get("to", "f32"))
    if not dtype.is_float:
        raise InputError(f"random_uniform gives floats, not {dtype.value}")
    seed = integers(attrs.get("seed", 0), "seed", 1, least=0)[0]
    return {"shape": integers(attrs.get("shape", ()), "shape", least=0), "to": dtype.value, "seed": seed}


def _infer_shape(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> tuple[TensorType, ...]:
    return (TensorType(parse_dtype(attrs["to"]), attr_tuple(attrs, "shape")),)


def _infer_opaque(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> tuple[TensorType, ...]:
    raise InputError("the result types of an opaque operator must be declared")


def _access_opaque(node: Node, types: Sequence[TensorType], results: Sequence[TensorType]) -> AccessMap:
    return AccessMap(tuple((WHOLE,) * len(item.shape) for item in types))


_SHAPE = (False, "shape of the result (default: a scalar)")

GENERATORS: tuple[OpDef, ...] = (
    OpDef(
        name="arange", kind=OpKind.GENERATE, doc="start, start + step, ... (n numbers).", operands=(0, 0),
        infer=_infer_arange, access=_no_operands, reference=NumpyReference("arange"),
        work=Work(alu=1, instructions=1), prepare=_prepare_arange,
        attrs={
            "n": (False, "how many numbers"), "start": (False, "the first (default 0)"),
            "end": (False, "stop before this, where n is absent"), "step": (False, "difference (default 1)"),
            "to": (False, "element type (default i64, f32 for floats)"),
        },
    ),
    OpDef(
        name="fill", kind=OpKind.GENERATE, doc="One number everywhere.", operands=(0, 0), infer=_infer_shape,
        access=_no_operands, reference=NumpyReference("fill"), work=Work(alu=1, instructions=1), prepare=_prepare_fill,
        attrs={
            "const": (True, "the number"), "shape": _SHAPE,
            "to": (False, "element type (default i64, f32 or bool by the number)"),
        },
    ),
    OpDef(
        name="random_uniform", kind=OpKind.GENERATE, doc="Uniform in [0, 1), a counter-based generator.",
        operands=(0, 0),
        infer=_infer_shape, access=_no_operands, reference=NumpyReference("random_uniform"),
        work=Work(fma=1, alu=15, instructions=16, scratch=4), prepare=_prepare_random,
        attrs={
            "shape": _SHAPE, "to": (False, "element type, a float (default f32)"),
            "seed": (False, "seed, a whole number (default 0)"),
        },
    ),
)  # fmt: skip

OPAQUE: tuple[OpDef, ...] = (
    OpDef(
        name="opaque", kind=OpKind.OPAQUE, doc="An operator that is not known: a kernel of its own.",
        operands=(0, None), infer=_infer_opaque, access=_access_opaque, reference=NumpyReference("opaque"),
        work=Work(instructions=0.0), attrs={"kind": (True, "the model's name of the operator")}, declared=True,
    ),
)  # fmt: skip
