"""How fast the event simulator is: a plan of 600 kernels on an H100, on one stream and on four.

`python benchmarks/bench_events.py [KERNELS]`. The first row includes compiling (or loading the compiled code from the
cache); the others are medians of one run, on this machine.
"""

import sys
import time
from pathlib import Path
from statistics import median

from fusesolve.cost.events import simulate_events
from fusesolve.pipeline import PlanOptions, begin
from fusesolve.pipeline.timing import make_step, wait_for

sys.path.insert(0, str(Path(__file__).parents[1] / "graphs"))

from transformers import gpt2

TARGET_S = 2.0
REPEATS = 5
LAYERS = 24  # 25 operators of the model each


def main(count: int) -> None:
    """Print the seconds of each simulation."""
    planning = begin(gpt2(LAYERS).graph(), "h100", PlanOptions(), time_limit=None)
    priced = planning.priced
    columns, result = planning.unfused
    order = [columns.kernels[i] for i in result.selected][:count]
    waits = wait_for(priced.space.program, order)
    print(f"{len(order)} kernels on {planning.profile.name}, {planning.profile.compute.units} units")
    print(f"{'streams':>7} {'launch':>7} {'events':>8} {'simulated us':>12} {'seconds':>8} {'of target':>10}")
    for streams, launch, repeats in ((1, "stream", 1), (1, "stream", REPEATS), (1, "graph", REPEATS),
                                     (4, "stream", REPEATS), (4, "graph", REPEATS)):  # fmt: skip
        steps = [
            make_step(priced, kernel, i % streams, w)
            for i, (kernel, w) in enumerate(zip(order, waits, strict=True))
        ]
        seconds = []
        for _ in range(repeats):
            start = time.perf_counter()
            found = simulate_events(steps, priced.prices, planning.profile, launch)
            seconds.append(time.perf_counter() - start)
        spent = median(seconds)
        print(f"{streams:>7} {launch:>7} {found.events:>8,} {found.total * 1e6:>12,.1f} {spent:>8.3f} "
              f"{spent / TARGET_S:>9.1%}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 600)
