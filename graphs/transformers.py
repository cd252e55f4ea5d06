"""Bundled parts of transformers: GPT-2, Llama, BERT, and the blocks and norms that they are made of."""

from sheet import Sheet

ROWS, COLUMNS = 8192, 4096  # the row-wise examples: 128 MiB in f32


def linear(sheet: Sheet, name: str, x: str, width: int, *, bias: bool = True) -> str:
    """Product x @ weight, plus bias; the bias is the operator `<name>_bias`."""
    kind, depth = sheet.dtype(x), sheet.shape(x)[-1]
    weight = sheet.weight(f"{name}_w", kind, depth, width)
    y = sheet.op(name, "matmul", x, weight)
    if not bias:
        return y
    return sheet.op(f"{name}_bias", "add", y, sheet.weight(f"{name}_b", kind, width))


def layer_norm(sheet: Sheet, name: str, x: str) -> str:
    """Layer norm over the last axis with scale and bias; 16-bit floats are normalised in f32 between casts."""
    kind, width = sheet.dtype(x), sheet.shape(x)[-1]
    scale, bias = (sheet.weight(f"{name}_{part}", kind, width) for part in ("g", "b"))
    return sheet.op(name, "layernorm", x, scale, bias, axis=len(sheet.shape(x)) - 1, eps=1e-5)


def rms_norm(sheet: Sheet, name: str, x: str) -> str:
    """RMS norm over the last axis with scale, in f32 between casts."""
    scale = sheet.weight(f"{name}_g", sheet.dtype(x), sheet.shape(x)[-1])
    return sheet.op(name, "rmsnorm", x, scale, axis=len(sheet.shape(x)) - 1, eps=1e-5)


def heads(sheet: Sheet, name: str, x: str, count: int) -> str:
    """[B, S, count * D] as [B, count, S, D]."""
    batch, length, width = sheet.shape(x)
    split = sheet.op(f"{name}_heads", "reshape", x, to=(batch, length, count, width // count))
    return sheet.op(name, "transpose", split, perm=(0, 2, 1, 3))


def merge(sheet: Sheet, name: str, x: str) -> str:
    """[B, H, S, D] as [B, S, H * D]."""
    batch, count, length, depth = sheet.shape(x)
    turned = sheet.op(f"{name}_t", "transpose", x, perm=(0, 2, 1, 3))
    return sheet.op(name, "reshape", turned, to=(batch, length, count * depth))


def _attention(
    sheet: Sheet, query: str, key: str, value: str, mask: str, *, scale: float, at: str = ""
) -> str:  # fmt: skip
    """softmax(query key^T * scale + mask) value over [B, H, S, D], as exports spell it; names start with `at`."""
    scores = sheet.op(f"{at}qk", "matmul", query, key, transpose_b=True)
    masked = sheet.op(f"{at}masked", "add", sheet.op(f"{at}scaled", "mul", scores, scale), mask)
    return sheet.op(f"{at}pv", "matmul", sheet.op(f"{at}softmax", "softmax", masked, axis=3), value)


def softmax() -> Sheet:
    """Softmax written out as five operators."""
    sheet = Sheet("softmax", "Softmax over rows, written out: one kernel where a row fits.")
    x = sheet.input("x", "f32", ROWS, COLUMNS)
    top = sheet.op("row_max", "reduce_max", x, axis=1, keepdims=True)
    exp = sheet.op("exp", "exp", sheet.op("centred", "sub", x, top))
    total = sheet.op("row_sum", "reduce_sum", exp, axis=1, keepdims=True)
    sheet.output(sheet.op("y", "div", exp, total))
    return sheet


def layer_norm_rows() -> Sheet:
    """Layer norm written out as nine operators."""
    sheet = Sheet("layer_norm", "Layer norm over rows, written out: one kernel where a row fits.")
    x = sheet.input("x", "f32", ROWS, COLUMNS)
    scale, bias = sheet.weight("g", "f32", COLUMNS), sheet.weight("b", "f32", COLUMNS)
    centred = sheet.op("centred", "sub", x, sheet.op("mean", "reduce_mean", x, axis=1, keepdims=True))
    squares = sheet.op("squares", "mul", centred, centred)
    variance = sheet.op("variance", "reduce_mean", squares, axis=1, keepdims=True)
    inverse = sheet.op("inverse", "rsqrt", sheet.op("stable", "add", variance, 1e-5))
    scaled = sheet.op("scaled", "mul", sheet.op("normed", "mul", centred, inverse), scale)
    sheet.output(sheet.op("y", "add", scaled, bias))
    return sheet


def rms_norm_rows() -> Sheet:
    """RMS norm of a 16-bit residual stream, with the residual sum before it."""
    sheet = Sheet("rms_norm", "Residual sum and RMS norm in bf16; both results are used further on.")
    x, delta = (sheet.input(name, "bf16", ROWS, COLUMNS) for name in ("x", "delta"))
    total = sheet.op("residual", "add", x, delta)
    sheet.output(total, rms_norm(sheet, "norm", total))
    return sheet


def gelu_mlp() -> Sheet:
    """The feed-forward part of a transformer layer."""
    sheet = Sheet("gelu_mlp", "Feed-forward part of a transformer layer: linear, GELU (erf), linear, residual.")
    x = sheet.input("x", "f16", 4096, 1024)
    hidden = sheet.op("gelu", "gelu", linear(sheet, "fc1", x, 4096))
    sheet.output(sheet.op("residual", "add", x, linear(sheet, "fc2", hidden, 1024)))
    return sheet


def gpt2_block() -> Sheet:
    """One layer of GPT-2 small at its full context."""
    return gpt2(1)


def gpt2(layers: int) -> Sheet:
    """GPT-2 small, `layers` >= 1 of its 12 layers, f16, batch 1, 1024 tokens; one layer is the bundled block.

    Operators of more than one layer carry the layer in front: `h0_ln_1`, `h1_ln_1`, ...
    """
    length, width = 1024, 768
    about = f"{'One layer' if layers == 1 else f'{layers} layers'} of GPT-2 small, f16, batch 1, 1024 tokens"
    sheet = Sheet("gpt2_block" if layers == 1 else f"gpt2_{layers}", f"{about}, with its causal mask as input.")
    x = sheet.input("x", "f16", 1, length, width)
    mask = sheet.input("causal_mask", "f16", 1, 1, length, length)
    for layer in range(layers):
        x = _gpt2_layer(sheet, "" if layers == 1 else f"h{layer}_", x, mask)
    sheet.output(x)
    return sheet


def _gpt2_layer(sheet: Sheet, at: str, x: str, mask: str) -> str:
    width, count = sheet.shape(x)[-1], 12
    joined = linear(sheet, f"{at}c_attn", layer_norm(sheet, f"{at}ln_1", x), 3 * width)
    parts = (
        sheet.op(f"{at}{name}_part", "slice", joined, axis=2, start=index * width, end=(index + 1) * width)
        for index, name in enumerate(("q", "k", "v"))
    )
    query, key, value = (heads(sheet, f"{at}{name}", part, count) for name, part in zip("qkv", parts, strict=True))
    context = merge(sheet, f"{at}context", _attention(sheet, query, key, value, mask, scale=0.125, at=at))
    attended = sheet.op(f"{at}res_1", "add", x, linear(sheet, f"{at}attn_proj", context, width))
    hidden = linear(sheet, f"{at}c_fc", layer_norm(sheet, f"{at}ln_2", attended), 4 * width)
    hidden = sheet.op(f"{at}gelu", "gelu", hidden, approximate="tanh")
    return sheet.op(f"{at}res_2", "add", attended, linear(sheet, f"{at}mlp_proj", hidden, width))


def bert_layer() -> Sheet:
    """One layer of BERT base, norms after the residual sums."""
    batch, length, width, count = 8, 512, 768, 12
    sheet = Sheet("bert_layer", "One layer of BERT base, f16, batch 8, 512 tokens, with the padding mask as input.")
    x = sheet.input("x", "f16", batch, length, width)
    mask = sheet.input("padding_mask", "f16", batch, 1, 1, length)
    query, key, value = (
        heads(sheet, name[0], linear(sheet, name, x, width), count) for name in ("query", "key", "value")
    )
    context = _attention(sheet, query, key, value, mask, scale=0.125)
    projected = linear(sheet, "attn_out", merge(sheet, "context", context), width)
    attended = layer_norm(sheet, "attn_norm", sheet.op("attn_res", "add", projected, x))
    hidden = sheet.op("gelu", "gelu", linear(sheet, "intermediate", attended, 4 * width))
    total = sheet.op("ffn_res", "add", linear(sheet, "ffn_out", hidden, width), attended)
    sheet.output(layer_norm(sheet, "ffn_norm", total))
    return sheet


LLAMA_WIDTH, LLAMA_HEADS, LLAMA_KEY_HEADS, LLAMA_HIDDEN = 4096, 32, 8, 14336
LLAMA_HEAD = LLAMA_WIDTH // LLAMA_HEADS


def _rotate(sheet: Sheet, name: str, x: str, cos: str, sin: str) -> str:
    """Rotary embedding, halves swapped: x cos + concat(-right, left) sin, as Llama exports spell it."""
    axis, half = len(sheet.shape(x)) - 1, sheet.shape(x)[-1] // 2
    left = sheet.op(f"{name}_left", "slice", x, axis=axis, start=0, end=half)
    right = sheet.op(f"{name}_right", "slice", x, axis=axis, start=half, end=2 * half)
    turned = sheet.op(f"{name}_turned", "concat", sheet.op(f"{name}_neg", "neg", right), left, axis=axis)
    parts = (sheet.op(f"{name}_cos", "mul", x, cos), sheet.op(f"{name}_sin", "mul", turned, sin))
    return sheet.op(f"{name}_rope", "add", *parts)


def _projections(sheet: Sheet, x: str, length: int) -> tuple[str, str, str]:
    """Norm, projections and rotary embedding: query [B, 32, S, 128], key and value [B, 8, S, 128]."""
    norm = rms_norm(sheet, "attn_norm", x)
    cos, sin = (sheet.input(name, "bf16", 1, 1, length, LLAMA_HEAD) for name in ("cos", "sin"))
    widths = (LLAMA_WIDTH, LLAMA_KEY_HEADS * LLAMA_HEAD, LLAMA_KEY_HEADS * LLAMA_HEAD)
    query, key, value = (
        heads(sheet, name, linear(sheet, f"{name}_proj", norm, width, bias=False), width // LLAMA_HEAD)
        for name, width in zip("qkv", widths, strict=True)
    )
    return _rotate(sheet, "q", query, cos, sin), _rotate(sheet, "k", key, cos, sin), value


def _feed_forward(sheet: Sheet, x: str, context: str) -> str:
    """Output projection, residual, RMS norm and the gated feed-forward part (SwiGLU)."""
    projected = linear(sheet, "o_proj", merge(sheet, "context", context), LLAMA_WIDTH, bias=False)
    attended = sheet.op("attn_res", "add", x, projected)
    norm = rms_norm(sheet, "ffn_norm", attended)
    gate = sheet.op("silu", "silu", linear(sheet, "gate_proj", norm, LLAMA_HIDDEN, bias=False))
    gated = sheet.op("gated", "mul", gate, linear(sheet, "up_proj", norm, LLAMA_HIDDEN, bias=False))
    return sheet.op("ffn_res", "add", attended, linear(sheet, "down_proj", gated, LLAMA_WIDTH, bias=False))


def _shared(sheet: Sheet, name: str, x: str) -> str:
    """Each of the 8 key heads repeated for its 4 query heads: broadcast, then one axis of 32 heads."""
    batch, count, length, depth = sheet.shape(x)
    each = sheet.op(f"{name}_each", "unsqueeze", x, axis=2)
    wide = sheet.op(f"{name}_wide", "broadcast", each, to=(batch, count, LLAMA_HEADS // count, length, depth))
    return sheet.op(f"{name}_shared", "reshape", wide, to=(batch, LLAMA_HEADS, length, depth))


def llama_block_prefill() -> Sheet:
    """One layer of Llama 3 8B over a prompt."""
    length = 2048
    sheet = Sheet("llama_block_prefill", "One layer of Llama 3 8B over a prompt of 2048 tokens, bf16, batch 1.")
    x = sheet.input("x", "bf16", 1, length, LLAMA_WIDTH)
    mask = sheet.input("causal_mask", "bf16", 1, 1, length, length)
    query, key, value = _projections(sheet, x, length)
    shared = (_shared(sheet, name, item) for name, item in (("k", key), ("v", value)))
    context = _attention(sheet, query, *shared, mask, scale=LLAMA_HEAD**-0.5)
    sheet.output(_feed_forward(sheet, x, context), key, value)
    return sheet


def llama_block_decode() -> Sheet:
    """One layer of Llama 3 8B for one new token of each sequence, with caches that are updated in place."""
    batch, cached = 16, 4096
    sheet = Sheet(
        "llama_block_decode",
        "One layer of Llama 3 8B, bf16: the last of 4096 tokens of 16 sequences, the caches updated in place.",
    )
    x = sheet.input("x", "bf16", batch, 1, LLAMA_WIDTH)
    query, key, value = _projections(sheet, x, 1)
    kept = []
    for name, item in (("k", key), ("v", value)):
        cache = sheet.input(
            f"{name}_cache", "bf16", batch, LLAMA_KEY_HEADS, cached, LLAMA_HEAD, alias_out=f"{name}_new"
        )
        kept.append(sheet.op(f"{name}_new", "slice_update", cache, item, axis=2, start=cached - 1))
    context = sheet.op("attention", "attention", query, *kept, scale=LLAMA_HEAD**-0.5)
    sheet.output(_feed_forward(sheet, x, context), *kept)
    return sheet


def moe_router() -> Sheet:
    """The router of Mixtral 8x7B and the gather that sorts tokens by expert."""
    tokens, width, experts, chosen = 4096, 4096, 8, 2
    sheet = Sheet("moe_router", "Router of Mixtral 8x7B for 4096 tokens, bf16: the best 2 of 8 experts, tokens sorted.")
    x = sheet.input("x", "bf16", tokens, width)
    owner = sheet.weight("slot_token", "i64", tokens * chosen)
    logits = sheet.op("wide", "cast", linear(sheet, "gate", x, experts, bias=False), to="f32")
    probabilities = sheet.op("softmax", "softmax", logits, axis=1)
    best, expert = sheet.ops(("best", "expert"), "topk", probabilities, k=chosen, axis=1)
    total = sheet.op("total", "reduce_sum", best, axis=1, keepdims=True)
    weight = sheet.op("weight", "div", best, total)
    order = sheet.op("order", "argsort", sheet.op("slots", "reshape", expert, to=(tokens * chosen,)), axis=0)
    token = sheet.op("token", "gather", owner, order, axis=0)
    sorted_weight = sheet.op(
        "slot_weight", "gather", sheet.op("weights", "reshape", weight, to=(tokens * chosen,)), order, axis=0
    )
    sheet.output(sheet.op("routed", "gather", x, token, axis=0), sorted_weight, order)
    return sheet
