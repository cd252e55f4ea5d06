"""How far each fusion policy is from the optimum: strategies x bundled graphs x profiles, as a page of documentation.

`python benchmarks/gap_study.py` takes every bundled graph on ten devices of five generations and writes
docs/GAP_STUDY.md; `--profiles a100,h100 --graphs gpt2_block,softmax -o FILE` narrows it.
"""

import argparse
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from joblib import Parallel, delayed

from fusesolve.candidates.pricing import price_space
from fusesolve.comparison import Row, compare_planning
from fusesolve.errors import InputError
from fusesolve.hardware_yaml import load_profile
from fusesolve.importers import bundled_graphs
from fusesolve.pipeline import Planning, PlanOptions, begin
from fusesolve.pipeline.planning import Clock
from fusesolve.pipeline.policy import STRATEGY_NAMES

PAGE = Path(__file__).parents[1] / "docs" / "GAP_STUDY.md"
COMMAND = "python benchmarks/gap_study.py"
PROFILES = ("v100", "t4", "a100", "rtx-3090", "l4", "rtx-4090", "h100", "b200", "mi300x", "hexagon")
TIME_S = 3600.0  # seconds of the clock for a problem: far above what it takes, however busy the machine is


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One strategy on one graph and profile; `proven`: the optimum is."""

    graph: str
    profile: str
    row: Row
    proven: bool


def plannings(graph: str, profiles: Sequence[str]) -> Iterator[tuple[str, Planning]]:
    """The graph priced on each profile; its kernel space is enumerated once for each choice of element types."""
    spaces: dict[str, Planning] = {}  # by kind of device: an NPU plans f32 graphs as f16
    for name in profiles:
        profile = load_profile(name)
        known = spaces.get(profile.kind)
        if known is None:
            planning = spaces[profile.kind] = begin(graph, profile, PlanOptions(), time_limit=TIME_S)
        else:
            priced = price_space(known.priced.space, profile, known.priced.options)
            planning = replace(known, profile=profile, priced=priced, clock=Clock(limit=TIME_S))
        yield name, planning


def study(graphs: Sequence[str], profiles: Sequence[str], jobs: int) -> Iterator[Result]:
    """All strategies on all graphs and profiles, `jobs` graphs at a time; a line on stderr for each pair."""
    made = Parallel(n_jobs=jobs, return_as="generator")(delayed(_of_graph)(graph, profiles) for graph in graphs)
    for results in made:
        yield from results


def _of_graph(graph: str, profiles: Sequence[str]) -> list[Result]:
    results: list[Result] = []
    for name, planning in plannings(graph, profiles):
        found = compare_planning(planning)
        worst = max(found.rows, key=lambda row: row.ratio)
        print(f"{graph} on {name}: {found.status}, worst {worst.name} {worst.ratio:.2f}", file=sys.stderr)
        results += [
            Result(graph=graph, profile=name, row=row, proven=found.status == "OPTIMAL") for row in found.rows
        ]  # fmt: skip
    return results


def _mean(ratios: Iterable[float]) -> float:
    logs = [math.log(ratio) for ratio in ratios]
    return math.exp(sum(logs) / len(logs))


def _over(ratio: float) -> str:
    return f"{100 * (ratio - 1):.1f} %"


def page(results: Sequence[Result], graphs: Sequence[str], profiles: Sequence[str], command: str) -> str:
    """The study as Markdown."""
    problems = len(graphs) * len(profiles)
    unproven = sorted({(r.graph, r.profile) for r in results if not r.proven})
    below = [r for r in results if r.row.ratio < 1]
    names = _names(results)
    by_device = [_cells(p, [r for r in results if r.profile == p], names) for p in profiles]
    by_graph = [_cells(g, [r for r in results if r.graph == g], names) for g in graphs]
    lines = [
        "# How far each fusion policy is from the optimum", "",
        f"Written by `{command}`: every strategy on {len(graphs)} bundled graphs and {len(profiles)} profiles, "
        f"{problems} problems. Times are predicted by the simulator, one stream, stream launches.",
        "The distance of a policy is its plan's time over that of `cpsat`, less one; means are geometric. "
        "[STRATEGIES.md](STRATEGIES.md) has each policy's rules, sources, and what was left out of them.", "",
        f"`cpsat` is the proven optimum of the stated kernel space in {problems - len(unproven)} of the {problems} "
        f"problems{_listed(f'{g} on {p}' for g, p in unproven)}.",
        f"A policy is faster than `cpsat` in {len(below)} of {len(results)} rows"
        f"{_listed(f'{r.row.name} on {r.graph}, {r.profile} ({r.row.ratio:.4f})' for r in below)}.", "",
        "## By policy", "",
        *_table(["policy", "mean", "median", "worst", "worst case", "at the optimum", "no kernels"],
                [_policy_row(name, results) for name in names]),
        "", "*At the optimum*: share of the problems in which the policy finds a plan as fast as the optimum. *No "
        "kernels*: share of its groups that are no kernels of the space or the device; they are priced as their best "
        "legal parts.", "",
        "## By device: mean, and worst", "", *_table(["device", *names], by_device), "",
        "## By graph: mean, and worst", "", *_table(["graph", *names], by_graph),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _listed(items: Iterable[str]) -> str:
    text = ", ".join(items)
    return f": {text}" if text else ""


def _names(results: Sequence[Result]) -> list[str]:
    """Policies, nearest to the optimum first."""
    names = dict.fromkeys(r.row.name for r in results if r.row.name != "cpsat")
    return sorted(names, key=lambda name: _mean(r.row.ratio for r in results if r.row.name == name))


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    ruler = ["---", *("---:" for _ in head[1:])]
    return [f"| {' | '.join(cells)} |" for cells in (head, ruler, *rows)]


def _policy_row(name: str, results: Sequence[Result]) -> list[str]:
    own = [r for r in results if r.row.name == name]
    ratios = sorted(r.row.ratio for r in own)
    worst = max(own, key=lambda r: r.row.ratio)
    best = sum(ratio <= 1.0 + 1e-9 for ratio in ratios)
    groups = sum(r.row.groups for r in own)
    illegal = sum(len(r.row.illegal) for r in own)
    return [
        name, _over(_mean(ratios)), _over(ratios[len(ratios) // 2]), _over(worst.row.ratio),
        f"{worst.graph} on {worst.profile}", f"{100 * best / len(own):.0f} %", f"{100 * illegal / groups:.1f} %",
    ]  # fmt: skip


def _cells(head: str, part: Sequence[Result], names: Sequence[str]) -> list[str]:
    cells = [head]
    for name in names:
        ratios = [r.row.ratio for r in part if r.row.name == name]
        cells.append(f"{_over(_mean(ratios))}, {_over(max(ratios))}")
    return cells


def main() -> None:
    """Run the study and write its page."""
    parser = argparse.ArgumentParser(description="Distance of every fusion policy from the optimum.")
    parser.add_argument("--graphs", default="", help="names of bundled graphs with commas between; left out: all")
    parser.add_argument("--profiles", default="", help="names of profiles with commas between")
    parser.add_argument("--jobs", type=int, default=2, help="graphs at a time; left out: 2")
    parser.add_argument("-o", "--output", type=Path, default=PAGE, help="the page; left out: docs/GAP_STUDY.md")
    given = parser.parse_args()
    graphs = [name for name in given.graphs.split(",") if name] or bundled_graphs()
    profiles = [name for name in given.profiles.split(",") if name] or list(PROFILES)
    chosen = [("--graphs", given.graphs), ("--profiles", given.profiles)]
    command = " ".join([COMMAND, *(f"{option} {value}" for option, value in chosen if value)])
    try:
        results = list(study(graphs, profiles, given.jobs))
    except InputError as error:
        sys.exit(f"error: {error}")
    given.output.write_text(page(results, graphs, profiles, command), encoding="utf-8")
    print(f"wrote {given.output}: {len(results)} rows of {', '.join(STRATEGY_NAMES)}")


if __name__ == "__main__":
    main()
