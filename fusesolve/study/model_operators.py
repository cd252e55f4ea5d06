"""Operators of traced language models, one eager call each: shapes of a table's row as the operator that ran."""

from collections.abc import Callable, Iterator, Mapping
from math import prod
from typing import TypeAlias

from fusesolve.study.samples import Sample, Skipped, Spec, Timing

Row: TypeAlias = Mapping[str, str]
Shape: TypeAlias = tuple[int, ...]

MICROSECOND = 1e-6
VOCABULARIES = {"bert_large": 30_522}  # rows of an embedding table; the others have GPT-2's
GPT2_VOCABULARY = 50_257
# The table's word -> the operator with one full operand, and with two.
POINTWISE = {
    "add": ("addu", "add"), "sub": ("addu", "add"), "mul": ("mulu", "mul"), "truediv": ("divu", "div"),
    "where": ("mulu", "add"), "pow": ("mulu", "mul"),
}  # fmt: skip
SAME = {"tanh": "tanh", "gelu": "gelu", "relu": "relu", "contiguous": "copy"}


def read_model_operator(row: Row) -> Iterator[Sample | Skipped]:
    """The forward pass of a row: its operator in one eager call; backward passes are not read.

    ValueError where a shape is malformed.
    """
    inputs = [_shape(text) for text in row["input_shapes"].split(";") if text]
    result = _shape(row["output_shape"])
    build = SPECS.get(row["op"])
    found = build(row, inputs, result) if build is not None else None
    if found is None:
        yield Skipped(row["gpu"], f"the kernels of the operator {row['op']} are not known")
        return
    seconds = float(row["fwd_latency_us"]) * MICROSECOND
    if not seconds > 0:
        yield Skipped(row["gpu"], "the row has no forward time")
        return
    yield Sample(
        device=row["gpu"], op=f"model {row['op']}", family="model operator", timing=Timing.EAGER, kernels=(found,),
        latency=seconds,
    )  # fmt: skip


def _shape(text: str) -> Shape:
    return tuple(int(part) for part in text.split("x"))


def _rows(shape: Shape) -> Shape:
    """A tensor as rows and columns."""
    return prod(shape[:-1]), shape[-1]


def _pointwise(row: Row, inputs: list[Shape], result: Shape) -> Spec:
    """An operand of another size is broadcast: it adds next to nothing to the bytes."""
    full = sum(prod(shape) == prod(result) for shape in inputs)
    return Spec(POINTWISE[row["op"]][min(full, 2) - 1 if full else 0], "f32", _rows(result))


def _same(row: Row, inputs: list[Shape], result: Shape) -> Spec:
    return Spec(SAME[row["op"]], "f32", _rows(result))


def _row_wise(row: Row, inputs: list[Shape], result: Shape) -> Spec:
    return Spec(row["op"], "f32", _rows(result))


def _linear(row: Row, inputs: list[Shape], result: Shape) -> Spec:
    return Spec("matmul", "f32", (prod(inputs[0][:-1]), result[-1], inputs[0][-1]))


def _addmm(row: Row, inputs: list[Shape], result: Shape) -> Spec:
    return Spec("matmul", "f32", (inputs[1][0], inputs[2][1], inputs[1][1]))


def _matmul(row: Row, inputs: list[Shape], result: Shape) -> Spec:
    left, right = inputs[:2]
    return Spec("bmm", "f32", (prod(left[:-2]), left[-2], right[-1], left[-1]))


def _embedding(row: Row, inputs: list[Shape], result: Shape) -> Spec:
    vocabulary = VOCABULARIES.get(row["model"], GPT2_VOCABULARY)
    return Spec("embedding", "f32", (prod(inputs[0]), result[-1], vocabulary))


# The table's word -> the operator.
SPECS: Mapping[str, Callable[[Row, list[Shape], Shape], Spec]] = {
    **dict.fromkeys(POINTWISE, _pointwise),
    **dict.fromkeys(SAME, _same),
    **dict.fromkeys(("softmax", "layernorm"), _row_wise),
    "linear": _linear, "addmm": _addmm, "matmul": _matmul, "embedding": _embedding,
}  # fmt: skip
