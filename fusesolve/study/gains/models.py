"""Whole language models, eager against compiled: NeuSight's table of end-to-end times.

Source: NeuSight (sitar-lab), PyTorch 2.1, f32 without tensor cores, attention not fused; `option` eager or fusion
(torch.compile). A model is its layers one after the other, and its head; embeddings are left out (below 0.2 %).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np

from fusesolve.hardware_yaml import load_profile
from fusesolve.study.devices import profile_name
from fusesolve.study.gains.cases import Case, measure_gain
from fusesolve.study.gains.execution import Program, execute
from fusesolve.study.gains.outcome import Outcome, Request, Row, Times
from fusesolve.study.gains.transformers import MODELS, head
from fusesolve.study.samples import Timing

Key: TypeAlias = tuple[str, int, int]  # model, batch, tokens

COLUMNS = frozenset({"gpu", "model", "mode", "seq_len", "batch", "option", "num_layer", "forward_ms", "e2e_ms"})
MILLISECOND = 1e-3
KINDS = {"eager": "eager", "fusion": "compiled"}


def read(request: Request, rows: Sequence[Row]) -> Outcome:
    """Gains and errors of whole models in inference; everything else is listed as not counted."""
    outcome = Outcome()
    programs: dict[Key, list[Program]] = {}
    for device, counted in outcome.counted(rows, lambda row: _unknown(row, request.hardware)).items():
        models: dict[Key, dict[str, float]] = defaultdict(dict)
        for row in counted:
            key = (row["model"], int(row["batch"]), int(row["seq_len"]))
            models[key][row["option"]] = float(row["forward_ms"]) * MILLISECOND
        name = request.hardware or profile_name(device) or device
        _report(request.file, device, name, models, _executed(name, models, programs), outcome)
    return outcome


def _unknown(row: Row, hardware: str | None) -> str | None:
    """Why a row is not counted, None where it is."""
    if row["option"] not in KINDS:
        return f"the option {row['option']} runs on several devices"
    if row["mode"] != "inf":
        return "training steps have a backward pass, of which the table has no operators"
    if row["model"] not in MODELS:
        return f"the layers of the model {row['model']} are not known"
    if hardware is None and profile_name(row["gpu"]) is None:
        return f"no bundled profile stands for the device '{row['gpu']}'"
    return None


def _executed(
    name: str, models: Mapping[Key, Mapping[str, float]], programs: dict[Key, list[Program]]
) -> dict[Key, tuple[float, float, float]]:
    """Predicted seconds of each model: eager, compiled and of fusesolve's plan."""
    profile = load_profile(name)
    found = {}
    for key in models:
        model, batch, length = key
        shape, layer = MODELS[model]
        if key not in programs:
            traced = [layer(shape, batch, length)]
            traced += [head(shape, batch, length)] if shape.vocabulary else []
            programs[key] = [Program(item, profile) for item in traced]
        parts = execute(programs[key], profile)
        counts = (shape.layers, 1)
        found[key] = (
            _total([part.eager for part in parts], counts), _total([part.compiled for part in parts], counts),
            _total([part.planned for part in parts], counts),
        )  # fmt: skip
    return found


def _total(parts: Sequence[np.ndarray], counts: Sequence[int]) -> float:
    """Seconds of the parts, each as often as it runs."""
    return sum(count * float(part.sum()) for count, part in zip(counts, parts, strict=False))


def _report(
    file: str, device: str, name: str, models: Mapping[Key, Mapping[str, float]],
    found: Mapping[Key, tuple[float, float, float]], outcome: Outcome,
) -> None:  # fmt: skip
    cases = [
        Case(
            label=_label(key), unfused=times["eager"], fused=times["fusion"], predicted_unfused=found[key][0],
            predicted_fused=found[key][1], planned=found[key][2],
        )
        for key, times in models.items() if {"eager", "fusion"} <= set(times)
    ]  # fmt: skip
    if cases:
        outcome.gains.append(measure_gain(cases, file=file, device=device, host=None, profile=name, split="inference"))
    for place, option in enumerate(KINDS):
        keys = [key for key, times in models.items() if option in times]
        if keys:
            outcome.times.append(
                Times(
                    device=device, profile=name, op=f"model {KINDS[option]}", timing=Timing.EAGER.value,
                    labels=tuple(map(_label, keys)), measured=tuple(models[key][option] for key in keys),
                    predicted=tuple(found[key][place] for key in keys),
                )
            )  # fmt: skip


def _label(key: Key) -> str:
    return f"{key[0]} batch {key[1]} tokens {key[2]}"
