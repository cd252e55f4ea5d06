"""Scale benchmark: deep models, wide branches and long chains from the graph to the proven plan, and the growth.

Run `python benchmarks/bench_scale.py [CASE ...]`; without cases all of CASES, two minutes on two idle cores. Each
case runs in a process of its own. One line each: operators, kernels, seconds by the clock for each stage and by the
processor, peak memory, status and gap; then the time per operator of the deepest Llama over that of the shallowest.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable

import scale_graphs

from fusesolve.graph import Graph
from fusesolve.pipeline import PlanOptions, begin
from fusesolve.pipeline.assemble import assemble

CASES: dict[str, tuple[Callable[[], Graph], bool]] = {
    "llama x8 once": (lambda: scale_graphs.make_llama(8), False),
    "llama x80 once": (lambda: scale_graphs.make_llama(80), False),
    "llama x8": (lambda: scale_graphs.make_llama(8), True),
    "llama x80": (lambda: scale_graphs.make_llama(80), True),
    "branches 8x5": (lambda: scale_graphs.make_branches(8, 5), True),
    "gru x100": (lambda: scale_graphs.make_gru(100), True),
    "diamonds x200": (lambda: scale_graphs.make_diamonds(200), True),
    "llama x640 once": (lambda: scale_graphs.make_llama(640), False),
    "llama x640": (lambda: scale_graphs.make_llama(640), True),
    "gru x2000": (lambda: scale_graphs.make_gru(2000), True),
}
STAGES = ("import", "enumerate", "price", "solve", "assemble", "total")
HEADER = (
    f"{'case (once: nothing computed twice)':<36}{'ops':>7}{'kernels':>10}"
    + "".join(f"{stage + ' s':>12}" for stage in STAGES)
    + f"{'cpu s':>8}{'MiB':>7}{'gap %':>9}  status"
)


def measure(name: str, hardware: str, limit: float | None) -> dict[str, object]:
    """Plan one case from the graph in memory; seconds by the clock per stage, and of the processor in all."""
    make, recompute = CASES[name]
    graph = make()
    used = time.process_time()
    planning = begin(graph, hardware, PlanOptions(recompute=recompute), time_limit=limit)
    since = time.monotonic()
    columns, result = planning.solve()
    planning.clock.lap("solve", since)
    since = time.monotonic()
    plan = assemble(planning, columns.kernels, result)
    planning.clock.lap("assemble", since)
    planning.clock.lap("total", planning.clock.started)
    return {
        "ops": len(planning.priced.space.program.operators), "kernels": len(planning.priced.space.kernels),
        "seconds": planning.clock.seconds, "cpu": time.process_time() - used, "gap": plan.gap, "status": plan.status,
        "MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, "objective_ns": plan.objective_ns,
        "bound_ns": plan.bound_ns,
    }  # fmt: skip


def line(name: str, found: dict) -> str:
    """One line of the table."""
    stages = "".join(f"{found['seconds'].get(stage, 0.0):>12.2f}" for stage in STAGES)
    gap = "-" if found["gap"] is None else f"{100 * found['gap']:.4f}"
    return (
        f"{name:<36}{found['ops']:>7}{found['kernels']:>10}{stages}{found['cpu']:>8.1f}{found['MiB']:>7}{gap:>9}"
        f"  {found['status']}"
    )


def main() -> None:
    """Parse the options; run the cases, each in its own process, or the one that such a process is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--hw", default="h100")
    parser.add_argument("--time-limit", type=float, default=300.0)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        print(json.dumps(measure(options.cases[0], options.hw, options.time_limit)))
        return
    chosen = options.cases or list(CASES)
    print(HEADER, flush=True)
    per_operator: dict[str, float] = {}
    for name in chosen:
        command = [
            sys.executable,
            __file__,
            name,
            "--inside",
            "--hw",
            options.hw,
            "--time-limit",
            str(options.time_limit),
        ]
        answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        found = json.loads(answer)
        per_operator[name] = found["cpu"] / found["ops"]
        print(line(name, found), flush=True)
    for tail in (" once", ""):
        names = [f"llama x{layers}{tail}" for layers in (8, 80, 640) if f"llama x{layers}{tail}" in per_operator]
        if len(names) > 1:
            growth = ", ".join(f"{name} {1e3 * per_operator[name]:.2f} ms" for name in names)
            print(f"processor time per operator: {growth}")


if __name__ == "__main__":
    main()
