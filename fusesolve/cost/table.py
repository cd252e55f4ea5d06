"""Columnar tables: the workloads that are priced together, and what pricing returns.

Prices are computed for a (rows x tilings) block at a time with NumPy; one row is one candidate kernel.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fusesolve.group import Workload

Array: TypeAlias = NDArray[np.float64]
Flags: TypeAlias = NDArray[np.bool_]
Columns: TypeAlias = Mapping[str, Array]
# The caller's verdict on a block of resources: True where the limits of the device hold.
Allowed: TypeAlias = Callable[[Mapping[str, Any]], Any]

FIELDS: tuple[str, ...] = tuple(item.name for item in fields(Workload))

TILING: tuple[str, ...] = (
    "threads", "per_thread", "lanes", "rows", "mode", "split", "tile_m", "tile_n", "tile_k", "stages", "tiles",
    "max_registers",
)  # fmt: skip
COMPILED: tuple[str, ...] = ("registers", "shared_bytes", "code_bytes", "spill_bytes")  # what the compiler decides
# Not swept: they follow from the row, `evaluate` gives them. A generated kernel is compiled for `max_registers`.
DERIVED: tuple[str, ...] = ("tile_k", "stages", "max_registers")
RESOURCES: tuple[str, ...] = (
    "registers", "block_registers", "threads", "blocks", "shared_bytes", "spill_bytes", "occupancy", "missing_blocks",
    "code_bytes", "argument_bytes", "barriers", "dram_bytes",
)  # fmt: skip
# Every term of the model, in seconds, each before the terms are combined; see docs/MODEL.md.
TERMS: tuple[str, ...] = (
    "launch", "floor", "dram", "l2", "shared", "latency", "fma", "alu", "sfu", "tensor", "spill", "code",
    "arguments", "staging", "reread", "prologue", "split", "dma", "exposed",
)  # fmt: skip

HELD_IN_REGISTERS, HELD_IN_SHARED, READ_AGAIN = 0, 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledTiling:
    """What the compiler made of a generated kernel with one tiling: its numbers take the place of predicted ones.

    Registers of a thread, shared bytes of a block, bytes of code, and bytes that a thread spills.
    """

    tiling: Mapping[str, int]
    registers: int
    shared_bytes: int
    code_bytes: int
    spill_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceOptions:
    """What the caller chooses: launch mode, implementations allowed, terms switched off, and what is compiled."""

    launch: str = "stream"
    implementation: str = "best"
    without: frozenset[str] = frozenset()
    compiled: Mapping[Workload, Sequence[CompiledTiling]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """The best tiling of each row: latency in seconds (inf where no tiling is legal) and its columns.

    `implementation[i]`: 0 generated, 1 library. `tilings` counts the candidate-tilings that were priced.
    """

    latency: Array
    implementation: NDArray[np.int8]
    tiling: Columns
    resources: Columns
    terms: Columns
    tilings: int

    def tiling_of(self, row: int) -> dict[str, int]:
        """The tiling of a row; what its kernel does not use is left out."""
        return {name: int(self.tiling[name][row]) for name in TILING if self.tiling[name][row]}

    def rows(self, index: NDArray[np.intp]) -> "Prices":
        """The chosen rows, in this order."""
        return Prices(
            latency=self.latency[index], implementation=self.implementation[index],
            tiling={name: column[index] for name, column in self.tiling.items()},
            resources={name: column[index] for name, column in self.resources.items()},
            terms={name: column[index] for name, column in self.terms.items()}, tilings=len(index),
        )  # fmt: skip


class WorkloadTable:
    """Workloads as columns: `table["read_bytes"]` is a float64 array with one entry per candidate."""

    def __init__(self, workloads: Sequence[Workload]) -> None:
        data = np.array([[getattr(w, name) for name in FIELDS] for w in workloads], dtype=np.float64)
        self._data = data.reshape(len(workloads), len(FIELDS))
        self.workloads = workloads
        self._index = {name: position for position, name in enumerate(FIELDS)}

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, name: str) -> Array:
        column: Array = self._data[:, self._index[name]]
        return column

    def rows(self, index: NDArray[np.intp]) -> dict[str, Array]:
        """The chosen rows as (n, 1) columns, ready to broadcast against tilings."""
        part = self._data[index]
        return {name: part[:, position : position + 1] for name, position in self._index.items()}


def empty_prices(count: int) -> tuple[Array, dict[str, Array], dict[str, Array], dict[str, Array]]:
    """Latency (inf) and zeroed columns for `count` rows."""
    return (
        np.full(count, np.inf),
        {name: np.zeros(count) for name in TILING},
        {name: np.zeros(count) for name in RESOURCES},
        {name: np.zeros(count) for name in TERMS},
    )
