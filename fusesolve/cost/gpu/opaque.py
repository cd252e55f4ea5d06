"""Opaque kernels: priced by their bytes, with enough blocks to fill the device."""

import numpy as np

from fusesolve.cost.gpu import terms as t
from fusesolve.cost.gpu.device import Device
from fusesolve.cost.table import Array, Columns


def tilings() -> dict[str, Array]:
    """One shape: 256 threads."""
    return {"threads": np.array([[256.0]]), "per_thread": np.array([[4.0]])}


def evaluate(device: Device, w: Columns, tile: Columns) -> tuple[dict[str, Array], dict[str, Array]]:
    """Resources and terms: streaming its bytes once, plus one block's latency; its arithmetic is unknown."""
    blocks = np.maximum(1.0, np.ceil(w["outer"] * w["inner"] / (tile["threads"] * tile["per_thread"])))
    nothing = np.zeros_like(blocks)
    dram = w["read_bytes"] + w["write_bytes"]
    res = t.resources(
        device, w, demand=nothing + 32.0, threads=tile["threads"], blocks=blocks, shared=nothing, code=nothing + 4096.0,
        dram_bytes=dram,
    )  # fmt: skip
    if device.profile.limits is not None:  # it is not generated: how it is handed many operands is its own affair
        res["argument_bytes"] = np.minimum(res["argument_bytes"], device.profile.limits.argument_bytes)
    found = t.stream_terms(device, w) | t.pipe_terms(device, w, np.minimum(blocks, device.units), nothing)
    found["latency"] = nothing + device.dram_latency + device.constant("opaque_block", 1.0e-6)
    return res, found | t.overhead_terms(device, res)
