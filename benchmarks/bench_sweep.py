"""A 1,000-point sweep of the GPT-2 block over three numbers of the H100: wall clock, CPU, and what is shared.

`python benchmarks/bench_sweep.py [WORKERS]` (default 2). The target is three minutes on two cores. The sweep is then
killed at half (SIGKILL to the whole process group) and resumed, and run on a Dask cluster of as many workers, one of
which is killed at half: the files must be the same byte for byte.
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
BLOCK = 16  # points that a sweep keeps at once
SWEEPS = {
    "bandwidth x shared memory x launch": (
        "memory.dram.bandwidth=1TB/s..8TB/s:10", "memory.shared.per_block_max=32KiB..227KiB:10",
        "launch.stream=0.5us..5us:10",
    ),
    "bandwidth x L2 bandwidth x units": (
        "memory.dram.bandwidth=1TB/s..8TB/s:10", "memory.l2.bandwidth=5TB/s..20TB/s:10", "compute.units=66..198:10",
    ),
}  # fmt: skip


def command(sets: tuple[str, ...], output: Path, *where: str) -> list[str]:
    """The command line of one sweep; `where`: the options that say where it runs."""
    swept = [item for text in sets for item in ("--set", text)]
    return [sys.executable, "-m", "fusesolve", "whatif", "gpt2_block", "--hw", "h100", *swept, *where, "-o",
            str(output), "-q"]  # fmt: skip


def run(sets: tuple[str, ...], output: Path, workers: int) -> tuple[float, float]:
    """Wall-clock and CPU seconds of a whole sweep, worker processes included."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command(sets, output, "--workers", str(workers)), check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.perf_counter() - start, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def wait_for_half(process: subprocess.Popen[bytes], output: Path) -> int:
    """Wait until half of the points of a running sweep are kept; returns how many are."""
    state = output.with_name(output.name + ".state")
    while process.poll() is None:
        kept = state.read_bytes().count(b'"block"') if state.exists() else 0
        if kept * BLOCK >= POINTS // 2:
            return kept * BLOCK
        time.sleep(0.2)
    raise SystemExit("the sweep ended before anything could be killed")


def kill_at_half(sets: tuple[str, ...], output: Path, workers: int) -> int:
    """Start a sweep, kill all of its processes once half of the points are kept; returns how many were."""
    process = subprocess.Popen(command(sets, output, "--workers", str(workers)), start_new_session=True)
    kept = wait_for_half(process, output)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return kept


def kill_one_of_a_cluster(sets: tuple[str, ...], output: Path, workers: int) -> tuple[float, int]:
    """Run a sweep on a Dask cluster, kill one worker once half is kept; wall-clock seconds, and points kept then."""
    from distributed import LocalCluster

    quiet = {"dashboard_address": None, "silence_logs": 50}
    start = time.perf_counter()
    with LocalCluster(n_workers=workers, threads_per_worker=1, **quiet) as cluster:
        process = subprocess.Popen(command(sets, output, "--scheduler", cluster.scheduler_address))
        kept = wait_for_half(process, output)
        os.kill(next(iter(cluster.workers.values())).pid, signal.SIGKILL)
        if process.wait() != 0:
            raise SystemExit(f"the sweep on the cluster ended with {process.returncode}")
    return time.perf_counter() - start, kept


def compare_bytes(found: Path, whole: Path) -> str:
    """What the benchmark says of a disturbed sweep's file."""
    return "the same bytes" if found.read_bytes() == whole.read_bytes() else "DIFFERENT BYTES"


def main(workers: int) -> None:
    """Print one line a sweep, then the killed and resumed one, then the one that lost a worker."""
    print(f"{POINTS:,} points of gpt2_block on h100, {workers} workers, load {os.getloadavg()[0]:.1f}")
    print(f"{'sweep':<38} {'wall s':>7} {'CPU s':>7} {'CPU ms/point':>13} {'of target':>10}")
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "whole.csv"
        for name, sets in reversed(SWEEPS.items()):
            wall, cpu = run(sets, whole, workers)
            print(f"{name:<38} {wall:>7.1f} {cpu:>7.1f} {1000 * cpu / POINTS:>13.1f} {wall / TARGET_S:>9.2f}x")
        sets = next(iter(SWEEPS.values()))
        killed = Path(folder) / "killed.csv"
        kept = kill_at_half(sets, killed, workers)
        wall, _ = run(sets, killed, workers)
        print(f"killed after {kept} points and resumed in {wall:.1f} s: {compare_bytes(killed, whole)}")
        clustered = Path(folder) / "clustered.csv"
        wall, kept = kill_one_of_a_cluster(sets, clustered, workers)
        verdict = compare_bytes(clustered, whole)
        print(f"{workers} Dask workers, one killed after {kept} points, {wall:.1f} s in all: {verdict}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
