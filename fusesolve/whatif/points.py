"""The points of a sweep: graphs x profiles x values, each a checked profile of its own."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import ceil, prod
from typing import Any

from fusesolve import __version__
from fusesolve.errors import InputError
from fusesolve.graph import Graph
from fusesolve.hardware import HardwareProfile, replace_leaf
from fusesolve.hardware_yaml import NumberPath, profile_from_definition
from fusesolve.importers.native import native_document
from fusesolve.pipeline.devices import fit_graph
from fusesolve.pipeline.options import PlanOptions
from fusesolve.whatif.axes import Axis

MOST_POINTS = 1_000_000
MOST_BLOCKS = 64  # a sweep is cut into at most this many blocks of 16 points, then into more of them
BLOCK_POINTS = 16
SHOWN_PROBLEMS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A graph in the types that a device computes in, with the hash of its definition."""

    graph: Graph
    sha256: str
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One row to be: the subject's number, the name of the profile it started from, the profile, the swept numbers."""

    subject: int
    hardware: str
    profile: HardwareProfile
    numbers: tuple[float | int | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Neighbouring points of one graph, worked out in order by one process; what comes out depends on nothing else."""

    index: int
    subject: Subject
    points: tuple[Point, ...]
    options: PlanOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """All points of a sweep in the order of its rows: by graph, then profile, then value, the last path fastest."""

    paths: tuple[NumberPath, ...]
    subjects: tuple[Subject, ...]
    points: tuple[Point, ...]
    options: PlanOptions

    def blocks(self) -> Iterator[Block]:
        """The points in blocks; how they are cut depends on their number alone."""
        size = min(BLOCK_POINTS, ceil(len(self.points) / MOST_BLOCKS))
        start = 0
        for index, stop in enumerate(self._cuts(size)):
            points = self.points[start:stop]
            yield Block(index=index, subject=self.subjects[points[0].subject], points=points, options=self.options)
            start = stop

    def _cuts(self, size: int) -> Iterator[int]:
        """Where blocks end: after `size` points, and where the graph changes."""
        start = 0
        for place in range(1, len(self.points) + 1):
            last = place == len(self.points)
            if last or place - start == size or self.points[place].subject != self.points[start].subject:
                yield place
                start = place

    @property
    def sha256(self) -> str:
        """A hash of everything that the rows depend on."""
        body = {
            "version": __version__, "options": self.options.to_dict(), "paths": [p.path for p in self.paths],
            "points": [
                [self.subjects[p.subject].sha256, p.hardware, p.profile.sha256, p.numbers] for p in self.points
            ],
        }  # fmt: skip
        return _sha256(body)


def build_study(
    graphs: Sequence[Graph], profiles: Sequence[HardwareProfile], axes: Sequence[Axis], options: PlanOptions, *,
    zipped: bool = False,
) -> Study:  # fmt: skip
    """Every graph on every profile with every value of the axes: crossed, or in step where `zipped`.

    Raises one InputError with the problems of all points: each is checked as a profile file would be.
    """
    paths = [axis.number.path for axis in axes]
    if len(set(paths)) < len(paths):
        raise InputError(f"--set gives {next(p for p in paths if paths.count(p) > 1)} twice; give it once")
    variants = [_variants(profile, axes, zipped=zipped) for profile in profiles]
    count = len(graphs) * sum(map(len, variants))
    if count > MOST_POINTS:
        raise InputError(f"the sweep has {count:,} points, at most {MOST_POINTS:,} are allowed; take fewer steps")
    changed = [_profiles(profile, axes, found) for profile, found in zip(profiles, variants, strict=True)]
    problems = list(dict.fromkeys(text for _, found in changed for text in found))
    if problems:
        raise InputError(_all_problems(problems))
    subjects: list[Subject] = []
    points: list[Point] = []
    for graph in graphs:
        for profile, (found, _) in zip(profiles, changed, strict=True):
            number = _subject(subjects, graph, profile)
            points += [replace(point, subject=number) for point in found]
    return Study(
        paths=tuple(axis.number for axis in axes), subjects=tuple(subjects), points=tuple(points), options=options
    )


def set_numbers(profile: HardwareProfile, values: Mapping[str, str | int]) -> HardwareProfile:
    """`profile` with the leaves at dotted paths set at once, checked as a whole; raises InputError."""
    definition: Mapping[str, Any] = profile.definition
    for path, text in values.items():
        definition = replace_leaf(definition, path, text)
    said = ", ".join(f"{path} = {text}" for path, text in values.items())
    return profile_from_definition(definition, f"{profile.name} with {said}" if said else profile.name)


def _variants(profile: HardwareProfile, axes: Sequence[Axis], *, zipped: bool) -> list[tuple[str | int, ...]]:
    columns = [axis.texts(profile) for axis in axes]
    if not zipped:
        if prod(map(len, columns)) > MOST_POINTS:
            raise InputError(f"the sweep has more than {MOST_POINTS:,} points on {profile.name}; take fewer steps")
        return list(product(*columns))
    lengths = {axis.number.path: len(column) for axis, column in zip(axes, columns, strict=True)}
    if len(set(lengths.values())) > 1:
        said = ", ".join(f"{path} has {count}" for path, count in lengths.items())
        raise InputError(f"--zip takes the values of all --set in step: {said}; give each the same number")
    return list(zip(*columns, strict=True))


def _profiles(
    profile: HardwareProfile, axes: Sequence[Axis], variants: Sequence[tuple[str | int, ...]]
) -> tuple[list[Point], list[str]]:
    """The points of one profile, and all that is wrong with any of them."""
    points: list[Point] = []
    problems: list[str] = []
    for texts in variants:
        values = {axis.number.path: text for axis, text in zip(axes, texts, strict=True)}
        try:
            changed = set_numbers(profile, values) if values else profile
        except InputError as error:
            problems.append(str(error))
            continue
        numbers = tuple(_number(axis.number, changed) for axis in axes)
        points.append(Point(subject=0, hardware=profile.name, profile=changed, numbers=numbers))
    return points, problems


def _number(number: NumberPath, profile: HardwareProfile) -> float | int | None:
    found = number.of(profile)
    return int(found) if found is not None and number.whole else found


def _all_problems(texts: Sequence[str]) -> str:
    more = len(texts) - SHOWN_PROBLEMS
    return "\n".join([*texts[:SHOWN_PROBLEMS], *([f"and {more} more points with problems"] if more > 0 else [])])


def _subject(subjects: list[Subject], graph: Graph, profile: HardwareProfile) -> int:
    """The number of the graph as the device computes it, added where it is new."""
    fitted, warnings = fit_graph(graph, profile)
    digest = _sha256(native_document(fitted))
    for number, known in enumerate(subjects):
        if known.sha256 == digest and known.graph.name == fitted.name:
            return number
    subjects.append(Subject(graph=fitted, sha256=digest, warnings=(*warnings, *fitted.warnings)))
    return len(subjects) - 1


def _sha256(body: Any) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
