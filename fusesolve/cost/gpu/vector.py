"""Matrix-vector products as libraries have them: a stream of the matrix, one reduction per element of the result.

A contraction's tile of 32 columns would be empty but for one. The kernel is that of a row reduction (`rows`): lanes
share a row of the matrix, and long rows are split over blocks. Every block reads the vector, through the L2 cache.
Source of the structure: single products of a public table run at the rate of a stream (docs/ACCURACY.md, KernelBench).
"""

import numpy as np

from fusesolve.cost.gpu import contraction, rows
from fusesolve.cost.gpu.device import Device
from fusesolve.cost.table import READ_AGAIN, Array, Columns, WorkloadTable


def tilings() -> dict[str, Array]:
    """Those of contiguous rows that are read once, as (1, n) columns."""
    found = rows.tilings(contiguous=True)
    once = found["mode"][0] == READ_AGAIN
    return {name: column[:, once] for name, column in found.items()}


def wanted(device: Device, table: WorkloadTable) -> Array:
    """1 for a bare product of one row or one column on the FMA pipe; the tensor pipe's tiles stream their operands."""
    thin = (np.minimum(table["m"], table["n"]) == 1) & (table["parts"] == 1) & (table["taps"] == 1)
    tiled = contraction.on_tensor_pipe(device, {name: table[name] for name in _PIPE}) > 0
    return table["plain"] * np.where(thin & np.logical_not(tiled), 1.0, 0.0)


_PIPE = ("tensor_rate", "k", "operand_bytes")


def evaluate(device: Device, w: Columns, tile: Columns) -> tuple[dict[str, Array], dict[str, Array]]:
    """Resources and terms of (rows x tilings)."""
    results = w["batch"] * w["m"] * w["n"]
    one = np.ones_like(results)
    row = dict(w) | {
        "outer": results, "inner": w["k"], "passes": one, "reductions": one, "contiguous": one, "full_reads": 0.0 * one,
        "fma": w["mma"] * one, "element_bytes": w["operand_bytes"],
    }  # fmt: skip
    res, found = rows.evaluate(device, row, tile)
    vector = w["operand_bytes"] * w["k"] * np.ceil(results / tile["rows"])
    through = (w["read_bytes"] + w["write_bytes"] + vector) / device.l2
    cached = np.maximum(found["l2"], through - found["dram"])
    return res, found | {"l2": cached, "staging": np.zeros_like(found["staging"])}
