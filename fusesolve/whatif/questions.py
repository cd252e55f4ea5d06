"""Questions about every base point of a study: thresholds, sensitivities, searches; the answers as plain documents."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fusesolve.pipeline.options import PlanOptions, Report
from fusesolve.whatif.axes import Range
from fusesolve.whatif.evaluate import open_bench
from fusesolve.whatif.executors import Resources, execute
from fusesolve.whatif.points import Point, Study, Subject
from fusesolve.whatif.remaining import teller
from fusesolve.whatif.search import find_value
from fusesolve.whatif.sensitivity import Base, TrialPart, Tried, judge, plan_trials, try_out
from fusesolve.whatif.thresholds import find_thresholds

TRIALS_PER_PART = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One number's range on one base point; `target_ns` None asks for thresholds, else for the value that meets it."""

    subject: Subject
    point: Point
    options: PlanOptions
    span: Range
    resolution: float | None
    target_ns: int | None = None
    largest: bool = False


def answer(question: Question) -> dict[str, Any]:
    """The answer as plain data; runs in any process that has fusesolve."""
    bench = open_bench(question.subject, question.options)
    profile, name = question.point.profile, question.point.hardware
    if question.target_ns is None:
        return find_thresholds(bench, profile, question.span, resolution=question.resolution, hardware=name).to_dict()
    return find_value(
        bench, profile, question.span, question.target_ns, largest=question.largest, resolution=question.resolution,
        hardware=name,
    ).to_dict()  # fmt: skip


def ask_thresholds(
    study: Study, span: Range, resources: Resources, *, resolution: float | None = None, progress: Report | None = None
) -> dict[str, Any]:
    """The `fusesolve-thresholds/1` document: where the plan changes along `span`, for each point of the study.

    A study over one more number makes a map: its points are the lines.
    """
    question = _asker(study, span, resolution)
    lines = _ask_all(study, [question(point) for point in study.points], resources, progress)
    return {"format": "fusesolve-thresholds/1", **_paths(study, span), "lines": lines}


def ask_value(
    study: Study, span: Range, target_ns: int, resources: Resources, *, largest: bool = False,
    resolution: float | None = None, progress: Report | None = None,
) -> dict[str, Any]:  # fmt: skip
    """The `fusesolve-search/1` document: the smallest (largest) value of `span` that meets `target_ns`, for each point.

    Raises NoPlanError where a point has none.
    """
    question = _asker(study, span, resolution)
    asked = [replace(question(point), target_ns=target_ns, largest=largest) for point in study.points]
    return {
        "format": "fusesolve-search/1", **_paths(study, span), "lines": _ask_all(study, asked, resources, progress)
    }  # fmt: skip


def ask_sensitivity(study: Study, resources: Resources, *, progress: Report | None = None) -> dict[str, Any]:
    """The `fusesolve-sensitivity/1` document: what 1 % of each number buys, for each point of the study."""
    trials = [plan_trials(point) for point in study.points]
    parts: list[TrialPart] = []
    owner: list[int] = []
    for place, (point, asked) in enumerate(zip(study.points, trials, strict=True)):
        for start in range(0, len(asked.trials), TRIALS_PER_PART):
            parts.append(TrialPart(
                subject=study.subjects[point.subject], options=study.options, base=point.profile,
                trials=asked.trials[start : start + TRIALS_PER_PART],
            ))  # fmt: skip
            owner.append(place)
    found: dict[int, tuple[Base, list[Tried]]] = {}
    tell = teller("parts", len(parts), 0, progress)
    with execute(try_out, parts, resources) as results:
        for number, result in results:
            found[number] = result
            tell(1)
    lines = []
    for place, point in enumerate(study.points):
        mine = [found[number] for number in range(len(parts)) if owner[number] == place]
        line = judge(point, trials[place], mine[0][0], [item for _, tried in mine for item in tried])
        lines.append(_with_numbers(study, place, {"graph": study.subjects[point.subject].graph.name, **line}))
    return {"format": "fusesolve-sensitivity/1", "set": [number.path for number in study.paths], "lines": lines}


def _asker(study: Study, span: Range, resolution: float | None) -> Callable[[Point], Question]:
    def question(point: Point) -> Question:
        span.ends(point.profile)
        return Question(
            subject=study.subjects[point.subject], point=point, options=study.options, span=span, resolution=resolution
        )

    return question


def _paths(study: Study, span: Range) -> dict[str, Any]:
    return {
        "path": span.number.path, "dimension": span.number.dimension.value,
        "set": [number.path for number in study.paths],
    }  # fmt: skip


def _ask_all(
    study: Study, questions: Sequence[Question], resources: Resources, progress: Report | None
) -> list[dict[str, Any]]:
    """The answers in the order of the questions, with the swept numbers of their points."""
    found: dict[int, dict[str, Any]] = {}
    tell = teller("lines", len(questions), 0, progress)
    with execute(answer, questions, resources) as answers:
        for place, line in answers:
            found[place] = _with_numbers(study, place, line)
            tell(1)
    return [found[place] for place in range(len(questions))]


def _with_numbers(study: Study, place: int, line: dict[str, Any]) -> dict[str, Any]:
    numbers = dict(zip((number.path for number in study.paths), study.points[place].numbers, strict=True))
    return {**line, "set": numbers}
