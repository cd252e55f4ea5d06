"""Step 5 of the ladder: the generated kernels on this machine's GPU, correctness first, then times.

The step writes a folder (`prepare_folder`) and runs it with `fusesolve.codegen.device` in a process of its own. The
same folder can be carried to a machine that has a GPU, NumPy and numba-cuda and nothing else.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fusesolve.codegen.device import NO_DEVICE
from fusesolve.codegen.module import generate
from fusesolve.codegen.planned import PlannedKernel, PlannedProgram, read_plan
from fusesolve.detect import match_gpu, query_nvidia_smi
from fusesolve.errors import InputError, MissingError
from fusesolve.graph import DType, Graph
from fusesolve.hardware import HardwareProfile
from fusesolve.hardware_yaml import load_profile
from fusesolve.reference import random_feeds
from fusesolve.validate.memory import ReferenceKernel, run_plan
from fusesolve.validate.oracle import STRAY_SHARE, Oracle
from fusesolve.validate.parts import split_group, tiled
from fusesolve.validate.simulate import simulated_plan

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

ROUNDINGS = 2.0  # the wanted arrays are rounded themselves
Job = tuple[str, Mapping[str, Any], Graph, HardwareProfile]  # name, plan document, its graph, its profile


def prepare_folder(folder: Path, jobs: Sequence[Job], seed: int = 0) -> dict[str, list[int]]:
    """Write all that running the plans of `jobs` on a bare machine takes; returns the groups without source, by plan.

    Those that touch bf16 (`narrow`) run where the package ml_dtypes is installed: plain NumPy has no such arrays.
    """
    plans, left_out = [], {}
    for number, job in enumerate(jobs):
        record, skipped = _prepare(folder, f"plan{number}", job, seed)
        plans.append(record)
        left_out[job[0]] = skipped
    (folder / "plans.json").write_text(json.dumps(plans, indent=1) + "\n", encoding="utf-8")
    return left_out


def _prepare(folder: Path, stem: str, job: Job, seed: int) -> tuple[dict[str, Any], list[int]]:
    import numpy as np

    name, document, graph, profile = job
    small, small_made = simulated_plan(document, graph)
    full = read_plan(document, graph)
    made = generate(full)
    groups = [kernel for kernel in full.kernels if kernel.id in made.kernels and kernel.id in small_made.kernels]
    chosen = {kernel.id for kernel in groups}
    checks, arrays = _wanted(small, chosen, seed)
    np.savez(folder / f"{stem}.npz", allow_pickle=False, **arrays)
    parts, parts_of = _parts(full, chosen, profile)
    apart = generate(replace(full, kernels=parts))
    for kind, text in (("small", small_made.text), ("fused", made.text), ("apart", apart.text)):
        (folder / f"{stem}_{kind}.py").write_text(text, encoding="utf-8")
    (folder / f"{stem}.json").write_text(json.dumps(document) + "\n", encoding="utf-8")
    record = {
        "name": name, "plan": f"{stem}.json", "arrays": f"{stem}.npz", "small": f"{stem}_small.py",
        "fused": f"{stem}_fused.py", "apart": f"{stem}_apart.py", "checks": checks, "groups": sorted(chosen),
        "parts": sorted({part for found in parts_of.values() for part in found} & set(apart.kernels)),
        "parts_of": {str(k): v for k, v in parts_of.items()},
        "narrow": sorted({kernel.id for kernel in (*groups, *parts) if _narrow(full, kernel)}),
        "predicted_ns": {str(kernel.id): kernel.predicted["latency_ns"] for kernel in groups},
    }  # fmt: skip
    return record, sorted({kernel.id for kernel in full.kernels} - chosen)


def _narrow(planned: PlannedProgram, kernel: PlannedKernel) -> bool:
    storage = planned.program.storage
    return any(storage[s].type.dtype is DType.BF16 for s in (*kernel.reads, *kernel.writes))


def _wanted(planned: PlannedProgram, chosen: set[int], seed: int) -> "tuple[list[dict[str, Any]], dict[str, Array]]":
    """What each chosen group reads and has to write at shrunk extents, and the tolerated error."""
    checks: list[dict[str, Any]] = []
    arrays: dict[str, Any] = {}
    oracle = Oracle(planned)

    def watch(kernel: PlannedKernel, read: "Mapping[int, Array]", written: "Mapping[int, Array]") -> None:
        if kernel.id not in chosen:
            return
        verdict = oracle.judge(kernel, read, written)
        stray = STRAY_SHARE if oracle.jumps(kernel) else 0.0
        checks.append({"id": kernel.id, "tolerance": ROUNDINGS * verdict.tolerance, "stray": stray})
        arrays.update({f"g{kernel.id}_r{n}": _plain(read[s]) for n, s in enumerate(kernel.reads)})
        arrays.update({f"g{kernel.id}_w{n}": _plain(written[s]) for n, s in enumerate(kernel.writes)})

    run_plan(planned, random_feeds(planned.graph, seed), ReferenceKernel(planned), watch)
    return checks, arrays


def _plain(array: "Array") -> "Array":
    """An array that NumPy can save: that of a type of its own, else the bits."""
    return array.view(f"u{array.itemsize}") if array.dtype.kind == "V" else array


def _parts(
    planned: PlannedProgram, chosen: set[int], profile: HardwareProfile
) -> tuple[tuple[PlannedKernel, ...], dict[int, list[int]]]:
    """The plan with each chosen group as its source operators, and which operators belong to which group.

    A group stays whole, with no operators listed, where one of them is no generated kernel by itself.
    """
    found: list[PlannedKernel] = []
    parts_of: dict[int, list[int]] = {}
    first = 1 + max((kernel.id for kernel in planned.kernels), default=0)
    for kernel in planned.kernels:
        split = split_group(planned, kernel, first) if kernel.id in chosen else ()
        parts = tiled(planned, split, profile)
        whole = len(parts) < len(split) or not split
        found += [kernel] if whole else parts
        first += len(split)
        if kernel.id in chosen:
            parts_of[kernel.id] = [] if whole else [part.id for part in parts]
    return tuple(found), parts_of


def check_device(profile: HardwareProfile, *, force: bool) -> None:
    """InputError where nvidia-smi names a GPU that is not the profile's, unless `force`."""
    answer = query_nvidia_smi()
    if answer is None or force:
        return
    name = answer.splitlines()[0].split(",")[0].strip()
    bundled = match_gpu(name)
    if bundled is None or load_profile(bundled).name != profile.name:
        raise InputError(
            f"--on cuda: this GPU is {name!r}, the plan is for {profile.name}; plan for this GPU, or add --force"
        )


def run_on_device(folder: Path, step: str = "--on cuda") -> dict[str, Any]:
    """Run a prepared folder on this machine's GPU; MissingError (exit 4), naming the `step`, where there is none."""
    output = folder / "run.json"
    done = subprocess.run(  # noqa: S603  our own interpreter and module
        [sys.executable, "-W", "ignore", "-m", "fusesolve.codegen.device", str(folder), "-o", str(output)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    words = [line for line in done.stderr.splitlines() if line.strip()]
    if done.returncode == NO_DEVICE or not output.exists():
        raise MissingError(f"{step}: {words[-1] if words else 'the device process ended and said nothing'}")
    found: dict[str, Any] = json.loads(output.read_text(encoding="utf-8"))
    return found


def run_plan_on_device(job: Job, seed: int) -> dict[str, Any]:
    """One plan prepared and run on this machine's GPU: the record of the device run."""
    with tempfile.TemporaryDirectory(prefix="fusesolve-") as name:
        prepare_folder(Path(name), [job], seed)
        return run_on_device(Path(name))
