"""The generated file of a plan: kernels, one launcher per group, and `run`, in the order of the plan.

Nothing from the graph's file is in it but extents and numbers: arrays go by position, groups by number.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fusesolve import __version__
from fusesolve.candidates.program import Program
from fusesolve.codegen.kernel import EmittedKernel, Workspace, filled
from fusesolve.codegen.library import PREAMBLE_LIBRARY, REASON, product_calls
from fusesolve.codegen.planned import PlannedKernel, PlannedProgram
from fusesolve.codegen.preamble import PREAMBLE, PREAMBLE_BF16, PREAMBLE_BOUNDED, PREAMBLE_VECTORS
from fusesolve.codegen.scalars import UnsupportedError
from fusesolve.codegen.templates import emit_group
from fusesolve.codegen.tensor_source import tensor_preamble
from fusesolve.graph import DType


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedKernel:
    """A kernel function of the file: its name and what its arguments are (storage numbers, -1 the workspace)."""

    name: str
    emitted: EmittedKernel


@dataclass(frozen=True, kw_only=True)
class GeneratedPlan:
    """The file's text, the kernels of each group that has source, and why the other groups have none of their own."""

    text: str
    kernels: Mapping[int, tuple[GeneratedKernel, ...]]
    refused: Mapping[int, str]
    workspaces: Mapping[int, Workspace]


def generate(planned: PlannedProgram, *, runs: bool = True) -> GeneratedPlan:
    """Write the source of a plan. Library calls go to the library; opaque operators are left to the host.

    `runs` False leaves out the launchers and `run`: kernels that are only compiled.
    """
    kernels: dict[int, tuple[GeneratedKernel, ...]] = {}
    refused: dict[int, str] = {}
    calls: dict[int, list[str]] = {}
    for group in planned.kernels:
        try:
            if group.implementation == "library":
                calls[group.id] = product_calls(planned, group)
                refused[group.id] = REASON
                continue
            if not filled(planned.program, group):
                refused[group.id] = "nothing to compute: its results are empty"
                continue
            emitted = emit_group(planned.program, group)
        except UnsupportedError as error:
            refused[group.id] = str(error)
            continue
        names = [f"k{group.id}" if len(emitted) == 1 else f"k{group.id}_{n}" for n in range(len(emitted))]
        kernels[group.id] = tuple(
            GeneratedKernel(name=name, emitted=item) for name, item in zip(names, emitted, strict=True)
        )
    workspaces = {
        number: found for number, items in kernels.items() for item in items
        if (found := item.emitted.workspace) is not None
    }  # fmt: skip
    file = _File(planned, kernels, calls, workspaces)
    text = file.text() if runs else "\n\n".join(file.kernel_parts())
    return GeneratedPlan(text=text, kernels=kernels, refused=refused, workspaces=workspaces)


class _File:
    """Puts the parts of the file together."""

    def __init__(
        self, planned: PlannedProgram, kernels: Mapping[int, Sequence[GeneratedKernel]],
        calls: Mapping[int, Sequence[str]], workspaces: Mapping[int, Workspace],
    ) -> None:  # fmt: skip
        self.planned = planned
        self.program: Program = planned.program
        self.kernels = kernels
        self.calls = calls
        self.workspaces = workspaces
        self.space: dict[str, int] = {}  # elements of the workspace of each type, which groups use in turn
        for found in workspaces.values():
            self.space[found.kind] = max(found.size, self.space.get(found.kind, 0))

    def kernel_parts(self) -> list[str]:
        """The head of the file and its kernels."""
        types = {item.type.dtype for item in self.program.storage}
        emitted = [item.emitted for items in self.kernels.values() for item in items]
        tiles = [tile for item in emitted for tile in item.tensor_tiles]
        waits = [count for item in emitted for count in item.tensor_waits]
        return [
            f'"""Kernels of a plan, written by fusesolve {__version__}. run(inputs) executes the plan."""\n',
            PREAMBLE + (PREAMBLE_BF16 if DType.BF16 in types else ""),
            *([PREAMBLE_BOUNDED] if any(item.registers for item in emitted) else []),
            *([PREAMBLE_VECTORS] if any(item.vectors for item in emitted) else []),
            *([tensor_preamble(tiles, waits)] if tiles else []),
            *([PREAMBLE_LIBRARY] if self.calls else []),
            *(self._kernel(item, group) for group in self.planned.kernels for item in self.kernels.get(group.id, ())),
        ]

    def text(self) -> str:
        parts = [
            *self.kernel_parts(),
            *(
                self._launcher(group)
                for group in self.planned.kernels
                if group.id in self.kernels or group.id in self.calls
            ),
            self._table(),
            self._run(),
        ]
        return "\n\n".join(part.rstrip("\n") + "\n" for part in parts)

    def _kernel(self, item: GeneratedKernel, group: PlannedKernel) -> str:
        emitted = item.emitted
        tiling = ", ".join(f"{name} {value}" for name, value in sorted(group.tiling.items()))
        head = f"# group {group.id}, {group.template}: {emitted.blocks} blocks of {emitted.threads}; {tiling}"
        return f"{head}\n{emitted.text(item.name)}"

    def _launcher(self, group: PlannedKernel) -> str:
        items = self.kernels.get(group.id, ())
        names = {s: f"a{n}" for n, s in enumerate((*group.reads, *group.writes))}
        lines = [f"def g{group.id}({', '.join(names.values())}):"]
        space = self.workspaces.get(group.id)
        if space is not None:
            lines.append(f'    w0 = kept("{space.kind}", {self.space[space.kind]}, {space.kind})')
        for item in items:
            emitted = item.emitted
            shape = f"{emitted.blocks}, {emitted.threads}" + (f", 0, {emitted.shared}" if emitted.shared else "")
            lines.append(f"    {item.name}[{shape}]({', '.join(names.get(s, 'w0') for s in emitted.arguments)})")
        lines += [f"    {call}" for call in self.calls.get(group.id, ())]
        return "\n".join(lines) + "\n"

    def _table(self) -> str:
        """GROUPS: number -> (launcher or None, element counts and types of what it reads, and of what it writes).

        What is written in place has a third number: which of the arrays that the group reads it is written into.
        """
        lines = ["# group: launcher (None: the host computes it), (size, type) of what it reads and of what it writes"]
        lines.append("GROUPS = {")
        bases = in_place(self.program)
        for group in self.planned.kernels:
            launcher = f"g{group.id}" if group.id in self.kernels else "None"
            launcher = f"g{group.id} if LIBRARY else None" if group.id in self.calls else launcher
            into = {s: f", {group.reads.index(bases[s])}" for s in group.writes if bases.get(s) in group.reads}
            reads, writes = self._slots(group.reads, {}), self._slots(group.writes, into)
            lines.append(f"    {group.id}: ({launcher}, {reads}, {writes}),")
        return "\n".join([*lines, "}"]) + "\n"

    def _slots(self, storages: Sequence[int], more: Mapping[int, str]) -> str:
        parts = [
            f"({self._elements(s)}, {_array_type(self.program.storage[s].type.dtype)}{more.get(s, '')}), "
            for s in storages
        ]  # fmt: skip
        return "(" + "".join(parts).rstrip() + ")"

    def _elements(self, storage: int) -> int:
        """Elements that a storage takes in memory."""
        shape, steps = self._layout(storage)
        made = self.program.storage[storage].producer is not None
        if made or steps is None or 0 in shape:
            return self.program.storage[storage].type.size
        return 1 + sum(step * (extent - 1) for step, extent in zip(steps, shape, strict=True))

    def _run(self) -> str:
        """`run`: every step in order, over buffers that are shared by arrays that do not live at the same time."""
        graph = self.planned.graph
        fed = [self.planned.where[name] for name in (*graph.inputs, *graph.weights)]
        made = list(dict.fromkeys(self.planned.where[name] for name in graph.outputs))
        slots = _Slots(self.planned, fed, made)
        buffers = ", ".join(f"({size}, {_array_type(kind)})" for size, kind in slots.buffers)
        lines = [
            f"INPUTS = ({''.join(f'{self._layout(s)}, ' for s in fed).rstrip()})",
            f"BUFFERS = ({buffers}{',' if slots.buffers else ''})\n\n",
            "def run(inputs, host=None):",
            f'    """Execute the plan: {len(fed)} arrays in the order of the graph\'s inputs and weights, '
            f"{len(graph.outputs)} results.",
            "",
            "    host(group, arrays) returns what a group without a kernel writes.",
            '    """',
            f"    if len(inputs) != {len(fed)}:",
            f'        raise ValueError(f"run takes {len(fed)} arrays, got {{len(inputs)}}")',
            "    x = [cuda.to_device(laid(item, *given)) for item, given in zip(inputs, INPUTS)]",
            "    b = [kept(n, size, kind) for n, (size, kind) in enumerate(BUFFERS)]",
        ]
        names = {storage: f"x[{n}]" for n, storage in enumerate(fed)}
        bases = in_place(self.program)
        for group in self.planned.kernels:
            names.update(slots.names(group))
            names.update({s: names[bases[s]] for s in group.writes if s in bases})
            reads, writes = ([names[s] for s in part] for part in (group.reads, group.writes))
            if group.id in self.kernels:
                lines.append(f"    g{group.id}({', '.join((*reads, *writes))})")
            elif filled(self.program, group):
                whose = "library_or_host" if group.id in self.calls else "by_host"
                lines.append(f"    {whose}(host, {group.id}, [{', '.join(reads)}], [{', '.join(writes)}])")
        results = [self._result(name, names) for name in graph.outputs]
        lines.append(f"    return ({', '.join(results)}{',' if len(results) == 1 else ''})")
        return _MEMORY + "\n\n" + "\n".join(lines) + "\n"

    def _layout(self, storage: int) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
        """Extents of what the plan is fed, and the steps of its axes in memory; None where it is row-major."""
        item = self.program.storage[storage]
        return item.type.shape, self.planned.graph.values[item.value].strides

    def _result(self, name: str, names: Mapping[int, str]) -> str:
        kind = self.planned.graph.type_of(name)
        return f"{names[self.planned.where[name]]}.copy_to_host()[:{kind.size}].reshape({kind.shape})"


_MEMORY = '''\
def laid(array, shape, steps):
    """An array that the plan is fed as it lies in memory: row-major, or by the steps of its axes."""
    array = np.ascontiguousarray(array)
    if array.size != math.prod(shape):
        raise ValueError(f"run takes an array of extents {shape} there, got {array.shape}")
    if steps is None:
        return array.reshape(-1)
    memory = np.zeros(1 + sum(step * max(0, extent - 1) for step, extent in zip(steps, shape)), array.dtype)
    bytes_ = [step * array.itemsize for step in steps]
    np.lib.stride_tricks.as_strided(memory, shape, bytes_)[...] = array.reshape(shape)
    return memory


KEPT = {}


def kept(name, size, kind):
    """Memory of the device that the first call makes and later ones use again."""
    if name not in KEPT:
        KEPT[name] = cuda.device_array(size, kind)
    return KEPT[name]


def by_host(host, group, reads, writes):
    """Let the host compute a group: copy what it reads, call, copy what it writes."""
    if host is None:
        raise ValueError(f"group {group} has no kernel: give run a host function that computes it")
    slots = GROUPS[group]
    arrays = [item.copy_to_host()[:size] for item, (size, _) in zip(reads, slots[1])]
    for item, (size, kind, *_), array in zip(writes, slots[2], host(group, arrays)):
        item[:size].copy_to_device(np.ascontiguousarray(array, kind).reshape(-1))
'''


def in_place(program: Program) -> dict[int, int]:
    """The storage of each update in place, and the storage in whose memory it lies."""
    return {op.writes[0]: op.reads[0].storage for op in program.operators if op.in_place}


class _Slots:
    """Buffers for what groups write: a buffer is taken again once its last reader has run."""

    def __init__(self, planned: PlannedProgram, fed: Sequence[int], kept: Sequence[int]) -> None:
        self.storage = planned.program.storage
        self.buffers: list[tuple[int, DType]] = []
        self.slot: dict[int, int] = {}
        self.bases = in_place(planned.program)
        whole = {self._root(s) for s in kept}
        touched = [{self._root(s) for s in (*group.reads, *group.writes)} for group in planned.kernels]
        last = {s: step for step, found in enumerate(touched) for s in found}
        free: list[int] = []
        for step, group in enumerate(planned.kernels):
            for s in map(self._root, group.writes):
                if s not in self.slot and s not in fed:
                    self.slot[s] = self._take(s, free)
            free += sorted(
                self.slot[s] for s in touched[step] if last[s] == step and s in self.slot and s not in whole
            )  # fmt: skip

    def _root(self, storage: int) -> int:
        """The storage whose memory this one is: an update in place has none of its own."""
        while storage in self.bases:
            storage = self.bases[storage]
        return storage

    def _take(self, storage: int, free: list[int]) -> int:
        kind = self.storage[storage].type
        for slot in free:
            size, dtype = self.buffers[slot]
            if dtype is kind.dtype:
                free.remove(slot)
                self.buffers[slot] = (max(size, kind.size), dtype)
                return slot
        self.buffers.append((kind.size, kind.dtype))
        return len(self.buffers) - 1

    def names(self, group: PlannedKernel) -> dict[int, str]:
        """The buffer of each storage that a group writes, those that it writes in place left out."""
        return {s: f"b[{self.slot[s]}]" for s in group.writes if s not in self.bases}


def _array_type(dtype: DType) -> str:
    """The name of the type of an array in memory."""
    return {DType.BOOL: "b1", DType.BF16: "stored_bf16"}.get(dtype, dtype.value)
