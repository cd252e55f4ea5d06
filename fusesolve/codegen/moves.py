"""Movement, gathers and generators as index maps: each rule writes the value of its result at one index.

A rule finds which operand element the index stands for and asks for it; where that depends on the index it branches,
and inside a branch the moved index is a variable with the bounds that the branch has tested. Nothing is loaded
outside its tensor.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from fusesolve.codegen.affine import ZERO, Affine, Var, number, variable
from fusesolve.codegen.scalars import compute_type, constant, converted
from fusesolve.graph import Node
from fusesolve.ops import operand_types

if TYPE_CHECKING:
    from fusesolve.codegen.values import KernelSource

Index: TypeAlias = tuple[Affine, ...]
# (kernel, node, index of its first result) -> name of the scalar
Move: TypeAlias = "Callable[[KernelSource, Node, Index], str]"


def axis_of(node: Node) -> int:
    """The attribute `axis` as one integer."""
    axis = node.attr("axis")
    assert isinstance(axis, int)
    return axis


def whole(node: Node, name: str, default: int = 0) -> int:
    """An integer attribute."""
    value = node.attr(name, default)
    assert isinstance(value, int)
    return value


def _at_axis(index: Index, axis: int, part: Affine) -> Index:
    return (*index[:axis], part, *index[axis + 1 :])


def _copy(kernel: "KernelSource", node: Node, index: Index) -> str:
    return _typed(kernel, node, 0, index)


def _typed(kernel: "KernelSource", node: Node, position: int, index: Index) -> str:
    """Operand `position` at an index, in the register type of the result."""
    kind = operand_types(kernel.graph, node)[position]
    result = kernel.graph.type_of(node.outputs[0])
    text = kernel.operand(node.inputs[position], kind, index)
    return converted(text, compute_type(kind.dtype), compute_type(result.dtype))


def _transpose(kernel: "KernelSource", node: Node, index: Index) -> str:
    perm = node.attr("perm")
    assert isinstance(perm, tuple)
    return _copy(kernel, node, tuple(index[perm.index(axis)] for axis in range(len(perm))))


def _broadcast(kernel: "KernelSource", node: Node, index: Index) -> str:
    shape = operand_types(kernel.graph, node)[0].shape
    shift = len(index) - len(shape)
    return _copy(kernel, node, tuple(index[axis + shift] if e != 1 else ZERO for axis, e in enumerate(shape)))


def _slice(kernel: "KernelSource", node: Node, index: Index) -> str:
    axis = axis_of(node)
    part = index[axis].scaled(whole(node, "step", 1)).shifted(whole(node, "start"))
    return _copy(kernel, node, _at_axis(index, axis, part))


def _concat(kernel: "KernelSource", node: Node, index: Index) -> str:
    axis = axis_of(node)
    extents = [kind.shape[axis] for kind in operand_types(kernel.graph, node)]
    starts = [sum(extents[:i]) for i in range(len(extents))]
    part = index[axis]
    pieces = [
        i for i, (start, extent) in enumerate(zip(starts, extents, strict=True))
        if extent and part.high >= start and part.low < start + extent
    ]  # fmt: skip
    if len(pieces) == 1:
        return _typed(kernel, node, pieces[0], _at_axis(index, axis, part.shifted(-starts[pieces[0]])))
    result = kernel.fresh("m")
    for i in pieces:
        word = "if" if i == pieces[0] else "elif"
        last = i == pieces[-1]
        with kernel.block("else:" if last else f"{word} {kernel.index(part)} < u32({starts[i] + extents[i]}):"):
            moved = kernel.fix(part.shifted(-starts[i]), extents[i])  # bounded by the test
            kernel.line(f"{result} = {_typed(kernel, node, i, _at_axis(index, axis, moved))}")
    return result


def _pad(kernel: "KernelSource", node: Node, index: Index) -> str:
    axis, before = axis_of(node), whole(node, "before")
    extent = operand_types(kernel.graph, node)[0].shape[axis]
    part = index[axis]
    if part.low >= before and part.high < before + extent:
        return _copy(kernel, node, _at_axis(index, axis, part.shifted(-before)))
    if node.attr("mode") != "constant":
        return _pad_mirrored(kernel, node, index, extent)
    kind = compute_type(kernel.graph.type_of(node.outputs[0]).dtype)
    value = node.attr("value", 0)
    assert isinstance(value, int | float)
    result = kernel.value(constant(value, kind), "m")
    with kernel.block(f"if {inside(kernel, part, before, extent)}:"):
        moved = kernel.fix(part.shifted(-before), extent)
        kernel.line(f"{result} = {_copy(kernel, node, _at_axis(index, axis, moved))}")
    return result


def inside(kernel: "KernelSource", part: Affine, before: int, extent: int) -> str:
    """The test that an index lies in `before .. before + extent - 1`, without the halves that always hold."""
    text = kernel.index(part)
    tests = []
    if part.low < before:
        tests.append(f"{text} >= u32({before})")
    if part.high >= before + extent:
        tests.append(f"{text} < u32({before + extent})")
    return " and ".join(tests) or "True"


def _pad_mirrored(kernel: "KernelSource", node: Node, index: Index, extent: int) -> str:
    """Padding by the edge, or mirrored at the edge element."""
    axis, before = axis_of(node), whole(node, "before")
    text = kernel.value(f"u32({kernel.index(index[axis])})", "t")
    mirrored = node.attr("mode") == "reflect"
    low = f"u32({before}) - {text}" if mirrored else "u32(0)"
    high = f"u32({before + 2 * extent - 2}) - {text}" if mirrored else f"u32({extent - 1})"
    middle = f"{text} - u32({before}) if {text} < u32({before + extent}) else {high}"
    name = kernel.value(f"u32({low} if {text} < u32({before}) else ({middle}))", "t")
    return _copy(kernel, node, _at_axis(index, axis, variable(Var(name, extent))))


def _select_scatter(kernel: "KernelSource", node: Node, index: Index) -> str:
    axis, chosen = axis_of(node), whole(node, "index")
    rank = len(kernel.graph.type_of(node.reads[1]).shape)
    there = _at_axis(index, axis, ZERO) if rank == len(index) else (*index[:axis], *index[axis + 1 :])
    return _either(kernel, node, index, f"{kernel.index(index[axis])} == u32({chosen})", lambda: there)


def updated_index(node: Node, rank: int, index: Index) -> Index:
    """Where an update puts the element `index` of its second operand in its first one, which has `rank` axes."""
    axis = axis_of(node)
    if node.op == "slice_update":
        return _at_axis(index, axis, index[axis].scaled(whole(node, "step", 1)).shifted(whole(node, "start")))
    rest = index[axis + 1 :] if rank == len(index) else index[axis:]
    return (*index[:axis], number(whole(node, "index")), *rest)


def _slice_update(kernel: "KernelSource", node: Node, index: Index) -> str:
    axis, start, step = axis_of(node), whole(node, "start"), whole(node, "step", 1)
    count = kernel.graph.type_of(node.reads[1]).shape[axis]
    if not count:
        return _copy(kernel, node, index)
    part = index[axis]
    test = inside(kernel, part, start, (count - 1) * step + 1)
    if step > 1:
        test += f" and ({kernel.index(part)} - u32({start})) % u32({step}) == u32(0)"

    def there() -> Index:
        if count == 1:
            return _at_axis(index, axis, ZERO)
        moved = kernel.fix(part.shifted(-start), (count - 1) * step + 1)
        if step > 1:
            moved = variable(Var(kernel.value(f"u32({kernel.index(moved)} // u32({step}))", "t"), count))
        return _at_axis(index, axis, moved)

    return _either(kernel, node, index, test, there)


def _either(kernel: "KernelSource", node: Node, index: Index, test: str, there: Callable[[], Index]) -> str:
    """The second operand where the test holds, else the first at the same index."""
    result = kernel.fresh("m")
    with kernel.block(f"if {test}:"):
        kernel.line(f"{result} = {_typed(kernel, node, 1, there())}")
    with kernel.block("else:"):
        kernel.line(f"{result} = {_typed(kernel, node, 0, index)}")
    return result


# gathers


def _place(kernel: "KernelSource", node: Node, index: Index, extent: int) -> Affine:
    """The index that the second operand holds, a negative one counted from the end."""
    kind = operand_types(kernel.graph, node)[1]
    found = kernel.operand(node.inputs[1], kind, index)
    if compute_type(kind.dtype).startswith("u"):
        return variable(Var(kernel.value(f"u32({found})", "t"), extent))
    own = compute_type(kind.dtype)
    text = f"u32({found} + {own}({extent}) if {found} < {own}(0) else {found})"
    return variable(Var(kernel.value(text, "t"), extent))


def _gather(kernel: "KernelSource", node: Node, index: Index) -> str:
    axis = axis_of(node)
    data, indices = operand_types(kernel.graph, node)
    width = len(indices.shape)
    place = _place(kernel, node, index[axis : axis + width], data.shape[axis])
    return _copy(kernel, node, (*index[:axis], place, *index[axis + width :]))


def _gather_elements(kernel: "KernelSource", node: Node, index: Index) -> str:
    axis = axis_of(node)
    place = _place(kernel, node, index, operand_types(kernel.graph, node)[0].shape[axis])
    return _copy(kernel, node, _at_axis(index, axis, place))


def _gather_nd(kernel: "KernelSource", node: Node, index: Index) -> str:
    data, indices = operand_types(kernel.graph, node)
    batch, depth = whole(node, "batch"), indices.shape[-1]
    lead = index[: len(indices.shape) - 1]
    places = [_place(kernel, node, (*lead, number(i)), data.shape[batch + i]) for i in range(depth)]
    return _copy(kernel, node, (*index[:batch], *places, *index[len(lead) :]))


# generators


def _fill(kernel: "KernelSource", node: Node, index: Index) -> str:
    value = node.attr("const")
    assert isinstance(value, int | float)
    return constant(value, compute_type(kernel.graph.type_of(node.outputs[0]).dtype))


def _arange(kernel: "KernelSource", node: Node, index: Index) -> str:
    kind = compute_type(kernel.graph.type_of(node.outputs[0]).dtype)
    start, step = node.attr("start", 0), node.attr("step", 1)
    assert isinstance(start, int | float)
    assert isinstance(step, int | float)
    exact = "f64" if isinstance(start, float) or isinstance(step, float) else "i64"
    text = f"{constant(start, exact)} + {constant(step, exact)} * {exact}({kernel.index(index[0])})"
    return kernel.value(converted(f"({text})", exact, kind))


MOVES: Mapping[str, Move] = {
    "copy": _copy, "transpose": _transpose, "broadcast": _broadcast, "slice": _slice, "concat": _concat, "pad": _pad,
    "select_scatter": _select_scatter, "slice_update": _slice_update, "gather": _gather,
    "gather_elements": _gather_elements, "gather_nd": _gather_nd, "fill": _fill, "arange": _arange,
}  # fmt: skip
