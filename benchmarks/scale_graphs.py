"""Large graphs for the scale benchmark, made operator by operator: deep language models, wide branches, long chains."""

from dataclasses import dataclass

from fusesolve.builder import GraphBuilder
from fusesolve.decompose import add_operator
from fusesolve.graph import AttrValue, DType, Graph, Literal, Operand, TensorType


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A Llama-like model: tokens of the prompt, width, query and key heads, width of the feed-forward part."""

    tokens: int = 2048
    width: int = 8192
    heads: int = 64
    key_heads: int = 8
    hidden: int = 28672

    @property
    def head(self) -> int:
        """Width of one head."""
        return self.width // self.heads


LLAMA_70B = Shape()


@dataclass(frozen=True, slots=True)
class _Pen:
    """Appends operators and weights to a builder; every operator is named by its result."""

    builder: GraphBuilder
    dtype: DType

    def op(self, name: str, operator: str, *operands: str | float, **attrs: AttrValue) -> str:
        """Append an operator, primitive or composite, with the one result `name`; returns it."""
        items: list[Operand] = [item if isinstance(item, str) else Literal(item) for item in operands]
        add_operator(self.builder, operator, items, attrs, outputs=(name,), source=name)
        return name

    def input(self, name: str, *shape: int, weight: bool = False) -> str:
        """Declare an input or a weight; returns its name."""
        return self.builder.input(name, TensorType(self.dtype, shape), weight=weight)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a value."""
        return self.builder.type(name).shape

    def linear(self, name: str, x: str, width: int) -> str:
        """Product of x with a weight of its own."""
        return self.op(name, "matmul", x, self.input(f"{name}_w", self.shape(x)[-1], width, weight=True))

    def rms_norm(self, name: str, x: str) -> str:
        """RMS norm over the last axis with scale."""
        scale = self.input(f"{name}_g", self.shape(x)[-1], weight=True)
        return self.op(name, "rmsnorm", x, scale, axis=len(self.shape(x)) - 1, eps=1e-5)

    def heads(self, name: str, x: str, count: int) -> str:
        """[B, S, count * D] as [B, count, S, D]."""
        batch, length, width = self.shape(x)
        split = self.op(f"{name}_heads", "reshape", x, to=(batch, length, count, width // count))
        return self.op(name, "transpose", split, perm=(0, 2, 1, 3))

    def rotate(self, name: str, x: str, cos: str, sin: str) -> str:
        """Rotary embedding, halves swapped."""
        half = self.shape(x)[-1] // 2
        left = self.op(f"{name}_left", "slice", x, axis=3, start=0, end=half)
        right = self.op(f"{name}_right", "slice", x, axis=3, start=half, end=2 * half)
        turned = self.op(f"{name}_turned", "concat", self.op(f"{name}_neg", "neg", right), left, axis=3)
        parts = (self.op(f"{name}_cos", "mul", x, cos), self.op(f"{name}_sin", "mul", turned, sin))
        return self.op(f"{name}_rope", "add", *parts)

    def repeated(self, name: str, x: str, heads: int) -> str:
        """Each key head repeated for its query heads."""
        batch, count, length, depth = self.shape(x)
        each = self.op(f"{name}_each", "unsqueeze", x, axis=2)
        wide = self.op(f"{name}_wide", "broadcast", each, to=(batch, count, heads // count, length, depth))
        return self.op(f"{name}_shared", "reshape", wide, to=(batch, heads, length, depth))


def make_llama(layers: int, shape: Shape = LLAMA_70B) -> Graph:
    """Prefill of a Llama-like model of `layers` >= 1 equal layers in bf16, 62 primitives each; views come on top."""
    pen = _Pen(GraphBuilder(f"llama_{layers}"), DType.BF16)
    x = pen.input("x", 1, shape.tokens, shape.width)
    mask = pen.input("mask", 1, 1, shape.tokens, shape.tokens)
    cos, sin = (pen.input(name, 1, 1, shape.tokens, shape.head) for name in ("cos", "sin"))
    for layer in range(layers):
        x = _llama_layer(pen, f"h{layer}_", x, (cos, sin, mask), shape)
    pen.builder.output(pen.rms_norm("norm", x))
    return pen.builder.build()


def _llama_layer(pen: _Pen, at: str, x: str, tables: tuple[str, str, str], shape: Shape) -> str:
    cos, sin, mask = tables
    norm = pen.rms_norm(f"{at}attn_norm", x)
    keys = shape.key_heads * shape.head
    query, key, value = (
        pen.heads(f"{at}{name}", pen.linear(f"{at}{name}_proj", norm, width), width // shape.head)
        for name, width in (("q", shape.width), ("k", keys), ("v", keys))
    )
    query, key = pen.rotate(f"{at}q", query, cos, sin), pen.rotate(f"{at}k", key, cos, sin)
    key, value = pen.repeated(f"{at}k", key, shape.heads), pen.repeated(f"{at}v", value, shape.heads)
    scores = pen.op(f"{at}qk", "matmul", query, key, transpose_b=True)
    masked = pen.op(f"{at}masked", "add", pen.op(f"{at}scaled", "mul", scores, shape.head**-0.5), mask)
    context = pen.op(f"{at}pv", "matmul", pen.op(f"{at}softmax", "softmax", masked, axis=3), value)
    turned = pen.op(f"{at}context_t", "transpose", context, perm=(0, 2, 1, 3))
    merged = pen.op(f"{at}context", "reshape", turned, to=(1, shape.tokens, shape.width))
    attended = pen.op(f"{at}attn_res", "add", x, pen.linear(f"{at}o_proj", merged, shape.width))
    norm = pen.rms_norm(f"{at}ffn_norm", attended)
    gate = pen.op(f"{at}silu", "silu", pen.linear(f"{at}gate_proj", norm, shape.hidden))
    gated = pen.op(f"{at}gated", "mul", gate, pen.linear(f"{at}up_proj", norm, shape.hidden))
    return pen.op(f"{at}ffn_res", "add", attended, pen.linear(f"{at}down_proj", gated, shape.width))


def make_branches(branches: int, depth: int, size: int = 1 << 20) -> Graph:
    """`branches` chains of `depth` elementwise operators on one input, each with its own scale, summed at the end."""
    pen = _Pen(GraphBuilder(f"branches_{branches}x{depth}"), DType.F32)
    x = pen.input("x", size)
    ends = []
    for branch in range(branches):
        y = x
        for step in range(depth):
            y = pen.op(f"b{branch}_{step}", ("tanh", "exp", "sqrt", "relu", "abs")[step % 5], y)
        ends.append(y)
    total = ends[0]
    for branch, end in enumerate(ends[1:], 1):
        total = pen.op(f"sum_{branch}", "add", total, end)
    pen.builder.output(total)
    return pen.builder.build()


def make_gru(steps: int, batch: int = 64, width: int = 512) -> Graph:
    """A GRU cell unrolled over `steps` time steps: three products of shared weights, 13 elementwise ones."""
    pen = _Pen(GraphBuilder(f"gru_{steps}"), DType.F32)
    state = pen.input("h0", batch, width)
    gates = ("z", "r", "n")
    weights = {gate: pen.input(f"u_{gate}", width, width, weight=True) for gate in gates}
    bias = {gate: pen.input(f"b_{gate}", width, weight=True) for gate in gates}
    for step in range(steps):
        at = f"t{step}_"
        fed = {gate: pen.input(f"{at}x_{gate}", batch, width) for gate in gates}
        update, reset = (
            pen.op(f"{at}{gate}", "sigmoid", pen.op(
                f"{at}{gate}_sum", "add",
                pen.op(f"{at}{gate}_in", "add", pen.op(f"{at}{gate}_mm", "matmul", state, weights[gate]), bias[gate]),
                fed[gate],
            ))
            for gate in ("z", "r")
        )  # fmt: skip
        inner = pen.op(f"{at}n_mm", "matmul", state, weights["n"])
        gated = pen.op(f"{at}gated", "mul", reset, pen.op(f"{at}n_in", "add", inner, bias["n"]))
        fresh = pen.op(f"{at}n", "tanh", pen.op(f"{at}n_sum", "add", gated, fed["n"]))
        change = pen.op(f"{at}change", "mul", update, pen.op(f"{at}diff", "sub", state, fresh))
        state = pen.op(f"{at}h", "add", fresh, change)
    pen.builder.output(state)
    return pen.builder.build()


def make_diamonds(count: int, rows: int = 4096, width: int = 1024) -> Graph:
    """A chain of `count` diamonds: a row maximum and an exponential of one value, multiplied again."""
    pen = _Pen(GraphBuilder(f"diamonds_{count}"), DType.F32)
    x = pen.input("x", rows, width)
    for step in range(count):
        top = pen.op(f"max_{step}", "reduce_max", x, axis=1, keepdims=True)
        x = pen.op(f"mul_{step}", "mul", pen.op(f"exp_{step}", "exp", x), top)
    pen.builder.output(x)
    return pen.builder.build()
