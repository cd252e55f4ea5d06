"""Pointwise kernels whose arrays lie two ways in memory: tiles of 32 x 32 points through padded shared memory.

A block has a tile over two sets of loops: `across`, the innermost ones of the kernel, and `down`, the innermost ones of
the arrays that lie the other way. Such an array is read into shared memory, or written from it, with neighbouring
threads along `down`; everything else happens with neighbouring threads along `across`. Rows of a tile are padded by one
element, so that neither way meets a bank twice.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from math import prod

from fusesolve.codegen.affine import Affine, flatten
from fusesolve.codegen.kernel import EmittedKernel, Task, TaskSource, ceil_div, shared_type
from fusesolve.codegen.scalars import compute_type
from fusesolve.codegen.values import Index
from fusesolve.cost.gpu.layout import STAGING_SIDE, STAGING_TILE
from fusesolve.graph import DType

LEAST = 16  # points each way of a tile below which most of its threads would idle

Body = Callable[[TaskSource], None]


@dataclass(frozen=True, slots=True)
class Access:
    """A load or store of the kernel at one point: its storage and position, and whether a test stands before it."""

    storage: int
    offset: Affine
    guarded: bool
    write: bool


class _Probe(TaskSource):
    """A body that records its accesses."""

    def __init__(self, task: Task) -> None:
        super().__init__(task, dict(task.source().arrays), workspace=False)
        self.seen: list[Access] = []

    def fetch(self, storage: int, offset: Affine) -> str:
        """Record, and load."""
        self.seen.append(Access(storage, offset, self.depth > 1, write=False))
        return super().fetch(storage, offset)

    def store(self, storage: int, index: Index, text: str) -> None:
        """Record, and store."""
        shape = self.program.storage[storage].type.shape
        self.seen.append(Access(storage, flatten(index, shape), self.depth > 1, write=True))
        super().store(storage, index, text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """How a kernel is staged: its loops outer to inner in three sets, and the accesses through shared memory."""

    rest: tuple[int, ...]
    down: tuple[int, ...]
    across: tuple[int, ...]
    accesses: tuple[Access, ...]


def find_stage(task: Task, order: Sequence[int], body: Body) -> Stage | None:
    """The stage of a kernel over the loops `order`; None where its arrays lie one way, or in more than two."""
    probe = _Probe(task)
    body(probe)
    names = {probe.vars[loop].name: loop for loop in order}
    real = [loop for loop in order if task.nest.extent[loop] > 1]
    if not real:
        return None
    steps = [{names.get(var.name, -1): step for var, step in access.offset.terms} for access in probe.seen]
    turned = [n for n, step in enumerate(steps) if step.get(real[-1], 0) > 1 and 1 in step.values()]
    inner = {loop for n in turned for loop, step in steps[n].items() if step == 1}
    if len(inner) != 1 or -1 in inner or any(probe.seen[n].guarded for n in turned):
        return None
    (first,) = inner
    across = tuple(order[order.index(first) + 1 :])
    down, size = [first], task.nest.extent[first]
    while True:
        wider = [
            loop for loop in real
            if loop not in across and loop not in down and all(steps[n].get(loop) == size for n in turned)
        ]  # fmt: skip
        if len(wider) != 1:
            break
        down.insert(0, wider[0])
        size *= task.nest.extent[wider[0]]
    if min(size, prod(task.nest.extent[loop] for loop in across)) < LEAST:
        return None
    accesses = tuple(dict.fromkeys(probe.seen[n] for n in turned))
    return Stage(
        rest=tuple(loop for loop in order if loop not in across and loop not in down), down=tuple(down),
        across=across, accesses=accesses,
    )  # fmt: skip


def staged_kernel(task: Task, order: Sequence[int], threads: int, per_thread: int, body: Body) -> EmittedKernel | None:
    """The kernel that runs `body` at every point of `order` in tiles; None where it has no stage or another tiling."""
    if threads * per_thread != STAGING_SIDE**2 or threads % STAGING_SIDE:
        return None
    stage = find_stage(task, order, body)
    if stage is None:
        return None
    widest = max(task.program.storage[s].type.dtype.itemsize for s in (*task.kernel.reads, *task.kernel.writes))
    source = StagedSource(task, stage, widest)
    if any(source.held(access.storage) is None for access in stage.accesses):
        return None
    return source.write(threads, body)


class StagedSource(TaskSource):
    """The body of a staged kernel."""

    def __init__(self, task: Task, stage: Stage, widest: int) -> None:
        super().__init__(task, dict(task.source().arrays), workspace=False)
        self.stage, self.widest = stage, widest
        self.slots = {
            (access.storage, access.offset, access.write): f"s{n}" for n, access in enumerate(stage.accesses)
        }  # fmt: skip

    def held(self, storage: int) -> str | None:
        """The type in which elements lie in shared memory, as wide as the kernel's widest; None where none is."""
        dtype = self.program.storage[storage].type.dtype
        if dtype.itemsize == self.widest:
            return shared_type(dtype)
        narrow = dtype in (DType.F16, DType.BF16) and self.widest == 4
        return "f32" if narrow else None

    def _size(self, loops: Sequence[int]) -> int:
        return prod(self.nest.extent[loop] for loop in loops)

    def write(self, threads: int, body: Body) -> EmittedKernel | None:
        """All lines: loads of staged arrays, the points, stores of staged arrays."""
        down, across = (ceil_div(self._size(part), STAGING_SIDE) for part in (self.stage.down, self.stage.across))
        blocks = down * across * self._size(self.stage.rest)
        self.task.check_range(blocks * STAGING_SIDE**2)
        self.line("tid = u32(cuda.threadIdx.x)")
        self.line(f"block = {self.block_number}")
        self.line(f"across = u32(block % u32({across}) * u32({STAGING_SIDE}))")
        self.line(f"down = u32(block // u32({across}) % u32({down}) * u32({STAGING_SIDE}))")
        self.line(f"rest = u32(block // u32({across * down}))")
        place = len(self.lines)
        for (storage, _, _), name in self.slots.items():
            self.declare_shared(name, STAGING_TILE, self.held(storage) or "")
        reads = [access for access in self.stage.accesses if not access.write]
        writes = [access for access in self.stage.accesses if access.write]
        seen: set[str] = set()
        if reads:
            self._loop(threads, lambda: self._loads(reads), seen, along_down=True)
            self.line("cuda.syncthreads()")
        self._loop(threads, lambda: body(self), seen, along_down=False)
        if writes:
            self.line("cuda.syncthreads()")
            self._loop(threads, lambda: self._stores(writes), seen, along_down=True)
        self.used = seen
        self.unravel("rest", self.stage.rest, place, self.depth)
        return self.emitted(blocks, threads)

    def _loop(self, threads: int, body: Callable[[], None], seen: set[str], *, along_down: bool) -> None:
        """A loop of the block over its tile: `x` along neighbouring threads, `y` the other way."""
        near, far = ("down", "across") if along_down else ("across", "down")
        limits = [
            f"{name} < u32({self._size(loops)})"
            for name, loops in (("ai", self.stage.across), ("di", self.stage.down))
            if self._size(loops) % STAGING_SIDE
        ]  # fmt: skip
        self.used = set()
        with self.block(f"for e in range({STAGING_SIDE**2 // threads}):"):
            self.line(f"x = u32(tid % u32({STAGING_SIDE}))")
            self.line(f"y = u32(tid // u32({STAGING_SIDE}) + u32(e) * u32({threads // STAGING_SIDE}))")
            self.line(f"{near[0]}i = u32({near} + x)")
            self.line(f"{far[0]}i = u32({far} + y)")
            guard: AbstractContextManager[None] = (
                self.block(f"if {' and '.join(limits)}:") if limits else self.scope()
            )  # fmt: skip
            with guard:
                place, depth = len(self.lines), self.depth
                body()
                self.unravel("ai", self.stage.across, place, depth)
                self.unravel("di", self.stage.down, place, depth)
        seen |= self.used

    def _loads(self, accesses: Sequence[Access]) -> None:
        for access in accesses:
            name = self.slots[access.storage, access.offset, False]
            text = f"{self.arrays[access.storage]}[{self.index(access.offset)}]"
            if self.held(access.storage) == "u16" and self._dtype(access) is DType.BF16:
                text = f"u16(u32(float_bits(f32({text}))) >> u32(16))"
            self.line(f"{self.slot(name, f'y * u32({STAGING_SIDE + 1}) + x')} = {text}")

    def _stores(self, accesses: Sequence[Access]) -> None:
        for access in accesses:
            name = self.slots[access.storage, access.offset, True]
            text = self._element(access, self.slot(name, f"y * u32({STAGING_SIDE + 1}) + x"))
            text = super().stored(access.storage, text)
            self.line(f"{self.arrays[access.storage]}[{self.index(access.offset)}] = {text}")

    def _dtype(self, access: Access) -> DType:
        return self.program.storage[access.storage].type.dtype

    def _element(self, access: Access, slot: str) -> str:
        """An element of shared memory in its register type."""
        dtype = self._dtype(access)
        if dtype is DType.BF16 and self.held(access.storage) == "u16":
            return f"bits_float(i32(u32({slot}) << u32(16)))"
        kind = compute_type(dtype)
        return slot if kind == "b1" else f"{kind}({slot})"

    def fetch(self, storage: int, offset: Affine) -> str:
        """A load: from shared memory where the access is staged."""
        name = self.slots.get((storage, offset, False))
        if name is None:
            return super().fetch(storage, offset)
        access = Access(storage, offset, guarded=False, write=False)
        return self.value(self._element(access, self.slot(name, f"x * u32({STAGING_SIDE + 1}) + y")))

    def stored(self, storage: int, text: str) -> str:
        """As it is stored; bits of bf16 where those lie in shared memory."""
        staged = any(access.write and access.storage == storage for access in self.stage.accesses)
        if not staged:
            return super().stored(storage, text)
        if self.held(storage) == "f32":
            return text
        dtype = self.program.storage[storage].type.dtype
        narrow = super().stored(storage, text)
        return f"u16(u32(float_bits(f32({narrow}))) >> u32(16))" if dtype is DType.BF16 else narrow

    def store(self, storage: int, index: Index, text: str) -> None:
        """A store: into shared memory where the access is staged."""
        offset = flatten(index, self.program.storage[storage].type.shape)
        name = self.slots.get((storage, offset, True))
        if name is None:
            super().store(storage, index, text)
        else:
            self.line(f"{self.slot(name, f'x * u32({STAGING_SIDE + 1}) + y')} = {text}")
