"""Access maps, written out by hand."""

from fusesolve.access import BROADCAST, INDIRECT, WHOLE, Access, AccessKind, AccessMap, reduced, same
from fusesolve.builder import GraphBuilder
from fusesolve.graph import AttrValue, DType, Literal, Operand, TensorType
from fusesolve.ops import access_map


def access(op: str, *shapes: tuple[int, ...] | Literal, dtype: DType = DType.F32, **attrs: AttrValue) -> AccessMap:
    builder = GraphBuilder("one")
    operands: list[Operand] = []
    for index, shape in enumerate(shapes):
        if isinstance(shape, Literal):
            operands.append(shape)
        else:
            kind = DType.I64 if index and op.startswith(("gather", "scatter")) and index == 1 else dtype
            operands.append(builder.input(f"x{index}", TensorType(kind, shape)))
    builder.output(builder.add(op, operands, attrs)[0])
    graph = builder.build()
    return access_map(graph, graph.nodes[0])


def shifted(out: int) -> Access:
    return Access(AccessKind.SHIFTED, out=out)


def window(out: int, red: int) -> Access:
    return Access(AccessKind.WINDOW, out=out, red=red)


def test_elementwise() -> None:
    found = access("add", (4, 1), (3,))
    assert found == AccessMap(((same(0), BROADCAST), (same(1),)))
    assert access("mul", (4, 3), Literal(2.0)).operands == ((same(0), same(1)), ())


def test_reductions() -> None:
    found = access("reduce_sum", (2, 3, 4), axis=(0, 2))
    assert found == AccessMap(((reduced(0), same(0), reduced(1)),), (2, 4))
    found = access("reduce_sum", (2, 3, 4), axis=(0, 2), keepdims=True)
    assert found == AccessMap(((reduced(0), same(1), reduced(1)),), (2, 4))


def test_matmul() -> None:
    found = access("matmul", (7, 1, 4, 5), (3, 6, 5), transpose_b=True)
    assert found.operands[0] == (same(0), BROADCAST, same(2), reduced(0))
    assert found.operands[1] == (same(1), same(3), reduced(0))
    assert found.reduced == (5,)
    assert access("matmul", (5, 4), (5, 6), transpose_a=True).operands[0] == (reduced(0), same(0))


def test_convolution() -> None:
    found = access("conv2d", (1, 3, 8, 8), (4, 3, 2, 3))
    assert found.operands[0] == (same(0), reduced(0), window(2, 1), window(3, 2))
    assert found.operands[1] == (same(1), reduced(0), reduced(1), reduced(2))
    assert found.reduced == (3, 2, 3)
    grouped = access("conv2d", (1, 4, 8, 8), (4, 1, 3, 3), group=4)
    assert grouped.operands[0][1] == window(1, 0)
    assert grouped.reduced == (1, 3, 3)


def test_a_transposed_convolution_counts_the_products_that_there_are() -> None:
    # x[1, 4, 3, 3] through w[4, 2, 4, 4] at stride 2 gives [1, 2, 8, 8]. Products: 9 pixels x 16 taps x 4 x 2 = 1152;
    # result 128 elements x 4 channels x ceil(4/2)^2 taps = 2048 counts the full border, at most twice as many here.
    found = access("conv2d_transpose", (1, 4, 3, 3), (4, 2, 4, 4), stride=2)
    assert found.reduced == (4, 2, 2)
    assert found.operands[0] == (same(0), reduced(0), window(2, 1), window(3, 2))


def test_windows() -> None:
    assert access("maxpool", (1, 2, 8), k=3) == AccessMap(((same(0), same(1), window(2, 0)),), (3,))
    assert access("stencil", (4, 5), axis=1, offsets=(-1, 0, 1)) == AccessMap(((same(0), window(1, 0)),), (3,))
    assert access("resize_nearest", (1, 2, 4), to=(1, 2, 8)).operands == ((same(0), same(1), shifted(2)),)
    assert access("resize_linear", (1, 2, 4), to=(1, 2, 8)) == AccessMap(((same(0), same(1), window(2, 0)),), (2,))


def test_movement() -> None:
    assert access("transpose", (2, 3, 4), perm=(2, 0, 1)).operands == ((same(1), same(2), same(0)),)
    assert access("slice", (4, 5), axis=1, end=3).operands == ((same(0), shifted(1)),)
    assert access("concat", (4, 5), (4, 2), axis=1).operands == ((same(0), shifted(1)), (same(0), shifted(1)))
    assert access("pad", (4, 5), axis=0, before=1).operands == ((shifted(0), same(1)),)
    assert access("broadcast", (3, 1), to=(2, 3, 4)).operands == ((same(1), BROADCAST),)
    assert access("reshape", (4, 5), to=(20,)).operands == ((WHOLE, WHOLE),)
    assert access("select_scatter", (4, 5), (4, 1), axis=1).operands[1] == (same(0), BROADCAST)
    assert access("select_scatter", (4, 5), (4,), axis=1).operands[1] == (same(0),)
    assert access("slice_update", (4, 5), (2, 5)).operands == ((same(0), same(1)), (shifted(0), same(1)))


def test_indexing() -> None:
    found = access("gather", (5, 6, 7), (2, 3), axis=1)
    assert found.operands == ((same(0), INDIRECT, same(3)), (same(1), same(2)))
    assert access("gather_elements", (4, 6), (2, 5), axis=1).operands == ((shifted(0), INDIRECT), (same(0), same(1)))
    assert access("gather_nd", (3, 4, 5), (2, 2)).operands == ((INDIRECT, INDIRECT, same(1)), (same(0), WHOLE))
    assert access("scatter_add", (5, 2), (3,), (3, 2)).operands == ((same(0), same(1)), (WHOLE,), (WHOLE, WHOLE))
    assert access("cumsum", (4, 5), axis=1).operands == ((same(0), WHOLE),)
    assert access("topk", (4, 5), k=2).operands == ((same(0), WHOLE),)


def test_generators_read_nothing() -> None:
    assert access("arange", n=4) == AccessMap(())
