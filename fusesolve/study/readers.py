"""Measured tables: one reader per set of columns, in one table; files are known by their columns, not their names."""

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from fusesolve.errors import InputError
from fusesolve.study.model_operators import read_model_operator
from fusesolve.study.samples import Sample, Skipped, Spec, Table, Timing

Row: TypeAlias = Mapping[str, str]
Found: TypeAlias = Sample | Skipped

MICROSECOND = 1e-6
DTYPES = {"fp32": "f32", "fp16": "f16", "bf16": "bf16", "fp8": "f8e4m3", "float32": "f32", "float16": "f16"}
WEIGHT_SETS = 6  # sets of weights that take turns in the graphs of the tensor-core GEMM tables
LAYER_SHARE = 12  # a layer's weights, which take turns, are about twelve times those of its smallest operator
# Width of Phi-2, the one model of the profiled layers with layer norm and GELU (the table has them at this width and at
# four times it, nowhere else): attention and MLP stand side by side, so that its residual is two additions.
PARALLEL_WIDTH = 2560
WIDE = frozenset({"silu_mul", "add_rmsnorm"})  # vLLM's row kernels that were rewritten for wide loads
VOCABULARY = 32_000  # rows of an embedding table that does not say


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """The columns that name a kind of table, and the samples of one of its rows."""

    name: str
    columns: frozenset[str]
    read: Callable[[Row], Iterator[Found]]


def read_table(path: Path) -> Table:
    """The samples of a CSV file; InputError where it cannot be read, has no known columns or a bad number."""
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            rows = list(csv.DictReader(stream))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: cannot read the table: {error}") from error
    if not rows:
        raise InputError(f"{path}: the table has no rows")
    reader = find_reader(tuple(rows[0]))
    if reader is None:
        return _unread(path, rows)
    samples: list[Sample] = []
    skipped: list[Skipped] = []
    for line, row in enumerate(rows, start=2):
        try:
            found = list(reader.read(row))
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path}, line {line}: not a row of a {reader.name} table ({error})") from error
        samples += [item for item in found if isinstance(item, Sample)]
        skipped += [item for item in found if isinstance(item, Skipped)]
    return Table(file=path.name, samples=tuple(samples), skipped=tuple(skipped))


def find_reader(columns: Sequence[str]) -> Reader | None:
    """The reader whose columns are all there; of several the one with the most columns. None: no reader fits."""
    fitting = [reader for reader in READERS if reader.columns <= set(columns)]
    return max(fitting, key=lambda reader: len(reader.columns), default=None)


def _unread(path: Path, rows: Sequence[Row]) -> Table:
    device = next((key for key in ("gpu", "device", "chipset") if key in rows[0]), None)
    why = f"no reader for a table with the columns {', '.join(str(key) for key in rows[0])}"
    skipped = tuple(Skipped(row[device] if device else None, why) for row in rows)
    return Table(file=path.name, samples=(), skipped=skipped)


def _sizes(row: Row, *names: str) -> tuple[int, ...]:
    return tuple(int(row[name]) for name in names)


def _latency(row: Row, column: str = "latency_us") -> float:
    seconds = float(row[column]) * MICROSECOND
    if not seconds > 0:
        raise ValueError(f"{column} is {row[column]}")
    return seconds


def _gemm(row: Row) -> Iterator[Found]:
    """Tensor-core GEMM in CUDA graphs; fp8 rows hold two different calls, each with its own quantisation.

    Scales are per tensor. vLLM has them before the call (its dynamic kernel would leave the product of 32,768 rows 92 %
    of the peak), TensorRT-LLM looks for the largest magnitude first.
    """
    m, n, k = _sizes(row, "m", "n", "k")
    dtype = DTYPES[row["dtype"]]
    product = Spec("matmul", dtype, (m, n, k))
    if dtype != "f8e4m3":
        yield Sample(device=row["gpu"], op=f"gemm {row['dtype']}", family="gemm", timing=Timing.GRAPH,
                     kernels=(product,), latency=_latency(row), copies=WEIGHT_SETS)  # fmt: skip
        return
    by_rows = Spec("product_by_rows", dtype, (m, n, k))
    static = Spec("row_quantise", "bf16", (m, k))
    for column, calls in (("vllm_us", (static, by_rows)), ("trtllm_us", (*_by_tensor(m, k), product))):
        if row.get(column):
            yield Sample(device=row["gpu"], op=f"quantise + gemm fp8 ({column[:-3]})", family=column,
                         timing=Timing.GRAPH, kernels=calls, latency=_latency(row, column),
                         copies=WEIGHT_SETS)  # fmt: skip


def _by_tensor(rows: int, cols: int) -> tuple[Spec, ...]:
    """Quantisation by the largest magnitude of the tensor: find it, make the scale, scale."""
    return Spec("largest", "bf16", (rows, cols)), Spec("mulu", "f32", (1, 1)), Spec("quantise", "bf16", (rows, cols))


def _by_token(rows: int, cols: int) -> tuple[Spec, ...]:
    return (Spec("token_quantise", "bf16", (rows, cols)),)


def _attention(row: Row) -> Iterator[Found]:
    """Attention over a paged cache; except in an encoder the new keys and values are first copied into the cache."""
    sizes = (*_sizes(row, "batch", "q_len", "kv_len", "n_heads", "n_kv_heads", "head_dim"), int(row["causal"]))
    batch, queries, _, heads, groups, width, _ = sizes
    dtype = DTYPES[row["dtype"]]
    cached = row["phase"] != "encoder"
    copies: tuple[Spec, ...] = (Spec("cache_write", dtype, (batch * queries, 2 * groups * width)),) if cached else ()
    if cached and queries == 1 and row["kernel"] == "vllm_flash_attn" and heads > groups > 1 and batch > 1:
        copies += (Spec("copy", dtype, (batch, heads * width)),) * 2  # heads to groups and back
    yield Sample(device=row["gpu"], op=f"attention {row['phase']}", family=row["phase"], timing=Timing.GRAPH,
                 kernels=(*copies, Spec("attention", dtype, sizes)), latency=_latency(row))  # fmt: skip


def _bmm_graph(row: Row) -> Iterator[Found]:
    yield Sample(device=row["gpu"], op=f"bmm {row['dtype']}", family="bmm", timing=Timing.GRAPH, latency=_latency(row),
                 kernels=(Spec("bmm", DTYPES[row["dtype"]], _sizes(row, "batch", "m", "n", "k")),))  # fmt: skip


def _quantise(row: Row) -> Iterator[Found]:
    rows, cols = _sizes(row, "rows", "cols")
    static = (Spec("quantise" if row["framework"] == "trtllm" else "row_quantise", "bf16", (rows, cols)),)
    dynamic = _by_tensor(rows, cols) if row["framework"] == "trtllm" else _by_token(rows, cols)
    for column, kernels in (("static_quant_us", static), ("dynamic_quant_us", dynamic)):
        if row.get(column):
            yield Sample(device=row["gpu"], op=f"{column[:-3]} ({row['framework']})", family=column,
                         timing=Timing.GRAPH, kernels=kernels, latency=_latency(row, column))  # fmt: skip


def _eager(row: Row, spec: Spec) -> Iterator[Found]:
    yield Sample(device=row["gpu"], op=spec.op if spec.op != "matmul" else "linear", family=spec.op,
                 timing=Timing.EAGER, kernels=(spec,), latency=_latency(row))  # fmt: skip


def _eager_rows(row: Row) -> Iterator[Found]:
    return _eager(row, Spec(row["op"], "f32", _sizes(row, "rows", "cols")))


def _eager_contraction(row: Row) -> Iterator[Found]:
    batch, m, n, k = _sizes(row, "batch", "m", "n", "k")
    linear = row["op"] == "linear"
    return _eager(row, Spec("matmul", "f32", (batch * m, n, k)) if linear else Spec("bmm", "f32", (batch, m, n, k)))


def _eager_convolution(row: Row) -> Iterator[Found]:
    sizes = _sizes(row, "batch", "c_in", "c_out", "kernel_size", "input_hw", "stride", "padding")
    return _eager(row, Spec("conv2d", "f32", sizes))


def _layer_spec(op: str, dtype: str, row: Row) -> tuple[Spec, ...]:
    """The kernels of one operator of a language model's layer; () where the table does not say enough."""
    rows, cols = _sizes(row, "rows", "cols")
    if op in ("linear", "matmul"):
        return (Spec("matmul", dtype, (rows, cols, int(float(row["k"])))),)
    if op == "residual_add":
        return (Spec("add", dtype, (rows, cols)),) * (2 if cols == PARALLEL_WIDTH else 1)
    if op == "rope":
        return (Spec("rope", dtype, (rows, cols + int(float(row.get("cols2") or 0)), cols)),)
    if op == "embedding":
        return (Spec("embedding", dtype, (rows, cols, VOCABULARY)),)
    if op == "rmsnorm_unfused_hf":
        wide, narrow = (rows, cols), (rows, 1)
        chain = ("copy", wide), ("square", wide), ("mean", wide), ("addu", narrow), ("rsqrt", narrow), ("scale", wide)
        last = Spec("copy", dtype, wide), Spec("scale", dtype, wide)
        return (*(Spec(name, "f32", sizes) for name, sizes in chain), *last)
    if op == "silu":  # an activation of its own, and then its product with the other half
        return (Spec("silu", dtype, (rows, cols)), Spec("mul", dtype, (rows, cols)))
    if op in ("silu_mul", "rmsnorm", "add_rmsnorm", "layernorm", "softmax", "gelu"):
        return (Spec(op, dtype, (rows, cols)),)
    return ()


def _layer(row: Row, dtype: str, timing: Timing, **traits: Any) -> Iterator[Found]:
    """One operator of a layer; `traits` are further fields of its sample."""
    kernels = _layer_spec(row["op"], dtype, row)
    if row["op"] != "linear":  # the same rows of an embedding, and nothing else of weight, call after call
        traits = {**traits, "copies": 1}
    if not kernels:
        yield Skipped(row["gpu"], f"the kernels of the operator {row['op']} are not known")
        return
    yield Sample(device=row["gpu"], op=row["op"], family=row["op"], timing=timing, kernels=kernels,
                 latency=_latency(row), **traits)  # fmt: skip


def _profiled_layer(row: Row) -> Iterator[Found]:
    """Layers as a 2023 stack ran them, profiled one after the other; its products are those of a library of then."""
    library = "2023" if row["op"] == "linear" else ""
    return _layer(row, "f16", Timing.KERNEL, resolution=MICROSECOND, copies=LAYER_SHARE, library=library)


def _serving_layer(row: Row) -> Iterator[Found]:
    """Layers of a serving system; vLLM's kernels of its time take 16 bytes at a time."""
    if row["software"].startswith("vllm") and row["op"] in WIDE:
        spec = Spec(f"wide_{row['op']}", DTYPES[row["dtype"]], _sizes(row, "rows", "cols"))
        return iter((Sample(device=row["gpu"], op=row["op"], family=row["op"], timing=Timing.KERNEL, kernels=(spec,),
                            latency=_latency(row)),))  # fmt: skip
    return _layer(row, DTYPES[row["dtype"]], Timing.KERNEL, copies=LAYER_SHARE)


def _wall_clock(row: Row) -> Iterator[Found]:
    return _layer(row, DTYPES[row["dtype"]], Timing.WALL)


def _column_major(row: Row) -> Iterator[Found]:
    """A column-major library call: the transposed product of the row-major view."""
    m, n, k = _sizes(row, "m", "n", "k")
    yield Sample(device=row["gpu"], op=f"gemm {row['dtype']}", family="gemm", timing=Timing.QUEUED,
                 kernels=(Spec("matmul", DTYPES[row["dtype"]], (n, m, k)),), latency=_latency(row),
                 resolution=MICROSECOND)  # fmt: skip


def _reader(name: str, columns: str, read: Callable[[Row], Iterator[Found]]) -> Reader:
    return Reader(name=name, columns=frozenset(columns.split()), read=read)


READERS: tuple[Reader, ...] = (
    _reader("tensor-core GEMM", "gpu dtype m n k latency_us vllm_us trtllm_us", _gemm),
    _reader(
        "attention",
        "gpu phase dtype batch q_len kv_len n_heads n_kv_heads head_dim causal kernel latency_us",
        _attention,
    ),
    _reader("batched GEMM in a graph", "gpu op dtype batch m n k latency_us", _bmm_graph),
    _reader("quantisation", "gpu framework rows cols static_quant_us dynamic_quant_us", _quantise),
    _reader("eager elementwise", "gpu op rows cols latency_us", _eager_rows),
    _reader("eager rows", "gpu op rows cols kernel grid_x block_x latency_us", _eager_rows),
    _reader("eager contraction", "gpu op batch m n k kernel tile grid block latency_us", _eager_contraction),
    _reader(
        "eager convolution", "gpu batch c_in c_out kernel_size input_hw stride padding latency_us", _eager_convolution
    ),
    _reader("profiled layers", "gpu op rows cols k cols2 latency_us min_us max_us", _profiled_layer),
    _reader("wall-clock operators", "gpu op dtype rows cols k latency_us", _wall_clock),
    _reader("layers of a serving system", "gpu software model op dtype layer rows cols k latency_us", _serving_layer),
    _reader(
        "operators of models",
        "gpu model mode seq_len batch op input_shapes output_shape fwd_latency_us",
        read_model_operator,
    ),
    _reader("column-major GEMM", "gpu dtype m n k trans_a trans_b latency_us", _column_major),
)
