"""What Linux says about this machine's CPU, and how fast it copies memory."""

import os
import platform
import re
import statistics
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

_REPEATS = 7
_ASSUMED_CLOCK = 2.5e9
_ASSUMED_CACHES = {"l1d": 32 << 10, "l1i": 32 << 10, "last": 8 << 20}
_ASSUMED_MEMORY = 8 << 30
_SCALE = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuFacts:
    """A CPU: usable cores, Hz, cache and memory bytes, instruction-set flags.

    `core_cache` is the largest data cache that a core has for itself; `last_level` is all of the last-level cache that
    the usable cores share; the `*_source` texts say where a number was read, or start with "assumed".
    """

    model: str
    vendor: str
    cores: int
    clock: float
    clock_source: str
    l1_data: int
    l1_code: int
    core_cache: int
    last_level: int
    cache_source: str
    memory: int
    flags: frozenset[str]


def read_cpu_facts(root: Path = Path("/")) -> CpuFacts:
    """The facts of this machine from `/proc` and `/sys` below `root`; what is absent there is assumed and says so."""
    info = _cpuinfo(root / "proc/cpuinfo")
    caches = _caches(root / "sys/devices/system/cpu/cpu0/cache")
    clock, clock_source = _clock(root, info)
    flags = info.get("flags") or info.get("Features") or ""
    sizes = _ASSUMED_CACHES | caches
    return CpuFacts(
        model=info.get("model name") or platform.machine() or "unknown CPU",
        vendor=info.get("vendor_id", "unknown").replace("AuthenticAMD", "AMD").replace("GenuineIntel", "Intel"),
        cores=_cores(),
        clock=clock,
        clock_source=clock_source,
        l1_data=sizes["l1d"],
        l1_code=sizes["l1i"],
        core_cache=sizes.get("core", sizes["l1d"]),
        last_level=sizes["last"],
        cache_source="/sys/devices/system/cpu/cpu0/cache" if caches else "assumed: no cache sizes in /sys",
        memory=_memory(root),
        flags=frozenset(flags.split()),
    )


def measure_copy_bandwidth(array_bytes: int, threads: int) -> tuple[float, float]:
    """Median and best bytes/s (read plus written) of copying `array_bytes` by `threads` threads, each its own slice.

    Seven repeats after a warm-up that touches every page; small arrays are copied often enough for the clock.
    """
    slices = [np.ones(max(array_bytes // threads // 8, 1), dtype=np.float64) for _ in range(threads)]
    targets = [np.empty_like(part) for part in slices]
    moved = 2 * sum(part.nbytes for part in slices)
    rounds = max(1, (64 << 20) // moved)

    def copy(index: int) -> None:
        for _ in range(rounds):
            np.copyto(targets[index], slices[index])

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(copy, range(threads)))
        rates = []
        for _ in range(_REPEATS):
            start = time.perf_counter()
            list(pool.map(copy, range(threads)))
            rates.append(rounds * moved / max(time.perf_counter() - start, 1e-9))
    return statistics.median(rates), max(rates)


def _cores() -> int:
    """Cores that this process may use, at least 1."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


def _cpuinfo(path: Path) -> dict[str, str]:
    """The fields of the first processor in `/proc/cpuinfo`."""
    fields: dict[str, str] = {}
    for line in _text(path).split("\n\n")[0].splitlines():
        key, colon, value = line.partition(":")
        if colon:
            fields.setdefault(key.strip(), value.strip())
    return fields


def _caches(folder: Path) -> dict[str, int]:
    """Bytes of the first-level caches and of the last level (data or unified); only those that are stated."""
    found: dict[str, int] = {}
    last = 0
    for index in sorted(folder.glob("index*")):
        size = _size(_text(index / "size"))
        level, kind = _text(index / "level").strip(), _text(index / "type").strip()
        if size is None or not level.isdigit():
            continue
        if level == "1":
            found["l1i" if kind == "Instruction" else "l1d"] = size
        if kind != "Instruction" and int(level) >= max(last, 2):
            last, found["last"] = int(level), size
        if kind != "Instruction" and _count(_text(index / "shared_cpu_list")) == 1:
            found["core"] = max(size, found.get("core", 0))
    return found


def _count(cpus: str) -> int:
    """Processors in a list such as `0-3,8`."""
    spans = [part.partition("-") for part in cpus.strip().split(",") if part]
    return sum(int(high or low) - int(low) + 1 for low, _, high in spans if low.isdigit())


def _clock(root: Path, info: Mapping[str, str]) -> tuple[float, str]:
    """The clock in Hz and where it was read: highest frequency, else the name plate, else what it runs at."""
    highest = _text(root / "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq").strip()
    if highest.isdigit() and int(highest):
        return int(highest) * 1e3, "cpufreq/cpuinfo_max_freq"
    plate = re.search(r"@\s*([\d.]+)\s*GHz", info.get("model name", ""))
    if plate:
        return float(plate[1]) * 1e9, "model name in /proc/cpuinfo"
    running = re.fullmatch(r"[\d.]+", info.get("cpu MHz", ""))
    if running and float(running[0]):
        return float(running[0]) * 1e6, "cpu MHz in /proc/cpuinfo (the clock of the moment)"
    return _ASSUMED_CLOCK, "assumed 2.5 GHz: the system does not state it"


def _memory(root: Path) -> int:
    """Bytes of memory that this process can have: the machine's, or less by its control group."""
    total = re.search(r"MemTotal:\s+(\d+) kB", _text(root / "proc/meminfo"))
    limit = _text(root / "sys/fs/cgroup/memory.max").strip()
    bounds = [int(total[1]) << 10] if total else []
    bounds += [int(limit)] if limit.isdigit() and int(limit) else []
    return min(bounds, default=_ASSUMED_MEMORY)


def _size(text: str) -> int | None:
    """Bytes of `512K`, None where it is no size."""
    match = re.fullmatch(r"(\d+)([KMG]?)\s*", text)
    return int(match[1]) * _SCALE[match[2]] if match and int(match[1]) else None


def _text(path: Path) -> str:
    """The text of a system file, "" where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
