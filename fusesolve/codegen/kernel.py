"""One emitted kernel: its arguments, body and launch configuration; and what all templates share."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import TypeVar

from fusesolve.candidates.loops import Nest, build_nest
from fusesolve.candidates.program import Program
from fusesolve.codegen.affine import Affine, Var, variable
from fusesolve.codegen.moves import updated_index
from fusesolve.codegen.planned import PlannedKernel
from fusesolve.codegen.scalars import UnsupportedError
from fusesolve.codegen.source import INDENT
from fusesolve.codegen.tensor_source import Piece
from fusesolve.codegen.values import KernelSource
from fusesolve.graph import DType
from fusesolve.group import Template

Made = TypeVar("Made")  # what an emitter makes of a group
NARROW_LIMIT = 2**31  # positions below it are held in 32 bits: an address takes the number as a signed one
WIDE_LIMIT = 2**62
_INDEX = re.compile(r"\bu32\((?!cuda\.threadIdx)")  # a position in emitted text; a thread's number is always narrow
UNROLL_LIMIT = 900  # instructions of a loop nest that the compiler still unrolls (measured: 1,150 compiled kernels)


class IndexRangeError(UnsupportedError):
    """Positions that the integers of a kernel do not hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """Memory between two kernels of one group: `size` elements of register type `kind`."""

    size: int
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EmittedKernel:
    """One kernel function. `arguments` are storage numbers, -1 for the group's workspace, in the order of `names`.

    `parts`: kernels side by side in this launch, each a device function that `body` (without them) hands its blocks.
    """

    names: tuple[str, ...]
    arguments: tuple[int, ...]
    body: tuple[str, ...]
    blocks: int
    threads: int
    shared: int = 0  # bytes of shared memory asked for at launch
    workspace: Workspace | None = None
    tensor_tiles: tuple[Piece, ...] = ()
    tensor_waits: tuple[int, ...] = ()
    parts: tuple["EmittedKernel", ...] = ()
    vectors: bool = False  # whether it loads or stores vectors
    registers: int = 0  # of a thread that it is compiled for at most; 0: as many as the compiler likes

    def text(self, name: str) -> str:
        """The function's source with its decorator, behind those of its parts."""
        made = [
            "\n".join(("@device_part", f"def {name}_{n}(block, {', '.join(item.names)}):", *item.body)) + "\n\n"
            for n, item in enumerate(self.parts)
        ]
        body = (line.replace("PART", name) for line in self.body) if self.parts else self.body
        decorator = f"@bounded({self.registers})" if self.registers else "@cuda.jit"
        return "\n".join((*made, decorator, f"def {name}({', '.join(self.names)}):", *body)) + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A group to write: its kernel of the plan, its nest, and the loops of the whole kernel from outer to inner.

    `launch`: threads of a block of the launch that this kernel is a part of; 0 where the launch is its own.
    `strided`: loops that are walked as `outer * step + inner`, by two further loops: (outer, step, inner).
    `wide`: whether positions are integers of 64 bits and not of 32.
    """

    program: Program
    nest: Nest
    kernel: PlannedKernel
    launch: int = 0
    strided: Mapping[int, tuple[int, int, int]] = field(default_factory=dict)
    wide: bool = False

    def tile(self, name: str, default: int = 0) -> int:
        """A number of the tiling that was priced (0 where the plan leaves it out)."""
        return self.kernel.tiling.get(name, default)

    def source(self, *, workspace: bool = False) -> "TaskSource":
        """A fresh body with an argument per storage that the group reads or writes, and one for the workspace."""
        storages = [*self.kernel.reads, *self.kernel.writes]
        for item in storages:
            self.check_range(self.program.storage[item].type.size)
        return TaskSource(self, {item: f"a{n}" for n, item in enumerate(storages)}, workspace=workspace)

    def check_range(self, count: int) -> None:
        """IndexRangeError where positions below `count` do not fit the kernel's integers."""
        if count >= (WIDE_LIMIT if self.wide else NARROW_LIMIT):
            raise IndexRangeError(f"positions up to {count} do not fit {64 if self.wide else 32} bits")

    def node_outputs(self, position: int) -> tuple[str, ...]:
        """Names of the results of the member at `position`."""
        return self.program.graph.nodes[self.program.operators[self.nest.members[position]].node].outputs

    def writer(self, storage: int) -> int:
        """The position of the member that makes a storage; UnsupportedError where none does."""
        made = self.program.storage[storage].producer
        if made is None or made not in self.nest.position:
            raise UnsupportedError(f"{self.program.storage[storage].value} is not made by the group")
        return self.nest.position[made]


def emit_by(
    emitters: Mapping[Template, Callable[[Task], Made]], program: Program, kernel: PlannedKernel, launch: int = 0
) -> Made:
    """What the emitter of a group's template makes of it; UnsupportedError with the reason where nothing is written."""
    if kernel.implementation == "library":
        raise UnsupportedError("a library kernel is taken")
    if kernel.template == Template.PACKED:
        raise UnsupportedError("kernels packed in one launch have no source of this kind")
    nest = build_nest(program, kernel.members)
    kernel = replace(kernel, writes=filled(program, kernel))
    emitter = emitters.get(nest.template)
    if emitter is None:
        raise UnsupportedError(f"{nest.template.value} groups have no source")
    task = Task(program=program, nest=nest, kernel=kernel, launch=launch)
    try:
        return emitter(task)
    except IndexRangeError:
        return emitter(_widened(task))


def filled(program: Program, kernel: PlannedKernel) -> tuple[int, ...]:
    """What a group writes that has elements."""
    return tuple(s for s in kernel.writes if program.storage[s].type.size)


def _widened(task: Task) -> Task:
    """The task with positions of 64 bits. Text tells positions from values by their type: none may be u32."""
    nodes = [task.program.graph.nodes[task.program.operators[member].node] for member in task.nest.members]
    values = {name for node in nodes for name in (*node.reads, *node.outputs)}
    if any(task.program.graph.type_of(name).dtype is DType.U32 for name in values):
        raise UnsupportedError("u32 values beside positions of 64 bits")
    return replace(task, wide=True)


class TaskSource(KernelSource):
    """The body of one kernel of a task."""

    def __init__(self, task: Task, arrays: dict[int, str], *, workspace: bool) -> None:
        super().__init__(task.program, task.nest, arrays)
        self.task = task
        for loop, (outer, step, inner) in task.strided.items():
            self.walks[loop] = variable(self.vars[outer]).scaled(step) + variable(self.vars[inner])
        self.workspace = "w0" if workspace else None
        self.tensor_tiles: list[Piece] = []
        self.tensor_waits: list[int] = []
        self.vectors = False
        self.arena = 0  # bytes of the launch's shared memory that a part of it has taken
        self.starts: dict[str, int] = {}  # first element of each of its arrays there

    def index(self, expression: Affine) -> str:
        """As in `KernelSource`; IndexRangeError where the expression can exceed the kernel's integers."""
        self.task.check_range(expression.high)
        return super().index(expression)

    @property
    def block_number(self) -> str:
        """The number of the block among those of this kernel."""
        return "block" if self.task.launch else "u32(cuda.blockIdx.x)"

    def block_threads(self, own: int) -> str:
        """The `own` threads of this kernel's blocks, in a form that the compiler does not know as a number."""
        more = self.task.launch - own if self.task.launch else 0
        return f"u32(cuda.blockDim.x) - u32({more})" if more else "u32(cuda.blockDim.x)"

    def declare_shared(self, name: str, count: int, kind: str) -> None:
        """Declare a shared array of `count` elements. In a part of a launch it lies in the memory that all parts use.

        (Memory that a kernel declares for each part would add up, though a block runs only one of them.)
        """
        if not self.task.launch:
            self.line(f"{name} = cuda.shared.array({count}, {kind})")
            return
        size = 1 if kind == "b1" else int(kind[1:]) // 8
        self.starts[name] = ceil_div(self.arena, size)
        self.arena = (self.starts[name] + count) * size
        self.line(f"{name} = cuda.shared.array(0, d_{kind})")

    def slot(self, name: str, index: str) -> str:
        """An element of an array that `declare_shared` has declared."""
        start = self.starts.get(name, 0)
        return f"{name}[u32({start}) + {index}]" if start else f"{name}[{index}]"

    def emitted(self, blocks: int, threads: int, shared: int = 0, workspace: Workspace | None = None) -> EmittedKernel:
        """The finished kernel."""
        names, storages = tuple(self.arrays.values()), tuple(self.arrays)
        if self.workspace is not None:
            names, storages = (*names, self.workspace), (*storages, -1)
        body = (_INDEX.sub("u64(", line) for line in self.lines) if self.task.wide else self.lines
        return EmittedKernel(
            names=names, arguments=storages, body=tuple(body), blocks=max(1, blocks), threads=threads,
            shared=max(shared, self.arena), workspace=workspace, tensor_tiles=tuple(self.tensor_tiles),
            tensor_waits=tuple(self.tensor_waits), vectors=self.vectors,
        )  # fmt: skip

    def unravel(self, flat: str, order: Sequence[int], place: int, depth: int) -> None:
        """Define the loop variables of `order` (outer to inner) from a flat index, those that the body uses.

        The lines are inserted before line `place` at indentation `depth`.
        """
        lines = []
        extents = [self.nest.extent[loop] for loop in order]
        for n, loop in enumerate(order):
            var = self.vars[loop]
            if var.name not in self.used or var.extent == 1:
                continue
            step = prod(extents[n + 1 :])
            text = flat if step == 1 else f"{flat} // u32({step})"
            if prod(extents[:n]) > 1:
                text = f"{text} % u32({var.extent})"
            lines.append(f"{INDENT * depth}{var.name} = u32({text})")
        self.lines[place:place] = lines

    def flat_alias(self, flat: str, order: Sequence[int]) -> None:
        """Let index expressions use the flat index itself where they contain all its loops in order."""
        total, step = Affine(), 1
        for loop in reversed(order):
            total = total + variable(self.vars[loop]).scaled(step)
            step *= self.nest.extent[loop]
        self.aliases.append((total, Var(flat, step)))

    def write_at(self, storage: int, loops: frozenset[int]) -> None:
        """Store what the group computes for a storage at the current point of `loops`.

        Where the value has fewer loops than the kernel, one point of the others stores it.
        """
        position = self.task.writer(storage)
        own = self.nest.loops(position)
        if not own <= loops or position in self.nest.inlined:
            raise UnsupportedError(f"{self.program.storage[storage].value} is written at points the kernel has not")
        rest = [self.vars[loop] for loop in sorted(loops - own) if self.nest.extent[loop] > 1]
        index = self.coords(position)
        op = self.program.operators[self.nest.members[position]]
        name, where = self.program.storage[storage].value, index
        if op.in_place:
            node = self.graph.nodes[op.node]
            name, where = node.reads[-1], updated_index(node, len(self.graph.type_of(name).shape), index)
        if rest:
            self.used.update(var.name for var in rest)
            with self.block(f"if {' and '.join(f'{var.name} == u32(0)' for var in rest)}:"):
                self.store(storage, where, self.stored(storage, self.at(name, index)))
        else:
            self.store(storage, where, self.stored(storage, self.at(name, index)))

    def stored(self, storage: int, text: str) -> str:
        """A scalar as it is stored: 16-bit floats are narrowed by name."""
        dtype = self.program.storage[storage].type.dtype
        return f"{dtype.value}({text})" if dtype in (DType.F16, DType.BF16) else text


def shared_type(dtype: DType) -> str:
    """The type of a shared-memory array for elements of `dtype`: Numba has none of bf16, whose bits are held."""
    if dtype is DType.BF16:
        return "u16"
    return "b1" if dtype is DType.BOOL else dtype.value


def kernel_order(program: Program, nest: Nest) -> tuple[int, ...]:
    """The loops of a pointwise or row kernel, outer to inner, as the spanning operator lies in memory."""
    span = nest.span
    op = program.operators[nest.members[span]]
    found: list[int] = []
    if nest.reduced and op.reads and nest.red[span]:
        found += [loop for loop in nest.indices(span, op.reads[0]) if loop >= 0]
    found += nest.out[span]
    if op.kind.value == "reduce":
        found += nest.red[span]
    return tuple(dict.fromkeys(found))


def ceil_div(a: int, b: int) -> int:
    """The quotient rounded up."""
    return -(-a // b)
