"""Promotion, broadcasting and reshaping rules against NumPy, over random types and shapes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusesolve.errors import InputError
from fusesolve.graph import DType, TensorType
from fusesolve.ops import OPS, infer_results
from fusesolve.ops.numpy_reference import numpy_dtype
from fusesolve.ops.rules import broadcast_shapes, literal_type, promote

NUMPY = [item for item in DType if item not in (DType.BF16, DType.F8E4M3, DType.F8E5M2)]
shapes = st.lists(st.integers(0, 4), max_size=4).map(tuple)
dtypes = st.sampled_from(NUMPY)


@given(dtypes, dtypes)
def test_promotion_is_numpys(left: DType, right: DType) -> None:
    expected = np.promote_types(numpy_dtype(left), numpy_dtype(right))
    assert numpy_dtype(promote(left, right)) == expected


@given(st.sampled_from(DType), st.sampled_from(DType))
def test_promotion_commutes_and_never_narrows(a: DType, b: DType) -> None:
    assert promote(a, b) is promote(b, a)
    assert promote(a, b).itemsize >= max(a.itemsize, b.itemsize)
    assert promote(a, promote(a, b)) is promote(a, b)
    assert promote(a, b).is_float or not (a.is_float or b.is_float)


@given(st.lists(shapes, min_size=1, max_size=4))
def test_broadcasting_is_numpys(items: list[tuple[int, ...]]) -> None:
    try:
        expected = np.broadcast_shapes(*items)
    except ValueError:
        with pytest.raises(InputError, match="do not broadcast"):
            broadcast_shapes(items)
        return
    assert broadcast_shapes(items) == expected


@given(dtypes, st.one_of(st.booleans(), st.integers(0, 100), st.floats(-100, 100)))
def test_a_literal_adapts_as_a_python_number_does(dtype: DType, value: float) -> None:
    expected = (np.zeros(2, numpy_dtype(dtype)) + value).dtype
    kind = literal_type(value, [dtype])
    assert numpy_dtype(promote(dtype, kind.dtype)) == expected


@given(shapes, st.data())
def test_slices_are_pythons(shape: tuple[int, ...], data: st.DataObject) -> None:
    if not shape:
        return
    axis = data.draw(st.integers(0, len(shape) - 1))
    bound = st.one_of(st.none(), st.integers(-6, 6))
    start, end = data.draw(bound), data.draw(bound)
    step = data.draw(st.integers(-3, 3).filter(bool))
    attrs = {"axis": axis, "step": step} | {k: v for k, v in (("start", start), ("end", end)) if v is not None}
    x = np.arange(int(np.prod(shape))).reshape(shape)
    kind = TensorType(DType.I64, shape)
    (result,), canonical = infer_results(OPS["slice"], [kind], attrs)
    expected = x[(slice(None),) * axis + (slice(start, end, step),)]
    assert result.shape == expected.shape
    again, canonical_again = infer_results(OPS["slice"], [kind], canonical)
    assert canonical_again == canonical
    (found,) = OPS["slice"].reference([x], canonical, again)
    np.testing.assert_array_equal(found, expected)


@settings(max_examples=60)
@given(st.sampled_from(["add", "sub", "mul", "maximum", "less", "equal", "div"]), dtypes, dtypes, shapes, st.data())
def test_binary_operators_give_numpys_type_and_values(
    op: str, left: DType, right: DType, shape: tuple[int, ...], data: st.DataObject
) -> None:
    functions = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "maximum": np.maximum, "less": np.less,
                 "equal": np.equal, "div": np.true_divide}  # fmt: skip
    other = tuple(data.draw(st.sampled_from([extent, 1])) for extent in shape)[data.draw(st.integers(0, len(shape))) :]
    seed = np.random.Generator(np.random.PCG64(data.draw(st.integers(0, 99))))
    a = seed.integers(1, 5, shape).astype(numpy_dtype(left))
    b = seed.integers(1, 5, other).astype(numpy_dtype(right))
    kinds = [TensorType(left, shape), TensorType(right, other)]
    try:
        results, canonical = infer_results(OPS[op], kinds, {})
    except InputError:
        assert op == "sub"
        assert left is right is DType.BOOL
        return
    with np.errstate(all="ignore"):
        expected = functions[op](a, b)
    narrow = {DType.F16} & {left, right, results[0].dtype}
    if op == "div" and not (left.is_float or right.is_float):
        assert results[0].dtype is DType.F64  # true division of whole numbers, the narrow ones too
    elif op not in ("less", "equal"):
        assert numpy_dtype(results[0].dtype) == expected.dtype
    (found,) = OPS[op].reference([a, b], canonical, results)
    np.testing.assert_allclose(found.astype(np.float64), expected.astype(np.float64), rtol=2e-3 if narrow else 1e-6)
