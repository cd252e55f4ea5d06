"""Step 2 of the ladder: the generated source, run by Numba's CUDA simulator, against the reference."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fusesolve.codegen.module import GeneratedPlan, generate
from fusesolve.codegen.planned import PlannedKernel, PlannedProgram, read_plan
from fusesolve.codegen.runtime import KernelError, Simulator, check_extra
from fusesolve.graph import Graph
from fusesolve.ops.numpy_reference import numpy_dtype
from fusesolve.validate.memory import KernelFaultError, ReferenceKernel
from fusesolve.validate.shrink import shrink_graph

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

# Extents to try, from larger to smaller: (innermost, elsewhere).
SHRINKINGS = ((129, 2), (65, 2), (33, 2), (17, 2), (9, 2), (5, 2))
THREADS = 5_000  # threads that a simulated plan should have: about a minute on one core
THREADS_ALONE = 1_000  # likewise a group that is simulated alone
SPLITS = 4  # parts of a reduced axis that are simulated at most: hundreds of blocks would find no elements
MOST_THREADS = 20_000  # threads of a plan that is simulated as a whole; of one that has more each group alone
MOST_ALONE = 100_000  # threads of a group that is simulated alone; one that has more is not judged


def simulated_plan(
    document: Mapping[str, Any], graph: Graph, threads: int = THREADS
) -> tuple[PlannedProgram, GeneratedPlan]:
    """The plan over shrunk extents with its source: the largest of `SHRINKINGS` that has at most so many threads."""
    document = {**document, "groups": [_few_splits(group) for group in document.get("groups") or ()]}
    for inner, outer in SHRINKINGS:
        planned = read_plan(document, shrink_graph(graph, inner=inner, outer=outer))
        made = generate(planned)
        if threads_of(made) <= threads:
            break
    return planned, made


def _few_splits(group: Mapping[str, Any]) -> dict[str, Any]:
    """A group of a plan whose reduced axes are split `SPLITS` ways at most."""

    def capped(tiling: Mapping[str, int]) -> dict[str, int]:
        return {name: min(value, SPLITS) if name == "split" else value for name, value in tiling.items()}

    found = dict(group)
    if "tiling" in group:
        found["tiling"] = capped(group["tiling"])
    if "part_tilings" in group:
        found["part_tilings"] = [capped(tiling) for tiling in group["part_tilings"]]
    return found


def threads_of(made: GeneratedPlan) -> int:
    """Threads of one run of every kernel of a file."""
    return sum(item.emitted.blocks * item.emitted.threads for items in made.kernels.values() for item in items)


class SimulatedKernel:
    """Computes a kernel of a plan by its source in the simulator, or by the reference where it has none."""

    def __init__(self, planned: PlannedProgram, made: GeneratedPlan, simulator: Simulator) -> None:
        self.planned = planned
        self.made = made
        self.simulator = simulator
        self.reference = ReferenceKernel(planned)

    def __call__(self, kernel: PlannedKernel, read: "Mapping[int, Array]") -> "dict[int, Array]":
        """The kernel's writes by storage; KernelFaultError where the simulator cannot run it."""
        if kernel.id not in self.made.kernels:
            return self.reference(kernel, read)
        storage = self.planned.program.storage
        try:
            found = self.simulator.run(kernel.id, [read[s] for s in kernel.reads])
        except KernelError as error:
            raise KernelFaultError(kernel.id, f"group {kernel.id}: {error}") from error
        types = [storage[s].type for s in kernel.writes]
        arrays = [raw.view(numpy_dtype(kind.dtype)).reshape(kind.shape) for raw, kind in zip(found, types, strict=True)]
        return dict(zip(kernel.writes, arrays, strict=True))


__all__ = ["SimulatedKernel", "check_extra", "simulated_plan", "threads_of"]
