"""Rules that operators share: type promotion, broadcasting, axes, and the access maps that follow from them.

Promotion is NumPy's (NEP 50) for the types NumPy has. The types it has not: bf16 and f16 meet in f32; an 8-bit float
with f16 or bf16 gives that type; the two 8-bit floats meet in f16, which holds both exactly; bf16 and the 8-bit
floats meet integers as f16 does (8-bit integers keep the float, except that an 8-bit float becomes f16; 16-bit ones
give f32, wider ones f64).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from fusesolve.access import BROADCAST, Access, AccessMap, OperandMap, same
from fusesolve.errors import InputError
from fusesolve.graph import DType, Literal, Node, Operand, TensorType

_FLOAT_RANK = {DType.F8E4M3: 0, DType.F8E5M2: 0, DType.F16: 1, DType.BF16: 1, DType.F32: 2, DType.F64: 3}
_SIGNED = {1: DType.I8, 2: DType.I16, 4: DType.I32, 8: DType.I64}
_INTEGER_RANGE = {
    DType.I8: (-(2**7), 2**7 - 1), DType.I16: (-(2**15), 2**15 - 1), DType.I32: (-(2**31), 2**31 - 1),
    DType.I64: (-(2**63), 2**63 - 1), DType.U8: (0, 2**8 - 1), DType.U16: (0, 2**16 - 1),
    DType.U32: (0, 2**32 - 1), DType.U64: (0, 2**64 - 1),
}  # fmt: skip


def is_integer(dtype: DType) -> bool:
    """True for signed and unsigned integers; bool is not one."""
    return dtype in _INTEGER_RANGE


def is_signed(dtype: DType) -> bool:
    """True for the signed integers."""
    return dtype.value[0] == "i"


def promote(left: DType, right: DType) -> DType:
    """The type that holds both, as NumPy's `promote_types` (the module text gives the rule of bf16 and f8)."""
    if left is right or right is DType.BOOL:
        return left
    if left is DType.BOOL:
        return right
    if left.is_float and right.is_float:
        return _promote_floats(left, right)
    if left.is_float or right.is_float:
        number, integer = (left, right) if left.is_float else (right, left)
        return _promote_mixed(number, integer)
    return _promote_integers(left, right)


def _promote_floats(left: DType, right: DType) -> DType:
    if _FLOAT_RANK[left] != _FLOAT_RANK[right]:
        return max(left, right, key=_FLOAT_RANK.__getitem__)
    return DType.F32 if left in (DType.F16, DType.BF16) else DType.F16


def _promote_mixed(number: DType, integer: DType) -> DType:
    least = {1: number if _FLOAT_RANK[number] else DType.F16, 2: DType.F32}.get(integer.itemsize, DType.F64)
    return number if _FLOAT_RANK[number] >= _FLOAT_RANK[least] else least


def _promote_integers(left: DType, right: DType) -> DType:
    if is_signed(left) == is_signed(right):
        return left if left.itemsize >= right.itemsize else right
    signed, unsigned = (left, right) if is_signed(left) else (right, left)
    if signed.itemsize > unsigned.itemsize:
        return signed
    return _SIGNED.get(2 * unsigned.itemsize, DType.F64)


def promote_all(dtypes: Sequence[DType]) -> DType:
    """`promote` folded over one or more types."""
    result = dtypes[0]
    for dtype in dtypes[1:]:
        result = promote(result, dtype)
    return result


def float_type(dtype: DType) -> DType:
    """The type that NumPy's floating functions return: floats as they are, bool and 8-bit f16, 16-bit f32, else f64."""
    if dtype.is_float:
        return dtype
    return {1: DType.F16, 2: DType.F32}.get(dtype.itemsize, DType.F64)


def parse_dtype(word: object) -> DType:
    """The element type named `word`; InputError with the list of names where there is none."""
    try:
        return DType(str(word))
    except ValueError:
        names = " ".join(item.value for item in DType)
        raise InputError(f"unknown element type {str(word)!r}; the types are {names}") from None


def literal_type(value: float | int | bool, dtypes: Sequence[DType]) -> TensorType:
    """Type of a literal beside operands of `dtypes`: it adapts to them as a Python number does in NumPy (NEP 50).

    A literal of a higher kind (float beside integers) is f64, an integer beside bool only is i64. Raises InputError
    where an integer does not fit the type it adapts to.
    """
    beside = promote_all(dtypes) if dtypes else DType.BOOL
    if isinstance(value, bool):
        return TensorType(beside, ())
    if isinstance(value, float):
        return TensorType(beside if beside.is_float else DType.F64, ())
    dtype = DType.I64 if beside is DType.BOOL else beside
    if dtype in _INTEGER_RANGE and not _INTEGER_RANGE[dtype][0] <= value <= _INTEGER_RANGE[dtype][1]:
        raise InputError(f"the number {value} does not fit {dtype.value}; cast the other operand to a wider type")
    return TensorType(dtype, ())


def resolve_operands(inputs: Sequence[Operand], known: Mapping[str, TensorType]) -> tuple[TensorType, ...]:
    """Types of `inputs` in order, literals adapted to the named ones; KeyError where a name is unknown."""
    named = [known[item] for item in inputs if not isinstance(item, Literal)]
    if len(named) == len(inputs):
        return tuple(named)
    dtypes = [item.dtype for item in named]
    return tuple(literal_type(i.value, dtypes) if isinstance(i, Literal) else known[i] for i in inputs)


def broadcast_shapes(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """NumPy's broadcast of one or more shapes; InputError naming the two extents that do not match."""
    if all(shape == shapes[0] for shape in shapes):
        return shapes[0]
    rank = max(map(len, shapes))
    result = [1] * rank
    for shape in shapes:
        for axis, extent in enumerate(shape, rank - len(shape)):
            if result[axis] == 1:
                result[axis] = extent
            elif extent not in (1, result[axis]):
                text = " and ".join(str(list(item)) for item in shapes)
                raise InputError(f"shapes {text} do not broadcast: extents {result[axis]} and {extent} on axis {axis}")
    return tuple(result)


def resolve_axis(axis: object, rank: int) -> int:
    """`axis` in 0..rank-1, a negative one counted from the end; InputError where it is out of range."""
    if isinstance(axis, bool) or not isinstance(axis, int):
        raise InputError(f"axis must be one integer, not {axis!r}")
    if not -rank <= axis < rank:
        raise InputError(f"axis {axis} is out of range for rank {rank}")
    return axis % rank


def resolve_axes(axes: object, rank: int) -> tuple[int, ...]:
    """Ascending axes in 0..rank-1 of a number or a tuple; None or () means all. InputError on a repeat."""
    if axes is None or axes == ():
        return tuple(range(rank))
    items = axes if isinstance(axes, tuple) else (axes,)
    found = sorted(resolve_axis(item, rank) for item in items)
    if len(set(found)) != len(found):
        raise InputError(f"axis {'-'.join(map(str, items))} names an axis twice")
    return tuple(found)


def integers(value: object, what: str, count: int | None = None, least: int | None = None) -> tuple[int, ...]:
    """`value` as a tuple of integers; one number is repeated `count` times.

    InputError where it is no integer, where there are not `count` of them, or where one is below `least`.
    """
    items: tuple[Any, ...] = value if isinstance(value, tuple) else (value,) * (1 if count is None else count)
    if any(isinstance(item, bool) or not isinstance(item, int) for item in items):
        raise InputError(f"{what} must be integers, not {value!r}")
    if count is not None and len(items) != count:
        raise InputError(f"{what} needs {count} numbers, got {len(items)}")
    if least is not None and any(item < least for item in items):
        raise InputError(f"{what} must be at least {least}, got {min(items)}")
    return tuple(items)


def flag(value: object, what: str) -> bool:
    """`value` (true, false, 0 or 1) as a bool; InputError for anything else."""
    if value in (0, 1):
        return bool(value)
    raise InputError(f"{what} must be true or false, not {value!r}")


def number(value: object, what: str) -> float | int:
    """`value` if it is an integer or a float; InputError for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{what} must be a number, not {value!r}")
    return value


def word(value: object, what: str, choices: Sequence[str]) -> str:
    """`value` if it is one of `choices`; InputError listing them otherwise."""
    if value not in choices:
        raise InputError(f"{what} must be one of {', '.join(choices)}, not {value!r}")
    return str(value)


def broadcast_operand(shape: tuple[int, ...], result: tuple[int, ...]) -> OperandMap:
    """Map of an operand that broadcasts to `result`: right-aligned, extent 1 against a larger one is index 0."""
    shift = len(result) - len(shape)
    return tuple(
        same(axis + shift) if extent == result[axis + shift] else BROADCAST for axis, extent in enumerate(shape)
    )


def elementwise_access(node: Node, types: Sequence[TensorType], results: Sequence[TensorType]) -> AccessMap:
    """Every operand follows the result's index, broadcast where its extent is 1."""
    shape = results[0].shape
    return AccessMap(tuple(broadcast_operand(item.shape, shape) for item in types))


def identity_map(rank: int) -> list[Access]:
    """`SAME` for each of `rank` dimensions, to be changed at the axes that differ."""
    return [same(axis) for axis in range(rank)]


def attr_tuple(attrs: Mapping[str, Any], name: str) -> tuple[int, ...]:
    """The canonical attribute `name`, known to be a tuple of integers."""
    return tuple(attrs[name])
