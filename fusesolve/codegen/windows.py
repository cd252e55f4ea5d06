"""Windows in place: pooling, stencils, resizing, and contractions that a kernel computes at single points."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from fusesolve.codegen.affine import ZERO, Affine, Var, number, split, variable
from fusesolve.codegen.folds import Fold
from fusesolve.codegen.moves import Index, axis_of, inside, whole
from fusesolve.codegen.scalars import UnsupportedError, compute_type
from fusesolve.graph import DType, Node, TensorType
from fusesolve.ops import operand_types

if TYPE_CHECKING:
    from fusesolve.codegen.values import KernelSource

Rule: TypeAlias = "Callable[[KernelSource, Node, Index], str]"


@dataclass(frozen=True, slots=True)
class Guarded:
    """An operand index of which some parts must first be tested: (axis, index before padding is taken off, padding)."""

    index: Index
    tests: tuple[tuple[int, Affine, int], ...]


def _numbers(node: Node, name: str) -> tuple[int, ...]:
    value = node.attr(name)
    assert isinstance(value, tuple)
    return value


def window_index(node: Node, index: Index, taps: Index, shape: Sequence[int]) -> Guarded:
    """The spatial operand index of a convolution or pooling tap, with the tests that padding makes necessary."""
    stride, pad, dilation = (_numbers(node, name) for name in ("stride", "pad", "dilation"))
    parts: list[Affine] = []
    tests: list[tuple[int, Affine, int]] = []
    for i, tap in enumerate(taps):
        raw = index[2 + i].scaled(stride[i]) + tap.scaled(dilation[i])
        if raw.low >= pad[i] and raw.high < pad[i] + shape[2 + i]:
            parts.append(raw.shifted(-pad[i]))
        else:
            parts.append(ZERO)
            tests.append((2 + i, raw, pad[i]))
    return Guarded(tuple(parts), tuple(tests))


def enter(kernel: "KernelSource", open_: ExitStack, found: Guarded, lead: Index, shape: Sequence[int]) -> Index:
    """Open a block behind the tests of a guarded index (if there are any) and return the operand's whole index."""
    parts = list(found.index)
    if found.tests:
        tests = " and ".join(inside(kernel, raw, pad, shape[axis]) for axis, raw, pad in found.tests)
        open_.enter_context(kernel.block(f"if {tests}:"))
        for axis, raw, pad in found.tests:
            parts[axis - 2] = kernel.fix(raw.shifted(-pad), shape[axis])
    return (*lead, *parts)


def _pool(kernel: "KernelSource", node: Node, index: Index) -> str:
    shape = kernel.graph.type_of(node.reads[0]).shape
    result = kernel.graph.type_of(node.outputs[0])
    kind = compute_type(result.dtype)
    average = node.op == "avgpool"
    if average and not result.dtype.is_float:
        raise UnsupportedError("avgpool of integers is not supported in generated kernels")
    fold = Fold("reduce_sum" if average else "reduce_max", kind, 1, kind)
    total = kernel.value(fold.start(), "r")
    count = kernel.value(f"{kind}(0)", "r") if average else ""
    with ExitStack() as open_:
        taps = open_.enter_context(kernel.loops(_numbers(node, "k")))
        if average and node.attr("count_pad", False):
            _count_padded(kernel, node, index, taps, count)
        where = enter(kernel, open_, window_index(node, index, taps, shape), index[:2], shape)
        kernel.line(f"{total} = {fold.join(total, kernel.at(node.reads[0], where))}")
        if average and not node.attr("count_pad", False):
            kernel.line(f"{count} = {count} + {kind}(1)")
    return kernel.value(f"{total} / {count}") if average else total


def _count_padded(kernel: "KernelSource", node: Node, index: Index, taps: Index, count: str) -> None:
    """Count the taps that lie in the tensor or in its padding (not those that rounding up has added)."""
    shape = kernel.graph.type_of(node.reads[0]).shape
    stride, pad, dilation = (_numbers(node, name) for name in ("stride", "pad", "dilation"))
    tests = []
    for i, tap in enumerate(taps):
        raw = index[2 + i].scaled(stride[i]) + tap.scaled(dilation[i])
        tests.append(inside(kernel, raw, 0, shape[2 + i] + pad[i] + pad[len(taps) + i]))
    kind = compute_type(kernel.graph.type_of(node.outputs[0]).dtype)
    real = [test for test in tests if test != "True"]
    with kernel.block(f"if {' and '.join(real) or 'True'}:"):
        kernel.line(f"{count} = {count} + {kind}(1)")


def _stencil(kernel: "KernelSource", node: Node, index: Index) -> str:
    axis, extent = axis_of(node), kernel.graph.type_of(node.reads[0]).shape[axis_of(node)]
    kind = compute_type(kernel.graph.type_of(node.outputs[0]).dtype)
    total = kernel.value(f"{kind}(0)", "r")
    for offset in _numbers(node, "offsets"):
        raw, pad = index[axis].shifted(max(0, offset)), max(0, -offset)
        with kernel.block(f"if {inside(kernel, raw, pad, extent)}:"):
            where = (*index[:axis], kernel.fix(raw.shifted(-pad), extent), *index[axis + 1 :])
            kernel.line(f"{total} = {kind}({total} + {kernel.at(node.reads[0], where)})")
    return total


def _coordinate(kernel: "KernelSource", node: Node, part: Affine, count: int, extent: int) -> str:
    """The operand coordinate of a result position in f64. Source: the ONNX specification of Resize."""
    position, mode = f"f64({kernel.index(part)})", node.attr("coordinates")
    if mode == "align_corners":
        return f"{position} * f64({extent - 1}) / f64({count - 1})" if count > 1 else position
    scale = repr(count / extent)
    if mode == "asymmetric":
        return f"{position} / f64({scale})"
    if mode == "pytorch_half_pixel" and count == 1:
        return position
    return f"({position} + f64(0.5)) / f64({scale}) - f64(0.5)"


_ROUNDED = {
    "round_prefer_floor": "ceil64({} - f64(0.5))", "round_prefer_ceil": "floor64({} + f64(0.5))",
    "floor": "floor64({})", "ceil": "ceil64({})",
}  # fmt: skip


def _nearest(kernel: "KernelSource", node: Node, index: Index) -> str:
    before, after = (kernel.graph.type_of(name).shape for name in (node.reads[0], node.outputs[0]))
    parts = list(index)
    for axis, (extent, count) in enumerate(zip(before, after, strict=True)):
        if extent != count:
            raw = kernel.value(_coordinate(kernel, node, index[axis], count, extent))
            near = kernel.value(_ROUNDED[str(node.attr("rounding"))].format(raw))
            name = kernel.value(f"u32(min(max({near}, f64(0)), f64({extent - 1})))", "t")
            parts[axis] = variable(Var(name, extent))
    return kernel.at(node.reads[0], tuple(parts))


def _linear(kernel: "KernelSource", node: Node, index: Index) -> str:
    before, after = (kernel.graph.type_of(name).shape for name in (node.reads[0], node.outputs[0]))
    sides: list[tuple[int, Affine, Affine, str]] = []
    for axis, (extent, count) in enumerate(zip(before, after, strict=True)):
        if extent != count:
            raw = _coordinate(kernel, node, index[axis], count, extent)
            place = kernel.value(f"min(max({raw}, f64(0)), f64({extent - 1}))")
            low = kernel.value(f"u32({place})", "t")
            high = kernel.value(f"min(u32({low} + u32(1)), u32({extent - 1}))", "t")
            weight = kernel.value(f"{place} - f64({low})")
            sides.append((axis, variable(Var(low, extent)), variable(Var(high, extent)), weight))
    kind = compute_type(kernel.graph.type_of(node.outputs[0]).dtype)
    return kernel.value(f"{kind}({_corner(kernel, node, list(index), sides)})")


def _corner(
    kernel: "KernelSource", node: Node, index: list[Affine], sides: Sequence[tuple[int, Affine, Affine, str]]
) -> str:
    if not sides:
        return f"f64({kernel.at(node.reads[0], tuple(index))})"
    axis, low, high, weight = sides[-1]
    ends = []
    for side in (low, high):
        index[axis] = side
        ends.append(kernel.value(_corner(kernel, node, index, sides[:-1])))
    return f"({ends[0]} * (f64(1) - {weight}) + {ends[1]} * {weight})"


# contractions

TRANSPOSED = frozenset({"conv1d_transpose", "conv2d_transpose", "conv3d_transpose"})


def sum_type(types: Sequence[TensorType]) -> str:
    """The register type in which products are summed: f32, f64, or i64 for integers."""
    if not types[0].dtype.is_float and not types[1].dtype.is_float:
        return "i64"
    return "f64" if DType.F64 in (types[0].dtype, types[1].dtype) else "f32"


@dataclass(frozen=True, slots=True)
class Product:
    """The operand indices of one product: the left one may have to be tested, the right one is plain."""

    left: Guarded
    lead: Index
    right: Index


def product(kernel: "KernelSource", node: Node, index: Index, inner: Index) -> Product:
    """The operand indices of a contraction's product at a result index and an index along its reduced axes."""
    left, right = operand_types(kernel.graph, node)
    if node.op == "matmul":
        return _matmul_product(node, (left.shape, right.shape), index, inner[0])
    if node.op in TRANSPOSED:
        return _transposed_product(kernel, node, index, inner)
    if node.op not in ("conv1d", "conv2d", "conv3d"):
        raise UnsupportedError(f"{node.op} is not supported in generated kernels")
    channel = inner[0]
    group, outputs = whole(node, "group", 1), right.shape[0]
    if group != 1:
        parts = split(index[1], (group, outputs // group))
        block = _divided(kernel, index[1], outputs // group)[0] if parts is None else parts[0]
        channel = block.scaled(right.shape[1]) + channel
    return Product(
        left=window_index(node, index, inner[1:], left.shape), lead=(index[0], channel), right=(index[1], *inner)
    )


def inner_extents(node: Node, types: Sequence[TensorType]) -> tuple[int, ...]:
    """Extents of a contraction's reduced axes, as its access map has them: depth, or channels and taps."""
    if node.op == "matmul":
        return (types[0].shape[-2 if node.attr("transpose_a") else -1],)
    if node.op not in TRANSPOSED:
        return types[1].shape[1:]
    taps = zip(types[1].shape[2:], _numbers(node, "stride"), strict=True)
    return (types[1].shape[0], *(-(-count // step) for count, step in taps))


def is_regular(node: Node, weight: Sequence[int]) -> bool:
    """Whether all positions of one residue of a transposed convolution sum over the same whole set of taps."""
    plain = set(_numbers(node, "dilation")) == {1} and whole(node, "group", 1) == 1
    return plain and not any(taps % step for taps, step in zip(weight[2:], _numbers(node, "stride"), strict=True))


def _scattered(kernel: "KernelSource", node: Node, index: Index) -> str:
    """A transposed convolution of any kind at one point: all taps, and a test which of them meet an element."""
    types = operand_types(kernel.graph, node)
    (_, depth, *extents), (_, per, *taps) = (kind.shape for kind in types)
    stride, pad, dilation = (_numbers(node, name) for name in ("stride", "pad", "dilation"))
    kind, group = sum_type(types), whole(node, "group", 1)
    block, column = _divided(kernel, index[1], per) if group > 1 else (ZERO, index[1])
    total = kernel.value(f"{kind}(0)", "r")
    with ExitStack() as open_:
        inner = open_.enter_context(kernel.loops((depth // group, *taps)))
        channel = block.scaled(depth // group) + inner[0]
        rows = []
        for i, step in enumerate(stride):
            lift = -(-dilation[i] * (taps[i] - 1) // step)  # whole steps, so that nothing is negative
            far = (index[2 + i] + inner[1 + i].scaled(-dilation[i])).shifted(pad[i] + lift * step)
            row, rest = _divided(kernel, far, step)
            test = f"{kernel.index(rest)} == u32(0) and {inside(kernel, row, lift, extents[i])}"
            open_.enter_context(kernel.block(f"if {test}:"))
            rows.append(kernel.fix(row.shifted(-lift), extents[i]))
        a = kernel.cast(kernel.operand(node.inputs[0], types[0], (index[0], channel, *rows)), types[0], kind)
        b = kernel.cast(kernel.operand(node.inputs[1], types[1], (channel, column, *inner[1:])), types[1], kind)
        kernel.line(f"{total} = {total} + {a} * {b}")
    goal = compute_type(kernel.graph.type_of(node.outputs[0]).dtype)
    return total if goal == kind else kernel.value(f"{goal}({total})")


def _transposed_product(kernel: "KernelSource", node: Node, index: Index, inner: Index) -> Product:
    """A transposed convolution: a position y takes tap `p % stride + j * stride` of row `p // stride - j`, p = y + pad.

    `inner` are the channel and a j for each axis. Where all taps of a residue exist no weight has to be tested.
    """
    left, right = (kind.shape for kind in operand_types(kernel.graph, node))
    stride, pad = (_numbers(node, name) for name in ("stride", "pad"))
    if not is_regular(node, right):
        raise UnsupportedError(f"{node.op} with groups, dilation or taps beside its stride's multiples has no tiles")
    rows: list[Affine] = []
    taps: list[Affine] = []
    tests: list[tuple[int, Affine, int]] = []
    for i, step in enumerate(stride):
        whole_steps = Affine(tuple((var, coef // step) for var, coef in index[2 + i].terms if coef % step == 0))
        rest = Affine(
            tuple(term for term in index[2 + i].terms if term[1] % step), index[2 + i].const
        ).shifted(pad[i])  # fmt: skip
        turn, tap = _divided(kernel, rest, step)
        last = right[2 + i] // step - 1
        raw = (whole_steps + turn + inner[1 + i].scaled(-1)).shifted(last)
        taps.append(tap + inner[1 + i].scaled(step))
        safe = raw.low >= last and raw.high < last + left[2 + i]
        rows.append(raw.shifted(-last) if safe else ZERO)
        tests += [] if safe else [(2 + i, raw, last)]
    return Product(
        left=Guarded(tuple(rows), tuple(tests)), lead=(index[0], inner[0]), right=(inner[0], index[1], *taps)
    )


def _divided(kernel: "KernelSource", part: Affine, step: int) -> tuple[Affine, Affine]:
    """Quotient and remainder of an index expression."""
    if not part.terms:
        return number(part.const // step), number(part.const % step)
    text = kernel.value(f"u32({kernel.index(part)})", "t")
    if part.high < step:
        return ZERO, variable(Var(text, part.high + 1))
    turn = kernel.value(f"u32({text} // u32({step}))", "t")
    rest = kernel.value(f"u32({text} % u32({step}))", "t")
    return variable(Var(turn, part.high // step + 1)), variable(Var(rest, step))


def _matmul_product(node: Node, shapes: Sequence[Sequence[int]], index: Index, inner: Affine) -> Product:
    batch, row, column = index[:-2], index[-2], index[-1]

    def lead(shape: Sequence[int]) -> Index:
        shift = len(batch) - (len(shape) - 2)
        return tuple(batch[axis + shift] if extent != 1 else ZERO for axis, extent in enumerate(shape[:-2]))

    a = (inner, row) if node.attr("transpose_a") else (row, inner)
    b = (column, inner) if node.attr("transpose_b") else (inner, column)
    return Product(left=Guarded((), ()), lead=(*lead(shapes[0]), *a), right=(*lead(shapes[1]), *b))


def _contraction(kernel: "KernelSource", node: Node, index: Index) -> str:
    """A contraction at one point: a loop over its reduced axes."""
    types = operand_types(kernel.graph, node)
    if node.op in TRANSPOSED and not is_regular(node, types[1].shape):
        return _scattered(kernel, node, index)
    kind = sum_type(types)
    total = kernel.value(f"{kind}(0)", "r")
    with ExitStack() as open_:
        inner = open_.enter_context(kernel.loops(inner_extents(node, types)))
        found = product(kernel, node, index, inner)
        left = enter(kernel, open_, found.left, found.lead, types[0].shape)
        a = kernel.cast(kernel.operand(node.inputs[0], types[0], left), types[0], kind)
        b = kernel.cast(kernel.operand(node.inputs[1], types[1], found.right), types[1], kind)
        kernel.line(f"{total} = {total} + {a} * {b}")
    goal = compute_type(kernel.graph.type_of(node.outputs[0]).dtype)
    return total if goal == kind else kernel.value(f"{goal}({total})")


WINDOWS: Mapping[str, Rule] = {
    "maxpool": _pool, "avgpool": _pool, "stencil": _stencil, "resize_nearest": _nearest, "resize_linear": _linear,
    "matmul": _contraction, "conv1d": _contraction, "conv2d": _contraction, "conv3d": _contraction,
    **dict.fromkeys(TRANSPOSED, _contraction),
}  # fmt: skip
