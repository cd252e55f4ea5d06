"""One layer of the language models of a table, written out as their eager code runs it (attention not fused).

Every operator of the code is one source; a linear layer adds its bias in the library's epilogue.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fusesolve.builder import GraphBuilder
from fusesolve.graph import DType, Literal, TensorType
from fusesolve.study.gains.aten import Call, Lowering, Traced


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A model: width of a token, heads, width inside the feed-forward part, layers, vocabulary of its head (0: none).

    Sources: the published configurations of BERT-large, GPT-2 large, GPT-3 XL and 2.7B, and OPT-1.3B.
    """

    hidden: int
    heads: int
    inner: int
    layers: int
    vocabulary: int = 0


class _Layer:
    """A layer over `batch` sequences of `length` tokens in f32 under construction."""

    def __init__(self, name: str, model: Shape, batch: int, length: int) -> None:
        self.low = Lowering(builder=GraphBuilder(name))
        self.model, self.batch, self.length = model, batch, length
        self.count = 0

    def feed(self, *shape: int, weight: bool = False, dtype: DType = DType.F32) -> str:
        name = f"in{self.count}"
        self.count += 1
        return self.low.builder.input(name, TensorType(dtype, shape), weight=weight)

    def run(self, op: str, *inputs: str | Literal, kind: str | None = None, **attrs: int | bool) -> str:
        self.count += 1
        call = None if kind is None else Call(kind=kind)
        return self.low.run(f"{op}_{self.count}", op, *inputs, call=call, **attrs)

    def linear(self, x: str, width: int) -> str:
        source = f"linear_{self.count}"
        depth = self.low.shape(x)[-1]
        found = self.low.run(source, "matmul", x, self.feed(depth, width, weight=True), call=Call(kind="gemm"))
        return self.low.run(source, "add", found, self.feed(width, weight=True))

    def norm(self, x: str) -> str:
        width = self.low.shape(x)[-1]
        parameters = [self.feed(width, weight=True) for _ in range(2)]
        return self.run("layernorm", x, *parameters, kind="layernorm", axis=1)

    def heads(self, x: str) -> str:
        """Tokens by width as (batch x heads, tokens, head width): the library reads the heads where they lie."""
        model = self.model
        return self.low.reshape(x, (self.batch * model.heads, self.length, model.hidden // model.heads))

    def attend(self, query: str, key: str, value: str, mask: Callable[[str], str]) -> str:
        low, model = self.low, self.model
        width = model.hidden // model.heads
        keys = low.reshape(key, (self.batch * model.heads, width, self.length))
        scores = self.run("matmul", self.heads(query), keys, kind="gemm")
        weights = self.run("softmax", mask(self.run("div", scores, Literal(8.0))), kind="softmax", axis=2)
        mixed = self.run("matmul", weights, self.heads(value), kind="gemm")
        return low.reshape(self.run("copy", mixed), (self.batch * self.length, model.hidden))

    def done(self, result: str) -> Traced:
        self.low.builder.output(result)
        return Traced(graph=self.low.builder.build(), calls=self.low.calls)


def bert_layer(model: Shape, batch: int, length: int) -> Traced:
    """An encoder layer: attention with an added mask, then norms behind both residuals."""
    layer = _Layer("bert-layer", model, batch, length)
    x = layer.feed(batch * length, model.hidden)
    query, key, value = (layer.linear(x, model.hidden) for _ in range(3))
    scores = (batch, model.heads, length, length)

    def mask(score: str) -> str:
        wide = layer.low.reshape(score, scores)
        added = layer.run("add", wide, layer.feed(batch, 1, 1, length), kind="broadcast")
        return layer.low.reshape(added, (batch * model.heads, length, length))

    mixed = layer.linear(layer.attend(query, key, value, mask), model.hidden)
    x = layer.norm(layer.run("add", mixed, x))
    inner = layer.linear(layer.run("gelu", layer.linear(x, model.inner)), model.hidden)
    return layer.done(layer.norm(layer.run("add", inner, x)))


def gpt2_layer(model: Shape, batch: int, length: int) -> Traced:
    """A decoder layer: norms in front, a causal mask by selection, GELU written out in seven operators."""
    layer = _Layer("gpt2-layer", model, batch, length)
    x = layer.feed(batch * length, model.hidden)
    joined = layer.linear(layer.norm(x), 3 * model.hidden)
    parts = [
        layer.low.run(f"view_part_{i}", "slice", joined, axis=1, start=i * model.hidden, end=(i + 1) * model.hidden)
        for i in range(3)
    ]

    def mask(score: str) -> str:
        return layer.run(
            "where", layer.feed(1, length, length, dtype=DType.BOOL), score, Literal(-1e4), kind="broadcast"
        )

    mixed = layer.linear(layer.attend(parts[0], parts[1], parts[2], mask), model.hidden)
    x = layer.run("add", mixed, x)
    wide = layer.linear(layer.norm(x), model.inner)
    cubed = layer.run("mul", layer.run("pow", wide, Literal(3.0)), Literal(0.044715))
    inside = layer.run("tanh", layer.run("mul", layer.run("add", wide, cubed), Literal(0.797)))
    active = layer.run("mul", layer.run("mul", wide, Literal(0.5)), layer.run("add", inside, Literal(1.0)))
    return layer.done(layer.run("add", layer.linear(active, model.hidden), x))


def opt_layer(model: Shape, batch: int, length: int) -> Traced:
    """A decoder layer: norms in front, three separate products, an added causal mask, ReLU."""
    layer = _Layer("opt-layer", model, batch, length)
    x = layer.feed(batch * length, model.hidden)
    first = layer.norm(x)
    query, key, value = (layer.linear(first, model.hidden) for _ in range(3))

    def mask(score: str) -> str:
        return layer.run("add", score, layer.feed(1, length, length), kind="broadcast")

    x = layer.run("add", layer.linear(layer.attend(query, key, value, mask), model.hidden), x)
    inner = layer.linear(layer.run("relu", layer.linear(layer.norm(x), model.inner)), model.hidden)
    return layer.done(layer.run("add", inner, x))


def head(model: Shape, batch: int, length: int) -> Traced:
    """The language model's head: a last norm and the product with the vocabulary."""
    layer = _Layer("head", model, batch, length)
    x = layer.norm(layer.feed(batch * length, model.hidden))
    weight = layer.feed(model.hidden, model.vocabulary, weight=True)
    return layer.done(layer.run("matmul", x, weight, kind="gemm"))


# Name in the table -> its shape and its layer.
MODELS: Mapping[str, tuple[Shape, Callable[[Shape, int, int], Traced]]] = {
    "bert_large": (Shape(hidden=1024, heads=16, inner=4096, layers=24), bert_layer),
    "gpt2_large": (Shape(hidden=1280, heads=20, inner=5120, layers=36, vocabulary=50257), gpt2_layer),
    "gpt3_xl": (Shape(hidden=2048, heads=16, inner=8192, layers=24, vocabulary=50257), gpt2_layer),
    "gpt3_27": (Shape(hidden=2560, heads=32, inner=10240, layers=32, vocabulary=50257), gpt2_layer),
    "opt_13": (Shape(hidden=2048, heads=32, inner=8192, layers=24, vocabulary=50272), opt_layer),
}
