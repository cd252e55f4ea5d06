"""A 1,000-point sweep of the GPT-2 block over three numbers of the H100: wall clock, CPU, and what is shared.

`python benchmarks/bench_sweep.py [WORKERS]` (default 2). The target is three minutes on two cores. The sweep is then
killed at half (SIGKILL to the whole process group) and resumed: the file must be the same byte for byte.
"""

import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TARGET_S = 180
POINTS = 1000
SWEEPS = {
    "bandwidth x shared memory x launch": (
        "memory.dram.bandwidth=1TB/s..8TB/s:10", "memory.shared.per_block_max=32KiB..227KiB:10",
        "launch.stream=0.5us..5us:10",
    ),
    "bandwidth x L2 bandwidth x units": (
        "memory.dram.bandwidth=1TB/s..8TB/s:10", "memory.l2.bandwidth=5TB/s..20TB/s:10", "compute.units=66..198:10",
    ),
}  # fmt: skip


def command(sets: tuple[str, ...], output: Path, workers: int) -> list[str]:
    """The command line of one sweep."""
    swept = [item for text in sets for item in ("--set", text)]
    return [sys.executable, "-m", "fusesolve", "whatif", "gpt2_block", "--hw", "h100", *swept, "--workers",
            str(workers), "-o", str(output), "-q"]  # fmt: skip


def run(sets: tuple[str, ...], output: Path, workers: int) -> tuple[float, float]:
    """Wall-clock and CPU seconds of a whole sweep, worker processes included."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command(sets, output, workers), check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.perf_counter() - start, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def kill_at_half(sets: tuple[str, ...], output: Path, workers: int) -> int:
    """Start a sweep, kill all of its processes once half of the points are kept; returns how many were."""
    state = output.with_name(output.name + ".partial")
    process = subprocess.Popen(command(sets, output, workers), start_new_session=True)
    while process.poll() is None:
        kept = state.read_bytes().count(b'"block"') if state.exists() else 0
        if kept * 16 >= POINTS // 2:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return kept * 16
        time.sleep(0.2)
    raise SystemExit("the sweep ended before it could be killed")


def main(workers: int) -> None:
    """Print one line a sweep, then the killed and resumed one."""
    print(f"{POINTS:,} points of gpt2_block on h100, {workers} workers, load {os.getloadavg()[0]:.1f}")
    print(f"{'sweep':<38} {'wall s':>7} {'CPU s':>7} {'CPU ms/point':>13} {'of target':>10}")
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "whole.csv"
        for name, sets in reversed(SWEEPS.items()):
            wall, cpu = run(sets, whole, workers)
            print(f"{name:<38} {wall:>7.1f} {cpu:>7.1f} {1000 * cpu / POINTS:>13.1f} {wall / TARGET_S:>9.2f}x")
        killed = Path(folder) / "killed.csv"
        sets = next(iter(SWEEPS.values()))
        kept = kill_at_half(sets, killed, workers)
        wall, _ = run(sets, killed, workers)
        same = killed.read_bytes() == whole.read_bytes()
        verdict = "the same bytes" if same else "DIFFERENT BYTES"
        print(f"killed after {kept} points and resumed in {wall:.1f} s: {verdict}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
