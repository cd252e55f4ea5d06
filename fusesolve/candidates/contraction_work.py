"""Workloads of contractions and attention: shapes, operands, prologues, and what lies between two contractions."""

from math import prod
from typing import Any

from fusesolve.access import AccessKind
from fusesolve.candidates.loops import Nest
from fusesolve.candidates.program import Operator, Program, Read
from fusesolve.candidates.resource_work import sum_bytes
from fusesolve.candidates.siblings import heads_below, shared_position
from fusesolve.graph import DType
from fusesolve.group import TENSOR_TYPES, Template
from fusesolve.ops.definition import OpKind

# Kinds by names of their own: members of an enumeration take long to look up in inner loops.
_ELEMENTWISE = OpKind.ELEMENTWISE

_CONVOLUTIONS = frozenset({"conv1d", "conv2d", "conv3d"})
_COMPUTING = frozenset({OpKind.ELEMENTWISE, OpKind.WINDOW, OpKind.GATHER})  # not from where chunks of bytes lie
_WINDOWED = frozenset({AccessKind.WINDOW, AccessKind.SHIFTED})


class ContractionWork:
    """Reads the contraction's part of a workload off a nest."""

    def __init__(self, program: Program, nest: Nest) -> None:
        self.program = program
        self.nest = nest
        self.ops: list[Operator] = [program.operators[m] for m in nest.members]
        self._loops: dict[int, tuple[frozenset[int], frozenset[int]]] = {}
        self.tail = self._linear_tail() if nest.template is Template.ATTENTION else None

    def fields(self) -> dict[str, Any]:
        """The workload's fields that only contractions have."""
        nest = self.nest
        head = nest.heads[0]
        op = self.ops[head]
        shape: dict[str, Any] = {
            **self._tile_space(head), "k": prod(op.red),
            "mma": float(op.points) * op.reduced, "plain": int(len(self.ops) == 1),
        }  # fmt: skip
        if nest.facts.side_by_side:
            shape.update(self._side_by_side())
        if nest.template is Template.ATTENTION:
            second = self.ops[nest.heads[1]]
            shape["mma"] = float(op.points) * op.reduced + float(second.points) * second.reduced
            shape["head"] = max(1, second.points // max(1, int(shape["batch"] * shape["m"])))
            shape["linear_tail"] = int(self.tail is not None)
            shape["plain"] = int(self._bare_attention())
        shape["index_parts"] = self._index_parts(head)
        shape.update(self._operands())
        shape.update(self._window(head))
        return shape

    def _tile_space(self, head: int) -> dict[str, int]:
        """Batch, rows and columns of a contraction: loops of both operands, of the left one alone, and the rest."""
        left, right = self._operand_loops(head)
        out = frozenset(self.nest.out[head])
        batch = out & left & right
        return {"batch": self._size(batch), "m": self._size((out & left) - batch), "n": self._size(out - left)}

    def _side_by_side(self) -> dict[str, Any]:
        """Contractions of one operand: the columns of all of them, `m` and `n` swapped where it is the right one.

        A library's grouped product does bare matrix products side by side.
        """
        heads = self.nest.heads
        spaces = [self._tile_space(head) for head in heads]
        common, own = ("m", "n") if shared_position(self.ops, heads) == 0 else ("n", "m")
        edges = self.nest.edges
        meeting = max(len(found) for found in heads_below(len(self.ops), heads, edges))
        products = all(self.program.graph.nodes[self.ops[head].node].op == "matmul" for head in heads)
        return {
            "m": spaces[0][common], "n": sum(space[own] for space in spaces), "parts": len(heads), "joined": meeting,
            "mma": sum(float(self.ops[head].points) * self.ops[head].reduced for head in heads),
            "plain": int(len(self.ops) == len(heads) and products),
        }  # fmt: skip

    def _window(self, head: int) -> dict[str, Any]:
        """Points of a convolution's window, and the image of its result where Winograd's forms exist for it."""
        graph = self.program.graph
        node = graph.nodes[self.ops[head].node]
        if node.op not in _CONVOLUTIONS:
            return {}
        weight, result = graph.type_of(node.reads[1]), graph.type_of(node.outputs[0])
        dense = (node.attr("stride"), node.attr("dilation"), node.attr("group")) == ((1, 1), (1, 1), 1)
        alone = len(self.nest.heads) == 1 and {weight.dtype, result.dtype} == {DType.F32}
        rows, cols = result.shape[2:] if dense and alone and weight.shape[2:] == (3, 3) else (0, 0)
        return {"taps": prod(weight.shape[2:]), "image_rows": rows, "image_cols": cols}

    def _index_parts(self, head: int) -> int:
        """Divisions and remainders that take the rows, columns, batch and depth of a tile apart, and window tests."""
        left, right = self._operand_loops(head)
        out = frozenset(self.nest.out[head])
        batch = out & left & right
        roles = ((out & left) - batch, out - left, batch, frozenset(self.nest.red[head]))
        real = [sum(self.nest.extent[loop] > 1 for loop in loops) for loops in roles]
        windows = sum(axis.kind in _WINDOWED for read in self.ops[head].reads[:1] for axis in read.axes)
        return sum(2 * count - 2 for count in real if count > 1) + 2 * windows

    def _size(self, loops: frozenset[int]) -> int:
        return prod(self.nest.extent[loop] for loop in loops)

    def _operand_loops(self, head: int) -> tuple[frozenset[int], frozenset[int]]:
        """`_find_loops`, found once."""
        found = self._loops.get(head)
        if found is None:
            found = self._loops[head] = self._find_loops(head)
        return found

    def _find_loops(self, head: int) -> tuple[frozenset[int], frozenset[int]]:
        """Loops of the two operands; the windowed dimensions of an image are loops of the left operand alone.

        (A transposed convolution indexes its kernel by the result's position too; that makes no batch of it.)
        """
        op = self.ops[head]
        found = []
        for position, read in enumerate(op.reads[:2]):
            loops = {loop for loop in self.nest.indices(head, read) if loop >= 0}
            if position == 0:
                windowed = {axis.out for axis in read.axes if axis.kind in _WINDOWED and axis.out >= 0}
                loops |= {self.nest.out[head][out] for out in windowed}
            found.append(frozenset(loops))
        return (found[0], found[1]) if len(found) == 2 else (found[0], frozenset())

    def _operands(self) -> dict[str, Any]:
        """The operands' element type, and the work of the prologues that make them."""
        storage = self.program.storage
        heads = self.nest.heads if self.nest.facts.side_by_side else self.nest.heads[:1]
        types = [storage[read.storage].type for head in heads for read in self.ops[head].reads[:2]]
        dtypes = {t.dtype for t in types}
        return {
            "operand_bytes": max(t.dtype.itemsize for t in types), "sum_bytes": sum_bytes(types),
            "tensor_rate": _tensor_index(next(iter(dtypes))) if len(dtypes) == 1 else -1,
            "side_work": self._side_work(), "left_made": self._made(0), "right_made": self._made(1),
        }  # fmt: skip

    def _made(self, position: int) -> int:
        """Arrays that an element of an operand is computed from in the kernel, 0 where it lies as it is read.

        Index maps alone compute nothing: chunks are copied from where they lie.
        """
        reads = [self.ops[head].reads[position : position + 1] for head in self.nest.heads]
        return max((len(self._sources(read)) for found in reads for read in found), default=0)

    def _sources(self, read: Read) -> frozenset[int]:
        """Storage that the operators in front of an operand read from memory, nothing where none of them computes."""
        found: set[int] = set()
        computes = False
        open_ = [read]
        while open_:
            storage = open_.pop().storage
            made = self.program.storage[storage].producer
            place = None if made is None else self.nest.position.get(made)
            if place is None or place not in self.nest.upstream:
                found.add(storage)
                continue
            computes = computes or self.ops[place].kind in _COMPUTING
            open_ += self.ops[place].reads
        return frozenset(found) if computes else frozenset()

    def _side_work(self) -> float:
        """Instructions of prologues per operand element that they make; special functions count four."""
        storage = self.program.storage
        made = {
            read.storage
            for head in self.nest.heads
            for read in self.ops[head].reads[:2]
            if self.nest.position.get(_producer(self.program, read)) in self.nest.upstream
        }
        fused = [storage[value].type.size for value in made]
        instructions = sum(
            (self.ops[i].work.fma + self.ops[i].work.alu + 4.0 * self.ops[i].work.sfu) * self.ops[i].points
            for i in self.nest.upstream
            if i not in self.nest.heads
        )
        return instructions / sum(fused) if fused else 0.0

    def _linear_tail(self) -> frozenset[int] | None:
        """Positions between the exponential and the second contraction, None unless all of them only scale.

        An online softmax multiplies what it has summed so far by exp(old maximum - new maximum); that commutes
        with the second contraction only through operators that are linear in the probabilities, and alike for all keys
        (what differs from key to key would have to weigh each of them again).
        """
        nodes, links, position = self.program.graph.nodes, self.program.links, self.nest.position
        below: set[int] = set()
        tail: set[int] = set()
        started = False
        for i in range(self.nest.heads[0] + 1, self.nest.heads[1]):
            op = self.ops[i]
            exponential = nodes[op.node].op == "exp"
            started |= exponential
            inside = any(position.get(link.producer) in below for link in links[self.nest.members[i]])
            if exponential or inside:
                below.add(i)
            if inside and op.kind is _ELEMENTWISE:
                if not op.linear or self._by_key(i, below):
                    return None
                tail.add(i)
        return frozenset(tail) if started else None

    def _by_key(self, i: int, below: set[int]) -> bool:
        """Whether the operator at `i` reads something along the keys beside what comes from the positions `below`."""
        keys = frozenset(self.nest.red[self.nest.heads[1]])
        links, position = self.program.links[self.nest.members[i]], self.nest.position
        reads = [link.read for link in links if position.get(link.producer) not in below]
        return any(not keys.isdisjoint(self.nest.indices(i, read)) for read in reads)

    def _bare_attention(self) -> bool:
        """Nothing but the two contractions and what lies between them: what a library's attention does."""
        first, second = self.nest.heads
        score = frozenset(self.nest.out[first])
        return all(
            i in self.nest.heads or (first < i < second and i not in self.nest.upstream and self.nest.loops(i) <= score)
            for i in range(len(self.ops))
        )


def _producer(program: Program, read: Read) -> int:
    made = program.storage[read.storage].producer
    return -1 if made is None else made


def _tensor_index(dtype: DType) -> int:
    return TENSOR_TYPES.index(dtype.value) if dtype.value in TENSOR_TYPES else -1
