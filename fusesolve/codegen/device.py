"""Generated kernels on a GPU: correctness first, then times by events, fused and operator by operator.

This file is also a script that needs nothing but Python, NumPy and numba-cuda: `python device.py FOLDER -o FILE` runs a
folder that `benchmarks/gpu_prepare.py` wrote elsewhere, and writes one JSON. A folder has, for each plan, the generated
file at shrunk extents with arrays and wanted results, the files at the plan's extents, and what the plan predicts.

Times: a kernel that overwrites a large buffer runs first, so that the L2 cache is cold and the launch of the measured
kernels is already queued when it ends; two events around the launch; the median over the repeats.
"""

import argparse
import importlib
import importlib.util
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

WARM_UP = 3
REPEATS = 15
FLUSH_BYTES = 512 << 20
LAUNCHES = 2000
THREADS = 256
NO_DEVICE = 4


cuda: Any = None  # numba.cuda once it is needed: kernels find it, or the simulator's stand-in, among the globals


def _cuda() -> Any:
    global cuda
    cuda = importlib.import_module("numba.cuda")
    return cuda


def load_kernels(path: Path) -> ModuleType:
    """Import a generated file as a module."""
    spec = importlib.util.spec_from_file_location(f"kernels_{abs(hash(str(path)))}", path)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _copy_kernel() -> Any:
    @_cuda().jit  # type: ignore[untyped-decorator]  # Numba has no types
    def copy(source: Any, target: Any) -> None:
        first = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
        for i in range(first, source.size, cuda.gridDim.x * cuda.blockDim.x):
            target[i] = source[i]

    return copy


def _empty_kernel() -> Any:
    @_cuda().jit  # type: ignore[untyped-decorator]  # Numba has no types
    def empty(target: Any) -> None:
        if target.size < 0:
            target[0] = 0

    return empty


class Stopwatch:
    """Times launches on the current device; a context that owns the buffer which flushes the L2 cache."""

    def __init__(self, flush_bytes: int = FLUSH_BYTES, repeats: int = REPEATS) -> None:
        _cuda()
        self.repeats = repeats
        self.flush_from = cuda.device_array(flush_bytes // 8, np.float32)
        self.flush_to = cuda.device_array(flush_bytes // 8, np.float32)
        self.copy = _copy_kernel()
        self.blocks = 8 * int(getattr(cuda.get_current_device(), "MULTIPROCESSOR_COUNT", 1) or 1)

    def flush(self) -> None:
        """Run through the buffer."""
        self.copy[self.blocks, THREADS](self.flush_from, self.flush_to)

    def time(self, launch: Callable[[], None], *, cold: bool = True) -> dict[str, float]:
        """Nanoseconds of a launch on the device: median, 20th and 80th percentile."""
        for _ in range(WARM_UP):
            launch()
        found = []
        for _ in range(self.repeats):
            begin, end = cuda.event(), cuda.event()
            if cold:
                self.flush()
            begin.record()
            launch()
            end.record()
            end.synchronize()
            found.append(1e6 * begin.elapsed_time(end))
        parts = statistics.quantiles(found, n=5)
        return {"latency_ns": statistics.median(found), "p20_ns": parts[0], "p80_ns": parts[3]}


def device_arrays(slots: Sequence[tuple[Any, ...]], seed: int) -> list[Any]:
    """Arrays of (size, type) on the device: random floats, zeros for integers."""
    made = []
    for number, (size, kind, *_) in enumerate(slots):
        dtype = np.dtype(kind)
        host = np.zeros(size, dtype)
        if dtype.kind not in "iub":
            block = np.random.Generator(np.random.PCG64(seed + number)).standard_normal(min(size, 65_536), np.float32)
            host[:] = np.resize(block.astype(dtype), size)
        made.append(_cuda().to_device(host))
    return made


def time_groups(module: ModuleType, groups: Sequence[int], watch: Stopwatch) -> dict[int, dict[str, float]]:
    """Times of the groups of a generated file that have a kernel."""
    found = {}
    for group in groups:
        launcher, reads, writes = module.GROUPS[group]
        if launcher is None:
            continue
        arrays = [*device_arrays(reads, group), *device_arrays(writes, group + 1000)]
        found[group] = watch.time(partial(launcher, *arrays))
    return found


def check_groups(
    module: ModuleType, arrays: Mapping[str, Any], checks: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Each group on given arrays against what it has to write: `{id, ok, error, tolerance}`.

    The error is the greatest `|got - wanted| / (|wanted| + rms(wanted))`, as in the ladder's other steps.
    """
    _cuda()
    rows = []
    for check in checks:
        launcher, reads, writes = module.GROUPS[check["id"]]
        given = [cuda.to_device(_typed(arrays[f"g{check['id']}_r{n}"], kind)) for n, (_, kind) in enumerate(reads)]
        made = [
            given[base[0]] if base else cuda.to_device(_poison(size, np.dtype(kind))) for size, kind, *base in writes
        ]
        launcher(*given, *made)
        error = 0.0
        for n, array in enumerate(made):
            got = array.copy_to_host().astype(np.float64)
            error = max(error, _error(got, arrays[f"g{check['id']}_w{n}"].reshape(-1).astype(np.float64)))
        ok = error <= check["tolerance"]
        rows.append({"id": check["id"], "ok": bool(ok), "error": error, "tolerance": check["tolerance"]})
    return rows


def _typed(raw: Any, kind: Any) -> Any:
    dtype = np.dtype(kind)
    flat = np.ascontiguousarray(raw).reshape(-1)
    return flat if flat.dtype == dtype else flat.view(dtype) if flat.dtype.kind == "u" else flat.astype(dtype)


def _poison(size: int, dtype: Any) -> Any:
    return np.full(size * dtype.itemsize, 0xFF, np.uint8).view(dtype)


def _error(got: Any, wanted: Any) -> float:
    finite = np.isfinite(wanted)
    scale = float(np.sqrt(np.mean(np.square(wanted[finite])))) if finite.any() else 1.0
    with np.errstate(all="ignore"):
        off = np.abs(got - wanted) / (np.abs(wanted) + (scale or 1.0))
    alike = (got == wanted) | (np.isnan(got) & np.isnan(wanted))
    return float(np.where(alike, 0.0, np.where(np.isfinite(off), off, np.inf)).max(initial=0.0))


def device_facts() -> dict[str, Any]:
    """Name, compute capability, units and memory clock as the driver says them."""
    device = _cuda().get_current_device()
    name = device.name
    return {
        "name": name.decode() if isinstance(name, bytes) else str(name),
        "compute_capability": ".".join(map(str, device.compute_capability)),
        "units": int(device.MULTIPROCESSOR_COUNT), "l2_bytes": int(device.L2_CACHE_SIZE),
    }  # fmt: skip


def measure_device(watch: Stopwatch) -> dict[str, Any]:
    """Seconds of a launch in a stream, bytes/s of copies from memory, and copies by working set (the L2 knee)."""
    empty, flag = _empty_kernel(), cuda.device_array(1, np.float32)

    def launches() -> None:
        for _ in range(LAUNCHES):
            empty[1, 32](flag)

    stream = watch.time(launches, cold=False)["latency_ns"] / LAUNCHES
    curve = []
    for shift in range(20, 31):
        size = (1 << shift) // 8
        source, target = cuda.device_array(size, np.float32), cuda.device_array(size, np.float32)
        blocks = watch.blocks

        def copies(a: Any = source, b: Any = target, count: int = blocks) -> None:
            watch.copy[count, THREADS](a, b)

        taken = watch.time(copies, cold=False)["latency_ns"]
        curve.append({"bytes": 8 * size, "bytes_per_s": 8 * size / taken * 1e9})
    return {"launch_stream_s": stream / 1e9, "copy_by_working_set": curve}


def run_folder(folder: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """Run every plan of a prepared folder: correctness of all plans first, then times."""
    began = time.monotonic()
    plans = json.loads((folder / "plans.json").read_text(encoding="utf-8"))
    found: dict[str, Any] = {"format": "fusesolve-device-run/1", "device": device_facts(), "plans": []}
    for plan in plans:
        arrays = np.load(folder / plan["arrays"], allow_pickle=False)
        rows = check_groups(load_kernels(folder / plan["small"]), arrays, plan["checks"])
        bad = [row["id"] for row in rows if not row["ok"]]
        say(f"{plan['name']}: {len(rows) - len(bad)} of {len(rows)} groups right" + (f", wrong: {bad}" if bad else ""))
        found["plans"].append({"name": plan["name"], "checks": rows})
    watch = Stopwatch()
    found["machine"] = measure_device(watch)
    for plan, record in zip(plans, found["plans"], strict=True):
        fused = time_groups(load_kernels(folder / plan["fused"]), plan["groups"], watch)
        apart = time_groups(load_kernels(folder / plan["apart"]), plan["parts"], watch)
        record["times"] = _rows(plan, fused, apart)
        say(f"{plan['name']}: {len(fused)} groups and {len(apart)} operators timed")
    found["seconds"] = time.monotonic() - began
    return found


def _rows(
    plan: Mapping[str, Any], fused: Mapping[int, Mapping[str, float]], apart: Mapping[int, Mapping[str, float]]
) -> list[dict[str, Any]]:
    """One row a group that was timed: predicted, measured, and the sum over its operators where all were timed."""
    rows = []
    for group, times in fused.items():
        parts = plan["parts_of"][str(group)]
        whole = all(part in apart for part in parts)
        unfused = sum(apart[part]["latency_ns"] for part in parts) if parts and whole else None
        rows.append({"id": group, "predicted_ns": plan["predicted_ns"][str(group)], **times, "unfused_ns": unfused})
    return rows


def main(arguments: Sequence[str]) -> int:
    """Run a prepared folder and write its JSON; 1 where a group computes something wrong, 4 without a device."""
    options = argparse.ArgumentParser(description="Run prepared plans on this machine's GPU and write one JSON.")
    options.add_argument("folder", type=Path)
    options.add_argument("-o", "--output", type=Path, required=True)
    chosen = options.parse_args(arguments)

    def say(text: str) -> None:
        sys.stderr.write(text + "\n")

    if not _cuda().is_available():
        say("no CUDA device: the driver is absent or sees none")
        return NO_DEVICE
    found = run_folder(chosen.folder, say)
    chosen.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0 if all(row["ok"] for plan in found["plans"] for row in plan["checks"]) else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
