"""The difference of two plans: kernels merged, split, regrouped and re-tiled, and what each change costs or saves."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fusesolve.errors import InputError
from fusesolve.importers.native import parse_native
from fusesolve.plan import FORMAT as PLAN_FORMAT
from fusesolve.plan import Plan

FORMAT = "fusesolve-diff/1"
_GROUP_KEYS = ("id", "nodes", "tiling", "template", "implementation", "latency_ns", "dram_bytes", "terms_ns")
_SIDE = ("status", "objective_ns", "dram_bytes", "peak_memory_bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Kernels of the left plan that became others in the right one.

    `kind`: `merged` (several became one), `split` (one became several), `regrouped` (several became several, or one of
    other operators), `retiled` (the same operators, another tiling, template or implementation), `repriced` (the same
    kernel, another time: another device or option). `left`, `right`: kernel numbers. Times in ns, right minus left.
    `terms_ns`: terms whose totals differ, each before the terms overlap.
    """

    kind: str
    left: tuple[int, ...]
    right: tuple[int, ...]
    nodes: tuple[str, ...]
    left_ns: int
    right_ns: int
    delta_dram_bytes: int
    terms_ns: Mapping[str, int]
    left_tiling: tuple[Mapping[str, Any], ...]
    right_tiling: tuple[Mapping[str, Any], ...]

    @property
    def delta_ns(self) -> int:
        """Right minus left in ns: negative where the right plan is faster."""
        return self.right_ns - self.left_ns

    def to_dict(self) -> dict[str, Any]:
        """As plain data, keys in a fixed order."""
        return {
            "kind": self.kind, "left": list(self.left), "right": list(self.right), "nodes": list(self.nodes),
            "left_ns": self.left_ns, "right_ns": self.right_ns, "delta_ns": self.delta_ns,
            "delta_dram_bytes": self.delta_dram_bytes, "terms_ns": dict(self.terms_ns),
            "left_tiling": [dict(item) for item in self.left_tiling],
            "right_tiling": [dict(item) for item in self.right_tiling],
        }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Two plans side by side. `left`, `right`: graph, device, strategy and totals of each.

    `same`: kernels that both have, alike in operators, tiling and time. `terms_ns`: totals that differ, right minus
    left, each before the terms overlap. `changes`: the greatest in time first.
    """

    left: Mapping[str, Any]
    right: Mapping[str, Any]
    same: int
    terms_ns: Mapping[str, int]
    changes: tuple[Change, ...]

    def to_dict(self) -> dict[str, Any]:
        """The `fusesolve-diff/1` document; deltas are right minus left."""
        return {
            "format": FORMAT, "left": dict(self.left), "right": dict(self.right),
            "delta_ns": self.right["objective_ns"] - self.left["objective_ns"],
            "delta_dram_bytes": self.right["dram_bytes"] - self.left["dram_bytes"],
            "same": self.same, "terms_ns": dict(self.terms_ns),
            "changes": [change.to_dict() for change in self.changes],
        }  # fmt: skip


def load_plan(path: Path | str) -> Mapping[str, Any]:
    """A plan document from a file; InputError names what is wrong with it."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text (byte {error.start}); expected a plan in JSON") from error
    except json.JSONDecodeError as error:
        raise InputError(f"{path}: not JSON, line {error.lineno} column {error.colno}: {error.msg}") from error
    except RecursionError as error:
        raise InputError(f"{path}: nested too deeply to be a plan") from error
    _check_plan(document, str(path))
    checked: Mapping[str, Any] = document
    return checked


def _check_plan(document: Any, origin: str) -> None:
    if not isinstance(document, Mapping) or document.get("format") != PLAN_FORMAT:
        raise InputError(f"{origin}: not a plan; expected a file of format {PLAN_FORMAT} (fusesolve plan -o FILE.json)")
    if document.get("objective_ns") is None:
        raise InputError(f"{origin}: holds no kernels (status {document.get('status')}); there is nothing to compare")
    groups = document.get("groups")
    if not isinstance(groups, list) or not isinstance(document.get("graph"), Mapping):
        raise InputError(f"{origin}: a plan needs the keys graph and groups (fusesolve schema plan)")
    for number, group in enumerate(groups):
        lacking = [key for key in _GROUP_KEYS if not isinstance(group, Mapping) or key not in group]
        if lacking:
            raise InputError(f"{origin}: groups[{number}] lacks {', '.join(lacking)} (fusesolve schema plan)")


def diff(left: Plan | Mapping[str, Any] | Path | str, right: Plan | Mapping[str, Any] | Path | str) -> Difference:
    """Compare two plans (objects, documents or files), operator by operator.

    Raises InputError where a plan holds no kernels or the two have no operator in common.
    """
    documents = [_document(item) for item in (left, right)]
    first, second = (_Side(document) for document in documents)
    if not first.operators & second.operators:
        raise InputError(
            f"the plans share no operator: the graphs are {first.graph!r} and {second.graph!r}; diff plans of one graph"
        )
    changes, same = _changes(first, second)
    return Difference(
        left=first.facts, right=second.facts, same=same,
        terms_ns=_terms(first.groups, second.groups),
        changes=tuple(sorted(changes, key=lambda change: (-abs(change.delta_ns), change.left, change.right))),
    )  # fmt: skip


def _document(item: Plan | Mapping[str, Any] | Path | str) -> Mapping[str, Any]:
    if isinstance(item, Path | str):
        return load_plan(item)
    document = item.to_dict() if isinstance(item, Plan) else item
    _check_plan(document, "plan")
    return document


class _Side:
    """One plan: its kernels, each with the primitives that it computes."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.groups: Sequence[Mapping[str, Any]] = document["groups"]
        self.graph = str(document["graph"].get("name"))
        self.parts = _primitives(document["graph"].get("definition"))
        self.members = [self._expand(group["nodes"]) for group in self.groups]
        self.operators = frozenset().union(*self.members)
        hardware, options = document.get("hardware") or {}, document.get("options") or {}
        self.facts = {
            "graph": self.graph, "hardware": hardware.get("name"), "strategy": options.get("strategy"),
            "kernels": len(self.groups), **{key: document.get(key) for key in _SIDE},
        }  # fmt: skip

    def _expand(self, names: Iterable[str]) -> frozenset[str]:
        """Primitives of the named operators; a primitive that is known by no name stands for its whole operator."""
        found: set[str] = set()
        for name in names:
            source = name
            while source not in self.parts and "/" in source:
                source = source.rpartition("/")[0]
            found.update(self.parts.get(source, (name,)))
        return frozenset(found)


def _primitives(definition: Any) -> dict[str, tuple[str, ...]]:
    """Names of the primitives of each operator, and of each primitive alone; none where there is no definition."""
    if not isinstance(definition, Mapping) or not definition:
        return {}
    graph = parse_native(json.dumps(definition), "the plan's graph", {}, False)
    found: dict[str, tuple[str, ...]] = {node.name: (node.name,) for node in graph.nodes}
    sources: dict[str, list[str]] = {}
    for node in graph.nodes:
        sources.setdefault(node.source, []).append(node.name)
    found.update({source: tuple(names) for source, names in sources.items()})
    return found


def _changes(left: _Side, right: _Side) -> tuple[list[Change], int]:
    """Changes, and how many kernels are the same; kernels that share operators belong to one change.

    Kernels that both plans have, operator for operator, are taken out first, so that an operator that is computed
    twice does not tie them to others.
    """
    changes: list[Change] = []
    same = 0
    rest_left, rest_right = set(range(len(left.groups))), set(range(len(right.groups)))
    for i, j in _twins(left, right):
        rest_left.discard(i)
        rest_right.discard(j)
        change = _change(left, right, (i,), (j,))
        same += change is None
        changes.extend(() if change is None else (change,))
    for lefts, rights in _components(left, right, rest_left, rest_right):
        change = _change(left, right, lefts, rights)
        changes.extend(() if change is None else (change,))
    return changes, same


def _twins(left: _Side, right: _Side) -> list[tuple[int, int]]:
    """Kernels of the same operators, each used once."""
    waiting: dict[frozenset[str], list[int]] = {}
    for j, members in enumerate(right.members):
        waiting.setdefault(members, []).append(j)
    return [(i, waiting[m].pop(0)) for i, m in enumerate(left.members) if waiting.get(m)]


def _components(
    left: _Side, right: _Side, lefts: set[int], rights: set[int]
) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Kernels of both plans that share operators, directly or through others."""
    found = []
    while lefts or rights:
        seed = (min(lefts), True) if lefts else (min(rights), False)
        stack, seen = [seed], {seed}
        while stack:
            index, is_left = stack.pop()
            members = (left if is_left else right).members[index]
            others, side = (rights, right) if is_left else (lefts, left)
            near = {(o, not is_left) for o in others if side.members[o] & members} - seen
            seen |= near
            stack.extend(near)
        part = [tuple(sorted(i for i, here in seen if here is wanted)) for wanted in (True, False)]
        lefts -= set(part[0])
        rights -= set(part[1])
        found.append((part[0], part[1]))
    return found


def _change(left: _Side, right: _Side, lefts: tuple[int, ...], rights: tuple[int, ...]) -> Change | None:
    """The change from some kernels to others, None where nothing differs."""
    old, new = [left.groups[i] for i in lefts], [right.groups[j] for j in rights]
    kind = _kind(left, right, lefts, rights)
    if kind is None:
        return None
    nodes = dict.fromkeys(name for group in (*old, *new) for name in group["nodes"])
    return Change(
        kind=kind, left=tuple(g["id"] for g in old), right=tuple(g["id"] for g in new), nodes=tuple(nodes),
        left_ns=sum(g["latency_ns"] for g in old), right_ns=sum(g["latency_ns"] for g in new),
        delta_dram_bytes=sum(g["dram_bytes"] for g in new) - sum(g["dram_bytes"] for g in old),
        terms_ns=_terms(old, new), left_tiling=tuple(g["tiling"] for g in old),
        right_tiling=tuple(g["tiling"] for g in new),
    )  # fmt: skip


def _kind(left: _Side, right: _Side, lefts: tuple[int, ...], rights: tuple[int, ...]) -> str | None:
    if len(lefts) == len(rights) == 1 and left.members[lefts[0]] == right.members[rights[0]]:
        old, new = left.groups[lefts[0]], right.groups[rights[0]]
        if any(old[key] != new[key] for key in ("tiling", "template", "implementation")):
            return "retiled"
        return None if old["latency_ns"] == new["latency_ns"] else "repriced"
    if len(rights) == 1 and len(lefts) > 1:
        return "merged"
    return "split" if len(lefts) == 1 and len(rights) > 1 else "regrouped"


def _terms(old: Iterable[Mapping[str, Any]], new: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Terms whose totals differ, right minus left in ns, greatest first."""
    total: Counter[str] = Counter()
    for groups, sign in ((old, -1), (new, 1)):
        for group in groups:
            for name, value in group["terms_ns"].items():
                total[name] += sign * value
    return dict(sorted(((k, v) for k, v in total.items() if v), key=lambda item: (-abs(item[1]), item[0])))
