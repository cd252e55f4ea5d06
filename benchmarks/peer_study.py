"""What other compilers chose against the optimum: recorded partitions on two devices, as a page of documentation.

`python benchmarks/peer_study.py DIR` reads DIR/graphs/NAME.input.onnx and DIR/partitions/PEER.TARGET.NAME.json, prices
every partition on every profile and writes docs/PEER_STUDY.md; `--profiles a100,h100 -o FILE` changes that.
"""

import argparse
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from joblib import Parallel, delayed

from fusesolve.comparison import Comparison, Row, compare_planning
from fusesolve.errors import InputError
from fusesolve.peers import load_partition
from fusesolve.pipeline import PlanOptions, begin

PAGE = Path(__file__).parents[1] / "docs" / "PEER_STUDY.md"
TIME_S = 3600.0  # seconds of the clock for a graph: far above what it takes, however busy the machine is


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """All partitions of one graph on one profile; the first row is the optimum."""

    graph: str
    profile: str
    found: Comparison

    @property
    def best(self) -> Row:
        """The fastest partition of another compiler."""
        return min(self.found.rows[1:], key=lambda row: (row.ratio, row.name))


def study(folder: Path, profiles: Sequence[str], jobs: int) -> list[Result]:
    """Every graph on every profile, `jobs` at a time; a line on stderr each."""
    paths = sorted(folder.glob("graphs/*.input.onnx"))
    return list(Parallel(n_jobs=jobs)(delayed(_one)(folder, path, profile) for path in paths for profile in profiles))


def _one(folder: Path, path: Path, profile: str) -> Result:
    name = path.name.removesuffix(".input.onnx")
    partitions = [load_partition(file) for file in sorted(folder.glob(f"partitions/*.{name}.json"))]
    planning = begin(str(path), profile, PlanOptions(), time_limit=TIME_S)
    found = compare_planning(planning, strategies=["cpsat"], partitions=partitions)
    result = Result(graph=name, profile=profile, found=found)
    best = result.best
    print(f"{name} on {profile}: {found.status}, best {best.name} {best.ratio:.4f}", file=sys.stderr)
    return result


def page(results: Sequence[Result]) -> str:
    """The study as Markdown."""
    profiles = dict.fromkeys(result.profile for result in results)
    rows = [row for result in results for row in result.found.rows[1:]]
    below = [f"{row.name} on {r.graph}, {r.profile}" for r in results for row in r.found.rows[1:] if row.ratio < 1]
    means = [f"{_mean([r.best.ratio for r in results if r.profile == p]):.4f} on {p}" for p in profiles]
    lines = [
        "# What other compilers chose, against the optimum", "",
        f"Written by `python benchmarks/peer_study.py DIR`: {len(rows)} rows, each a partition that a compiler chose "
        "(read out of the compiler itself), priced by the simulator. [STRATEGIES.md](STRATEGIES.md) says how odd "
        "entries count. These are partitions, not speeds: each kernel gets the best tiling that the simulator knows.",
        "",
        "The fastest compiler on each graph takes, over the optimum and in the geometric mean of all graphs: "
        f"{', '.join(means)}. Rows faster than `cpsat`: {', '.join(below) or 'none'}.", "",
        *(line for profile in profiles for line in _section(profile, [r for r in results if r.profile == profile])),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _mean(ratios: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def _section(profile: str, results: Sequence[Result]) -> Iterator[str]:
    names = dict.fromkeys(row.name for result in results for row in result.found.rows[1:])
    heads = [f"{result.graph}" for result in results]
    yield f"## {profile}: time over the optimum"
    yield ""
    yield "A number in brackets: groups that are no kernels of the space, priced as their best legal parts."
    yield "The first row has the time of the optimum, and its kernels."
    yield ""
    yield f"| partition | {' | '.join(heads)} |"
    yield f"| --- |{' ---: |' * len(heads)}"
    optimum = [f"{r.found.rows[0].objective_ns / 1e3:.1f} us in {r.found.rows[0].kernels}" for r in results]
    yield f"| `cpsat` | {' | '.join(optimum)} |"
    for name in names:
        cells = [next((_cell(row) for row in r.found.rows if row.name == name), "-") for r in results]
        yield f"| {name} | {' | '.join(cells)} |"
    yield ""
    refused: dict[str, int] = {}
    for row in (row for result in results for row in result.found.rows[1:]):
        for item in row.illegal:
            refused[item.rule] = refused.get(item.rule, 0) + 1
    listed = ", ".join(f"`{rule}` {count}" for rule, count in sorted(refused.items(), key=lambda pair: -pair[1]))
    yield f"Groups that are no kernels, by the rule that refuses them: {listed or 'none'}."
    yield ""


def _cell(row: Row) -> str:
    return f"{row.ratio:.3f}" + (f" [{len(row.illegal)}]" if row.illegal else "")


def main() -> None:
    """Run the study and write its page."""
    parser = argparse.ArgumentParser(description="Partitions of other compilers against the optimum.")
    parser.add_argument("folder", type=Path, help="a folder with graphs/ and partitions/")
    parser.add_argument("--profiles", default="a100,h100", help="names of profiles with commas between")
    parser.add_argument("--jobs", type=int, default=2, help="graphs and profiles at a time; left out: 2")
    parser.add_argument("-o", "--output", type=Path, default=PAGE, help="the page; left out: docs/PEER_STUDY.md")
    given = parser.parse_args()
    try:
        results = study(given.folder, given.profiles.split(","), given.jobs)
    except InputError as error:
        sys.exit(f"error: {error}")
    if not results:
        sys.exit(f"error: no graphs/*.input.onnx in {given.folder}")
    given.output.write_text(page(results), encoding="utf-8")
    print(f"wrote {given.output}")


if __name__ == "__main__":
    main()
