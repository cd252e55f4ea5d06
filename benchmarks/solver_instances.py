"""Synthetic partition problems for the solver's benchmark: repeated layers of a language model, and a residual CNN.

The cost model is a toy (a launch, bytes, tensor and vector time); only the shape of the problem is meant to be
real: which groups are convex, how they overlap, which values they share.
"""

import zlib
from dataclasses import dataclass, field, replace
from itertools import combinations

from fusesolve.solve import Column, PartitionProblem

LAUNCH_NS, BYTES_PER_NS, TENSOR_PER_NS, VECTOR_PER_NS = 2000.0, 2000.0, 400_000.0, 20_000.0
MEMBER_LIMIT, LIVE_LIMIT = 24, 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One operator: values read, bytes of its one result, tensor and vector work, and the axis it reduces over."""

    reads: tuple[int, ...]
    nbytes: int
    extra_bytes: int
    tensor: float
    vector: float
    axis: str | None


@dataclass(slots=True)
class Builder:
    """Grows a graph operator by operator; a value has the number of its operator, -1 is the graph's input."""

    ops: list[Op] = field(default_factory=list)

    def add(
        self, *reads: int, size: int, work: float = 1.0, tensor: float = 0.0, axis: str | None = None, extra: int = 0
    ) -> int:
        """Append an operator with a result of `size` f16 elements and return its number."""
        inner = tuple(sorted({value for value in reads if value >= 0}))
        outside = extra + sum(2 * size for value in reads if value < 0)
        vector = work * max([size] + [self.ops[value].nbytes // 2 for value in inner])
        self.ops.append(
            Op(reads=inner, nbytes=2 * size, extra_bytes=outside, tensor=tensor, vector=vector, axis=axis)
        )
        return len(self.ops) - 1

    def norm(self, x: int, rows: int, width: int) -> int:
        """A layer norm of 9 primitives."""
        size = rows * width
        mean = self.add(x, size=rows, axis="row")
        centred = self.add(x, mean, size=size)
        square = self.add(centred, size=size)
        variance = self.add(square, size=rows, axis="row")
        shifted = self.add(variance, size=rows)
        scale = self.add(shifted, size=rows, work=4)
        normal = self.add(centred, scale, size=size)
        weighted = self.add(normal, size=size, extra=2 * width)
        return self.add(weighted, size=size, extra=2 * width)

    def matmul(self, x: int, y: int | None, size: int, inner: int, weights: int = 0) -> int:
        """A contraction over `inner` elements for each of `size` results."""
        reads = (x,) if y is None else (x, y)
        return self.add(*reads, size=size, work=0.1, tensor=2.0 * size * inner, axis="dot", extra=2 * weights)

    def gpt_layer(self, x: int, rows: int = 1024, width: int = 768, heads: int = 12) -> int:
        """One transformer layer of 57 primitives."""
        size, scores = rows * width, heads * rows * rows
        normal = self.norm(x, rows, width)
        packed = self.add(self.matmul(normal, None, 3 * size, width, 3 * width * width), size=3 * size)
        query, key, value = (self.add(self.add(packed, size=size), size=size) for _ in range(3))
        logits = self.matmul(query, self.add(key, size=size), scores, width // heads)
        masked = self.add(self.add(logits, size=scores), size=scores, extra=2 * rows * rows)
        exponent = self.add(self.add(masked, self.add(masked, size=heads * rows, axis="row"), size=scores), size=scores)
        weights = self.add(exponent, self.add(exponent, size=heads * rows, axis="row"), size=scores)
        joined = self.add(self.matmul(weights, value, size, rows), size=size)
        middle = self.add(x, self.add(self.matmul(joined, None, size, width, width**2), size=size), size=size)
        hidden = self.matmul(self.norm(middle, rows, width), None, 4 * size, width, 4 * width**2)
        hidden = self.add(hidden, size=4 * size)
        cube = self.add(hidden, self.add(hidden, size=4 * size), size=4 * size)
        inner = self.add(hidden, self.add(cube, size=4 * size), size=4 * size)
        gate = self.add(self.add(self.add(inner, size=4 * size), size=4 * size, work=6), size=4 * size)
        active = self.add(self.add(hidden, gate, size=4 * size), size=4 * size)
        back = self.add(self.matmul(active, None, size, 4 * width, 4 * width**2), size=size)
        return self.add(middle, back, size=size)

    def residual_block(self, x: int, size: int, channels: int, project: bool) -> int:
        """A bottleneck of a residual CNN: three convolutions with batch norm, ReLU, and the skip."""
        inner = x
        for step, (out, taps) in enumerate(((size // 4, 1), (size // 4, 9), (size, 1))):
            inner = self.matmul(inner, None, out, channels * taps // 4, channels * channels * taps // 16)
            inner = self.add(self.add(inner, size=out, extra=2 * channels), size=out, extra=2 * channels)
            inner = self.add(inner, size=out) if step < 2 else inner
        skip = x
        if project:
            skip = self.add(self.matmul(x, None, size, channels // 2, channels**2 // 2), size=size)
        return self.add(self.add(inner, skip, size=size), size=size)


def make_gpt(layers: int, *, recompute: bool) -> PartitionProblem:
    """A GPT-like model of `layers` equal layers of 57 primitives and a final norm."""
    builder = Builder()
    x = builder.add(-1, size=1024 * 768)
    for _ in range(layers):
        x = builder.gpt_layer(x)
    builder.norm(x, 1024, 768)
    return to_problem(builder.ops, recompute=recompute)


def make_resnet(*, recompute: bool) -> PartitionProblem:
    """A ResNet-50-like model: 16 bottlenecks in four stages."""
    builder = Builder()
    x = builder.add(-1, size=64 * 56 * 56)
    for stage, blocks in enumerate((3, 4, 6, 3)):
        for block in range(blocks):
            x = builder.residual_block(x, 8 * 256 * 56 * 56 >> stage, 256 << stage, block == 0)
    builder.add(x, size=2048, axis="row")
    return to_problem(builder.ops, recompute=recompute)


def add_noise(problem: PartitionProblem, amplitude: float) -> PartitionProblem:
    """The same problem with each cost scaled by 1 - amplitude to 1 + amplitude, drawn from the column's content."""
    columns = []
    for column in problem.columns:
        draw = zlib.crc32(repr((column.tie, column.cost)).encode()) / 2**32
        columns.append(replace(column, cost=max(1, round(column.cost * (1 + amplitude * (2 * draw - 1))))))
    return replace(problem, columns=tuple(columns))


def to_problem(ops: list[Op], *, recompute: bool) -> PartitionProblem:
    """All legal connected convex groups of `ops` as columns, with up to two writes dropped where allowed."""
    readers: list[list[int]] = [[] for _ in ops]
    for index, op in enumerate(ops):
        for value in op.reads:
            readers[value].append(index)
    required = frozenset(index for index in range(len(ops)) if not readers[index])
    columns: list[Column] = []
    for group in grow_groups(ops, readers):
        columns.extend(_columns_of(ops, readers, group, recompute))
    return PartitionProblem(
        n_ops=len(ops), n_values=len(ops), columns=tuple(columns), required=required,
        producer=tuple(range(len(ops))), recompute=recompute,
    )  # fmt: skip


def grow_groups(ops: list[Op], readers: list[list[int]]) -> list[frozenset[int]]:
    """Connected convex groups, grown one operator at a time from their smallest member."""
    before, after = _reach([op.reads for op in ops]), _reach_back(readers)
    found: list[frozenset[int]] = []
    for root in range(len(ops)):
        seen = {frozenset([root])}
        stack = [frozenset([root])]
        while stack:
            group = stack.pop()
            found.append(group)
            near = {v for op in group for v in (*ops[op].reads, *readers[op]) if v > root} - group
            wider = [group | {new} for new in sorted(near)] if len(group) < MEMBER_LIMIT else []
            fresh = [item for item in wider if item not in seen]
            seen.update(fresh)
            stack.extend(item for item in fresh if _legal(ops, item) and _convex(item, before, after))
    return found


def _reach(reads: list[tuple[int, ...]]) -> list[int]:
    before = [0] * len(reads)
    for index, values in enumerate(reads):
        for value in values:
            before[index] |= before[value] | 1 << value
    return before


def _reach_back(readers: list[list[int]]) -> list[int]:
    after = [0] * len(readers)
    for index in reversed(range(len(readers))):
        for reader in readers[index]:
            after[index] |= after[reader] | 1 << reader
    return after


def _convex(group: frozenset[int], before: list[int], after: list[int]) -> bool:
    low = high = inside = 0
    for op in group:
        low, high, inside = low | before[op], high | after[op], inside | 1 << op
    return not low & high & ~inside


def _legal(ops: list[Op], group: frozenset[int]) -> bool:
    """At most one contraction, and then no reduction beside it."""
    dots = sum(1 for op in group if ops[op].axis == "dot")
    rows = any(ops[op].axis == "row" for op in group)
    return dots == 0 or (dots == 1 and not rows)


def _columns_of(
    ops: list[Op], readers: list[list[int]], group: frozenset[int], recompute: bool
) -> list[Column]:
    members = tuple(sorted(group))
    reads = tuple(sorted({value for op in members for value in ops[op].reads} - group))
    leaving = [op for op in members if not readers[op] or any(reader not in group for reader in readers[op])]
    inner = sum(1 for op in members if len(readers[op]) > 1)
    if len(reads) + len(leaving) + inner > LIVE_LIMIT:
        return []
    columns = []
    for dropped in range(3 if recompute else 1):
        for held in combinations(leaving, dropped):
            writes = tuple(value for value in leaving if value not in held)
            if writes and _alive(ops, members, writes):
                columns.append(_price(ops, members, reads, writes, not held))
    return columns


def _alive(ops: list[Op], members: tuple[int, ...], writes: tuple[int, ...]) -> bool:
    needed = set(writes)
    for op in reversed(members):
        if op in needed:
            needed.update(ops[op].reads)
    return needed.issuperset(members)


def _price(
    ops: list[Op], members: tuple[int, ...], reads: tuple[int, ...], writes: tuple[int, ...], full: bool
) -> Column:
    moved = sum(ops[value].nbytes for value in (*reads, *writes)) + sum(ops[op].extra_bytes for op in members)
    memory = moved / BYTES_PER_NS
    tensor = sum(ops[op].tensor for op in members) / TENSOR_PER_NS
    vector = sum(ops[op].vector for op in members) / VECTOR_PER_NS
    terms = sorted((memory, tensor, vector))
    cost = round(LAUNCH_NS + terms[2] + 0.15 * (terms[0] + terms[1]) + 10 * len(members))
    tie = zlib.crc32(repr((members, reads, writes)).encode()) >> 1
    return Column(members=members, reads=reads, writes=writes, cost=cost, tie=tie, full=full)
