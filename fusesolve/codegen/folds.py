"""Folds: how each reduction starts, takes an element, joins two partial results, and ends."""

from collections.abc import Mapping
from dataclasses import dataclass

from fusesolve.codegen.scalars import EXPRESSIONS, Operation, UnsupportedError, compute_type, constant
from fusesolve.graph import DType, TensorType

_SUMS = frozenset({"reduce_sum", "reduce_mean"})
_ARGS = frozenset({"argmax", "argmin"})


@dataclass(frozen=True, slots=True)
class Fold:
    """One reduction with an accumulator of register type `kind` (a pair with an index for argmax and argmin)."""

    op: str
    kind: str
    count: int
    result: str

    @property
    def indexed(self) -> bool:
        """Whether an index goes with the accumulator."""
        return self.op in _ARGS

    def start(self) -> str:
        """The value of an empty fold."""
        if self.op in _SUMS:
            return constant(0, self.kind)
        if self.op == "reduce_prod":
            return constant(1, self.kind)
        upwards = self.op in ("reduce_max", "argmax")
        if self.kind in ("f32", "f64"):
            return constant(float("-inf") if upwards else float("inf"), self.kind)
        if self.kind == "b1":
            return "False" if upwards else "True"
        bits, signed = int(self.kind[1:]), self.kind[0] == "i"
        low = -(2 ** (bits - 1)) if signed else 0
        high = 2 ** (bits - 1) - 1 if signed else 2**bits - 1
        return constant(low if upwards else high, self.kind)

    def join(self, left: str, right: str) -> str:
        """Two accumulators in one (values only)."""
        name = "add" if self.op in _SUMS else "mul" if self.op == "reduce_prod" else _EXTREME[self.op]
        text = EXPRESSIONS[name](Operation((left, right), self.kind, {}))
        return text if self.kind in ("f32", "f64", "b1") else f"{self.kind}({text})"

    def wins(self, value: str, place: str, best: str, best_place: str) -> str:
        """Whether an indexed element replaces the best so far: NaN first, then the extreme, then the lower index."""
        sign = ">" if self.op == "argmax" else "<"
        better = f"{value} {sign} {best}"
        equal = f"{value} == {best}"
        if self.kind in ("f32", "f64"):
            better = f"({better} or ({value} != {value} and {best} == {best}))"
            equal = f"({equal} or ({value} != {value} and {best} != {best}))"
        return f"{better} or ({equal} and {place} < {best_place})"

    def finish(self, total: str) -> str:
        """The result of a complete accumulator, in the register type of the result."""
        if self.op == "reduce_mean":
            total = f"{total} / {constant(self.count, self.kind)}"
        return total if self.kind == self.result else f"{self.result}({total})"


_EXTREME: Mapping[str, str] = {
    "reduce_max": "maximum", "argmax": "maximum", "reduce_min": "minimum", "argmin": "minimum",
}  # fmt: skip


def make_fold(op: str, operand: TensorType, result: TensorType, count: int) -> Fold:
    """The fold of a reduction of `count` elements; UnsupportedError for one that is not known."""
    if op not in _SUMS | _ARGS | {"reduce_prod", "reduce_max", "reduce_min"}:
        raise UnsupportedError(f"{op} is not supported in generated kernels")
    source = operand.dtype if op in _EXTREME else result.dtype
    kind = compute_type(source)
    if op == "reduce_mean" and not result.dtype.is_float:
        raise UnsupportedError(f"{op} into {result.dtype.value} is not supported in generated kernels")
    if kind == "b1" and op in _SUMS:
        kind = compute_type(DType.I64)
    return Fold(op, kind, count, compute_type(result.dtype))


