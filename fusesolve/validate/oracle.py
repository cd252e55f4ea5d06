"""The oracle: what a kernel should have written, in f64, from what it read, and how far off it may be.

The oracle follows the graph, not the plan: it walks back from the kernel's writes to the arrays that the kernel read
and computes every node in between with all floats in f64. Errors of earlier kernels are in its operands, so that the
error of a kernel is its own.

Error of a write: the greatest |got - wanted| / (|wanted| + rms(wanted)). Tolerance of a kernel, from standard error
analysis of rounding (each operator rounds once, N. J. Higham, Accuracy and Stability, section 3.1; random-walk growth
of sums, section 4.2), with a factor 4 in hand:

    4 * eps * (1 + sqrt(operators)) + 4 * eps_acc * (operators + sqrt(longest reduction))

with eps of the narrowest floating type that is computed or written on the way, and eps_acc that of the accumulators
(f32; f64 where all is f64). Where an operator jumps (rounding to integers, comparison) the wanted value is that of
the same types in NumPy, and up to 1 % of the elements may lie elsewhere; so too for elements where NumPy in the same
types is itself further from f64 than tolerated (1 / sqrt(x) near 0).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, Any

from fusesolve.candidates.program import Operator
from fusesolve.codegen.planned import PlannedKernel, PlannedProgram
from fusesolve.graph import DType, Literal, Node, TensorType
from fusesolve.ops import OPS, jumps, operand_types, result_types
from fusesolve.ops.definition import OpKind
from fusesolve.reference import literal_array, run_node
from fusesolve.validate.memory import operands

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

EPSILON: Mapping[DType, float] = {
    DType.F64: 2.0**-52, DType.F32: 2.0**-23, DType.F16: 2.0**-10, DType.BF16: 2.0**-7, DType.F8E4M3: 2.0**-3,
    DType.F8E5M2: 2.0**-2,
}  # fmt: skip
IN_HAND = 4.0
STRAY_SHARE = 0.01  # share of elements that may lie elsewhere behind an operator that jumps


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How one kernel compares: greatest error over its writes, what is tolerated, and the write that is worst.

    `error` is None where the operators have no reference (opaque ones).
    """

    ok: bool
    error: float | None
    tolerance: float
    worst: str | None


class Oracle:
    """Judges the writes of kernels against the graph."""

    def __init__(self, planned: PlannedProgram) -> None:
        self.planned = planned
        self.program = planned.program

    def judge(self, kernel: PlannedKernel, read: "Mapping[int, Array]", written: "Mapping[int, Array]") -> Verdict:
        """The verdict on a kernel from the arrays that it read and wrote, by storage."""
        way = self._way(kernel)
        limit = tolerance(self.planned, way)
        jumping = self._jump(way)
        exact, same = self._follow(way, read, wide=True), self._follow(way, read, wide=False)
        found = {s: _error(written[s], exact[s], same[s], jumps=jumping, limit=limit) for s in kernel.writes}
        worst = max(found, key=lambda s: found[s], default=None)
        error = 0.0 if worst is None else found[worst]
        name = None if worst is None else self.program.storage[worst].value
        return Verdict(ok=error <= limit, error=error, tolerance=limit, worst=name)

    def jumps(self, kernel: PlannedKernel) -> bool:
        """Whether an operator of a kernel jumps, so that a few of its elements may lie elsewhere."""
        return self._jump(self._way(kernel))

    def _jump(self, way: list[Operator]) -> bool:
        return any(jumps(self.planned.graph, self.planned.graph.nodes[op.node]) for op in way)

    def _way(self, kernel: PlannedKernel) -> list[Operator]:
        """Operators between the kernel's reads and its writes, in order."""
        storage, operators = self.program.storage, self.program.operators
        found: set[int] = set()
        stack = list(kernel.writes)
        seen = set(kernel.reads) - set(kernel.writes)
        while stack:
            item = stack.pop()
            made = storage[item].producer
            if item in seen or made is None:
                continue
            seen.add(item)
            found.add(made)
            stack.extend(read.storage for read in operators[made].reads)
        return [operators[index] for index in sorted(found)]

    def _follow(self, way: list[Operator], read: "Mapping[int, Array]", *, wide: bool) -> "dict[int, Array]":
        inside = {s: _widen(a) if wide else a for s, a in read.items()}
        graph = self.planned.graph
        for op in way:
            node = graph.nodes[op.node]
            values = operands(self.planned, node, inside)
            results = self._node64(node, values) if wide else run_node(graph, node, values)
            inside.update(zip(op.writes, (results[name] for name in node.outputs), strict=True))
        return inside

    def _node64(self, node: Node, values: "Mapping[str, Array]") -> "dict[str, Array]":
        graph = self.planned.graph
        types = operand_types(graph, node)
        arrays = [
            literal_array(item, _wide_type(kind)) if isinstance(item, Literal) else values[item]
            for item, kind in zip(node.inputs, types, strict=True)
        ]
        results = [_wide_type(kind) for kind in result_types(graph, node)]
        found = OPS[node.op].reference(arrays, dict(node.attrs), results)
        return dict(zip(node.outputs, found, strict=True))


def tolerance(planned: PlannedProgram, way: list[Operator]) -> float:
    """The tolerated error of a kernel whose operators are `way`; see the module's text."""
    graph = planned.graph
    kinds = [graph.type_of(name).dtype for op in way for name in graph.nodes[op.node].outputs]
    floats = [kind for kind in kinds if kind.is_float]
    if not floats:
        return 0.0
    count = sum(op.kind not in (OpKind.MOVEMENT, OpKind.GATHER) for op in way)
    longest = max((op.reduced for op in way), default=1)
    accumulator = DType.F64 if set(floats) == {DType.F64} else DType.F32
    rounding = EPSILON[max(floats, key=EPSILON.__getitem__)] * (1.0 + sqrt(count))
    return IN_HAND * (rounding + EPSILON[accumulator] * (count + sqrt(max(1, longest))))


def _wide_type(kind: TensorType) -> TensorType:
    return TensorType(DType.F64, kind.shape) if kind.dtype.is_float else kind


def _widen(array: "Array") -> "Array":
    import numpy as np

    return array if array.dtype.kind in "iub" else array.astype(np.float64)


def _error(got: "Array", exact: "Array", same: "Array", *, jumps: bool, limit: float) -> float:
    """Greatest error of one write, up to 1 % of the elements left out where rounding alone decides them."""
    import numpy as np

    got = got.reshape(same.shape)
    if got.size == 0:
        return 0.0
    a, b, c = (item.astype(np.float64) for item in (got, exact, same))
    wanted = np.where(np.isfinite(c) & np.isfinite(b) & (not jumps), b, c)
    error = _distance(a, wanted)
    shaky = np.full(error.shape, True) if jumps else _distance(c, wanted) > limit
    if shaky.any():
        error = np.where(shaky, np.minimum(error, _distance(a, c)), error)
    stray = shaky & (error > limit)
    if np.mean(stray) <= STRAY_SHARE:
        error = error[~stray]
    return float(error.max(initial=0.0))


def _distance(got: "Array", wanted: "Array") -> "Array":
    """|got - wanted| / (|wanted| + rms(wanted)), flat; 0 where both are the same special value, else inf there."""
    import numpy as np

    finite = np.isfinite(wanted)
    with np.errstate(all="ignore"):
        scale = float(np.sqrt(np.mean(np.square(wanted[finite])))) if finite.any() else 0.0
        off = np.abs(got - wanted) / (np.abs(wanted) + (scale or 1.0))
    alike = (got == wanted) | (np.isnan(got) & np.isnan(wanted))
    return np.where(alike, 0.0, np.where(np.isfinite(off), off, np.inf)).ravel()
