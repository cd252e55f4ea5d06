"""What types a device computes in, what its kernels can name, and graphs made to fit."""

from fusesolve.errors import InputError
from fusesolve.graph import DType, Graph
from fusesolve.hardware import HardwareProfile
from fusesolve.importers.retype import retype_graph
from fusesolve.pipeline.wide import fit_arguments

_WIDER_THAN_HALF = frozenset({DType.F32, DType.F64, DType.BF16})


def fit_graph(graph: Graph, profile: HardwareProfile) -> tuple[Graph, tuple[str, ...]]:
    """The graph as the device can run it: in its types (`fit_dtypes`), by its arguments (`fit_arguments`), warnings."""
    typed, retyped = fit_dtypes(graph, profile)
    fitted, stepped = fit_arguments(typed, profile)
    return fitted, (*retyped, *stepped)


def fit_dtypes(graph: Graph, profile: HardwareProfile) -> tuple[Graph, tuple[str, ...]]:
    """The graph in types that the device has, with a warning where that changed it.

    An engine with f16 arithmetic takes wider floats as f16. InputError where an integer-only engine is given floats.
    """
    floats = {value.type.dtype for value in graph.values.values() if value.type.dtype.is_float}
    if profile.kind != "npu" or not floats:
        return graph, ()
    if not _has_half(profile):
        raise InputError(
            f"profile {profile.name} computes in integers only, graph {graph.name} has {', '.join(sorted(floats))} "
            "values; plan the quantised network with --as-dtype i8"
        )
    wider = floats & _WIDER_THAN_HALF
    if not wider:
        return graph, ()
    warning = f"{profile.name} computes in f16: {', '.join(sorted(wider))} values are planned as f16"
    return retype_graph(graph, DType.F16), (warning,)


def _has_half(profile: HardwareProfile) -> bool:
    pipes = (profile.compute.tensor, profile.compute.pipes.fma)
    return any(pipe is not None and "f16" in pipe.per_clock for pipe in pipes)
