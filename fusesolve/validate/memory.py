"""Running a plan kernel by kernel over a memory of storage: each kernel sees only what it reads."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from fusesolve.candidates.program import Operator
from fusesolve.codegen.planned import PlannedKernel, PlannedProgram
from fusesolve.errors import ValidationError
from fusesolve.graph import Node
from fusesolve.reference import run_node

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

# What computes one kernel: (kernel, arrays of the storage that it reads) -> arrays of the storage that it writes.
Execute: TypeAlias = Callable[[PlannedKernel, "Mapping[int, Array]"], "dict[int, Array]"]
# Told after each kernel: (kernel, what it read, what it wrote).
Watch: TypeAlias = Callable[[PlannedKernel, "Mapping[int, Array]", "Mapping[int, Array]"], None]


class KernelFaultError(ValidationError):
    """A kernel that cannot be run as its group says: `kernel` is its number, None where no kernel is to blame."""

    def __init__(self, kernel: int | None, message: str) -> None:
        super().__init__(message)
        self.kernel = kernel


def run_plan(
    planned: PlannedProgram, feeds: "Mapping[str, Array]", execute: Execute, watch: Watch
) -> "dict[str, Array]":
    """The graph's outputs by name, computed kernel by kernel with `execute`; `watch` sees each kernel's arrays.

    KernelFaultError where a kernel reads what nothing has written, and where no kernel writes an output of the graph.
    """
    storage = planned.program.storage
    graph = planned.graph
    memory = {planned.where[name]: feeds[name] for name in (*graph.inputs, *graph.weights)}
    for kernel in planned.kernels:
        absent = [storage[s].value for s in kernel.reads if s not in memory]
        if absent:
            raise KernelFaultError(kernel.id, f"group {kernel.id} reads {absent[0]!r}, which no earlier group writes")
        read = {s: memory[s] for s in kernel.reads}
        written = execute(kernel, read)
        watch(kernel, read, written)
        memory.update(written)
    absent = [name for name in graph.outputs if planned.where[name] not in memory]
    if absent:
        raise KernelFaultError(None, f"no group writes the graph's output {absent[0]!r}")
    return {name: memory[planned.where[name]].reshape(graph.type_of(name).shape) for name in graph.outputs}


class ReferenceKernel:
    """Computes a kernel in NumPy exactly as its group says: its own nodes, from its own reads."""

    def __init__(self, planned: PlannedProgram) -> None:
        self.planned = planned

    def __call__(self, kernel: PlannedKernel, read: "Mapping[int, Array]") -> "dict[int, Array]":
        """The kernel's writes by storage; KernelFaultError where a node's operand or a promised write is not there."""
        program = self.planned.program
        inside = dict(read)
        for member in kernel.members:
            self._run(kernel, program.operators[member], inside)
        absent = [program.storage[s].value for s in kernel.writes if s not in inside]
        if absent:
            raise KernelFaultError(kernel.id, f"group {kernel.id} promises {absent[0]!r}; none of its nodes makes it")
        return {s: inside[s] for s in kernel.writes}

    def _run(self, kernel: PlannedKernel, operator: Operator, inside: "dict[int, Array]") -> None:
        graph = self.planned.graph
        node = graph.nodes[operator.node]
        values = operands(self.planned, node, inside)
        absent = [name for name in node.reads if name not in values]
        if absent:
            raise KernelFaultError(
                kernel.id,
                f"group {kernel.id}: {node.name} reads {absent[0]!r}, which is neither read nor computed there",
            )
        results = run_node(graph, node, values)
        inside.update(zip(operator.writes, (results[name] for name in node.outputs), strict=True))


def operands(planned: PlannedProgram, node: Node, inside: "Mapping[int, Array]") -> "dict[str, Array]":
    """The node's operands by name, each storage under the shape of the view that the node reads."""
    graph = planned.graph
    found = {name: planned.where[name] for name in node.reads}
    return {name: inside[s].reshape(graph.type_of(name).shape) for name, s in found.items() if s in inside}
