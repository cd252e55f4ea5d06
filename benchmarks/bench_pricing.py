"""How fast candidates are found and priced: candidate-tilings a second, and growth from 1 to 12 layers of GPT-2.

`python benchmarks/bench_pricing.py [LAYERS...]` (default: 1 2 3 4 6 8 12). All numbers of one run, on this machine.
"""

import sys
import time
from pathlib import Path
from statistics import median

from fusesolve.candidates.pricing import price_space, price_workloads
from fusesolve.candidates.program import build_program
from fusesolve.candidates.space import enumerate_kernels
from fusesolve.cost.table import PriceOptions
from fusesolve.group import TEMPLATES, Workload
from fusesolve.hardware_yaml import load_profile
from fusesolve.pipeline import plan

sys.path.insert(0, str(Path(__file__).parents[1] / "graphs"))

from transformers import gpt2

TARGET = 200_000  # candidate-tilings a second on two cores
REPEATS = 5


def rate(workloads: list[Workload], name: str) -> tuple[int, float]:
    """Candidate-tilings of one pricing, and the median of their rate per second over several."""
    device, options = load_profile(name), PriceOptions()
    rates, count = [], 0
    for _ in range(REPEATS):
        start = time.perf_counter()
        count = price_workloads(workloads, device, options).tilings
        rates.append(count / (time.perf_counter() - start))
    return count, median(rates)


def print_rates() -> None:
    """Rates over all workloads of a GPT-2 layer, and over those of each template."""
    space = enumerate_kernels(build_program(gpt2(1).graph()), recompute=True)
    print(f"{'workloads':<24} {'device':<12} {'number':>8} {'tilings':>10} {'per second':>12} {'of target':>10}")
    rows = [("all", list(space.workloads))]
    for index, template in enumerate(TEMPLATES):
        chosen = [w for w in space.workloads if w.template == index]
        if len(chosen) >= 50:
            rows.append((template.value, chosen))
    for label, chosen in rows:
        for name in ("a100", "mobile-npu"):
            count, speed = rate(chosen, name)
            print(f"{label:<24} {name:<12} {len(chosen):>8,} {count:>10,} {speed:>12,.0f} {speed / TARGET:>9.1f}x")


def print_growth(layers: list[int]) -> None:
    """Candidates and seconds of each stage for a growing number of layers, with and without recomputation."""
    device = load_profile("a100")
    print(
        f"\n{'layers':>6} {'again':>6} {'operators':>9} {'candidates':>10} {'unique':>7} {'walked':>7} "
        f"{'enumerate':>9} {'price':>7} {'solve':>7} {'status':>9} {'gap':>8}"
    )
    for count in layers:
        graph = gpt2(count).graph()
        for recompute in (False, True):
            program = build_program(graph)
            start = time.perf_counter()
            space = enumerate_kernels(program, recompute=recompute)
            grown = time.perf_counter()
            price_space(space, device, PriceOptions())
            priced = time.perf_counter()
            found = plan(graph, device, recompute=recompute)
            gap = "-" if found.gap is None else f"{found.gap:.3%}"
            print(
                f"{count:>6} {'yes' if recompute else 'no':>6} {len(program.operators):>9,} {len(space.kernels):>10,} "
                f"{len(space.workloads):>7,} {space.walked:>7,} {grown - start:>9.2f} {priced - grown:>7.2f} "
                f"{found.seconds['solve']:>7.2f} {found.status:>9} {gap:>8}",
                flush=True,
            )


if __name__ == "__main__":
    print_rates()
    print_growth([int(item) for item in sys.argv[1:]] or [1, 2, 3, 4, 6, 8, 12])
