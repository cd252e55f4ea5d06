"""The ONNX project's own operator tests: every one that can be planned is imported, run and compared.

The onnx package makes about 1,900 one-operator models with inputs and expected outputs. Operands that are vectors or
scalars are tried as inputs first, then as constants, because shapes and axes must be constants to be planned.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest

from fusesolve.errors import InputError
from fusesolve.importers.onnx import load_onnx
from fusesolve.importers.onnx_ops import HANDLERS
from fusesolve.reference import run_reference
from tests.models.numeric import folded_constants, shaped

pytestmark = [pytest.mark.models, pytest.mark.slow]

KNOWN_DIFFERENCES = {
    # scale 0.6 on an extent of 4 gives 2: the primitives interpolate by the ratio of the extents (a warning says so)
    "test_resize_downsample_scales_linear": "ratio instead of scale",
    "test_resize_downsample_scales_linear_align_corners": "ratio instead of scale",
    # the folding pass of onnxscript turns CastLike into Cast and drops the attribute
    "test_castlike_no_saturate_FLOAT_to_FLOAT8E4M3FN": "saturates",
    "test_castlike_no_saturate_FLOAT16_to_FLOAT8E4M3FN": "saturates",
    "test_castlike_no_saturate_FLOAT_to_FLOAT8E5M2": "saturates",
    "test_castlike_no_saturate_FLOAT16_to_FLOAT8E5M2": "saturates",
}
NEVER_TESTED = {"Scatter", "Upsample", "GlobalLpPool"}  # the package tests the newest operators only


@dataclass(slots=True)
class Outcome:
    """What became of the tests: names of the equal and the different ones, opaque ones, refused ones by message."""

    equal: list[str] = field(default_factory=list)
    operators: set[str] = field(default_factory=set)
    different: dict[str, str] = field(default_factory=dict)
    opaque: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)


def as_array(item: Any) -> Any:
    return onnx.numpy_helper.to_array(item) if isinstance(item, onnx.TensorProto) else item


def with_constants(model: onnx.ModelProto, feeds: Mapping[str, Any], constant: Sequence[str]) -> onnx.ModelProto:
    copy = onnx.ModelProto.FromString(model.SerializeToString())
    kept = [item for item in model.graph.input if item.name not in constant]
    del copy.graph.input[:]
    copy.graph.input.extend(kept)
    copy.graph.initializer.extend(onnx.numpy_helper.from_array(np.asarray(feeds[name]), name) for name in constant)
    return copy


def dims_of(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> dict[str, int]:
    return {
        f"{item.name}:{axis}": np.shape(feeds[item.name])[axis]
        for item in model.graph.input
        for axis, dim in enumerate(item.type.tensor_type.shape.dim)
        if not dim.dim_value and np.ndim(feeds[item.name]) > axis
    }


def difference(found: Any, wanted: Any) -> str | None:
    """None where two arrays agree, to 2 % for 8- and 16-bit floats and to 2e-4 for wider ones."""
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return f"{found.dtype}{found.shape} instead of {wanted.dtype}{wanted.shape}"
    narrow = wanted.dtype.kind not in "iub" and wanted.dtype.itemsize <= 2
    bound = 2e-2 if narrow else 2e-4
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    return None if np.allclose(a, b, rtol=bound, atol=bound, equal_nan=True) else "other values"


def run_case(model: onnx.ModelProto, feeds: Mapping[str, Any], wanted: Sequence[Any], name: str, into: Outcome) -> bool:
    """Import and run one model; False where it must be tried in another form."""
    bind = dims_of(model, feeds)
    try:
        graph = load_onnx(model.SerializeToString(), bind=bind, strict=False, origin=name)
    except InputError as error:
        into.refused[name] = str(error)
        return False
    if any(node.op == "opaque" for node in graph.nodes):
        into.opaque.append(name)
        return False
    arrays = {**folded_constants(model.SerializeToString(), bind), **feeds}
    results = run_reference(graph, shaped(graph, arrays))
    expected = {item.name: np.asarray(a) for item, a in zip(model.graph.output, wanted, strict=True) if item.name}
    found = [text for text in (difference(results[key], array) for key, array in expected.items()) if text]
    if found:
        into.different[name] = found[0]
        return False
    into.equal.append(name)
    into.operators.update(node.op_type for node in model.graph.node)
    return True


@cache
def outcome() -> Outcome:
    from onnx.backend.test.case.node import collect_testcases

    into = Outcome()
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for case in collect_testcases(None):
            inputs, wanted = ([as_array(item) for item in side] for side in case.data_sets[0])
            names = [item.name for item in case.model.graph.input]
            feeds = dict(zip(names, inputs, strict=False))
            arrays = [name for name in names[1:] if isinstance(feeds.get(name), np.ndarray | np.generic)]
            small = [name for name in arrays if np.ndim(feeds[name]) < 2]
            if "Range" in case.name or "ConstantOfShape" in case.name.title():
                small = names
            for constant in ([], small):
                if run_case(with_constants(case.model, feeds, constant), feeds, wanted, case.name, into):
                    break
    return into


def test_every_result_is_right() -> None:
    wrong = {name: text for name, text in outcome().different.items() if name not in outcome().equal}
    assert {name: text for name, text in wrong.items() if name not in KNOWN_DIFFERENCES} == {}
    assert set(wrong) == set(KNOWN_DIFFERENCES)


def test_most_of_the_standard_is_covered() -> None:
    """1,367 were equal when this was written; the rest are strings, sequences, 4-bit types, training."""
    assert len(outcome().equal) >= 1300


def test_every_handler_ran() -> None:
    missing = set(HANDLERS) - outcome().operators
    assert missing <= NEVER_TESTED


def test_refusals_are_one_clear_line() -> None:
    for name, text in outcome().refused.items():
        assert text.startswith(f"{name}: "), text
        assert "\n" not in text
        assert len(text) < 500
        assert "Traceback" not in text
