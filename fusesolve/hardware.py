"""The hardware profile: what a device can do, in base units (s, byte, Hz), each number with its source.

The attributes mirror the key paths of the `fusesolve-hardware/1` format one to one, so that
`profile.memory.l2.size` is `memory.l2.size` of the file. A block that a device does not have is None.
Profiles are read by `fusesolve.hardware_yaml`; nothing here reads files.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from fusesolve.errors import InputError

Kind: TypeAlias = Literal["gpu", "npu", "cpu"]
LaunchMode: TypeAlias = Literal["stream", "graph"]
PipeName: TypeAlias = Literal["fma", "alu", "sfu"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where a number comes from: source key (docs/SOURCES.md), how sure it is, and a remark; None where not said."""

    source: str | None = None
    accuracy: str | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """A calibrated constant in base units: `rows` it was fitted on, `error` of the fit as a ratio (0.05 = 5 %)."""

    value: float
    source: str | None = None
    rows: int | None = None
    error: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipe:
    """An execution pipe: results per clock and unit, by element type (a fused multiply-add is one result)."""

    per_clock: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipes:
    """The scalar and vector pipes of one unit: floating-point FMA, integer and logic, special functions."""

    fma: Pipe | None = None
    alu: Pipe | None = None
    sfu: Pipe | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """The matrix pipe of one unit.

    `per_clock`: dense multiply-adds per clock and unit by operand type (`tf32` for f32 operands rounded to TF32).
    `clock`: Hz that the vendor's peak is quoted at where it is not `compute.clock`. `alignment`: bytes that rows of
    operands must be aligned to. `layouts`: operand layouts it takes. `tile`: extents of its smallest block.
    """

    per_clock: Mapping[str, float]
    clock: float | None = None
    alignment: int | None = None
    layouts: tuple[str, ...] = ()
    tile: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Compute:
    """Units (SMs, compute units, cores, NPU engines), their clock in Hz (peak and sustained), and their pipes."""

    units: int
    clock: float
    sustained_clock: float
    pipes: Pipes
    tensor: Tensor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Registers:
    """32-bit registers: per unit, most per thread and per block; each warp gets a multiple of `allocation_unit`.

    `partitions`: warp schedulers of a unit, among which its registers are divided evenly.
    """

    per_unit: int
    per_thread_max: int
    per_block_max: int
    allocation_unit: int
    partitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedMemory:
    """Shared memory (a scratchpad on an NPU), bytes: per unit, most per block, reserved in each block, rounding step.

    `bytes_per_clock` per unit. `carveouts`: the sizes that it can be set to, ascending, or (); all
    of it is always one of them.
    """

    per_unit: int
    per_block_max: int
    reserved_per_block: int
    granularity: int
    bytes_per_clock: float
    carveouts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class L1Cache:
    """First-level data cache of one unit: bytes and load latency in seconds."""

    size: int
    latency: float


@dataclass(frozen=True, slots=True, kw_only=True)
class L2Cache:
    """The cache that all units share.

    Bytes, read bandwidth in bytes/s, latency in seconds; `knee`: bytes of a working set up to which it is read back at
    cache speed.
    """

    size: int
    knee: int
    bandwidth: float
    latency: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Dram:
    """Device memory: bytes, data-sheet and sustained (copy) bandwidth in bytes/s, load latency in seconds."""

    size: int
    bandwidth: float
    sustained: float
    latency: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The memory levels; None where the device has no such level."""

    dram: Dram
    shared: SharedMemory | None = None
    l1: L1Cache | None = None
    l2: L2Cache | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Launch and residency limits of a GPU.

    `barriers`: block barriers per unit where the vendor's occupancy rule counts them, else None.
    `argument_bytes`: most bytes of kernel parameters.
    """

    threads_per_block: int
    threads_per_unit: int
    warps_per_unit: int
    blocks_per_unit: int
    warp_size: int
    argument_bytes: int
    barriers: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """Instruction caches in bytes (`l0` per warp scheduler, `l1` per unit) and bytes of one instruction."""

    l0: int
    l1: int
    bytes_per_instruction: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Seconds that each further kernel costs: back to back in a stream, in a captured graph, per NPU/CPU dispatch."""

    stream: float | None = None
    graph: float | None = None
    dispatch: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Dma:
    """DMA engines of an NPU: channels, seconds of latency per transfer, bytes/s of all channels together."""

    channels: int
    latency: float
    bandwidth: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fusion:
    """What an NPU's command can chain: operators in one command, and external (non-constant) inputs of the chain."""

    chain_ops: int
    external_inputs: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareProfile:
    """One device.

    `sources`: provenance by dotted path. `definition`: the resolved plain mapping (JSON-ready, stable order, texts as
    written) that `fusesolve.hardware_yaml.profile_from_definition` reads back; `sha256` is the hash of its JSON.
    `uncalibrated`: the GEMM and attention constants were not fitted on this chip at this clock, but taken over from a
    related one (their source says `family: ...`), or there are none.
    """

    name: str
    vendor: str
    kind: Kind
    compute: Compute
    memory: Memory
    launch: Launch
    definition: Mapping[str, Any] = field(repr=False)
    sha256: str
    description: str | None = None
    compute_capability: str | None = None
    registers: Registers | None = None
    limits: Limits | None = None
    code: Code | None = None
    dma: Dma | None = None
    fusion: Fusion | None = None
    calibration: Mapping[str, Constant] = field(default_factory=dict)
    uncalibrated: bool = False
    sources: Mapping[str, Provenance] = field(default_factory=dict, repr=False)

    def __hash__(self) -> int:
        return hash(self.sha256)

    def constant(self, name: str, default: float) -> float:
        """The calibrated constant `name` in base units, or `default` where the profile does not give it."""
        found = self.calibration.get(name)
        return default if found is None else found.value


# The type that arithmetic falls to on a pipe that does not list its own: narrow types are computed in wider ones
# (NVIDIA, CUDA C++ Programming Guide, arithmetic throughput: 8- and 16-bit integer code uses 32-bit instructions).
_FALLBACK = {
    "f8e4m3": "f16", "f8e5m2": "f16", "bf16": "f32", "f16": "f32", "f64": "f32",
    "bool": "i8", "u8": "i8", "u16": "i16", "u32": "i32", "u64": "i64", "i8": "i16", "i16": "i32", "i64": "i32",
    "i32": "f32",
}  # fmt: skip


def per_clock(pipe: Pipe | Tensor | None, dtype: str) -> float | None:
    """Results per clock and unit of `pipe` for `dtype`, or for the type it is computed in; None if the pipe has none.

    A type that is absent falls to the next wider one, integers at last to f32, f64 and i64 to half of their 32-bit
    rate; floats never fall to integers. The matrix pipe has no such fallback: what it does not list it cannot do.
    """
    if pipe is None or (isinstance(pipe, Tensor) and dtype not in pipe.per_clock):
        return None
    scale, current = 1.0, dtype
    while current not in pipe.per_clock:
        if current not in _FALLBACK:
            return None
        scale *= 0.5 if current in ("f64", "i64") else 1.0
        current = _FALLBACK[current]
    return scale * pipe.per_clock[current]


def tensor_peak(profile: HardwareProfile, dtype: str) -> float | None:
    """Dense FLOP/s of the matrix pipe for operands of `dtype` (2 x MAC/clk x units x Hz); None if it has none."""
    tensor = profile.compute.tensor
    rate = per_clock(tensor, dtype)
    if tensor is None or rate is None:
        return None
    return 2.0 * rate * profile.compute.units * (tensor.clock or profile.compute.clock)


def pipe_peak(profile: HardwareProfile, name: PipeName, dtype: str) -> float | None:
    """Results per second of a pipe over the whole device (for `fma`: FMA/s, half of FLOP/s); None if it has none."""
    pipes = profile.compute.pipes
    rate = per_clock({"fma": pipes.fma, "alu": pipes.alu, "sfu": pipes.sfu}[name], dtype)
    return None if rate is None else rate * profile.compute.units * profile.compute.clock


def launch_overhead(profile: HardwareProfile, mode: LaunchMode) -> float:
    """Seconds that one more kernel costs in launch mode `mode`; devices without launch modes pay their dispatch."""
    launch = profile.launch
    chosen = launch.graph if mode == "graph" else launch.stream
    for seconds in (chosen, launch.stream, launch.dispatch):
        if seconds is not None:
            return seconds
    return 0.0


def read_leaf(definition: Mapping[str, Any], path: str) -> Any:
    """The bare value at dotted `path` of a plain definition (`{value: ...}` unwrapped).

    Raises InputError that names the first key that is not there.
    """
    node: Any = definition
    for position, key in enumerate(path.split(".")):
        if not isinstance(node, Mapping) or key not in node:
            raise InputError(_no_such_key(path, position, node))
        node = node[key]
    return node["value"] if isinstance(node, Mapping) and "value" in node else node


def replace_leaf(definition: Mapping[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A plain definition with the leaf at dotted `path` set to `value` (a count, or text with a unit).

    The given one stays as it is; blocks that are not on the way are shared with it.

    The leaf's source becomes `what-if`. The blocks on the way must exist, the leaf itself may be new; the loader's
    checks are run when the result is read back. A last `.value` (`calibration.gemm_t0.value`) may be left out. Raises
    InputError where `path` leads nowhere or names a block.
    """
    *blocks, leaf = path.removesuffix(".value").split(".")
    result = dict(definition)
    node = result
    for position, key in enumerate(blocks):
        block = node.get(key)
        if not isinstance(block, dict) or "value" in block:
            raise InputError(_no_such_key(path, position, node))
        node[key] = dict(block)
        node = node[key]
    held = node.get(leaf)
    if isinstance(held, dict) and "value" not in held:
        raise InputError(f"hardware path '{path}' is a block, not a number: add one of {', '.join(held)}")
    node[leaf] = {"value": value, "source": "what-if"}
    return result


def _no_such_key(path: str, position: int, node: Any) -> str:
    """The message for a dotted path that stops at key number `position`."""
    key = path.split(".")[position]
    there = ", ".join(node) if isinstance(node, Mapping) else "nothing: it is a number"
    return f"hardware path '{path}': no key '{key}' there (there is {there})"
