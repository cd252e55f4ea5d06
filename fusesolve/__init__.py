"""fusesolve: provably optimal kernel-fusion plans for neural-network graphs on a described accelerator.

`plan`, `explain`, `compare` and `diff` are what the command line calls; all else is imported from its own module.
Importing this package loads no solver, compiler or array library: they come with the first call.
"""

from typing import TYPE_CHECKING, Any

from fusesolve.errors import FusesolveError, InputError, InternalError, MissingError, NoPlanError, ValidationError
from fusesolve.plan import Plan

if TYPE_CHECKING:
    from fusesolve.comparison import Comparison
    from fusesolve.difference import Difference
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
    "compare",
    "diff",
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


def compare(graph: "Graph | str", hardware: "HardwareProfile | str", **options: Any) -> "Comparison":
    """Price what every strategy makes of `graph` on `hardware`, beside the optimum.

    `strategies`: names, left out: all. `partitions`: files or documents of what other compilers chose. The other
    `options` are those of `plan`, without pins. Raises InputError for bad input, NoPlanError where there is no plan.
    """
    from fusesolve import comparison

    return comparison.compare(graph, hardware, **options)


def diff(left: "Plan | str", right: "Plan | str") -> "Difference":
    """Tell two plans apart (objects or JSON files): kernels merged, split, regrouped, re-tiled, by time and bytes.

    Raises InputError where a file is no plan, or the plans share no operator.
    """
    from fusesolve import difference

    return difference.diff(left, right)
