"""What types a device computes in, and graphs made to fit."""

from dataclasses import replace

from fusesolve.errors import InputError
from fusesolve.graph import DType, Graph, Node, TensorType, Value
from fusesolve.hardware import HardwareProfile


def fit_dtypes(graph: Graph, profile: HardwareProfile) -> tuple[Graph, tuple[str, ...]]:
    """The graph in types that the device has, with a warning where that changed it.

    An engine with f16 arithmetic takes f32 and f64 as f16. InputError where an integer-only engine is given floats.
    """
    if profile.kind != "npu":
        return graph, ()
    wide = {DType.F32, DType.F64, DType.BF16}
    floats = {v.type.dtype for v in graph.values.values() if v.type.dtype.is_float}
    if not floats:
        return graph, ()
    if _has(profile, "f16"):
        if not floats & wide:
            return graph, ()
        narrowed = retype(graph, {dtype: DType.F16 for dtype in wide})
        return narrowed, (f"{profile.name} computes in f16: {', '.join(sorted(floats & wide))} planned as f16",)
    raise InputError(
        f"profile {profile.name} computes in integers only, graph {graph.name} has {', '.join(sorted(floats))} values; "
        "plan the quantised network with --as-dtype i8"
    )


def _has(profile: HardwareProfile, dtype: str) -> bool:
    tensor, fma = profile.compute.tensor, profile.compute.pipes.fma
    return any(pipe is not None and dtype in pipe.per_clock for pipe in (tensor, fma))


def retype(graph: Graph, change: dict[DType, DType]) -> Graph:
    """The graph with element types replaced, casts that this makes idle included."""

    def new_type(kind: TensorType) -> TensorType:
        return TensorType(change.get(kind.dtype, kind.dtype), kind.shape)

    def new_value(value: Value) -> Value:
        return replace(value, type=new_type(value.type))

    def new_node(node: Node) -> Node:
        names = {old.value: new.value for old, new in change.items()}
        attrs = tuple(
            (key, names.get(item, item) if node.op == "cast" and isinstance(item, str) else item)
            for key, item in node.attrs
        )
        return replace(node, attrs=attrs)

    return replace(
        graph, nodes=tuple(map(new_node, graph.nodes)),
        values={name: new_value(value) for name, value in graph.values.items()},
    )  # fmt: skip
