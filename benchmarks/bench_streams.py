"""What streams gain on the bundled graphs: planned and simulated time on one, two and four streams.

`python benchmarks/bench_streams.py [PROFILE] [GRAPH...]` (default: h100, all bundled graphs). Seconds: this machine.
"""

import sys
import time
from pathlib import Path

from fusesolve.bundled import bundled_dir
from fusesolve.pipeline import plan

STREAMS = (1, 2, 4)


def names() -> list[str]:
    """Bundled graphs, by name."""
    return sorted(Path(str(path)).stem for path in bundled_dir("graphs").iterdir() if str(path).endswith(".yaml"))


def main(profile: str, graphs: list[str]) -> None:
    """Print one line for each graph and number of streams."""
    print(f"{'graph on ' + profile:<34} {'streams':>7} {'kernels':>7} {'planned us':>10} {'gain':>6} {'gap':>7} "
          f"{'simulated us':>12} {'gain':>6} {'seconds':>8}")  # fmt: skip
    for graph in graphs:
        first = None
        for streams in STREAMS:
            start = time.perf_counter()
            found = plan(graph, profile, streams=streams, simulate="events")
            spent = time.perf_counter() - start
            if found.objective_ns is None:
                print(f"{graph:<34} {streams:>7} {found.status}")
                continue
            planned, simulated = found.objective_ns / 1e3, found.timing["simulated_ns"] / 1e3
            first = first or (planned, simulated)
            gap = "-" if found.gap is None else f"{found.gap:.2%}"
            print(f"{graph:<34} {streams:>7} {len(found.groups):>7} {planned:>10.1f} {first[0] / planned:>5.2f}x "
                  f"{gap:>7} {simulated:>12.1f} {first[1] / simulated:>5.2f}x {spent:>8.1f}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "h100", sys.argv[2:] or names())
