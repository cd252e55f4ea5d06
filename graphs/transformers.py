"""Bundled parts of transformers: GPT-2, Llama, BERT, and the blocks and norms that they are made of."""

from sheet import Sheet

ROWS, COLUMNS = 8192, 4096  # the row-wise examples: 128 MiB in f32


def linear(sheet: Sheet, name: str, x: str, width: int, *, bias: bool = True) -> str:
    """x @ weight + bias; the bias is the operator `<name>_bias`."""
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
    length, width, count = 1024, 768, 12
    sheet = Sheet("gpt2_block", "One layer of GPT-2 small, f16, batch 1, 1024 tokens, with its causal mask as input.")
    x = sheet.input("x", "f16", 1, length, width)
    mask = sheet.input("causal_mask", "f16", 1, 1, length, length)
    joined = linear(sheet, "c_attn", layer_norm(sheet, "ln_1", x), 3 * width)
    parts = (
        sheet.op(f"{name}_part", "slice", joined, axis=2, start=index * width, end=(index + 1) * width)
        for index, name in enumerate(("q", "k", "v"))
    )
    query, key, value = (heads(sheet, name, part, count) for name, part in zip("qkv", parts, strict=True))
    scores = sheet.op("qk", "matmul", query, key, transpose_b=True)
    masked = sheet.op("masked", "add", sheet.op("scaled", "mul", scores, 0.125), mask)
    context = sheet.op("pv", "matmul", sheet.op("softmax", "softmax", masked, axis=3), value)
    attended = sheet.op("res_1", "add", x, linear(sheet, "attn_proj", merge(sheet, "context", context), width))
    hidden = linear(sheet, "c_fc", layer_norm(sheet, "ln_2", attended), 4 * width)
    hidden = sheet.op("gelu", "gelu", hidden, approximate="tanh")
    sheet.output(sheet.op("res_2", "add", attended, linear(sheet, "mlp_proj", hidden, width)))
    return sheet
