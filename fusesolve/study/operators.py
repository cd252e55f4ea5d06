"""Operators of measured tables as graphs, and their workloads by the planner's own path.

One `Spec` is one kernel: its graph goes through `build_program` and `inspect_group` as a plan's groups do.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from typing import TypeAlias

from fusesolve.builder import GraphBuilder
from fusesolve.candidates.loops import build_nest
from fusesolve.candidates.program import build_program
from fusesolve.candidates.space import inspect_group
from fusesolve.decompose import add_operator
from fusesolve.errors import InternalError
from fusesolve.graph import DType, Graph, Literal, Operand, TensorType
from fusesolve.group import TEMPLATES, Refusal, Template, Workload
from fusesolve.study.samples import Spec

Sizes: TypeAlias = tuple[int, ...]
Body: TypeAlias = Callable[["Call", Sizes], None]

INDEX_WORK = 120.0  # integer instructions per element of PyTorch's index_select: two 64-bit divisions
ROTARY_WORK = 84.0  # integer instructions per rotated pair of vLLM's kernel: its division of the position by the width
SCALAR_WORK = 35.0  # integer instructions per element of vLLM's kernels that take one element at a time
TENSOR_BLOCKS = 1024  # blocks of TensorRT-LLM's kernel for the largest magnitude of a tensor
FEW_INDICES = 16  # up to so many, PyTorch takes its kernel for few indices
EXPONENT = Literal(1.7)  # of a power by a scalar: any number that no shortcut exists for


class Call:
    """A graph of one operator under construction, with the element type of its operands."""

    def __init__(self, spec: Spec) -> None:
        self.builder = GraphBuilder(spec.op)
        self.dtype = DType(spec.dtype)

    def feed(self, *shape: int, dtype: DType | None = None, weight: bool = False) -> str:
        """A new operand of the graph; returns its name."""
        name = f"in{len(self.builder.value_names())}"
        return self.builder.input(name, TensorType(dtype or self.dtype, shape), weight=weight)

    def run(self, op: str, *inputs: Operand, **attrs: int | float | str | bool | tuple[int, ...]) -> str:
        """The first result of an operator."""
        return add_operator(self.builder, op, inputs, attrs)[0]

    def finish(self, *outputs: str) -> None:
        """Declare the results."""
        for name in outputs:
            self.builder.output(name)

    def graph(self) -> Graph:
        """The finished graph."""
        return self.builder.build()


def _binary(op: str, call: Call, sizes: Sizes) -> None:
    call.finish(call.run(op, call.feed(*sizes), call.feed(*sizes)))


def _by_scalar(op: str, call: Call, sizes: Sizes) -> None:
    call.finish(call.run(op, call.feed(*sizes), EXPONENT))


def _unary(op: str, call: Call, sizes: Sizes) -> None:
    call.finish(call.run(op, call.feed(*sizes)))


def _softmax(call: Call, sizes: Sizes) -> None:
    call.finish(call.run("softmax", call.feed(*sizes), axis=1))


def _layernorm(call: Call, sizes: Sizes) -> None:
    scale, shift = (call.feed(sizes[1], weight=True) for _ in range(2))
    call.finish(call.run("layernorm", call.feed(*sizes), scale, shift, axis=1))


def _rmsnorm(call: Call, sizes: Sizes) -> None:
    call.finish(call.run("rmsnorm", call.feed(*sizes), call.feed(sizes[1], weight=True), axis=1))


def _add_rmsnorm(call: Call, sizes: Sizes) -> None:
    total = call.run("add", call.feed(*sizes), call.feed(*sizes))
    call.finish(total, call.run("rmsnorm", total, call.feed(sizes[1], weight=True), axis=1))


def _silu_mul(call: Call, sizes: Sizes) -> None:
    call.finish(call.run("mul", call.run("silu", call.feed(*sizes)), call.feed(*sizes)))


def _rope(call: Call, sizes: Sizes) -> None:
    """(rows, columns of queries and keys, columns of queries): rotation by pairs.

    Every element once in, once out, two products with the row's cosine and sine, one sum.
    """
    cos, sin = (call.feed(sizes[0], 1) for _ in range(2))
    x = call.feed(*sizes[:2])
    call.finish(call.run("add", call.run("mul", x, cos), call.run("mul", x, sin)))


def _mean(call: Call, sizes: Sizes) -> None:
    call.finish(call.run("reduce_mean", call.feed(*sizes), axis=1, keepdims=True))


def _scale(call: Call, sizes: Sizes) -> None:
    """Every row times a number of its own."""
    call.finish(call.run("mul", call.feed(*sizes), call.feed(sizes[0], 1)))


def _embedding(call: Call, sizes: Sizes) -> None:
    rows, cols, vocabulary = sizes
    table = call.feed(vocabulary, cols, weight=True)
    call.finish(call.run("gather", table, call.feed(rows, dtype=DType.I64), axis=0))


def _matmul(call: Call, sizes: Sizes) -> None:
    """(m, n, k) with a weight on the right, as a linear layer has it."""
    m, n, k = sizes
    call.finish(call.run("matmul", call.feed(m, k), call.feed(k, n, weight=True), to=_result(call.dtype).value))


def _bmm(call: Call, sizes: Sizes) -> None:
    batch, m, n, k = sizes
    call.finish(call.run("matmul", call.feed(batch, m, k), call.feed(batch, k, n)))


def _conv2d(call: Call, sizes: Sizes) -> None:
    """(batch, channels in, channels out, kernel, input height and width, stride, padding)."""
    batch, c_in, c_out, kernel, side, stride, pad = sizes
    image, weight = call.feed(batch, c_in, side, side), call.feed(c_out, c_in, kernel, kernel, weight=True)
    call.finish(call.run("conv2d", image, weight, stride=stride, pad=pad))


def _attention(call: Call, sizes: Sizes) -> None:
    """(batch, queries, keys, heads, key heads, head width, causal)."""
    batch, queries, keys, heads, groups, width, _ = sizes
    query = call.feed(batch, heads, queries, width)
    key, value = (call.feed(batch, groups, keys, width) for _ in range(2))
    call.finish(call.run("attention", query, key, value))


def _quantise(call: Call, sizes: Sizes) -> None:
    """Elements times a scale, clipped, as f8e4m3."""
    scaled = call.run("mul", call.run("cast", call.feed(*sizes), to="f32"), call.feed(1, 1, dtype=DType.F32))
    call.finish(call.run("cast", call.run("clip", scaled, min=-448.0, max=448.0), to="f8e4m3"))


def _token_quantise(call: Call, sizes: Sizes) -> None:
    """Each row divided by its largest magnitude, as f8e4m3, with the scales."""
    wide = call.run("cast", call.feed(*sizes), to="f32")
    top = call.run("reduce_max", call.run("abs", wide), axis=1, keepdims=True)
    scale = call.run("mul", top, Literal(1 / 448.0))
    call.finish(scale, call.run("cast", call.run("div", wide, scale), to="f8e4m3"))


def _largest(call: Call, sizes: Sizes) -> None:
    """The largest element of each row."""
    call.finish(call.run("reduce_max", call.feed(*sizes), axis=1, keepdims=True))


def _result(dtype: DType) -> DType:
    """What a contraction writes: 8-bit operands give bf16."""
    return DType.BF16 if dtype.itemsize == 1 else dtype


_BINARY = ("add", "mul", "div", "pow", "sub")
_UNARY = ("relu", "gelu", "tanh", "silu", "sigmoid", "exp", "square", "rsqrt", "abs", "copy")

# Operator of a table -> how its graph is built.
OPERATORS: Mapping[str, Body] = {
    **{op: partial(_binary, op) for op in _BINARY},
    **{f"{op}u": partial(_by_scalar, op) for op in ("add", "mul", "div", "pow")},
    **{op: partial(_unary, op) for op in _UNARY},
    "activation": partial(_unary, "gelu"),
    "cache_write": partial(_unary, "copy"),
    "softmax": _softmax,
    "layernorm": _layernorm,
    "rmsnorm": _rmsnorm,
    "add_rmsnorm": _add_rmsnorm,
    "silu_mul": _silu_mul,
    "wide_silu_mul": _silu_mul,
    "wide_add_rmsnorm": _add_rmsnorm,
    "rope": _rope,
    "mean": _mean,
    "scale": _scale,
    "embedding": _embedding,
    "matmul": _matmul,
    "product_by_rows": _matmul,
    "bmm": _bmm,
    "conv2d": _conv2d,
    "attention": _attention,
    "quantise": _quantise,
    "row_quantise": _quantise,
    "token_quantise": _token_quantise,
    "largest": _largest,
}


def build_graph(spec: Spec) -> Graph:
    """The graph of one operator."""
    call = Call(spec)
    OPERATORS[spec.op](call, spec.sizes)
    return call.graph()


@lru_cache(maxsize=200_000)
def workload_of(spec: Spec) -> Workload:
    """The workload of the operator as one kernel.

    InternalError where the operator is not one kernel of the stated space.
    """
    if spec.op == "attention" and 1 in spec.sizes[1:3]:
        return _thin_attention(spec)
    program = build_program(build_graph(spec))
    found = inspect_group(program, build_nest(program, tuple(range(len(program.operators)))))
    if isinstance(found, Refusal):
        raise InternalError(f"{spec.op} {spec.sizes} is not one kernel: {found.message}")
    return _as_library(spec, _causal(spec, found.workload))


def _causal(spec: Spec, workload: Workload) -> Workload:
    """A library's attention skips the keys behind each query: no graph says so, the call does."""
    if spec.op != "attention":
        return workload
    batch, queries, _, heads, groups, _, causal = spec.sizes
    return replace(workload, causal=int(causal and queries > 1), shared_heads=heads // groups, sequences=batch)


def _as_library(spec: Spec, workload: Workload) -> Workload:
    """The launch shape of the library's row kernel (PyTorch's own, vLLM's), which no graph says."""
    if spec.op == "product_by_rows":
        return replace(workload, tile_by_rows=1)
    if spec.op == "bmm":
        return replace(workload, batched=1)
    rule = LIBRARY_ROWS.get(spec.op)
    if spec.op == "rope":
        workload = replace(workload, alu=workload.alu + 0.5 * ROTARY_WORK * spec.sizes[0] * spec.sizes[1])
    if rule is _scalar_rows:
        threads, _, _ = _scalar_rows(spec.sizes[1], 2)
        whole = -(-spec.sizes[1] // threads) * threads  # a block takes as long for a part of a trip as for all of it
        workload = replace(workload, alu=workload.alu + SCALAR_WORK * spec.sizes[0] * whole)
    if spec.op == "embedding":
        return _index_select(spec, workload)
    if rule is None:
        return workload
    rows, cols = spec.sizes[:2]
    size = DType(spec.dtype).itemsize
    threads, load, passes = rule(spec.sizes[-1], size)
    if spec.op == "largest":  # over the whole tensor, whatever its shape: a fixed grid that strides over it
        rows, cols = TENSOR_BLOCKS, -(-rows * cols // TENSOR_BLOCKS)
    return replace(
        workload, template=TEMPLATES.index(Template.ROW), outer=rows, inner=cols, contiguous=1, passes=passes,
        reread_bytes=float(rows * cols * size), row_threads=threads, row_load_bytes=load, element_bytes=size,
        row_kind=ROW_KINDS.get(spec.op, 0),
    )  # fmt: skip


def _index_select(spec: Spec, workload: Workload) -> Workload:
    """PyTorch's index_select: up to 16 indices, every thread walks over all of them, one after the other."""
    rows, cols, _ = spec.sizes
    found = replace(workload, alu=workload.alu + INDEX_WORK * rows * cols, row_kind=ROW_KINDS["embedding"])
    if rows > FEW_INDICES:
        return found
    return replace(
        found, template=TEMPLATES.index(Template.ROW), outer=-(-cols // 128), inner=128 * rows, row_threads=128,
        row_load_bytes=DType(spec.dtype).itemsize, contiguous=1, passes=1,
    )  # fmt: skip


def _softmax_rows(cols: int, size: int) -> tuple[int, int, int]:
    """Up to 1,024 columns a warp holds the row; above, a block of up to 1,024 threads reads it three times."""
    if cols <= 1024:
        return 32, size, 1
    threads = 32
    while threads < min(1024, cols * size // 16) // 2:
        threads *= 2
    return threads, 16, 3


def _scalar_rows(cols: int, size: int) -> tuple[int, int, int]:
    """A thread per column, up to 1,024, one element at a time."""
    return min(1024, max(32, cols)), size, 1


def _wide_rows(cols: int, size: int) -> tuple[int, int, int]:
    """Later versions of the same kernels: 16 bytes at a time."""
    return min(1024, max(32, cols * size // 16)), 16, 1


# Operator -> (columns, of queries for a rotation; bytes of an element)
# -> threads to a row, bytes of a load, passes over the row.
LIBRARY_ROWS: Mapping[str, Callable[[int, int], tuple[int, int, int]]] = {
    "layernorm": lambda cols, size: (128, 4 * size, 2),
    "softmax": _softmax_rows,
    "rmsnorm": _scalar_rows,
    "add_rmsnorm": _scalar_rows,
    "silu_mul": _scalar_rows,
    "wide_silu_mul": _wide_rows,
    "wide_add_rmsnorm": _wide_rows,
    "activation": _scalar_rows,
    "rope": lambda cols, size: (min(512, max(32, cols // 2)), 2 * size, 1),
    "cache_write": lambda cols, size: (min(512, max(32, cols // 2)), 16, 1),
    "largest": lambda cols, size: (256, size, 1),
    "row_quantise": lambda cols, size: (256, 16, 1),
    "token_quantise": lambda cols, size: (min(256, max(128, cols)), 16, 2),
}


# Kinds of a library's row kernels that take their own time: see `Workload.row_kind`.
ROW_KINDS: Mapping[str, int] = {
    "layernorm": 1, "cache_write": 2, "row_quantise": 3, "token_quantise": 3, "largest": 4, "rope": 5, "embedding": 6,
}  # fmt: skip


def _thin_attention(spec: Spec) -> Workload:
    """Attention of one query or one key: a loop of one iteration is no loop of a graph, so two are halved."""
    batch, queries, keys, heads, groups, width, _ = spec.sizes
    wide = workload_of(Spec("attention", spec.dtype, (batch, max(2, queries), max(2, keys), heads, groups, width, 0)))
    size = wide.operand_bytes
    rows, pairs = batch * heads * queries * width * size, 2 * batch * groups * keys * width * size
    share = queries / max(2, queries) * keys / max(2, keys)
    return replace(
        wide, m=wide.m * queries // max(2, queries), n=keys, mma=wide.mma * share, fma=wide.fma * share,
        alu=wide.alu * share, sfu=wide.sfu * share, read_bytes=rows + pairs, write_bytes=rows,
        footprint_bytes=2 * rows + pairs, causal=0,
    )  # fmt: skip
