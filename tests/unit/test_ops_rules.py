"""Promotion, broadcasting, literals and axes, by hand-derived values."""

import pytest

from fusesolve.access import BROADCAST, same
from fusesolve.errors import InputError
from fusesolve.graph import DType, Literal, TensorType
from fusesolve.ops.rules import (
    broadcast_operand,
    broadcast_shapes,
    flag,
    float_type,
    integers,
    literal_type,
    parse_dtype,
    promote,
    resolve_axes,
    resolve_axis,
    resolve_operands,
)


@pytest.mark.parametrize(
    ("left", "right", "result"),
    [
        ("f32", "f32", "f32"), ("f16", "f32", "f32"), ("f16", "bf16", "f32"), ("bf16", "f32", "f32"),
        ("i32", "f32", "f64"), ("i16", "f32", "f32"), ("i8", "f16", "f16"), ("i16", "f16", "f32"),
        ("bool", "i8", "i8"), ("bool", "f16", "f16"), ("u8", "i8", "i16"), ("u32", "i32", "i64"),
        ("u64", "i64", "f64"), ("u8", "i16", "i16"), ("f8e4m3", "f16", "f16"), ("f8e4m3", "bf16", "bf16"),
        ("f8e4m3", "f8e5m2", "f16"), ("f8e5m2", "i8", "f16"), ("bf16", "u8", "bf16"), ("bf16", "i16", "f32"),
        ("bf16", "i64", "f64"), ("f8e4m3", "f64", "f64"),
    ],
)  # fmt: skip
def test_promotion(left: str, right: str, result: str) -> None:
    assert promote(DType(left), DType(right)) is DType(result)
    assert promote(DType(right), DType(left)) is DType(result)


@pytest.mark.parametrize(
    ("dtype", "result"), [("i8", "f16"), ("bool", "f16"), ("u16", "f32"), ("i64", "f64"), ("bf16", "bf16")]
)
def test_float_functions_of_other_types(dtype: str, result: str) -> None:
    assert float_type(DType(dtype)) is DType(result)


@pytest.mark.parametrize(
    ("value", "beside", "result"),
    [
        (0.5, ["f16"], "f16"), (0.5, ["i32"], "f64"), (2, ["f8e4m3"], "f8e4m3"), (2, ["u8"], "u8"),
        (2, ["bool"], "i64"),
        (True, ["f32"], "f32"), (True, [], "bool"), (1.5, [], "f64"), (3, [], "i64"), (0.0, ["bool", "bf16"], "bf16"),
    ],
)  # fmt: skip
def test_a_literal_adapts_to_its_neighbours(value: float, beside: list[str], result: str) -> None:
    assert literal_type(value, [DType(item) for item in beside]) == TensorType(DType(result), ())


def test_an_integer_literal_must_fit() -> None:
    with pytest.raises(InputError, match="the number 300 does not fit u8"):
        literal_type(300, [DType.U8])
    with pytest.raises(InputError, match="the number -1 does not fit u64"):
        literal_type(-1, [DType.U64])


def test_operands_keep_their_order() -> None:
    half = TensorType(DType.F16, (4,))
    assert resolve_operands([Literal(1.0), "x"], {"x": half}) == (TensorType(DType.F16, ()), half)


@pytest.mark.parametrize(
    ("shapes", "result"),
    [([(3, 1), (4,)], (3, 4)), ([(), (2, 3)], (2, 3)), ([(1, 1), (1,)], (1, 1)), ([(0, 4), (1, 4)], (0, 4)),
     ([(5, 1, 2), (7, 1), (2,)], (5, 7, 2))],
)  # fmt: skip
def test_broadcast(shapes: list[tuple[int, ...]], result: tuple[int, ...]) -> None:
    assert broadcast_shapes(shapes) == result


def test_broadcast_names_the_extents_that_differ() -> None:
    with pytest.raises(InputError, match=r"shapes \[2, 3\] and \[4\] do not broadcast: extents 3 and 4 on axis 1"):
        broadcast_shapes([(2, 3), (4,)])


def test_a_unit_extent_against_a_unit_extent_is_the_same_index() -> None:
    assert broadcast_operand((1, 4), (3, 1, 4)) == (same(1), same(2))
    assert broadcast_operand((3, 1, 1), (3, 1, 4)) == (same(0), same(1), BROADCAST)


def test_axes() -> None:
    assert resolve_axis(-1, 3) == 2
    assert resolve_axes((2, 0), 3) == (0, 2)
    assert resolve_axes(None, 2) == (0, 1)
    assert resolve_axes((), 2) == (0, 1)
    with pytest.raises(InputError, match="axis 3 is out of range for rank 3"):
        resolve_axis(3, 3)
    with pytest.raises(InputError, match="axis 0--2 names an axis twice"):
        resolve_axes((0, -2), 2)
    with pytest.raises(InputError, match="axis must be one integer, not True"):
        resolve_axis(True, 3)


def test_attribute_forms() -> None:
    assert integers(2, "stride", 3) == (2, 2, 2)
    assert flag(1, "keepdims") is True
    with pytest.raises(InputError, match="stride needs 2 numbers, got 3"):
        integers((1, 2, 3), "stride", 2)
    with pytest.raises(InputError, match="stride must be at least 1, got 0"):
        integers(0, "stride", 2, least=1)
    with pytest.raises(InputError, match=r"stride must be integers, not 1\.5"):
        integers(1.5, "stride", 2)
    with pytest.raises(InputError, match="keepdims must be true or false, not 2"):
        flag(2, "keepdims")
    with pytest.raises(InputError, match="unknown element type 'c64'; the types are f64 f32"):
        parse_dtype("c64")
