"""Small work of any shape in one block: a loop over all threads for every reduction and every value that is written.

The loops follow each other with a barrier between them, so their latencies add up; one unit's pipes do all of it.
"""

import numpy as np

from fusesolve.cost.gpu import layout
from fusesolve.cost.gpu import terms as t
from fusesolve.cost.gpu.device import Device
from fusesolve.cost.table import Array, Columns

THREADS = (64, 128, 256, 512, 1024)


def tilings() -> dict[str, Array]:
    """All numbers of threads as (1, n) columns."""
    return {"threads": np.array([THREADS], dtype=np.float64)}


def evaluate(device: Device, w: Columns, tile: Columns) -> tuple[dict[str, Array], dict[str, Array]]:
    """Resources and terms of (rows x tilings); more shared memory than a kernel may declare is refused.

    `latency`: that of a row kernel's block (`row_latency`, 0.1 us a fold) and `row_step` for each trip of each loop,
    all loops counted as long as the longest: an upper estimate, not measured. Registers (two an array) and code (512
    bytes a fold) are estimates from some fifty compiled kernels of two to six operators, which took 12 to 24 registers.
    """
    threads = tile["threads"]
    one = np.ones_like(threads)
    folds = layout.fold_bytes(threads, threads, w["fold_bytes"], w["tree_bytes"])
    instructions = w["instructions"] + w["once"]
    res = t.resources(
        device, w, demand=12.0 + 2.0 * w["arrays"] + w["index_parts"] + 0.0 * threads, threads=threads, blocks=one,
        shared=np.ceil(folds + w["kept_bytes"]),
        code=512.0 * (1.0 + w["reductions"]) + t.INSTRUCTION_CODE * instructions + 0.0 * threads,
        dram_bytes=w["read_bytes"] + w["write_bytes"],
    )  # fmt: skip
    res["missing_blocks"] = np.where(res["shared_bytes"] > layout.STATIC_SHARED, 1.0, res["missing_blocks"])
    trips = np.ceil(w["inner"] / threads) * w["passes"]
    start = device.constant("row_latency", 0.9e-6) + 0.1e-6 * w["reductions"]
    found = t.stream_terms(device, w) | t.pipe_terms(device, w, one, 3.0 * w["inner"] * w["passes"])
    found["latency"] = start + device.constant("row_step", 0.2e-6) * trips
    return res, found | t.overhead_terms(device, res)
