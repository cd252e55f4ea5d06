"""Between simulator and solver: priced kernels become integer columns; pins take columns away."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b

from fusesolve.candidates.pricing import Priced
from fusesolve.candidates.program import Program
from fusesolve.candidates.table import Kernel, KernelBlocks, KernelTable
from fusesolve.errors import InputError
from fusesolve.pipeline.memory import constant_bytes, live_bytes
from fusesolve.solve import Column, PartitionProblem
from fusesolve.solve.problem import TIE_LIMIT
from fusesolve.solve.table import as_arrays, make_blocks, make_columns, repeat_columns


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnSet:
    """The columns of a problem and the kernel behind each."""

    problem: PartitionProblem
    kernels: Sequence[Kernel]


def make_problem(
    priced: Priced, kernels: Sequence[Kernel], *, recompute: bool, max_kernels: int | None = None,
    max_memory: int | None = None,
) -> ColumnSet:  # fmt: skip
    """The integer problem over those of `kernels` that have a price; `max_memory`: bytes, all that is live counted.

    Who reads a value that another operator destroys makes one more value, which that operator reads: so it runs
    before. Nothing is computed twice in such a graph, or it could be computed again too late.
    """
    program = priced.space.program
    made = [s.index for s in program.storage if s.producer is not None]
    number = {storage: value for value, storage in enumerate(made)}
    early = sorted({reader for reader, _ in program.orders})
    orders = _Orders(program.orders, {reader: len(made) + k for k, reader in enumerate(early)})
    chosen, columns = _list_columns(priced, kernels, number, orders)
    problem = PartitionProblem(
        n_ops=len(program.operators), n_values=len(made) + len(early), columns=columns,
        required=frozenset(number[s.index] for s in program.storage if s.required and s.producer is not None),
        producer=(*(program.storage[s].producer or 0 for s in made), *early),
        recompute=recompute and not early, max_kernels=max_kernels,
        max_live=None if max_memory is None else max_memory - constant_bytes(program),
        live_bytes=(*(live_bytes(program, s) for s in made), *(0 for _ in early)),
    )  # fmt: skip
    return ColumnSet(problem=problem, kernels=chosen)


def _list_columns(
    priced: Priced, kernels: Sequence[Kernel], number: Mapping[int, int], orders: "_Orders"
) -> tuple[Sequence[Kernel], Sequence[Column]]:
    """The kernels that have a price, and their columns; a table of kernels gives a table of columns."""
    numbers = [number.get(storage, -1) for storage in range(len(priced.space.program.storage))]
    if isinstance(kernels, KernelBlocks) and not orders.pairs:
        kept = kernels.pick([cost is not None for cost in priced.cost_ns])
        price, values = as_arrays(priced.cost_ns, numbers)
        return kept, make_blocks(
            [repeat_columns(b.members, b.reads, b.writes, b.full, price[b.unique], values) for b in kept.blocks]
        )
    if isinstance(kernels, KernelTable) and not orders.pairs:
        made = make_columns(
            kernels.members, kernels.reads, kernels.writes, kernels.full, priced.cost_ns, kernels.unique, numbers
        )
        return kernels.take(made.rows), made.table
    chosen: list[Kernel] = []
    columns: list[Column] = []
    for kernel in kernels:
        cost = priced.cost_ns[kernel.unique]
        if cost is not None:
            chosen.append(kernel)
            columns.append(_column(kernel, cost, number, orders))
    return tuple(chosen), tuple(columns)


@dataclass(frozen=True, slots=True)
class _Orders:
    """Pairs (reader, writer) of operators, and the number of the value that stands for "this reader has run"."""

    pairs: tuple[tuple[int, int], ...]
    number: Mapping[int, int]

    def reads(self, members: Sequence[int]) -> tuple[int, ...]:
        """Readers elsewhere for which a kernel of `members` waits."""
        if not self.pairs:
            return ()
        return tuple(sorted({self.number[r] for r, w in self.pairs if w in members and r not in members}))

    def writes(self, members: Sequence[int]) -> tuple[int, ...]:
        """Readers in a kernel of `members`."""
        if not self.number:
            return ()
        return tuple(number for reader, number in self.number.items() if reader in members)


def _column(kernel: Kernel, cost: int, number: Mapping[int, int], orders: _Orders) -> Column:
    return Column(
        members=kernel.members,
        reads=(*(number[s] for s in kernel.reads if s in number), *orders.reads(kernel.members)),
        writes=(*(number[s] for s in kernel.writes), *orders.writes(kernel.members)),
        cost=cost, tie=_tie(kernel.members, kernel.writes), full=kernel.full,
    )  # fmt: skip


@lru_cache(maxsize=1 << 16)
def _tie(members: tuple[int, ...], writes: tuple[int, ...]) -> int:
    """A hash of members and writes: which of two equally good plans is taken does not depend on any order."""
    text = f"{members}|{writes}".encode()
    return int.from_bytes(blake2b(text, digest_size=4).digest(), "big") % TIE_LIMIT


def find_operators(program: Program, name: str) -> frozenset[int]:
    """Operators that the name stands for: a source operator (all its primitives) or one primitive.

    InputError where there is none, with near names; a view belongs to the operator that makes its storage.
    """
    nodes = program.graph.nodes
    found = {op.index for op in program.operators if name in (nodes[op.node].source, nodes[op.node].name)}
    for node in nodes:
        if not found and name in (node.source, node.name) and node.outputs[0] in program.view_root:
            producer = program.storage[program.view_root[node.outputs[0]]].producer
            found = set() if producer is None else {producer}
    if not found:
        known = dict.fromkeys(node.source for node in nodes)
        near = [item for item in known if item.lower().startswith(name.lower()[:3])][:5]
        hint = f"; near names: {', '.join(near)}" if near else ""
        raise InputError(f"no operator named {name!r} in graph {program.graph.name}{hint}")
    return frozenset(found)


def apply_pins(
    program: Program,
    kernels: Sequence[Kernel],
    together: Sequence[Sequence[str]],
    apart: Sequence[Sequence[str]],
) -> Sequence[Kernel]:
    """Kernels that respect the pins: all or nothing of each `together` set, at most one name of each `apart` set."""
    if not together and not apart:
        return kernels
    whole = [frozenset().union(*(find_operators(program, name) for name in names)) for names in together]
    separate = [[find_operators(program, name) for name in names] for names in apart]
    return tuple(k for k in kernels if _respects(frozenset(k.members), whole, separate))


def _respects(
    members: frozenset[int], whole: Sequence[frozenset[int]], separate: Sequence[Sequence[frozenset[int]]]
) -> bool:
    """Whether a kernel of these members keeps all pins."""
    if any(members & pinned and not pinned <= members for pinned in whole):
        return False
    return all(sum(bool(members & item) for item in items) <= 1 for items in separate)


def by_source(priced: Priced) -> tuple[Kernel, ...]:
    """Kernels that stay within one source operator: the whole operator where that is a kernel, else its parts."""
    program = priced.space.program
    nodes = program.graph.nodes
    source = [nodes[op.node].source for op in program.operators]
    size: dict[str, int] = {}
    for name in source:
        size[name] = size.get(name, 0) + 1
    number = {name: place for place, name in enumerate(size)}
    kernels: Sequence[Kernel] = priced.space.kernels
    if isinstance(kernels, KernelTable | KernelBlocks):
        kernels = kernels.within([number[name] for name in source])
    inside = [
        k for k in kernels
        if k.full and k.unique not in priced.space.packs and priced.cost_ns[k.unique] is not None
        and len({source[m] for m in k.members}) == 1
    ]  # fmt: skip
    whole = {source[k.members[0]] for k in inside if len(k.members) == size[source[k.members[0]]]}
    return tuple(k for k in inside if source[k.members[0]] not in whole or len(k.members) == size[source[k.members[0]]])
