"""What decides registers, shared memory and code of a generated kernel beside its arithmetic: folds and indices."""

from collections.abc import Mapping, Sequence
from typing import Any

from fusesolve.candidates.loops import Nest
from fusesolve.candidates.one_block import is_wide
from fusesolve.candidates.program import Operator, Program, Read
from fusesolve.graph import DType, TensorType
from fusesolve.group import Template
from fusesolve.ops.definition import OpKind

# Kinds by names of their own: members of an enumeration take long to look up in inner loops.
_REDUCE = OpKind.REDUCE
_WINDOW = OpKind.WINDOW

_INDEXED = frozenset({"argmax", "argmin"})
_EXTREMES = frozenset({"reduce_max", "reduce_min", "argmax", "argmin"})
_BRANCHING = frozenset({"concat", "pad", "slice_update", "select_scatter"})
_INDEX_BYTES = 8


class ResourceWork:
    """Reads the numbers off one set of operators.

    `order` are the loops of its kernel, outer to inner; `external` the reads from memory with their readers' positions.
    """

    def __init__(
        self, program: Program, nest: Nest, order: Sequence[int], external: Sequence[tuple[int, Read]]
    ) -> None:
        self.program = program
        self.nest = nest
        self.order = tuple(order)
        self.external = external
        self.ops: list[Operator] = [program.operators[m] for m in nest.members]

    def fields(self) -> Mapping[str, Any]:
        """The workload's fields that do not depend on what is written."""
        nodes = self.program.graph.nodes
        return {
            "once": self._once(), "windows": sum(op.kind is _WINDOW for op in self.ops),
            "branches": sum(nodes[op.node].op in _BRANCHING for op in self.ops),
            **({} if self.nest.heads else self._folds()),
        }  # fmt: skip

    def _once(self) -> float:
        """Instructions of slow paths that all uses of an operator share."""
        nodes = self.program.graph.nodes
        return sum({nodes[op.node].op: op.work.first_use for op in self.ops}.values())

    def index_parts(self, writes: Sequence[int]) -> int:
        """Divisions and remainders per point: the position itself is the index where an access has all its loops.

        A row kernel has two positions, that of the row and that in the row.
        """
        rows = tuple(loop for loop in self.order if loop not in self.nest.reduced)
        inner = tuple(loop for loop in self.order if loop in self.nest.reduced)
        parts = [rows, inner] if self.nest.reduced else [self.order]
        walks = [tuple(self.nest.indices(i, read)) for i, read in self.external if i not in self.nest.inlined]
        for storage in writes:
            made = self.program.storage[storage].producer
            if made is not None and made in self.nest.position:
                walks.append(self.nest.out[self.nest.position[made]])
        return sum(self._parts_of(order, walks) for order in parts)

    def _parts_of(self, order: tuple[int, ...], walks: Sequence[tuple[int, ...]]) -> int:
        real = [loop for loop in order if self.nest.extent[loop] > 1]
        used: set[int] = set()
        for walk in walks:
            mine = [loop for loop in walk if loop in real]
            if mine != real:
                used.update(mine)
        return sum((place > 0) + (place < len(real) - 1) for place, loop in enumerate(real) if loop in used)

    def _folds(self) -> dict[str, int]:
        """Bytes that folds pass on: by shuffles one value a warp, through a tree one (with its index) a thread.

        Indexed and boolean folds go through a tree, and with them those of the same pass; so do all folds of columns.
        """
        nodes, graph = self.program.graph.nodes, self.program.graph
        passes: dict[int, list[tuple[str, int]]] = {}
        block = self.nest.template is Template.BLOCK
        for i, op in enumerate(self.ops):
            if op.kind is _REDUCE and (block or i not in self.nest.inlined):
                node = nodes[op.node]
                source = node.reads[0] if node.op in _EXTREMES else node.outputs[0]
                kind = _fold_bytes(graph.type_of(source), extreme=node.op in _EXTREMES)
                if not block or kind == 1 or node.op in _INDEXED or is_wide(op.points, op.reduced):
                    passes.setdefault(-i if block else self.nest.stage[i], []).append((node.op, kind))
        found = {"fold_bytes": 0, "tree_bytes": 0}
        for folds in passes.values():
            strips = self.nest.template is Template.REDUCTION
            tree = strips or any(name in _INDEXED or size == 1 for name, size in folds)
            for name, size in folds:
                found["tree_bytes" if tree else "fold_bytes"] += size + (_INDEX_BYTES if name in _INDEXED else 0)
        return found


    def result_bytes(self) -> int:
        """Bytes of the results of all reductions, as a block keeps them for their readers, in whole words."""
        graph, folds = self.program.graph, [op for op in self.ops if op.kind is _REDUCE]
        kinds = [graph.type_of(graph.nodes[op.node].outputs[0]).dtype for op in folds]
        sizes = [max(4, kind.itemsize) if kind.is_float else kind.itemsize for kind in kinds]
        return sum(-(-op.points * size // 4) * 4 for op, size in zip(folds, sizes, strict=True))


def _fold_bytes(kind: TensorType, *, extreme: bool) -> int:
    """Bytes of an accumulator: floats below 64 bits fold in f32, booleans are counted in i64."""
    if kind.dtype.is_float:
        return max(4, kind.dtype.itemsize)
    if kind.dtype is DType.BOOL:
        return 1 if extreme else 8
    return kind.dtype.itemsize


def sum_bytes(types: Sequence[TensorType]) -> int:
    """Bytes of a contraction's partial sum: f64 where an operand is f64, i64 where none is a float, f32 else."""
    floats = [kind.dtype for kind in types if kind.dtype.is_float]
    return 8 if DType.F64 in floats or not floats else 4
