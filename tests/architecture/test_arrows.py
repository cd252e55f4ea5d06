"""Imports point only down, each library has one home, nothing goes round in a circle."""

import re
import tomllib
from collections import defaultdict
from graphlib import TopologicalSorter

from tests.architecture.source import (
    DISTRIBUTIONS,
    HOMES,
    LAYERS,
    ROOT,
    TEAMS,
    files,
    imports,
    library,
    room_of,
    rooms_imported,
)


def test_every_room_has_a_layer():
    rooms = {room_of(path) for path in files()}
    assert rooms <= set(LAYERS), f"give these a layer in LAYERS: {sorted(rooms - set(LAYERS))}"
    assert len(rooms) > 10


def test_arrows_point_down():
    wrong = [
        f"{found.where}: {found.room} (L{LAYERS[found.room]}) imports {room} (L{LAYERS[room]})"
        for path in files()
        for found in imports(path)
        for room in rooms_imported(found) - {found.room}
        if LAYERS[room] > LAYERS[found.room]
    ]
    assert not wrong, "\n".join(wrong)


def test_siblings_do_not_import_each_other():
    wrong = [
        f"{found.where}: {found.room} imports its sibling {room}"
        for path in files()
        for found in imports(path)
        for room in rooms_imported(found) - {found.room}
        if LAYERS[room] == LAYERS[found.room] and LAYERS[room] not in TEAMS
    ]
    assert not wrong, "\n".join(wrong)


def test_rooms_form_no_circle():
    needs: dict[str, set[str]] = defaultdict(set)
    for path in files():
        for found in imports(path):
            needs[found.room] |= rooms_imported(found) - {found.room, "__init__"}
    tuple(TopologicalSorter(needs).static_order())  # raises CycleError where there is a circle


def test_the_solver_knows_no_hardware_and_no_graph():
    allowed = {"solve", "errors", "ragged"}  # plain arrays, no knowledge of graphs
    wrong = [
        f"{found.where}: imports {sorted(rooms_imported(found) - allowed)}"
        for path in files()
        if room_of(path) == "solve"
        for found in imports(path)
        if rooms_imported(found) - allowed
    ]
    assert not wrong, "\n".join(wrong)


def test_each_library_stays_in_its_home():
    wrong = []
    for path in files():
        for found in imports(path):
            name = library(found)
            if name is not None and found.room not in HOMES.get(name, set()):
                wrong.append(f"{found.where}: {name} belongs in {sorted(HOMES.get(name, set()))}")
    assert not wrong, "\n".join(wrong)


def test_what_is_imported_is_what_is_required():
    imported = {library(found) for path in files() for found in imports(path)} - {None}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = {line for lines in project["optional-dependencies"].values() for line in lines}
    required, optional = (
        {re.split(r"[<>=\[ ]", line)[0] for line in lines} for lines in (project["dependencies"], extras)
    )
    needed = {DISTRIBUTIONS.get(name, name.replace("_", "-")) for name in imported}
    assert needed - optional == required


def test_the_cuda_library_stays_in_the_runtime():
    wrong = [
        found.where
        for path in files()
        for found in imports(path)
        if found.target.startswith(("numba.cuda", "cuda")) and "codegen/runtime" not in path.as_posix()
    ]
    assert not wrong, "\n".join(wrong)
