"""ONNX contractions: matrix products, convolutions, Einsum. Source of the formulas: the ONNX operator specification."""

from collections.abc import Mapping, Sequence

from fusesolve.graph import AttrValue, Literal, Operand
from fusesolve.importers.onnx_lower import Handler
from fusesolve.importers.onnx_node import NodeView


def _matmul(node: NodeView) -> Operand:
    return product(node, node.tensor(0), node.tensor(1))


def product(node: NodeView, left: str, right: str, to: str | None = None) -> str:
    """NumPy's matmul of two values; a vector counts as a row (left) or a column (right). `to`: type of the result."""
    a, b = node.known(left).shape, node.known(right).shape
    attrs: dict[str, AttrValue] = {} if to is None else {"to": to}
    made = node.emit(
        "matmul",
        node.reshape(left, (1, *a)) if len(a) == 1 else left,
        node.reshape(right, (*b, 1)) if len(b) == 1 else right,
        **attrs,
    )
    shape = list(node.known(made).shape)
    if len(b) == 1:
        shape.pop(-1)
    if len(a) == 1:
        shape.pop(-1 if len(b) == 1 else -2)
    return node.reshape(made, shape)


def _gemm(node: NodeView) -> Operand:
    """Matrix product alpha * A' B' + beta * C."""
    flags = {"transpose_a": bool(node.attr("transA", 0)), "transpose_b": bool(node.attr("transB", 0))}
    made = node.emit("matmul", node.tensor(0), node.tensor(1), **{name: True for name, on in flags.items() if on})
    alpha, beta = float(node.attr("alpha", 1.0)), float(node.attr("beta", 1.0))
    if alpha != 1.0:
        made = node.emit("mul", made, Literal(alpha))
    if not node.has(2) or beta == 0.0:
        return made
    bias = node.operand(2)
    if beta != 1.0 and isinstance(bias, Literal):
        bias = Literal(beta * bias.value)
    elif beta != 1.0:
        bias = node.emit("mul", bias, Literal(beta))
    return node.emit("add", made, bias)


# --- convolution ---


def same_padding(
    mode: str, extents: Sequence[int], kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> tuple[int, ...]:
    """Begins and ends of SAME_UPPER or SAME_LOWER padding: ceil(extent / stride) windows (ONNX Conv, auto_pad)."""
    totals = [
        max(0, (-(-extent // step) - 1) * step + (size - 1) * gap + 1 - extent)
        for extent, size, step, gap in zip(extents, kernel, stride, dilation, strict=True)
    ]
    small = [total // 2 for total in totals]
    large = [total - part for total, part in zip(totals, small, strict=True)]
    return (*small, *large) if mode == "SAME_UPPER" else (*large, *small)


def window_attrs(node: NodeView, kernel: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """Stride, dilation and padding of a convolution or pooling over the axes from 2 on, auto_pad resolved."""
    rank = len(kernel)
    stride = tuple(node.attr("strides") or (1,) * rank)
    dilation = tuple(node.attr("dilations") or (1,) * rank)
    pad = tuple(node.attr("pads") or (0,) * (2 * rank))
    mode = node.attr("auto_pad", "NOTSET")
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        pad = same_padding(mode, node.type(0).shape[2:], kernel, stride, dilation)
    elif mode == "VALID":
        pad = (0,) * (2 * rank)
    return {"stride": stride, "dilation": dilation, "pad": pad}


def _conv(node: NodeView) -> Operand | None:
    kernel = node.type(1).shape[2:]
    if not 1 <= len(kernel) <= 3:
        return None
    return add_channels(node, convolve(node, node.tensor(0), node.tensor(1)), 2)


def convolve(node: NodeView, x: str, w: str, to: str | None = None) -> str:
    """The convolution that `node` describes, of `x` and `w`, with negative padding as a slice; no bias."""
    kernel = node.known(w).shape[2:]
    attrs: dict[str, AttrValue] = {**window_attrs(node, kernel), "group": int(node.attr("group", 1))}
    if to is not None:
        attrs["to"] = to
    return node.emit(f"conv{len(kernel)}d", x, w, **attrs)


def add_channels(node: NodeView, made: str, index: int) -> str:
    """`made` plus the bias that is operand `index`, if it is there: one number per channel (axis 1)."""
    if not node.has(index):
        return made
    return node.emit("add", made, per_channel(node, node.tensor(index), len(node.known(made).shape)))


def per_channel(node: NodeView, vector: str, rank: int, axis: int = 1) -> str:
    """A vector as a tensor of `rank` axes that lies along `axis`."""
    return node.reshape(vector, channel_shape(node.known(vector).size, rank, axis))


def channel_shape(channels: int, rank: int, axis: int = 1) -> tuple[int, ...]:
    """`channels` along `axis` of `rank` axes, 1 along the others."""
    return tuple(channels if i == min(axis, rank - 1) else 1 for i in range(rank))


def _conv_transpose(node: NodeView) -> Operand | None:
    """Transposed convolution; padding follows from output_shape or auto_pad where those are given."""
    kernel = node.type(1).shape[2:]
    if not 1 <= len(kernel) <= 3:
        return None
    attrs: dict[str, AttrValue] = {**window_attrs(node, kernel), "group": int(node.attr("group", 1))}
    extra = tuple(node.attr("output_padding") or (0,) * len(kernel))
    if node.attr("output_shape") or node.attr("auto_pad", "NOTSET").startswith("SAME"):
        attrs["pad"], extra = _transposed_padding(node, kernel, extra)
    made = node.emit(f"conv{len(kernel)}d_transpose", node.tensor(0), node.tensor(1), output_pad=extra, **attrs)
    return add_channels(node, made, 2)


def _transposed_padding(
    node: NodeView, kernel: Sequence[int], extra: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Padding and output padding that give the result's extents: what is too long is cut on both sides.

    The odd element is cut at the end for SAME_UPPER, else at the begin; what is too short is added at the end.
    """
    window = window_attrs(node, kernel)
    full = [
        step * (extent - 1) + more + (size - 1) * gap + 1
        for extent, step, size, gap, more in zip(
            node.type(0).shape[2:], window["stride"], kernel, window["dilation"], extra, strict=True
        )
    ]
    totals = [have - want for have, want in zip(full, node.result().shape[2:], strict=True)]
    extra = tuple(more + max(0, -total) for more, total in zip(extra, totals, strict=True))
    totals = [max(0, total) for total in totals]
    small = [total // 2 for total in totals]
    large = [total - part for total, part in zip(totals, small, strict=True)]
    return ((*small, *large) if node.attr("auto_pad", "NOTSET") == "SAME_UPPER" else (*large, *small)), extra


# --- Einsum ---


def _einsum(node: NodeView) -> Operand | None:
    """One or two operands without repeated letters: transpose, reduce, and one batched matmul."""
    equation = str(node.attr("equation")).replace(" ", "")
    left, _, right = equation.partition("->")
    terms = left.split(",")
    if "..." in equation or len(terms) != node.count or len(terms) > 2:
        return None
    if any(len(set(term)) != len(term) for term in (*terms, right)):
        return None
    if "->" not in equation:
        letters = "".join(terms)
        right = "".join(sorted(letter for letter in set(letters) if letters.count(letter) == 1))
    if len(terms) == 1:
        return _arranged(node, node.tensor(0), terms[0], right)
    return _einsum_pair(node, terms, right)


def _arranged(node: NodeView, name: str, letters: str, wanted: str) -> str:
    """`name` with axes `letters`, those not in `wanted` summed, the rest in the order of `wanted`."""
    gone = tuple(i for i, letter in enumerate(letters) if letter not in wanted)
    if gone:
        name = node.emit("reduce_sum", name, axis=gone)
        letters = "".join(letter for letter in letters if letter in wanted)
    if letters != wanted:
        name = node.emit("transpose", name, perm=tuple(letters.index(letter) for letter in wanted))
    return name


def _einsum_pair(node: NodeView, terms: Sequence[str], wanted: str) -> Operand:
    a, b = terms
    extent = {
        letter: size for term, i in ((a, 0), (b, 1)) for letter, size in zip(term, node.type(i).shape, strict=True)
    }
    batch = [letter for letter in wanted if letter in a and letter in b]
    inner = [letter for letter in a if letter in b and letter not in wanted]
    rows = [letter for letter in wanted if letter in a and letter not in b]
    columns = [letter for letter in wanted if letter in b and letter not in a]

    def size(letters: Sequence[str]) -> int:
        total = 1
        for letter in letters:
            total *= extent[letter]
        return total

    outer = tuple(extent[letter] for letter in batch)
    left = _arranged(node, node.tensor(0), a, "".join([*batch, *rows, *inner]))
    right = _arranged(node, node.tensor(1), b, "".join([*batch, *inner, *columns]))
    made = node.emit(
        "matmul",
        node.reshape(left, (*outer, size(rows), size(inner))),
        node.reshape(right, (*outer, size(inner), size(columns))),
    )
    order = "".join([*batch, *rows, *columns])
    return _arranged(node, node.reshape(made, tuple(extent[letter] for letter in order)), order, wanted)


CONTRACTIONS: Mapping[str, Handler] = {
    "MatMul": _matmul, "Gemm": _gemm, "Conv": _conv, "ConvTranspose": _conv_transpose, "Einsum": _einsum,
}  # fmt: skip
