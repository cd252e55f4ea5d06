"""Progress: what a line says, where it is shown, and where it is not."""

import io
from dataclasses import dataclass

from fusesolve.report.progress import progress, progress_line


@dataclass
class Event:
    stage: str
    incumbent: int | None = None
    bound: int | None = None
    candidates: int | None = None


def test_a_line_says_what_is_known():
    assert progress_line(Event("enumerate"), 1.25) == "enumerate: 1.2 s"
    assert progress_line(Event("price", candidates=1302), 2) == "price: 1,302 kernels, 2.0 s"
    # gap = (50,000 - 49,000) / 50,000 = 2 %
    assert progress_line(Event("solve", 50_000, 49_000), 3) == "solve: best 50 us, bound 49 us, gap 2.00 %, 3.0 s"


def test_no_gap_without_a_bound():
    assert "gap" not in progress_line(Event("solve", incumbent=50_000), 3)
    assert "gap" not in progress_line(Event("solve", bound=50_000), 3)


def test_a_log_has_one_line_a_change():
    stream = io.StringIO()
    with progress(stream, live=False, shown=True) as report:
        for event in (Event("solve"), Event("solve"), Event("solve", 10), Event("solve", 10), Event("check")):
            report(event)
    assert [line.split(",")[0].split(":")[0] for line in stream.getvalue().splitlines()] == ["solve", "solve", "check"]


def test_a_sparse_log_has_no_line_before_its_time_and_then_one_in_each_stretch(monkeypatch):
    clock = iter([0.0, 0.0, 1.0, 29.0, 30.0, 31.0, 59.0, 61.0, 99.0])
    monkeypatch.setattr("fusesolve.report.progress.time.monotonic", lambda: next(clock))
    stream = io.StringIO()
    with progress(stream, live=False, shown=True, every=30.0) as report:
        for done in range(8):
            report(Event(f"{done} of 8 points"))
    assert stream.getvalue().splitlines() == ["3 of 8 points: 30.0 s", "6 of 8 points: 61.0 s", "7 of 8 points: 99.0 s"]


def test_nothing_is_shown_where_nobody_looks():
    stream = io.StringIO()
    with progress(stream, live=True, shown=False) as report:
        assert report is None
    assert stream.getvalue() == ""


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_gets_a_live_line_that_goes_away(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    with progress(stream, live=True, shown=True) as report:
        report(Event("solve", 50_000, 49_000))
    shown = stream.getvalue()
    assert "gap 2.00 %" in shown
    assert shown.endswith("\x1b[2K") or "\x1b[2K" in shown.rpartition("gap")[2]
