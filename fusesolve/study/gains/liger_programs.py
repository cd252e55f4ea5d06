"""Operators of language models as their unfused PyTorch code runs them, one source a kernel.

Shapes come from a row's configuration; formulas are those of the Hugging Face and PyTorch code that the benchmarks of
Liger-Kernel compare with.
"""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from fusesolve.builder import GraphBuilder
from fusesolve.graph import AttrValue, DType, Literal, Operand, TensorType
from fusesolve.study.gains.aten import Call, Lowering, Traced

Config: TypeAlias = Mapping[str, str]
STRIDED = "broadcast"  # kind of an elementwise kernel with strided operands: no wide loads either


class Code:
    """A program under construction; every `run` is a kernel unless it names the source of an earlier one."""

    def __init__(self, name: str, config: Config, dtype: DType) -> None:
        self.low = Lowering(builder=GraphBuilder(name))
        self.config, self.dtype = config, dtype
        self.count = 0

    def number(self, *names: str) -> int:
        """The product of these sizes of the configuration; KeyError where one is missing."""
        found = 1
        for name in names:
            found *= int(self.config[name])
        return found

    def feed(self, *shape: int, weight: bool = False, dtype: DType | None = None) -> str:
        """A new operand."""
        self.count += 1
        return self.low.builder.input(f"in{self.count}", TensorType(dtype or self.dtype, shape), weight=weight)

    def run(self, op: str, *inputs: Operand, kind: str | None = None, into: str = "", **attrs: AttrValue) -> str:
        """One operator: a kernel of its own, or a part of the kernel `into`."""
        self.count += 1
        call = None if kind is None else Call(kind=kind)
        return self.low.run(into or f"{op}_{self.count}", op, *inputs, call=call, **attrs)

    def done(self, *results: str) -> Traced:
        """The program with its results."""
        for name in results:
            self.low.builder.output(name)
        return Traced(graph=self.low.builder.build(), calls=self.low.calls)


def _normed(code: Code, x: str, width: int) -> str:
    """Hugging Face's RMS norm: to f32, squares, mean, epsilon, root, product, back, weight."""
    wide = x if code.dtype is DType.F32 else code.run("cast", x, to="f32")
    mean = code.run("reduce_mean", code.run("square", wide), axis=1, keepdims=True)
    scaled = code.run("mul", wide, code.run("rsqrt", code.run("add", mean, Literal(1e-6))), kind="broadcast")
    narrow = scaled if code.dtype is DType.F32 else code.run("cast", scaled, to=code.dtype.value)
    return code.run("mul", narrow, code.feed(width, weight=True), kind="broadcast")


def _rms_norm(code: Code) -> Traced:
    rows, width = code.number("M"), code.number("H")
    return code.done(_normed(code, code.feed(rows, width), width))


def _add_rms_norm(code: Code) -> Traced:
    rows, width = code.number("M"), code.number("H")
    total = code.run("add", code.feed(rows, width), code.feed(rows, width))
    return code.done(total, _normed(code, total, width))


def _layer_norm(code: Code) -> Traced:
    rows, width = code.number("M"), code.number("N" if "N" in code.config else "H")
    parameters = [code.feed(width, weight=True) for _ in range(2)]
    return code.done(code.run("layernorm", code.feed(rows, width), *parameters, axis=1, kind="layernorm"))


def _rope(code: Code) -> Traced:
    """For queries and keys: the half negated, both halves joined, two products, a sum; all operands are transposed."""
    by_length = "seq_len" in code.config
    tokens, heads = code.number("seq_len" if by_length else "T"), code.number("num_q_heads")
    width = code.number("H" if by_length else "hidden_size") // heads
    results = []
    for count in (heads, code.number("num_kv_heads")):
        x = code.feed(count, tokens, width)
        cos, sin = code.feed(1, tokens, width), code.feed(1, tokens, width)
        turned, joining = f"neg_{count}", f"cat_{count}"
        high = code.run("slice", x, axis=2, start=width // 2, end=width, into=turned)
        low = code.run("slice", x, axis=2, start=0, end=width // 2, into=joining)
        negated = code.run("neg", high, into=turned, kind=STRIDED)
        joined = code.run("concat", negated, low, axis=2, into=joining, kind=STRIDED)
        first, second = code.run("mul", x, cos, kind=STRIDED), code.run("mul", joined, sin, kind=STRIDED)
        results.append(code.run("add", first, second, kind=STRIDED))
    return code.done(*results)


def _softmax(code: Code) -> Traced:
    x = code.feed(code.number("M"), code.number("N"))
    return code.done(code.run("softmax", x, axis=1, kind="softmax"))


def _swiglu(code: Code) -> Traced:
    """The elementwise part: a sigmoid, and two products."""
    rows, width = code.number("S", "B"), code.number("ffn_local")
    gate, up = code.feed(rows, width), code.feed(rows, width)
    return code.done(code.run("mul", code.run("mul", gate, code.run("sigmoid", gate)), up))


def _relu_squared(code: Code) -> Traced:
    x = code.feed(code.number("M"), code.number("N"))
    return code.done(code.run("square", code.run("relu", x)))


def _mlp(activation: str) -> Callable[[Code], Traced]:
    """A gated feed-forward part: three products, the activation and the product of both branches."""

    def build(code: Code) -> Traced:
        batch = code.number("B" if "B" in code.config else "bsz")
        rows, hidden, inner = batch * code.number("T"), code.number("hidden_size"), code.number("intermediate_size")
        x = code.feed(rows, hidden)
        gate, up = (code.run("matmul", x, code.feed(hidden, inner, weight=True), kind="gemm") for _ in range(2))
        active = code.run("mul", code.run(activation, gate), up)
        return code.done(code.run("matmul", active, code.feed(inner, hidden, weight=True), kind="gemm"))

    return build


def _kl_div(code: Code) -> Traced:
    """Target times its logarithm, target times input, their difference, the sum."""
    rows, width = code.number("B", "T"), code.number("V")
    x, target = code.feed(rows, width), code.feed(rows, width)
    own = code.run("mul", target, code.run("log", target, into="xlogy"), into="xlogy")
    return code.done(code.run("reduce_sum", code.run("sub", own, code.run("mul", target, x)), axis=1))


def _tvd(code: Code) -> Traced:
    """Half of the magnitude of a difference, summed; the fused kernel also writes the gradient."""
    rows, width = code.number("B", "T"), code.number("V")
    distance = code.run("sub", code.feed(rows, width), code.feed(rows, width))
    half = code.run("mul", code.run("abs", distance), Literal(0.5))
    return code.done(code.run("reduce_sum", half, axis=1), half)


# Kernel of the table -> the program, and the type where the row gives none.
PROGRAMS: Mapping[str, tuple[Callable[[Code], Traced], DType]] = {
    "rms_norm": (_rms_norm, DType.BF16),
    "fused_add_rms_norm": (_add_rms_norm, DType.F32),
    "softmax": (_softmax, DType.F32),
    "layer_norm": (_layer_norm, DType.F32), "rope": (_rope, DType.BF16), "megatron_swiglu": (_swiglu, DType.BF16),
    "relu_squared": (_relu_squared, DType.BF16), "swiglu": (_mlp("silu"), DType.BF16),
    "geglu": (_mlp("gelu"), DType.BF16), "tiled_swiglu": (_mlp("silu"), DType.BF16),
    "tiled_geglu": (_mlp("gelu"), DType.BF16), "kl_div": (_kl_div, DType.F32), "tvd": (_tvd, DType.F32),
}  # fmt: skip
