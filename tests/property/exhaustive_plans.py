"""The best plan of a small graph by exhaustion, from the definition of the kernel space alone.

Every set of operators is judged by the legality rules and priced, with every choice of writes, and every set of
independent kernels as a pack; a shortest-path search over all states then finds the best plan. Growth, units, the memo,
dominance, column generation and the solver have no part in it. `python -m tests.property.exhaustive_plans 2000`
compares that many random graphs with random options and prints what they held.
"""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from fusesolve.candidates.loops import build_nest
from fusesolve.candidates.pricing import Priced, nanoseconds, price_workloads
from fusesolve.candidates.program import Program, build_program
from fusesolve.candidates.space import Space, inspect_group
from fusesolve.candidates.table import Kernel
from fusesolve.cost import PACKERS
from fusesolve.cost.table import PriceOptions, Prices
from fusesolve.graph import Graph
from fusesolve.group import TEMPLATES, FusionGroup, Template, Workload
from fusesolve.hardware import HardwareProfile
from fusesolve.hardware_yaml import load_profile
from fusesolve.legality import allowed
from fusesolve.pipeline import begin
from fusesolve.pipeline.columns import make_problem
from fusesolve.pipeline.memory import constant_bytes, live_bytes
from fusesolve.pipeline.options import PlanOptions
from fusesolve.solve import SolveResult
from fusesolve.solve.exhaustive import search_exhaustive
from tests.property.random_graphs import graphs, is_connected, is_convex

DEVICES = ("a100", "h100")
MOST_OPERATORS = 6
_PACKED = {Template.POINTWISE, Template.MOVEMENT, Template.ROW, Template.REDUCTION, Template.CONTRACTION}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A graph, a device and what is asked of the plan."""

    graph: Graph
    device: str
    options: PlanOptions


def descendants(program: Program) -> list[set[int]]:
    """Operators that need each operator, by their data."""
    found: list[set[int]] = [set() for _ in program.operators]
    for index in reversed(range(len(found))):
        for later in program.succs[index]:
            found[index] |= {later} | found[later]
    return found


def sets_of(program: Program) -> Iterator[tuple[int, ...]]:
    """Every connected set of operators, convex or not."""
    count = len(program.operators)
    for size in range(1, count + 1):
        yield from (m for m in combinations(range(count), size) if is_connected(program, m))


def write_choices(program: Program, members: tuple[int, ...], recompute: bool) -> Iterator[tuple[frozenset[int], bool]]:
    """What a kernel may write: all that others need, with recomputation less one or two values; every member of use.

    A set that is not convex leaves out the one or two values whose readers outside lead back into it.
    """
    inside, below = set(members), descendants(program)
    made = [program.storage[value] for m in members for value in program.operators[m].writes]
    needed = {s.index for s in made if s.required or set(s.readers) - inside}
    back = {s.index for s in made if any(r not in inside and below[r] & inside for r in s.readers)}
    if back and (not recompute or len(back) > 2):
        return
    ends = [set(program.operators[m].writes) for m in members if not set(program.succs[m]) & inside]
    for count in range(3 if recompute else 1):
        for dropped in combinations(sorted(needed), count):
            written = frozenset(needed.difference(dropped))
            if written and back <= set(dropped) and all(written & end for end in ends):
                yield written, not dropped


def kernels_of(program: Program, recompute: bool) -> tuple[list[Kernel], list[Workload]]:
    """Every kernel without packs, and its work."""
    kernels: list[Kernel] = []
    workloads: list[Workload] = []
    for members in sets_of(program):
        nest = build_nest(program, members)
        if not is_convex(program, members) and nest.heads:
            continue  # a contraction computes nothing for itself that comes back to it
        for writes, full in write_choices(program, members, recompute):
            group = inspect_group(program, nest, writes)
            if isinstance(group, FusionGroup):
                kernels.append(Kernel(
                    members=members, reads=group.reads, writes=group.writes, full=full, unique=len(workloads)
                ))  # fmt: skip
                workloads.append(group.workload)
    return kernels, workloads


def starts(program: Program, kernel: Kernel) -> int:
    """The longest data path, in operators, to what a kernel reads."""
    depth: list[int] = []
    for before in program.preds:
        depth.append(1 + max((depth[p] for p in before), default=0))
    made = [program.storage[value].producer for value in kernel.reads]
    return max((depth[p] for p in made if p is not None), default=0)


def independent_sets(program: Program, kernels: Sequence[Kernel]) -> Iterator[tuple[Kernel, ...]]:
    """All sets of two and more of the kernels that start at one level and need nothing of each other."""
    below = descendants(program)
    level = {kernel: starts(program, kernel) for kernel in kernels}

    def apart(first: Kernel, second: Kernel) -> bool:
        one, other = set(first.members), set(second.members)
        needs = any(below[m] & other for m in one) or any(below[m] & one for m in other)
        return not one & other and not needs and level[first] == level[second]

    def wider(chosen: tuple[Kernel, ...], rest: Sequence[Kernel]) -> Iterator[tuple[Kernel, ...]]:
        for place, kernel in enumerate(rest):
            grown = (*chosen, kernel)
            if chosen:
                yield grown
            yield from wider(grown, [other for other in rest[place + 1 :] if apart(kernel, other)])

    yield from wider((), kernels)


def packs_of(
    program: Program, kernels: Sequence[Kernel], workloads: Sequence[Workload], prices: Prices,
    profile: HardwareProfile, options: PriceOptions,
) -> Iterator[tuple[tuple[Kernel, ...], float]]:  # fmt: skip
    """Every pack with its latency (s): generated kernels, not split, of at most 12 launches, that spare something.

    Something is a tenth of a launch for each launch spared, and against one kernel of the same operators.
    """
    made = price_workloads(workloads, profile, options if options.implementation == "library" else replace(
        options, implementation="generated"))  # fmt: skip
    overhead = float((prices.terms["launch"] + prices.terms["floor"]).max())
    sound = (made.implementation == 0) & (made.tiling["split"] <= 1) & np.isfinite(made.latency)
    sound &= prices.latency <= 12 * overhead
    parts = [k for k in kernels if k.full and sound[k.unique] and TEMPLATES[workloads[k.unique].template] in _PACKED]
    alone = {k.members: prices.latency[k.unique] for k in kernels if k.full}
    for pack in independent_sets(program, parts):
        rows = np.array([[kernel.unique for kernel in sorted(pack, key=lambda k: k.members)]])
        latency = float(PACKERS["gpu"](made, rows, profile, options, lambda res: allowed(res, profile)).latency[0])
        apart = round(sum(round(1e9 * prices.latency[k.unique]) for k in pack)) * 1e-9
        as_one = alone.get(tuple(sorted(m for k in pack for m in k.members)), np.inf)
        if apart - latency > 0.1 * overhead * (len(pack) - 1) and latency < as_one - 0.1 * overhead:
            yield pack, latency


def keeps_pins(program: Program, kernel: Kernel, options: PlanOptions) -> bool:
    """Whether a kernel has all or nothing of each `together`, and no two names of an `apart`."""
    names = {program.graph.nodes[program.operators[m].node].source for m in kernel.members}
    whole = all(not names & set(pin) or set(pin) <= names for pin in options.together)
    return whole and all(len(names & set(pin)) <= 1 for pin in options.apart)


def best_by_exhaustion(case: Case) -> tuple[int | None, bool]:
    """The least cost (ns) of any plan, None where there is none; and whether that plan packs."""
    program, profile, options = build_program(case.graph), load_profile(case.device), case.options
    chosen = PriceOptions(launch=options.launch, implementation=options.implementation)
    kernels, workloads = kernels_of(program, options.recompute)
    prices = price_workloads(workloads, profile, chosen)
    cost = list(nanoseconds(prices))
    for pack, latency in list(packs_of(program, kernels, workloads, prices, profile, chosen)):
        sums = {n: tuple(sorted({x for k in pack for x in getattr(k, n)})) for n in ("members", "reads", "writes")}
        kernels.append(Kernel(**sums, full=True, unique=len(cost)))
        cost.append(max(1, round(latency * 1e9)))
    space = Space(
        program=program, kernels=tuple(kernels), workloads=tuple(workloads), templates=(), cut_by=(), walked=0
    )
    priced = Priced(space=space, prices=prices, cost_ns=tuple(cost), profile=profile, options=chosen)
    kept = [kernel for kernel in kernels if keeps_pins(program, kernel, options)]
    columns = make_problem(
        priced, kept, recompute=options.recompute, max_kernels=options.max_kernels, max_memory=options.max_memory
    )
    found = search_exhaustive(columns.problem)
    packs = found is not None and any(columns.kernels[i].unique >= len(workloads) for i in found[2])
    return None if found is None else found[0], packs


def planned(case: Case) -> SolveResult:
    """What the planner finds."""
    return begin(case.graph, case.device, case.options, time_limit=None, workers=1).solve()[1]


@st.composite
def cases(draw) -> Case:
    """Random graphs with random options; extents from tiny to such that bytes count as much as launches."""
    kinds = draw(st.sampled_from((
        ("unary", "binary", "reduce", "broadcast", "scale"), ("unary", "unary", "binary", "scale", "cast"),
        ("unary", "matmul", "sibling", "binary"), ("slice", "transpose", "binary", "unary", "reduce", "cast"),
    )))  # fmt: skip
    graph = draw(graphs(most=MOST_OPERATORS, kinds=kinds, scale=draw(st.sampled_from((1, 40, 300)))))
    names = [node.source for node in graph.nodes]
    pair = st.lists(st.sampled_from(names), min_size=2, max_size=2, unique=True).map(lambda two: (tuple(two),))
    pins = st.one_of(st.just(()), pair) if len(names) > 1 else st.just(())
    together = draw(pins)
    options = PlanOptions(
        recompute=draw(st.sampled_from((True, True, True, False))), launch=draw(st.sampled_from(("stream", "graph"))),
        implementation=draw(st.sampled_from(("best", "best", "generated", "library"))),
        together=together, apart=() if together else draw(pins),
        max_memory=draw(st.one_of(st.none(), limits(graph))),
    )  # fmt: skip
    return Case(graph=graph, device=draw(st.sampled_from(DEVICES)), options=options)


def limits(graph: Graph) -> st.SearchStrategy[int]:
    """Memory limits between what is always live and what all intermediates take."""
    program = build_program(graph)
    low = constant_bytes(program)
    sizes = [live_bytes(program, s.index) for s in program.storage]
    return st.integers(0, 8).map(lambda part: max(1, low + part * sum(sizes) // 8))


def assert_agrees(case: Case) -> tuple[int | None, bool]:
    """The planner's objective and bound are the optimum, or it knows that there is no plan."""
    expected, packs = best_by_exhaustion(case)
    result = planned(case)
    assert (result.objective, result.bound) == (expected, expected), (expected, result, case.options, case.device)
    return expected, packs


def main(count: int) -> None:
    """Compare `count` random cases and print what was in play."""
    seen: Counter[str] = Counter()

    @settings(max_examples=count, deadline=None, database=None, phases=[Phase.generate, Phase.shrink],
              suppress_health_check=list(HealthCheck), derandomize=True)  # fmt: skip
    @given(cases())
    def compare(case: Case) -> None:
        expected, packs = assert_agrees(case)
        seen.update(
            graphs=1, recomputation=case.options.recompute, packs=packs, infeasible=expected is None,
            pins=bool(case.options.together or case.options.apart), memory=case.options.max_memory is not None,
        )  # fmt: skip

    compare()
    sys.stdout.write(", ".join(f"{name} {number}" for name, number in seen.items()) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
