"""Groups that a vendor's library does best: matrix products by cuBLAS, which CuPy calls where it is installed.

The library is the machine's own: the generated file looks for CuPy when it is imported and leaves such groups to the
host where it is absent, in the simulator, and for what CuPy has no call for (attention, convolutions, bfloat16,
a result of another type than the operands).
"""

from fusesolve.codegen.planned import PlannedKernel, PlannedProgram
from fusesolve.codegen.scalars import UnsupportedError
from fusesolve.graph import DType, Node, TensorType

PREAMBLE_LIBRARY = '''\
try:
    import cupy  # matrix products by cuBLAS
except ImportError:
    cupy = None
LIBRARY = cupy is not None and not SIMULATED


def product(left, left_shape, right, right_shape, out, shape, turned=(False, False)):
    """out = left @ right, either operand transposed, on the default stream, which kernels run on too."""
    pairs = (left, left_shape), (right, right_shape), (out, shape)
    left, right, out = (cupy.asarray(a)[: math.prod(extents)].reshape(extents) for a, extents in pairs)
    left, right = (a.swapaxes(-1, -2) if turn else a for a, turn in zip((left, right), turned))
    cupy.matmul(left, right, out=out)


def library_or_host(host, group, reads, writes):
    """Let the library compute a group, the host where there is none."""
    if LIBRARY:
        GROUPS[group][0](*reads, *writes)
    else:
        by_host(host, group, reads, writes)
'''
REASON = "a library call: cuBLAS where CuPy is installed, else the host"
_TYPES = frozenset({DType.F16, DType.F32, DType.F64})


def product_calls(planned: PlannedProgram, group: PlannedKernel) -> list[str]:
    """The lines of a launcher that lets the library compute a group, a product a line; its arguments are a0, a1, ….

    UnsupportedError where one of the group's operators is not a product that CuPy has a call for.
    """
    program = planned.program
    argument = {storage: f"a{n}" for n, storage in enumerate((*group.reads, *group.writes))}
    nodes = [program.graph.nodes[program.operators[member].node] for member in group.members]
    if any(node.op != "matmul" for node in nodes):
        raise UnsupportedError(f"a library call that CuPy does not reach ({group.template}): the host computes it")
    read = [program.storage[planned.where[name]] for node in nodes for name in node.reads[:2]]
    if any(item.producer is None and planned.graph.values[item.value].strides for item in read):
        raise UnsupportedError("a library call on an operand that lies by strides: the host computes it")
    lines = []
    for node in nodes:
        types = _product_types(planned, node)
        values = (*node.reads[:2], node.outputs[0])
        pairs = [f"{argument[planned.where[value]]}, {kind.shape}" for value, kind in zip(values, types, strict=True)]
        turned = (bool(node.attr("transpose_a")), bool(node.attr("transpose_b")))
        lines.append(f"product({', '.join([*pairs, str(turned)] if any(turned) else pairs)})")
    return lines


def _product_types(planned: PlannedProgram, node: Node) -> list[TensorType]:
    """Types of both operands and of the result; UnsupportedError where the library has no such product."""
    graph = planned.graph
    types = [graph.type_of(value) for value in (*node.reads[:2], node.outputs[0])]
    kinds = {kind.dtype for kind in types}
    if len(kinds) > 1 or not kinds <= _TYPES:
        names = ", ".join(sorted(kind.value for kind in kinds))
        raise UnsupportedError(f"a library call that CuPy does not reach (products of {names}): the host computes it")
    return types
