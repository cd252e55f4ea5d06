"""The report on a plan: what each line says, and that it fits the width it is given."""

import pytest

from fusesolve.report.table import conflict_lines, plan_table, summary

LONG = tuple(f"/encoder/layer.{layer}/attention/self/query/MatMul_{layer}" for layer in range(12))


def report(plan, width=160):
    return plan_table(plan, width=width, colour=False)


def line_of(text, start):
    lines = [" ".join(line.split()) for line in text.splitlines()]
    (found,) = [line for line in lines if line.startswith(start)]
    return found


def test_each_kernel_is_one_line_with_its_numbers(plan_with):
    text = report(plan_with())
    assert line_of(text, "0 softmax") == "0 softmax row 100 us dram 256MiB 40 16KiB 75%"
    assert line_of(text, "1 relu") == "1 relu pointwise 50 us dram 256MiB 40 - 75%"


def test_the_total_stands_against_one_kernel_an_operator(plan_with):
    assert line_of(report(plan_with()), "total") == "total 150 us in 2 kernels; unfused 450 us, 3.00 x"


def test_bytes_and_memory_stand_against_unfused(plan_with):
    text = report(plan_with())
    assert line_of(text, "DRAM") == "DRAM 512 MiB, unfused 1 GiB (50 %)"
    assert line_of(text, "peak memory") == "peak memory 384 MiB, unfused 384 MiB (100 %)"


def test_an_optimum_names_the_space_it_is_proven_over(plan_with):
    assert line_of(report(plan_with()), "proof") == "proof optimal over 1,302 kernels"


@pytest.mark.parametrize(
    ("gap", "shown"), [(0.004, "0.4 %"), (0.00401, "0.41 %"), (0.00001, "0.01 %"), (0.1, "10 %"), (0.0, "0 %")]
)
def test_a_gap_is_rounded_up_never_down(plan_with, gap, shown):
    text = report(plan_with(status="FEASIBLE", gap=gap, bound_ns=149_000))
    assert line_of(text, "proof") == f"proof within {shown} of the best over 1,302 kernels"


def test_a_missing_bound_is_not_a_gap_of_zero(plan_with):
    text = report(plan_with(status="FEASIBLE", gap=None, bound_ns=None, options={"strategy": "greedy"}))
    assert line_of(text, "proof") == "proof none: greedy gives no bound; --strategy cpsat does"


def test_the_search_is_told_by_stage(plan_with):
    assert line_of(report(plan_with()), "search") == "search 0.50 s (import 0.01, solve 0.25)"
    assert line_of(report(plan_with(seconds={"solve": 1.0})), "search") == "search seconds: solve 1.00"


def test_a_cut_space_is_said(plan_with):
    space = plan_with().space.__class__(candidates=10, truncated=True, cut_by=("group size",), regions=2)
    assert "the space was cut by group size" in report(plan_with(space=space))


def test_marks_appear_only_where_they_mean_something(plan_with, group_with):
    plain = report(plan_with())
    marked = report(plan_with(groups=(group_with(recomputed=("softmax",), uncertain=True, spill_bytes=64),)))
    assert not any(mark in plain for mark in ("* computed", "? the gain", "! registers"))
    assert line_of(marked, "0 softmax*") == "0 softmax* row 100 us? dram 256MiB 40! 16KiB 75%"
    assert all(mark in marked for mark in ("* computed", "? the gain", "! registers"))


def test_what_a_device_does_not_have_is_a_dash(plan_with, group_with):
    bare = group_with(registers_per_thread=None, shared_bytes=None, spill_bytes=None, occupancy=None, threads=None)
    assert line_of(report(plan_with(groups=(bare,))), "0 softmax") == "0 softmax row 100 us dram 256MiB - - -"


def test_warnings_and_conflicts_are_listed(plan_with, infeasible):
    assert line_of(report(plan_with(warnings=("LSTM is opaque",))), "warning") == "warning LSTM is opaque"
    text = report(infeasible)
    assert "no plan" in text.splitlines()[0]
    assert line_of(text, "conflict") == "conflict --max-kernels 1: at least 2 kernels are needed"
    assert line_of(text, "proof") == "proof infeasible: no plan exists over 1,302 kernels"
    assert conflict_lines(infeasible) == ["--max-kernels 1: at least 2 kernels are needed"]


@pytest.mark.parametrize("width", [60, 80, 100, 160, 240])
def test_no_line_is_wider_than_asked_and_no_kernel_is_wrapped(plan_with, group_with, width):
    groups = tuple(
        group_with(id=number, nodes=LONG[: number + 1], template="contraction", bound_by="shared")
        for number in range(12)
    )
    lines = report(plan_with(groups=groups, warnings=("a long warning " * 20,)), width).splitlines()
    assert max(map(len, lines)) <= width
    kernels = [line for line in lines if line.split() and line.split()[0].isdigit()]
    assert len(kernels) == 12
    if width >= 80:
        assert all("256MiB" in line and "75%" in line for line in kernels)


def test_piped_text_has_no_escapes_and_a_terminal_has(plan_with):
    assert "\x1b" not in report(plan_with())
    assert "\x1b" in plan_table(plan_with(), width=100, colour=True)


def test_names_that_look_like_markup_are_shown_as_they_are(plan_with, group_with):
    assert "[bold]x[/bold]" in report(plan_with(groups=(group_with(nodes=("[bold]x[/bold]",)),)))


def test_the_summary_is_one_line(plan_with, infeasible):
    assert summary(plan_with()) == (
        "two_kernels on H100 SXM: 2 kernels, 150 us predicted, 3.00 x the speed of unfused; "
        "optimal over 1,302 kernels"
    )
    assert "\n" not in summary(infeasible)
