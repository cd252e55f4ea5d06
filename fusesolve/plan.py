"""The plan: which operators share a kernel, what each kernel costs, and how far the whole is proven.

`Plan.to_dict` is the `fusesolve-plan/1` document: a plan file alone is enough to report, generate, run and validate.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

FORMAT = "fusesolve-plan/1"
SIMULATED = ("simulated_start_ns", "simulated_ns")  # fields of a group that are there only where they were asked


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedGroup:
    """One kernel of a plan.

    Times are integer ns, launch included in `latency_ns`; sizes are bytes. `nodes` are names of the user's
    operators (`name/primitive` where an operator is split between groups); `inputs`, `outputs` are value names.
    `parts`: operators of each kernel that is packed in this launch, empty for all other templates; `part_tilings`: the
    tiling of each of them, in the same order.
    What a template or a device does not have is None (an NPU has no registers). `simulated_start_ns`, `simulated_ns`:
    start on the device and time on it by the event simulator, None where it was not asked.
    """

    id: int
    nodes: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    recomputed: tuple[str, ...]
    template: str
    implementation: str
    tiling: Mapping[str, int]
    start_ns: int
    stream: int
    latency_ns: int
    bound_by: str
    terms_ns: Mapping[str, int]
    dram_bytes: int
    flops: int
    registers_per_thread: int | None
    shared_bytes: int | None
    spill_bytes: int | None
    occupancy: float | None
    blocks: int | None
    threads: int | None
    code_bytes: int | None
    argument_bytes: int | None
    uncertain: bool
    parts: tuple[tuple[str, ...], ...] = ()
    part_tilings: tuple[Mapping[str, int], ...] = ()
    simulated_start_ns: int | None = None
    simulated_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphRecord:
    """The graph that was planned: its name, the digest of its definition, sizes and the definition (no weights)."""

    name: str
    sha256: str
    nodes: int
    values: int
    definition: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareRecord:
    """The profile that was planned for, resolved."""

    name: str
    sha256: str
    definition: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceRecord:
    """The kernel space: how many candidates, whether it was cut and by which limits, how many regions."""

    candidates: int
    truncated: bool
    cut_by: tuple[str, ...]
    regions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A whole plan. `objective_ns`, `bound_ns` and `gap` are None where there is none, never 0 for 'none'."""

    fusesolve_version: str
    graph: GraphRecord
    hardware: HardwareRecord
    options: Mapping[str, Any]
    timing: Mapping[str, Any]
    status: str
    objective_ns: int | None
    bound_ns: int | None
    gap: float | None
    unfused_ns: int | None
    speedup: float | None
    dram_bytes: int | None
    unfused_dram_bytes: int | None
    peak_memory_bytes: int | None
    unfused_peak_memory_bytes: int | None
    space: SpaceRecord
    seconds: Mapping[str, float]
    groups: tuple[PlannedGroup, ...]
    warnings: tuple[str, ...]
    conflicts: tuple[Mapping[str, Any], ...] = ()
    verification: Mapping[str, Any] | None = None
    levels: tuple[Mapping[str, Any], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The `fusesolve-plan/1` document as plain data, keys in a fixed order."""
        body = _plain(asdict(self))
        if not self.conflicts:
            del body["conflicts"]
        if not self.levels:
            del body["levels"]
        if self.verification is None:
            del body["verification"]
        for group in body["groups"]:
            if not group["parts"]:
                del group["parts"], group["part_tilings"]
            for name in SIMULATED:
                if group[name] is None:
                    del group[name]
        return {"format": FORMAT, **body}


def partition_sha256(groups: Sequence[PlannedGroup]) -> str:
    """What a plan decides, as a hash: the operators and outputs of each kernel, in execution order.

    SHA-256 (hexadecimal) of the JSON `[{"nodes": [...], "outputs": [...]}, ...]` without spaces, non-ASCII escaped.
    Two plans of one graph have the same hash where they group alike, whatever their times and tilings.
    """
    body = [{"nodes": group.nodes, "outputs": group.outputs} for group in groups]
    return hashlib.sha256(json.dumps(body, separators=(",", ":"), ensure_ascii=True).encode()).hexdigest()


def _plain(item: Any) -> Any:
    if isinstance(item, Mapping):
        return {str(key): _plain(value) for key, value in item.items()}
    if isinstance(item, list | tuple):
        return [_plain(value) for value in item]
    return item
