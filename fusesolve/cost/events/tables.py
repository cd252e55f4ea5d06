"""The arrays of records that the event loop works on; times in seconds. Few tables compile faster than many columns."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Records: TypeAlias = Any  # a structured array: `table[i].field` in compiled code, `table["field"]` outside
Counts: TypeAlias = NDArray[np.int64]

# One row for each kernel.
# head: from its start to its first block; post: from its last block to its end. blocks >= 0; block number `tail` and
# those after it make the last wave. dram, l2: device-seconds that a block keeps them busy. inner: exponent of memory
# with latency; outer: exponent of both with the pipes, 0 where the pipes are part of the latency. warps, registers,
# shared (bytes): what a block holds on its unit; most: blocks of this kernel on one unit.
# stream; slot: where it runs, one kernel at a time; wanted: kernels that it waits for, those before it on its stream
# among them; issued: when the host (or the captured graph) has launched it; gap: from the end of a kernel that it waits
# for to its start; first: where its successors begin in the list of successors (those of the next kernel follow).
# ready: when what it has waited for so far lets it start; start, end: when it does, and when it has ended.
KERNEL = np.dtype(
    [(name, np.float64) for name in ("head", "post", "dram", "l2", "inner", "outer", "issued", "gap")]
    + [(name, np.float64) for name in ("ready", "start", "end")]
    + [(name, np.int64) for name in ("blocks", "tail", "warps", "registers", "shared", "most")]
    + [(name, np.int64) for name in ("stream", "slot", "wanted", "first")]
)

# Two rows for each kernel: 2 k for a block of its full waves, 2 k + 1 for one of its last wave.
# latency: of a block without contention; vector, tensor: unit-seconds that it keeps those pipes of its unit busy.
BLOCK = np.dtype([(name, np.float64) for name in ("latency", "vector", "tensor")])

# One row for each slot (a stream, or a further part of a pack on it). kernel: that runs there (-1: none); phase, and
# until when it lasts; left: blocks not yet on a unit; units: units that hold some of its blocks; queue: the slot that
# is in this place of the queue for units (-1: none); memory: seconds that a block waits for memory at the present load;
# private: seconds that it takes without that; demand: share of a resource that one block wants (scratch).
SLOT = np.dtype(
    [(name, np.int64) for name in ("kernel", "phase", "left", "units", "queue")]
    + [(name, np.float64) for name in ("until", "memory", "private", "demand")]
)

# One row for each set of blocks of one kernel that began together on one unit. last: 1 for blocks of the last wave;
# todo: share of the work that is left; speed: share per second.
ENTRY = np.dtype(
    [(name, np.int64) for name in ("unit", "slot", "last", "count")]
    + [(name, np.float64) for name in ("todo", "speed")]
)

# One row for each unit: what its blocks hold; given: blocks that it gets now (scratch).
UNIT = np.dtype([(name, np.int64) for name in ("warps", "registers", "shared", "blocks", "given")])

WAITING, COMING, RUNNING, ENDING = 0, 1, 2, 3  # phases of a stream: nothing, launched, blocks at work, last stage
