"""Models of which only totals are known (products, activations): the rank of what a compiler gains.

Source of the table: pytorch-image-models, results of inference benchmarks with automatic mixed precision (f16), eager
and torch.compile. There is no graph, so the kernels are counted by rule: a counted activation (the result of a product)
is written by the product, read and written by a norm, read and written by an activation function, and read by the next
product; compiled, norm and activation are one kernel. Batches of the two columns differ, so times are per image.
"""

from collections.abc import Sequence

from fusesolve.hardware import HardwareProfile, tensor_peak
from fusesolve.hardware_yaml import load_profile
from fusesolve.study.devices import profile_name
from fusesolve.study.gains.cases import Case, measure_gain
from fusesolve.study.gains.outcome import Outcome, Request, Row, Times

COLUMNS = frozenset({
    "gpu", "layout", "model", "gmacs_per_img", "mactivations_per_img", "compile_batch", "eager_batch", "compile_ms",
    "eager_ms",
})  # fmt: skip
MILLISECOND = 1e-3
EAGER_PASSES, COMPILED_PASSES = 6, 4  # passes over an activation: see above
WIDTH = 2  # bytes of an activation
SUSTAINED = 0.93  # of the tensor pipe's peak, where the profile has no constant of its own


def read(request: Request, rows: Sequence[Row]) -> Outcome:
    """Gains of models by their totals; a row without a compiled time counts for the eager times alone."""
    outcome = Outcome()
    for device, members in outcome.counted(rows, lambda row: _unknown(row, request.hardware)).items():
        name = request.hardware or profile_name(device) or device
        profile = load_profile(name)
        _report(request.file, device, name, members, profile, outcome)
    return outcome


def _unknown(row: Row, hardware: str | None) -> str | None:
    """Why a row is not counted, None where it is."""
    if hardware is None and profile_name(row["gpu"]) is None:
        return f"no bundled profile stands for the device '{row['gpu']}'"
    if not all(row[name] for name in ("eager_ms", "eager_batch", "gmacs_per_img", "mactivations_per_img")):
        return "the row lacks an eager time or a total"
    return None


def model_seconds(row: Row, profile: HardwareProfile, passes: int) -> float:
    """Seconds an image: products at the rate of a long matrix product, activations at that of a stream."""
    peak = (tensor_peak(profile, "f16") or 0.0) * profile.constant("gemm_efficiency", SUSTAINED)
    memory = profile.memory.dram
    stream = profile.constant("stream_share", memory.sustained / memory.bandwidth) * memory.bandwidth
    products, activations = float(row["gmacs_per_img"]) * 1e9, float(row["mactivations_per_img"]) * 1e6
    return 2.0 * products / max(peak, 1.0) + passes * WIDTH * activations / stream


def _report(file: str, device: str, name: str, rows: Sequence[Row], profile: HardwareProfile, outcome: Outcome) -> None:
    eager = [_per_image(row, "eager") for row in rows]
    predicted = [model_seconds(row, profile, EAGER_PASSES) for row in rows]
    cases = [
        Case(
            label=f"{row['model']} {row['img_size']}", unfused=seconds, fused=_per_image(row, "compile"),
            predicted_unfused=expected, predicted_fused=model_seconds(row, profile, COMPILED_PASSES),
        )
        for row, seconds, expected in zip(rows, eager, predicted, strict=True)
        if row["compile_ms"] and row["compile_batch"]
    ]  # fmt: skip
    if cases:
        outcome.gains.append(
            measure_gain(cases, file=file, device=device, host=None, profile=name, split="models by totals")
        )
    outcome.times.append(
        Times(
            device=device, profile=name, op="model eager by totals", timing="device",
            labels=tuple(row["model"] for row in rows), measured=tuple(eager), predicted=tuple(predicted),
        )
    )  # fmt: skip


def _per_image(row: Row, column: str) -> float:
    return float(row[f"{column}_ms"]) * MILLISECOND / float(row[f"{column}_batch"])
