"""Attention and rotary embedding as primitives.

Attention: softmax(scale * q k^T + mask) v (Vaswani et al. 2017). Scores are f32 for 16-bit operands and the weights
return to the type of v before the second product, as fused attention kernels hold them.
"""

import math
from collections.abc import Sequence

from fusesolve.decompose.emit import Attrs, Composite, Emit, common_float, float_attr, tensor_operand
from fusesolve.decompose.norms import softmax
from fusesolve.errors import InputError
from fusesolve.graph import DType, Operand
from fusesolve.ops.rules import flag, integers


def _grouped(emit: Emit, query: Operand, keys: Sequence[Operand]) -> tuple[Operand, list[Operand]]:
    """Grouped-query heads: q[B, G*R, M, D] as [B, G, R, M, D], keys and values [B, G, N, D] as [B, G, 1, N, D]."""
    q, k = emit.shape(query), emit.shape(keys[0])
    if len(q) != 4 or len(k) != 4 or q[1] == k[1]:
        return query, list(keys)
    if q[1] % k[1]:
        raise InputError(f"attention: {q[1]} query heads are no multiple of {k[1]} key heads")
    grouped = emit.reshape(query, (q[0], k[1], q[1] // k[1], *q[2:]))
    return grouped, [emit("unsqueeze", item, axis=2) for item in keys]


def causal_mask(emit: Emit, rows: int, columns: int, offset: int) -> Operand:
    """bool[rows, columns]: true where column <= row + offset."""
    row = emit("reshape", emit("arange", n=rows, start=offset), to=(rows, 1))
    return emit("less_equal", emit("arange", n=columns), row)


def _masked(emit: Emit, scores: Operand, mask: Operand | None, heads: int) -> Operand:
    if mask is None:
        return scores
    shape, target = emit.shape(mask), emit.shape(scores)
    if len(target) == 5 and len(shape) == 4:  # one mask per query head, or one for all
        mask = emit.reshape(mask, (shape[0], *(target[1:3] if shape[1] == heads else (1, 1)), *shape[2:]))
    if emit.type(mask).dtype is DType.BOOL:
        return emit("where", mask, scores, float("-inf"))
    return emit("add", scores, emit.wide(mask))


def _attention(emit: Emit, inputs: Sequence[Operand], attrs: Attrs) -> tuple[Operand, ...]:
    query, key, value = inputs[:3]
    dtype, shape = common_float(emit, inputs[:3]), emit.shape(query)
    if len(shape) < 2 or len(emit.shape(key)) != len(shape) or len(emit.shape(value)) != len(shape):
        raise InputError("attention needs q[..., M, D], k[..., N, D] and v[..., N, E] of equal rank")
    wide = DType.F64 if dtype is DType.F64 else DType.F32
    rows, columns = shape[-2], emit.shape(key)[-2]
    q, (k, v) = _grouped(emit, query, (key, value))
    scores: Operand = emit("matmul", q, k, transpose_b=True, to=wide.value)
    scores = emit("mul", scores, float_attr(attrs, "scale", 1 / math.sqrt(shape[-1])))
    cap = float_attr(attrs, "softcap", 0.0)
    if cap:
        scores = emit("mul", emit("tanh", emit("mul", scores, 1 / cap)), cap)
    if flag(attrs.get("causal", False), "causal"):
        offset = integers(attrs.get("offset", 0), "offset", 1)[0]
        scores = emit("where", causal_mask(emit, rows, columns, offset), scores, float("-inf"))
    scores = _masked(emit, scores, tensor_operand(inputs, 3), shape[-3] if len(shape) > 2 else 1)
    weights = emit.cast(softmax(emit, scores, (len(emit.shape(scores)) - 1,)), emit.type(value).dtype)
    result = emit("matmul", weights, v, to=dtype.value)
    return (emit.reshape(result, (*shape[:-1], emit.shape(value)[-1])),)


def _rotary(emit: Emit, inputs: Sequence[Operand], attrs: Attrs) -> tuple[Operand, ...]:
    x, cos, sin = inputs
    shape = emit.shape(x)
    axis, width = len(shape) - 1, shape[-1]
    if width % 2:
        raise InputError(f"rotary embedding needs an even last extent, got {width}")
    if flag(attrs.get("interleaved", False), "interleaved"):
        first, second = (emit("slice", x, axis=axis, start=start, step=2) for start in (0, 1))
    else:
        first = emit("slice", x, axis=axis, end=width // 2)
        second = emit("slice", x, axis=axis, start=width // 2)
    left = emit("sub", emit("mul", first, cos), emit("mul", second, sin))
    right = emit("add", emit("mul", second, cos), emit("mul", first, sin))
    if flag(attrs.get("interleaved", False), "interleaved"):
        pair = (*shape[:-1], width // 2, 1)
        both = emit("concat", emit.reshape(left, pair), emit.reshape(right, pair), axis=axis + 1)
        return (emit.reshape(both, shape),)
    return (emit("concat", left, right, axis=axis),)


ATTENTION: tuple[Composite, ...] = (
    Composite(
        name="attention", doc="softmax(scale q k^T + mask) v over the last two axes; fewer key heads are shared.",
        operands=(3, 4), expand=_attention,
        attrs={
            "scale": (False, "factor of the scores (default 1 / sqrt(head extent))"),
            "causal": (False, "query i sees keys up to i + offset"), "offset": (False, "default 0"),
            "softcap": (False, "scores become cap * tanh(scores / cap); 0: none"),
        },
    ),
    Composite(
        name="rotary", doc="Rotary embedding of x by cos and sin of half its last extent (Su et al. 2021).",
        operands=(3, 3), expand=_rotary,
        attrs={"interleaved": (False, "pairs are neighbours, not halves (default false)")},
    ),
)  # fmt: skip
