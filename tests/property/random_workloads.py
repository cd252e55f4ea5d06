"""Random workloads of every template, consistent in themselves, and profiles with one number made better."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from fusesolve.group import TEMPLATES, TENSOR_TYPES, Template, Workload
from fusesolve.hardware import HardwareProfile

ITEMSIZE = {"f64": 8, "f32": 4, "f16": 2, "bf16": 2, "f8e4m3": 1, "f8e5m2": 1, "i8": 1, "u8": 1}


def random_workloads(seed: int, count: int) -> list[Workload]:
    """`count` workloads; sizes spread over their magnitudes, 1 to about 2^28 points."""
    rng = np.random.default_rng(seed)
    makers = (_pointwise, _rows, _contraction, _attention)
    return [makers[int(rng.integers(len(makers)))](rng) for _ in range(count)]


def _spread(rng: np.random.Generator, low: float, high: float) -> int:
    """A whole number between `low` and `high`, uniform in its logarithm; powers of two half of the time."""
    exact = 2.0 ** rng.uniform(np.log2(low), np.log2(high))
    return int(2 ** round(np.log2(exact))) if rng.random() < 0.5 else max(1, round(exact))


def _streams(rng: np.random.Generator, points: int) -> dict[str, float | int]:
    """What every template has: arrays, bytes, instructions of `points` points."""
    item = int(rng.choice((1, 2, 4, 8)))
    full_reads, full_writes, row_reads = int(rng.integers(0, 7)), int(rng.integers(1, 4)), int(rng.integers(0, 4))
    read = full_reads * points * item + row_reads * 4 * _spread(rng, 1, max(2, points // 64))
    write = full_writes * points * item
    staged = int(rng.integers(0, 3)) if rng.random() < 0.3 else 0
    return {
        "fma": float(rng.integers(0, 40) * points), "alu": float(rng.integers(0, 20) * points),
        "sfu": float(rng.integers(0, 8) * points), "instructions": float(rng.integers(1, 200)),
        "scratch": int(rng.integers(0, 30)), "live": int(rng.integers(1, 40)), "full_reads": full_reads,
        "row_reads": row_reads, "full_writes": full_writes, "arrays": full_reads + row_reads + full_writes,
        "element_bytes": item, "read_bytes": read, "write_bytes": write,
        "warm_read_bytes": int(read * rng.choice((0.0, 0.5, 1.0))), "footprint_bytes": read + write,
        "warm_write_bytes": int(write * rng.choice((0.0, 0.0, 1.0))),
        "weight_bytes": int(read * rng.choice((0.0, 0.3))), "staged": staged,
        "staged_bytes": staged * points * item, "double": int(rng.random() < 0.1),
    }  # fmt: skip


def _pointwise(rng: np.random.Generator) -> Workload:
    points = _spread(rng, 1, 2**27)
    template = rng.choice((Template.POINTWISE, Template.MOVEMENT, Template.OPAQUE))
    return Workload(template=_number(str(template)), inner=points, **_streams(rng, points))


def _rows(rng: np.random.Generator) -> Workload:
    outer = _spread(rng, 1, 2**17)
    inner = _spread(rng, 1, min(2**18, 2**28 // outer))
    template, passes = Template.ROW if rng.random() < 0.6 else Template.REDUCTION, int(rng.integers(1, 5))
    common = _streams(rng, outer * inner)
    held = float(rng.integers(1, 4) * 4) if passes > 1 else 0.0
    library = template is Template.ROW and rng.random() < 0.4
    shape = {"row_threads": int(2 ** rng.integers(5, 11)), "row_kind": int(rng.integers(0, 7))} if library else {}
    return Workload(
        template=_number(template), outer=outer, inner=inner, passes=passes, reductions=int(rng.integers(1, 5)),
        held_bytes=held, reread_bytes=float(common["read_bytes"]) if passes > 1 else 0.0,
        contiguous=int(template is Template.ROW), **shape, **common,
    )  # fmt: skip


def _product(rng: np.random.Generator) -> dict[str, float | int]:
    kind = str(rng.choice(("f32", "f16", "bf16", "i8", "f64", "f8e4m3")))
    size, batch = ITEMSIZE[kind], _spread(rng, 1, 64)
    m, n, k = (_spread(rng, 1, 8192) for _ in range(3))
    parts = int(rng.choice((1, 1, 1, 2, 3)))
    n *= parts
    points = batch * m * n
    common = _streams(rng, points)
    made = [int(rng.integers(1, 4)) if rng.random() < 0.2 else 0 for _ in range(2)]
    a, b = batch * m * k * size, (batch if rng.random() < 0.5 else 1) * k * n * size
    return common | {
        "batch": batch, "m": m, "n": n, "k": k, "parts": parts, "joined": int(rng.choice((1, parts))),
        "mma": float(points) * k, "operand_bytes": size,
        "tensor_rate": TENSOR_TYPES.index(kind) if rng.random() < 0.9 else -1,
        "read_bytes": a + b + int(common["read_bytes"]), "plain": int(rng.random() < 0.3),
        "side_work": float(rng.integers(0, 20)) if any(made) else 0.0, "left_made": made[0], "right_made": made[1],
        "footprint_bytes": a + b + int(common["read_bytes"]) + int(common["write_bytes"]),
        "warm_read_bytes": int((a + b) * rng.choice((0.0, 0.5, 1.0))),
    }  # fmt: skip


def _contraction(rng: np.random.Generator) -> Workload:
    return Workload(template=_number(Template.CONTRACTION), **(_product(rng) | _image(rng)))


def _image(rng: np.random.Generator) -> dict[str, float | int]:
    """Nothing, or half of the time a convolution of 3 x 3 windows in f32, bare half of the time."""
    if rng.random() < 0.5:
        return {}
    images, rows, cols = _spread(rng, 1, 64), _spread(rng, 1, 256), _spread(rng, 1, 256)
    channels, results = _spread(rng, 1, 1024), _spread(rng, 1, 1024)
    m = images * rows * cols
    read, write = 4 * (m * channels + 9 * channels * results), 4 * m * results
    return {
        "batch": 1, "m": m, "n": results, "k": 9 * channels, "mma": 9.0 * m * results * channels, "taps": 9,
        "image_rows": rows, "image_cols": cols, "operand_bytes": 4, "tensor_rate": TENSOR_TYPES.index("f32"),
        "read_bytes": read, "write_bytes": write, "footprint_bytes": read + write, "warm_read_bytes": read // 2,
        "warm_write_bytes": 0, "plain": int(rng.random() < 0.5), "double": 0,
        "side_work": 0.0, "left_made": 0, "right_made": 0, "weight_bytes": 36 * channels * results,
    }  # fmt: skip


def _attention(rng: np.random.Generator) -> Workload:
    head = int(rng.choice((16, 32, 64, 80, 96, 128, 256, 512)))
    found = _product(rng) | {"k": head, "linear_tail": int(rng.random() < 0.8), "reductions": 2}
    found |= {"causal": int(rng.random() < 0.3), "shared_heads": int(rng.choice((1, 1, 4, 8)))}
    points = float(found["batch"]) * float(found["m"]) * float(found["n"])
    return Workload(template=_number(Template.ATTENTION), head=head, **(found | {"mma": 2.0 * points * head}))


def _number(template: Template | str) -> int:
    return TEMPLATES.index(Template(template))


Lever = Callable[[HardwareProfile, float], HardwareProfile]


def _memory(block: str, *fields: str) -> Lever:
    def better(profile: HardwareProfile, factor: float) -> HardwareProfile:
        part = getattr(profile.memory, block)
        if part is None:
            return profile
        changed = {name: _scaled(getattr(part, name), factor) for name in fields}
        return replace(profile, memory=replace(profile.memory, **{block: replace(part, **changed)}))

    return better


def _block(block: str, *fields: str) -> Lever:
    def better(profile: HardwareProfile, factor: float) -> HardwareProfile:
        part = getattr(profile, block)
        if part is None:
            return profile
        changed = {name: _scaled(value, factor) for name in fields if (value := getattr(part, name)) is not None}
        return replace(profile, **{block: replace(part, **changed)})

    return better


def _pipe(name: str) -> Lever:
    def better(profile: HardwareProfile, factor: float) -> HardwareProfile:
        pipes = profile.compute.pipes
        pipe = profile.compute.tensor if name == "tensor" else getattr(pipes, name)
        if pipe is None:
            return profile
        faster = replace(pipe, per_clock={kind: rate * factor for kind, rate in pipe.per_clock.items()})
        changed = {"tensor": faster} if name == "tensor" else {"pipes": replace(pipes, **{name: faster})}
        return replace(profile, compute=replace(profile.compute, **changed))

    return better


def _peak_clock(profile: HardwareProfile, factor: float) -> HardwareProfile:
    """The clock of the data sheet with the one that its tensor peak is quoted at, which is a share of it."""
    compute = profile.compute
    tensor = compute.tensor
    if tensor is not None and tensor.clock is not None:
        tensor = replace(tensor, clock=tensor.clock * factor)
    return replace(profile, compute=replace(compute, clock=compute.clock * factor, tensor=tensor))


def _less(lever: Lever) -> Lever:
    return lambda profile, factor: lever(profile, 1.0 / factor)


def _constant(name: str, *, less: bool = False) -> Lever:
    def better(profile: HardwareProfile, factor: float) -> HardwareProfile:
        found = profile.calibration.get(name)
        if found is None:
            return profile
        value = found.value / factor if less else found.value * factor
        return replace(profile, calibration=dict(profile.calibration) | {name: replace(found, value=value)})

    return better


def _scaled(value: float, factor: float) -> float:
    """Whole numbers stay whole and do not shrink when they should grow."""
    if isinstance(value, int):
        return max(value + 1, round(value * factor)) if factor > 1 else round(value * factor)
    return value * factor


# Every number of a profile that is better larger (or smaller: latencies), each made better alone.
LEVERS: dict[str, Lever] = {
    "dram bandwidth": _memory("dram", "bandwidth", "sustained"),
    "dram data-sheet bandwidth": _memory("dram", "bandwidth"),
    "dram sustained": _memory("dram", "sustained"),
    "dram latency": _less(_memory("dram", "latency")),
    "dram size": _memory("dram", "size"),
    "l2 size": _memory("l2", "size"),
    "l2 knee": _memory("l2", "knee"),
    "l2 bandwidth": _memory("l2", "bandwidth"),
    "l2 latency": _less(_memory("l2", "latency")),
    "l1 size": _memory("l1", "size"),
    "l1 latency": _less(_memory("l1", "latency")),
    "shared per unit": _memory("shared", "per_unit"),
    "shared per block": _memory("shared", "per_block_max"),
    "shared per unit and block": _memory("shared", "per_unit", "per_block_max"),
    "shared bandwidth": _memory("shared", "bytes_per_clock"),
    "units": lambda p, f: replace(p, compute=replace(p.compute, units=int(_scaled(p.compute.units, f)))),
    "clock": lambda p, f: replace(
        p, compute=replace(p.compute, clock=p.compute.clock * f, sustained_clock=p.compute.sustained_clock * f)
    ),
    "peak clock": _peak_clock,
    "sustained clock": lambda p, f: replace(
        p, compute=replace(p.compute, sustained_clock=p.compute.sustained_clock * f)
    ),
    "tensor rate": _pipe("tensor"),
    "fma rate": _pipe("fma"),
    "alu rate": _pipe("alu"),
    "sfu rate": _pipe("sfu"),
    "registers per unit": _block("registers", "per_unit"),
    "registers per thread": _block("registers", "per_thread_max"),
    "registers per block": _block("registers", "per_block_max"),
    "registers": _block("registers", "per_unit", "per_thread_max", "per_block_max"),
    "threads per block": _block("limits", "threads_per_block"),
    "threads per unit": _block("limits", "threads_per_unit"),
    "warps per unit": _block("limits", "warps_per_unit"),
    "blocks per unit": _block("limits", "blocks_per_unit"),
    "argument bytes": _block("limits", "argument_bytes"),
    "code cache": _block("code", "l0", "l1"),
    "launch": _less(_block("launch", "stream", "graph", "dispatch")),
    "memory bandwidth": lambda p, f: _block("dma", "bandwidth")(_memory("dram", "bandwidth", "sustained")(p, f), f),
    "dma bandwidth": _block("dma", "bandwidth"),
    "dma channels": _block("dma", "channels"),
    "dma latency": _less(_block("dma", "latency")),
    "measured stream share": _constant("stream_share"),
    "measured L2 stream": _constant("l2_stream"),
    "measured kernel floor": _constant("kernel_floor", less=True),
    "measured GEMM efficiency": _constant("gemm_efficiency"),
    "share of products of one warp": _constant("warp_share"),
    "measured GEMM latency": _constant("gemm_latency", less=True),
    "measured GEMM drain": _constant("gemm_drain"),
    "measured row latency": _constant("row_latency", less=True),
    "measured row step": _constant("row_step", less=True),
}
