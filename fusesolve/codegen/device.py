"""Generated kernels on a GPU: correctness first, then times by events, fused and operator by operator.

This file is also a script that needs nothing but Python, NumPy and numba-cuda: `python device.py FOLDER -o FILE` runs a
folder that `benchmarks/gpu_prepare.py` wrote elsewhere, and writes one JSON. A folder has, for each plan, the generated
file at shrunk extents with arrays and wanted results, the files at the plan's extents, and what the plan predicts.

Every part of the run is a process of its own that says what it has found line by line: where a kernel takes the driver
down, its group is the one that fails, and the others go on in a new process. What the minutes do not suffice for is
left out by name. Groups that are not right are not timed.

Times: a kernel that overwrites a large buffer runs first, so that the L2 cache is cold and the launch of the measured
kernels is already queued when it ends; two events around the launch; the median over the repeats.
"""

import argparse
import importlib
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
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
MINUTES = 6.0
LATE = "the minutes were over"


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


def time_groups(module: ModuleType, groups: Sequence[int], watch: Stopwatch) -> Iterator[dict[str, Any]]:
    """Times of the groups of a generated file that have a kernel: `{id, latency_ns, p20_ns, p80_ns}`."""
    for group in groups:
        launcher, reads, writes = module.GROUPS[group]
        if launcher is None:
            continue
        arrays = [*device_arrays(reads, group), *device_arrays(writes, group + 1000)]
        yield {"id": group, **watch.time(partial(launcher, *arrays))}


def check_groups(
    module: ModuleType, arrays: Mapping[str, Any], checks: Sequence[Mapping[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Each group on given arrays against what it has to write: `{id, ok, error, tolerance}`.

    The error is the greatest `|got - wanted| / (|wanted| + rms(wanted))`, as in the ladder's other steps, where a
    share of the elements (`stray`) may lie elsewhere behind an operator that jumps.
    """
    _cuda()
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
            wanted = _typed(arrays[f"g{check['id']}_w{n}"], writes[n][1]).astype(np.float64)
            error = max(error, _error(got, wanted, check["stray"]))
        ok = error <= check["tolerance"]
        number = error if np.isfinite(error) else None
        yield {"id": check["id"], "ok": bool(ok), "error": number, "tolerance": check["tolerance"]}


def _typed(raw: Any, kind: Any) -> Any:
    dtype = np.dtype(kind)
    flat = np.ascontiguousarray(raw).reshape(-1)
    return flat if flat.dtype == dtype else flat.view(dtype) if flat.dtype.kind == "u" else flat.astype(dtype)


def _poison(size: int, dtype: Any) -> Any:
    return np.full(size * dtype.itemsize, 0xFF, np.uint8).view(dtype)


def _error(got: Any, wanted: Any, stray: float) -> float:
    finite = np.isfinite(wanted)
    scale = float(np.sqrt(np.mean(np.square(wanted[finite])))) if finite.any() else 1.0
    with np.errstate(all="ignore"):
        off = np.abs(got - wanted) / (np.abs(wanted) + (scale or 1.0))
    alike = (got == wanted) | (np.isnan(got) & np.isnan(wanted))
    errors = np.sort(np.where(alike, 0.0, np.where(np.isfinite(off), off, np.inf)))
    return float(errors[: errors.size - int(stray * errors.size)].max(initial=0.0))


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


class Run:
    """A run over a prepared folder: its parts in processes of their own, until the minutes are over."""

    def __init__(self, folder: Path, say: Callable[[str], None], minutes: float) -> None:
        self.folder, self.say = folder, say
        self.began = time.monotonic()
        self.end = self.began + 60.0 * minutes
        self.plans = json.loads((folder / "plans.json").read_text(encoding="utf-8"))
        self.narrow = importlib.util.find_spec("ml_dtypes") is not None  # arrays of bf16 can be made

    def run(self) -> dict[str, Any]:
        """Correctness of all plans first, then the machine, then times."""
        records = [self.check(number, plan) for number, plan in enumerate(self.plans)]
        machine, fault = self.ask("machine", 0, [0])
        for number, (plan, record) in enumerate(zip(self.plans, records, strict=True)):
            self.measure(number, plan, record)
        return {
            "format": "fusesolve-device-run/1", "device": device_facts(), "plans": records,
            "machine": machine[0]["machine"] if machine else None, "fault": fault.get(0),
            "seconds": time.monotonic() - self.began,
        }  # fmt: skip

    def ask(self, part: str, plan: int, numbers: Sequence[int]) -> tuple[list[dict[str, Any]], dict[int, str]]:
        """The rows of a part of the run for groups, and why groups have none."""
        rows: list[dict[str, Any]] = []
        faults: dict[int, str] = {}
        left = list(numbers)
        while left:
            found, words = self._child(part, plan, left)
            rows += found
            left = [number for number in left if number not in {row["id"] for row in found}]
            if words == LATE:
                return rows, {**faults, **dict.fromkeys(left, LATE)}
            if left:
                faults[left.pop(0)] = words
        return rows, faults

    def _child(self, part: str, plan: int, numbers: Sequence[int]) -> tuple[list[dict[str, Any]], str]:
        """The lines that a process has said before it ended, a group a line in order, and its last words."""
        seconds = self.end - time.monotonic()
        if seconds <= 0:
            return [], LATE
        job = f"{part}:{plan}:{','.join(map(str, numbers))}"
        alone = ["-P"] if sys.hexversion >= 0x030B0000 else []  # not the folder of this file, where other modules lie
        command = [sys.executable, *alone, "-W", "ignore", __file__, str(self.folder), "--part", job]
        try:
            done = subprocess.run(command, capture_output=True, timeout=seconds, check=False)  # noqa: S603  this file
        except subprocess.TimeoutExpired as over:
            return _rows_of(over.stdout or b""), LATE
        words = [line.strip() for line in done.stderr.decode(errors="replace").splitlines() if line.strip()]
        return _rows_of(done.stdout), words[-1] if words else f"the process ended with {done.returncode}"

    def check(self, number: int, plan: Mapping[str, Any]) -> dict[str, Any]:
        """The record of a plan: each group right, wrong, or why there is no verdict."""
        barred = set() if self.narrow else set(plan["narrow"])
        chosen = [check["id"] for check in plan["checks"] if check["id"] not in barred]
        rows, faults = self.ask("check", number, chosen)
        rows += [
            {"id": group, "ok": None if why == LATE else False, "error": None, "tolerance": None, "note": why}
            for group, why in faults.items()
        ]
        rows += [
            {"id": group, "ok": None, "error": None, "tolerance": None, "note": "bf16 arrays: install ml_dtypes"}
            for group in sorted(barred & set(plan["groups"]))
        ]
        right = [row["id"] for row in rows if row["ok"]]
        wrong = [row["id"] for row in rows if row["ok"] is False]
        self.say(f"{plan['name']}: {len(right)} of {len(rows)} groups right" + (f", wrong: {wrong}" if wrong else ""))
        return {"name": plan["name"], "checks": rows}

    def measure(self, number: int, plan: Mapping[str, Any], record: dict[str, Any]) -> None:
        """Times of a plan's groups that are right, and of their operators one by one."""
        right = [row["id"] for row in record["checks"] if row["ok"]]
        rows, faults = self.ask("fused", number, right)
        wanted = {part for row in rows for part in plan["parts_of"][str(row["id"])]}
        parts, more = self.ask("apart", number, [part for part in plan["parts"] if part in wanted])
        fused, apart = ({row.pop("id"): row for row in found} for found in (rows, parts))
        record["times"] = _rows(plan, fused, apart)
        record["not_timed"] = {str(group): why for group, why in (faults | more).items()}
        self.say(f"{plan['name']}: {len(fused)} groups and {len(apart)} operators timed")


def _rows_of(text: bytes) -> list[dict[str, Any]]:
    """What whole lines of a process say."""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith(b"\n")]


def run_part(folder: Path, job: str) -> Iterator[dict[str, Any]]:
    """One part of a run, `part:plan:groups`, a row a group."""
    part, number, groups = job.split(":")
    chosen = [int(group) for group in groups.split(",")]
    if part == "machine":
        yield {"id": 0, "machine": measure_device(Stopwatch())}
        return
    plan = json.loads((folder / "plans.json").read_text(encoding="utf-8"))[int(number)]
    if part == "check":
        arrays = np.load(folder / plan["arrays"], allow_pickle=False)
        checks = {check["id"]: check for check in plan["checks"]}
        yield from check_groups(load_kernels(folder / plan["small"]), arrays, [checks[group] for group in chosen])
        return
    yield from time_groups(load_kernels(folder / plan[part]), chosen, Stopwatch())


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
    options.add_argument("-o", "--output", type=Path, help="the JSON")
    options.add_argument("--minutes", type=float, default=MINUTES, help="what they do not suffice for is left out")
    options.add_argument("--part", help=argparse.SUPPRESS)
    chosen = options.parse_args(arguments)

    def say(text: str) -> None:
        sys.stderr.write(text + "\n")

    if chosen.part:
        for row in run_part(chosen.folder, chosen.part):
            os.write(1, (json.dumps(row) + "\n").encode())
        return 0
    if chosen.output is None:
        options.error("name the JSON: -o result.json")
    if not _cuda().is_available():
        say("no CUDA device: the driver is absent or sees none")
        return NO_DEVICE
    found = Run(chosen.folder, say, chosen.minutes).run()
    chosen.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0 if all(row["ok"] is not False for plan in found["plans"] for row in plan["checks"]) else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
