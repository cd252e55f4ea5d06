"""fusesolve: provably optimal kernel-fusion plans for neural-network graphs on a described accelerator.

`plan` and `explain` are what the command line calls; everything else is imported from its own module.
Importing this package loads no solver, compiler or array library: they come with the first call.
"""

from typing import TYPE_CHECKING, Any

from fusesolve.errors import FusesolveError, InputError, InternalError, MissingError, NoPlanError, ValidationError
from fusesolve.plan import Plan

if TYPE_CHECKING:
    from fusesolve.explanation import Explanation
    from fusesolve.graph import Graph
    from fusesolve.hardware import HardwareProfile

__version__ = "0.1.0"

__all__ = [
    "FusesolveError",
    "InputError",
    "InternalError",
    "MissingError",
    "NoPlanError",
    "Plan",
    "ValidationError",
    "__version__",
    "explain",
    "plan",
]


def plan(graph: "Graph | str", hardware: "HardwareProfile | str", **options: Any) -> Plan:
    """Plan `graph` for `hardware`: names of bundled ones, paths, or loaded objects.

    `options` are the keywords of `fusesolve.pipeline.plan` (strategy, recompute, launch, implementation,
    time_limit in seconds, together, apart, max_memory in bytes ...). Raises InputError for bad input; a plan that
    does not exist is a `Plan` with status INFEASIBLE or NO_SOLUTION, not an exception.
    """
    from fusesolve import pipeline

    return pipeline.plan(graph, hardware, **options)


def explain(graph: "Graph | str", hardware: "HardwareProfile | str", **options: Any) -> "Explanation":
    """Say why operators share a kernel or do not, with the numbers (`between=(A, B)` or `group=N`).

    The other `options` are those of `plan`. Raises InputError where a name or a group number does not exist.
    """
    from fusesolve import explanation

    return explanation.explain(graph, hardware, **options)
