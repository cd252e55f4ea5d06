"""Writes docs/CASES.md: every public case, what it asks, and what the tests check of it.

`python -m tests.cases.page docs/CASES.md`
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from tests.cases.cases import Case, load_cases
from tests.cases.test_cases import DEVIATES, NOT_EXPRESSIBLE

HEAD = """\
# Cases: fusion decisions that went wrong elsewhere

Written by `python -m tests.cases.page docs/CASES.md` from the cases beside the checkout and the tables in
`tests/cases`. Each case is a public report on a compiler, told as a graph and as what a right plan does. Every
graph that is written out is planned on `a100` with a limit of 30 s; it must keep the limits of the device, cost
no more than its operators apart, and read only what is written. *Checked* are the demands beyond that. What the
plan does otherwise on purpose is argued below with the simulator's numbers, and a test fails when that changes.

| case | asks for | checked |
| --- | --- | --- |
"""
CHECKED = (
    "max_groups", "must_fuse", "must_not_fuse", "must_materialize", "max_recompute", "group_outputs", "group_limits",
)  # fmt: skip
ELSEWHERE = {
    "FC-001": "one cast and two give one plan; 64 KiB of shared memory",
    "FC-005": "64 KiB and 512 bytes of shared memory",
    "FC-010": "1, 2 and 2 kernels; **argued:** `cost_order`", "FC-016": "a gather is 500 times faster",
    "FC-020": "int8 weights of a thin product are widened in it; what is added grows with the columns",
    "FC-022": "heads of 64 and 128 in one kernel, of 512 in three, on `a100` and `h100`",
    "FC-038": "registers and time of the pack", "FC-046": "the tile of the result; 64 KiB of shared memory",
    "FC-050": "results", "FC-065": "8 and 24 narrow sources are written first", "FC-068": "a limit below the peak",
    "FC-077": "results; no maximum of nothing", "FC-079": "results", "FC-080": "results; kept axes make one kernel",
    "FC-082": "results", "FC-085": "results",
    "FC-083": "results; equality with a stored extreme (unit/test_codegen_cpu.py)",
    "FC-086": "results", "FC-091": "opaque, or refused by name", "FC-097": "on mobile-npu", "FC-098": "on mobile-npu",
    "FC-101": "on mobile-npu", "FC-026": "traffic", "FC-047": "traffic",
    "FC-070": "nothing gathered is written", "FC-071": "nothing gathered is written", "FC-064": "extents",
    "FC-094": "extents by name", "FC-014": "2 to 64 diamonds", "FC-040": "packed (planner/test_packs.py)",
    "FC-052": "argument bytes", "FC-053": "60 branches", "FC-056": "20 and 200 layers", "FC-058": "8 scatters",
    "FC-059": "120 operators", "FC-062": "ties", "FC-074": "order (unit/test_aliasing.py)",
    "FC-076": "order (unit/test_aliasing.py)",
}  # fmt: skip


def rows() -> Iterator[str]:
    """One line of the table per case."""
    for case in load_cases():
        keys = [key for key in CHECKED if _asked(case, key)] if case.written_out else []
        held = [key for key in keys if (case.id, key) not in DEVIATES]
        found = [", ".join(f"`{key}`" for key in held)] if held else []
        found += [f"**argued:** `{key}`" for key in keys if (case.id, key) in DEVIATES]
        found += [ELSEWHERE[case.id]] if case.id in ELSEWHERE else []
        yield f"| {case.id} | {case.title} | {'; '.join(found) or _rest(case)} |"


def _asked(case: Case, key: str) -> bool:
    """Whether the case asks for it beyond the limits of the profile, which hold for all."""
    return any(key != "group_limits" or "spill_bytes" in value for value in case.values(key))


def _rest(case: Case) -> str:
    if case.id in NOT_EXPRESSIBLE:
        return f"one clear error: {NOT_EXPRESSIBLE[case.id]}"
    return "a plan within the limits" if case.written_out else "nothing: its graph is not written out"


def page() -> str:
    """The whole page."""
    argued = [f"- **{case}** `{key}`: {why}." for (case, key), why in DEVIATES.items()]
    return HEAD + "\n".join(rows()) + "\n\n## Argued\n\n" + "\n".join(argued) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
