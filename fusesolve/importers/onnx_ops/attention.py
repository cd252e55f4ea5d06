"""Attention and rotary embedding (operator set 23). Source of the formulas: the ONNX operator specification."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fusesolve.graph import AttrValue, DType, Literal, Operand
from fusesolve.importers.onnx_lower import Handler
from fusesolve.importers.onnx_node import NodeView
from fusesolve.importers.onnx_ops.movement import cut
from fusesolve.importers.onnx_ops.normalise import softmax_of_masked


def _heads(node: NodeView, index: int, count: int) -> str:
    """Operand as [batch, heads, length, size]; three axes are split, the last one into heads."""
    shape = node.type(index).shape
    if len(shape) == 4:
        return node.tensor(index)
    apart = node.reshape(node.tensor(index), (shape[0], shape[1], count, shape[2] // count))
    return node.emit("transpose", apart, perm=(0, 2, 1, 3))


def _grouped(node: NodeView, x: str, heads: int) -> str:
    """Keys or values repeated for groups of query heads: head h serves the queries h * r to h * r + r - 1."""
    batch, own, length, size = node.known(x).shape
    if own == heads:
        return x
    apart = node.reshape(x, (batch, own, 1, length, size))
    wide = node.emit("broadcast", apart, to=(batch, own, heads // own, length, size))
    return node.reshape(wide, (batch, heads, length, size))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Operands:
    """Queries, keys and values as [batch, heads, length, size], those of the past in front."""

    q: str
    keys: str
    values: str
    past: int


def _operands(node: NodeView) -> _Operands:
    q = _heads(node, 0, int(node.attr("q_num_heads", 0)))
    k = _heads(node, 1, int(node.attr("kv_num_heads", 0)))
    v = _heads(node, 2, int(node.attr("kv_num_heads", 0)))
    if node.has(4):
        k = node.emit("concat", node.tensor(4), k, axis=2)
    if node.has(5):
        v = node.emit("concat", node.tensor(5), v, axis=2)
    return _Operands(q=q, keys=k, values=v, past=node.type(4).shape[2] if node.has(4) else 0)


def _joined(node: NodeView, x: str) -> str:
    """Heads side by side again where the operands had three axes."""
    if len(node.type(0).shape) == 4:
        return x
    return node.reshape(node.emit("transpose", x, perm=(0, 2, 1, 3)), node.result().shape)


def _without_mask(node: NodeView, found: _Operands) -> str:
    attrs: dict[str, AttrValue] = {"causal": bool(node.attr("is_causal", 0)), "offset": found.past}
    if node.attr("scale"):
        attrs["scale"] = float(node.attr("scale"))
    softcap = float(node.attr("softcap", 0.0))
    return _joined(node, node.composite("attention", found.q, found.keys, found.values, softcap=softcap, **attrs)[0])


def _causal(node: NodeView, scores: str, past: int) -> str:
    """Scores with minus infinity where the key comes after the query; `past` keys come before the first query."""
    queries, keys = node.known(scores).shape[-2:]
    row = node.reshape(node.emit("arange", n=queries, start=past, to="i64"), (queries, 1))
    column = node.emit("arange", n=keys, to="i64")
    return node.emit("where", node.emit("greater", column, row), Literal(-math.inf), scores)


def _masked(node: NodeView, scores: str) -> str | None:
    """Scores with the mask applied: false is minus infinity, a number is added; None for a mask that is too short."""
    mask, kind = node.tensor(3), node.type(3)
    if kind.shape[-1] not in (1, node.known(scores).shape[-1]):
        return None
    if kind.dtype is DType.BOOL:
        return node.emit("where", mask, scores, Literal(-math.inf))
    return node.emit("add", scores, mask)


def _attention(node: NodeView) -> Sequence[Operand | None] | None:
    """softmax(cap(scale * Q K') + mask) V.

    The score outputs, a softmax in another precision, padded caches and local windows leave an opaque kernel.
    """
    windowed = any(node.attr(name, -1) != -1 for name in ("left_window_size", "right_window_size"))
    if windowed or node.wants(3) or node.has(6) or node.attr("softmax_precision") not in (None, 1):
        return None
    found = _operands(node)
    if not node.has(3):
        made = _without_mask(node, found)
        return [made, found.keys if node.wants(1) else None, found.values if node.wants(2) else None, None]
    size = node.known(found.q).shape[3]
    scale = float(node.attr("scale") or 1 / math.sqrt(size))
    keys = _grouped(node, found.keys, node.known(found.q).shape[1])
    product = node.emit("matmul", found.q, keys, transpose_b=True)
    scores = node.emit("mul", product, Literal(scale))
    cap = float(node.attr("softcap", 0.0))
    if cap > 0:
        scores = node.emit("mul", node.emit("tanh", node.emit("div", scores, Literal(cap))), Literal(cap))
    if node.attr("is_causal", 0):
        scores = _causal(node, scores, found.past)
    masked = _masked(node, scores)
    if masked is None:
        return None
    heads = node.known(found.q).shape[1]
    made = node.emit("matmul", softmax_of_masked(node, masked, 3), _grouped(node, found.values, heads))
    made = _joined(node, made)
    return [made, found.keys if node.wants(1) else None, found.values if node.wants(2) else None, None]


def _rotary(node: NodeView) -> Operand | None:
    """x1 * cos - x2 * sin and x1 * sin + x2 * cos on the halves (or the even and odd elements) of each head."""
    shape = node.type(0).shape
    if len(shape) == 3 and not node.attr("num_heads", 0):
        return None
    x = _heads(node, 0, int(node.attr("num_heads", 0)))
    size = node.known(x).shape[3]
    dim = int(node.attr("rotary_embedding_dim", 0)) or size
    cos, sin = _table(node, 1, dim), _table(node, 2, dim)
    apart = bool(node.attr("interleaved", 0))
    (turned,) = node.composite("rotary", cut(node, x, 3, 0, dim), cos, sin, interleaved=apart)
    if dim < size:
        turned = node.emit("concat", turned, cut(node, x, 3, dim, size), axis=3)
    return _joined(node, turned)


def _table(node: NodeView, index: int, dim: int) -> str:
    """Cosines or sines as [batch, 1, length, dim / 2], picked by the positions where those are given."""
    table = node.tensor(index)
    if node.has(3):
        table = node.emit("gather", table, node.tensor(3), axis=0)
    batch, length, half = node.known(table).shape
    return node.reshape(cut(node, table, 2, 0, min(half, dim // 2)), (batch, 1, length, dim // 2))


ATTENTION: Mapping[str, Handler] = {"Attention": _attention, "RotaryEmbedding": _rotary}
