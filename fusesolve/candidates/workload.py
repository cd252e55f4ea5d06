"""Workloads: the numbers of a group that the cost models price, from its loop nest."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate
from math import prod
from typing import Any

from fusesolve.access import AccessKind
from fusesolve.candidates.contraction_work import ContractionWork
from fusesolve.candidates.loops import Nest
from fusesolve.candidates.one_block import BlockWork
from fusesolve.candidates.program import Operator, Program, Read, Storage
from fusesolve.candidates.resource_work import ResourceWork
from fusesolve.graph import TensorType
from fusesolve.group import TEMPLATES, THIN_TAPS, Template, Workload
from fusesolve.ops.definition import OpKind, Work

# Kinds by names of their own: members of an enumeration take long to look up in inner loops.
_CONTRACTION = OpKind.CONTRACTION
_REDUCE = OpKind.REDUCE
_WINDOW = OpKind.WINDOW

_SECTOR = 32  # bytes: the smallest run that DRAM and L2 move at full rate
_CONVERSION = 1.0  # instructions to widen or narrow a 16-bit element (notes of the register study, section 4)


class Measure:
    """Reads the numbers off one set of operators; what depends on the storage it writes is added last.

    `read_width`: bytes of the widest element read along the inner loop, 0 where there is none. `least_points`: points
    of the smallest result that spans the kernel.
    """

    def __init__(self, program: Program, nest: Nest) -> None:
        self.program = program
        self.nest = nest
        self.ops: list[Operator] = [program.operators[m] for m in nest.members]
        self.kernel = self._kernel_loops()
        self.orders = self._loop_orders()
        self.points = prod(nest.extent[loop] for loop in self.kernel)
        self.external = tuple(self._external())
        self.walks = [nest.indices(i, read) for i, read in self.external]
        self.touched = self._touched()
        self.contraction = ContractionWork(program, nest)
        self.resources = ResourceWork(program, nest, self._whole_order(), self.external)
        self.shapes = self._find_shapes()
        self.read_width = max((program.storage[s].type.dtype.itemsize for s in self.shapes[0]), default=0)
        self.least_points = self._least_points()
        self.lives = self._find_lives()
        self.base = self._find_base()

    def workload(self, writes: tuple[int, ...]) -> Workload:
        """The workload of the group for its template when it writes the storage `writes`."""
        storage = self.program.storage
        types = [storage[w].type for w in writes]
        out_full = [w for w in writes if storage[w].written * 2 > self.least_points]
        staged = [_written_bytes(storage[w]) for w in out_full if self._write_staged(w)]
        base = self.base
        write_bytes = sum(_written_bytes(storage[w]) for w in writes)
        parts = {} if self.nest.heads else {"index_parts": self.resources.index_parts(writes)}
        return Workload(**base | parts | {
            "alu": base["alu"] + self._stored_conversions(out_full),
            "live": self._live(writes), "full_writes": len(out_full), "arrays": base["arrays"] + len(writes),
            "element_bytes": max([self.read_width, *(t.dtype.itemsize for t in types)]) or 4,
            "write_bytes": write_bytes, "footprint_bytes": base["read_bytes"] + write_bytes,
            "staged": base["staged"] + len(staged), "staged_bytes": base["staged_bytes"] + sum(staged),
        })  # fmt: skip

    @cached_property
    def block(self) -> BlockWork:
        """What only a kernel of one block has."""
        return BlockWork(self.program, self.nest)

    def _find_base(self) -> dict[str, Any]:
        """The fields of a workload that writes nothing."""
        template = self.nest.template
        common = self._common()
        common.update(self.resources.fields())
        if template in (Template.CONTRACTION, Template.ATTENTION):
            common.update(self.contraction.fields())
        elif template is Template.BLOCK:
            common.update(self.block.fields(self.resources.result_bytes()), staged=0, staged_bytes=0)
        else:
            rows = prod(self.nest.extent[loop] for loop in self.kernel - self.nest.reduced)
            common.update(outer=rows, inner=max(1, self.points // max(1, rows)))
            if template in (Template.ROW, Template.REDUCTION):
                common.update(self._row())
        return {"template": TEMPLATES.index(template), **common}

    def _kernel_loops(self) -> frozenset[int]:
        span = self.nest.span
        loops = frozenset(self.nest.out[span])
        if self.ops[span].kind is not _WINDOW:
            loops |= frozenset(self.nest.red[span])
        return loops

    def _loop_orders(self) -> tuple[tuple[int, ...], ...]:
        """Loops from outer to inner as the spanning operator's result (or its reduced operand) lies in memory.

        Contractions side by side have an order each.
        """
        span = self.nest.span
        op = self.ops[span]
        if op.kind is _REDUCE and op.reads:
            return (tuple(self.nest.indices(span, op.reads[0])),)
        if self.nest.facts.side_by_side:
            return tuple(dict.fromkeys(self.nest.out[head] for head in self.nest.heads))
        return (self.nest.out[span],)

    def _whole_order(self) -> tuple[int, ...]:
        """All loops of the kernel, outer to inner, as its source walks them."""
        span = self.nest.span
        order = (*(self.orders[0] if self.nest.reduced else ()), *self.nest.out[span])
        return tuple(dict.fromkeys(loop for loop in order if loop >= 0))

    def _external(self) -> Iterator[tuple[int, Read]]:
        inside, links = self.nest.position, self.program.links
        for i, member in enumerate(self.nest.members):
            for link in links[member]:
                if link.producer not in inside:
                    yield i, link.read

    def _touched(self) -> dict[int, int]:
        """Bytes read of each storage: the parts that are touched, once for each order in which it is walked.

        The operands of a contraction are read in tiles, which share the cache whatever their order.
        """
        sizes, heads, inlined = self.program.sizes, self.nest.heads, self.nest.inlined
        whole: dict[int, set[tuple[int, ...]]] = {}
        parts: dict[int, int] = {}
        for (i, read), walk in zip(self.external, self.walks, strict=True):
            if read.elements < sizes[read.storage] or i in inlined:
                parts[read.storage] = parts.get(read.storage, 0) + read.elements
            else:
                whole.setdefault(read.storage, set()).add(() if heads else tuple(walk))
        found: dict[int, int] = {}
        for index in (*whole, *(index for index in parts if index not in whole)):
            elements = len(whole[index]) * sizes[index] if index in whole else min(sizes[index], parts[index])
            found[index] = elements * self.program.storage[index].type.dtype.itemsize
        return found

    def _evaluations(self) -> list[float]:
        """How often each operator is computed, over the whole kernel."""
        nest, counts = self.nest, [0.0] * len(self.ops)
        if nest.template is Template.BLOCK:
            return self.block.evaluations()
        rows = prod(nest.extent[loop] for loop in self.kernel - nest.reduced)
        hoist = nest.template in (Template.ROW, Template.REDUCTION)
        for i in reversed(range(len(self.ops))):
            if i in nest.inlined:
                continue
            if nest.heads:
                counts[i] = float(self.ops[i].points)
                continue
            loops = nest.loops(i).union(nest.red[i] if self.ops[i].kind is _REDUCE else ())
            hoisted = hoist and not loops & nest.reduced and loops <= self.kernel
            counts[i] = float(rows if hoisted else self.points)
        if nest.template is Template.ATTENTION:
            for i in self.contraction.tail or ():  # applied to the summed result instead, once per row and head element
                counts[i] = float(min(self.ops[i].points, self.ops[nest.heads[1]].points))
        self._inline_counts(counts)
        return counts

    def _inline_counts(self, counts: list[float]) -> None:
        """An operator computed in place runs once per point (and per window element) of each reader."""
        if not self.nest.inlined:
            return
        position, links = self.nest.position, self.program.links
        for consumer in reversed(range(len(self.ops))):
            for link in links[self.nest.members[consumer]]:
                i = position.get(link.producer)
                if i is not None and i in self.nest.inlined:
                    counts[i] += counts[consumer] * _redundancy(self.ops[consumer], link.read, self.ops[i])

    def _common(self) -> dict[str, Any]:
        counts = self._evaluations()
        fma, alu, sfu, vector = self._work(counts)
        storage = self.program.storage
        full, partial, staged, staged_bytes = self.shapes
        converted = self._loaded_conversions(full)
        return {
            "fma": fma, "alu": alu + converted, "sfu": sfu, "vector": vector + converted,
            **self._thin(counts),
            "instructions": sum(op.work.instructions for op in self.ops if op.kind is not _CONTRACTION),
            "scratch": max(op.work.scratch for op in self.ops),
            "full_reads": len(full),
            "row_reads": len(partial),
            "arrays": len(self.touched),
            "read_bytes": sum(self.touched.values()),
            "warm_read_bytes": sum(
                min(b, _written_bytes(storage[s])) for s, b in self.touched.items() if storage[s].producer is not None
            ),
            "weight_bytes": sum(b for s, b in self.touched.items() if storage[s].weight),
            "staged": staged,
            "staged_bytes": staged_bytes,
            "reductions": self.nest.facts.reductions,
            "double": int(any(op.is_double for op in self.ops)),
        }

    def _work(self, counts: Sequence[float]) -> tuple[float, float, float, float]:
        """Multiply-adds, other arithmetic, special functions and vector instructions of all but the contractions."""
        fma = alu = sfu = vector = 0.0
        for op, count in zip(self.ops, counts, strict=True):
            if op.kind is _CONTRACTION:
                continue
            work = op.work
            if op.kind is _WINDOW:
                count *= max(1, op.reduced)
                work = work if work.fma + work.alu + work.sfu > 0 else Work(fma=1.0)
            fma += work.fma * count
            alu += work.alu * count
            sfu += work.sfu * count
            vector += (work.vector or work.fma + work.alu) * count
        return fma, alu, sfu, vector

    def _thin(self, counts: list[float]) -> dict[str, float]:
        """Multiply-adds of convolutions of few channels: as vector instructions, and in whole steps of an array."""
        fma = mma = 0.0
        for op, count in zip(self.ops, counts, strict=True):
            if op.kind is _WINDOW and op.linear and not op.work.fma + op.work.alu + op.work.sfu:
                taps = prod(self.program.graph.type_of(self.program.graph.nodes[op.node].reads[1]).shape[2:])
                fma += count * max(1, op.reduced)
                mma += count * max(1, op.reduced) / taps * -(-taps // THIN_TAPS) * THIN_TAPS
        return {"thin_fma": fma, "thin_mma": mma}

    def _loaded_conversions(self, full: list[int]) -> float:
        """Instructions to convert 16-bit and 8-bit elements at loads.

        A contraction takes its operands as they are; a movement converts nothing.
        """
        if self.nest.template is Template.MOVEMENT:
            return 0.0
        operands = {read.storage for head in self.nest.heads for read in self.ops[head].reads}
        types = {s: self.program.storage[s].type for s in full if s not in operands}
        narrow = {s: t for s, t in types.items() if _is_narrow(t)}
        return _CONVERSION * sum(min(t.size, self.touched[s] // t.dtype.itemsize) for s, t in narrow.items())

    def _stored_conversions(self, written: list[int]) -> float:
        """The same at stores; the drain of a contraction writes results in any type."""
        if self.nest.template is Template.MOVEMENT or self.nest.heads:
            return 0.0
        stored = (self.program.storage[s] for s in written)
        return _CONVERSION * sum(s.written for s in stored if _is_narrow(s.type))

    def _least_points(self) -> int:
        """Points of the smallest result that spans the kernel."""
        if self.nest.facts.side_by_side:
            return min(self.ops[head].points for head in self.nest.heads)
        return self.ops[self.nest.span].points

    def _find_shapes(self) -> tuple[list[int], list[int], int, int]:
        """Storage read along the inner loop, storage constant along it, and how much lies the wrong way."""
        full: dict[int, int] = {}
        partial: dict[int, int] = {}
        staged: dict[int, int] = {}
        inner = {order[-1] for order in self.orders if order} or {-1}
        for (consumer, read), loops in zip(self.external, self.walks, strict=True):
            storage = self.program.storage[read.storage]
            if consumer not in self.nest.inlined and inner.isdisjoint(loops):
                partial[read.storage] = 1
                continue
            full[read.storage] = 1
            turned = bool(loops) and loops[-1] >= 0 and self._run(loops) * storage.type.dtype.itemsize < _SECTOR
            if turned and consumer not in self.nest.inlined:  # what lies along no loop cannot be turned
                staged[read.storage] = self.touched[read.storage]
        only_partial = [s for s in partial if s not in full]
        return list(full), only_partial, len(staged), sum(staged.values())

    def _run(self, loops: list[int]) -> int:
        """Elements that lie contiguously in memory along the kernel's innermost loops."""
        longest = 1
        for order in self.orders:
            run = 1
            for mine, theirs in zip(reversed(loops), reversed(order), strict=False):
                if mine != theirs:
                    break
                run *= self.nest.extent[mine]
            longest = max(longest, run)
        whole = prod(self.nest.extent[loop] for loop in loops if loop >= 0)
        return longest if longest < whole else _SECTOR

    def _write_staged(self, storage: int) -> bool:
        made = self.program.storage[storage].producer
        if made is None or self.nest.heads or self.nest.template is Template.BLOCK:
            return False
        loops = list(self.nest.out[self.nest.position[made]])
        size = self.program.storage[storage].type.dtype.itemsize
        return bool(loops) and self._run(loops) * size < _SECTOR

    def _find_lives(self) -> tuple[dict[int, int], list[int]]:
        """The last position at which each value is read, else the one that makes it, and the live values of one point.

        The second is told for each position, nothing being kept after its last use; all loads come first.
        """
        change = [0] * (len(self.ops) + 1)
        last: dict[int, int] = {}
        for i, op in enumerate(self.ops):
            for read in op.reads:
                change[0] += read.storage not in last
                last[read.storage] = i
            change[i] += len(op.writes)
            last.update(dict.fromkeys(op.writes, i))
        for i in last.values():
            change[i + 1] -= 1
        return last, list(accumulate(change[:-1]))

    def _live(self, writes: tuple[int, ...]) -> int:
        """Most live values of one point when all loads come first and what is written is kept to the end."""
        last, counts = self.lives
        after = sorted(last[value] for value in writes)
        kept = 0
        most = len(self.touched)
        for i, count in enumerate(counts):
            while kept < len(after) and after[kept] < i:
                kept += 1
            most = max(most, count + kept)
        return max(1, most)

    def _row(self) -> dict[str, Any]:
        """Passes over a row, what a held row keeps, what a row that is not held reads again (per further pass)."""
        nest = self.nest
        deep = [i for i in range(len(self.ops)) if nest.loops(i) & nest.reduced or self.ops[i].kind is _REDUCE]
        passes = 1 + max((nest.stage[i] for i in deep), default=0)
        storage = self.program.storage
        visits = {index: len(found) for (index, _), found in self._visits().items() if len(found) > 1}
        again = sum(storage[index].type.nbytes * (count - 1) for index, count in visits.items())
        return {
            "passes": passes, "contiguous": int(nest.template is Template.ROW),
            "held_loads": len(visits),
            "held_bytes": float(sum(storage[index].type.dtype.itemsize for index in visits)),
            "reread_bytes": again / max(1, passes - 1),
        }  # fmt: skip

    def _visits(self) -> dict[tuple[int, tuple[int, ...]], set[int]]:
        """The passes in which each storage of full size is read from memory, by the loops that it is walked in.

        An operator before a reduction whose value is needed after it is computed again in the later pass.
        """
        nest = self.nest
        runs: list[set[int]] = [{stage} for stage in nest.stage]
        found: dict[tuple[int, tuple[int, ...]], set[int]] = {}
        for i in reversed(range(len(self.ops))):
            for read in self.ops[i].reads:
                made = self.program.storage[read.storage].producer
                inside = None if made is None else nest.position.get(made)
                loops = tuple(nest.indices(i, read))
                if inside is not None:
                    if self.ops[inside].kind is not _REDUCE and nest.loops(inside) & nest.reduced:
                        runs[inside] |= runs[i]
                elif nest.reduced.intersection(loops) and 2 * self._walked(loops) > self.points:
                    found.setdefault((read.storage, loops), set()).update(runs[i])
        return found

    def _walked(self, loops: tuple[int, ...]) -> int:
        return prod(self.nest.extent[loop] for loop in loops if loop >= 0)


def _written_bytes(storage: Storage) -> int:
    return storage.written * storage.type.dtype.itemsize


def _is_narrow(tensor: TensorType) -> bool:
    return tensor.dtype.is_float and tensor.dtype.itemsize < 4


def _redundancy(consumer: Operator, read: Read, producer: Operator) -> float:
    """Times that a producer's element is computed per point of a consumer that computes it in place."""
    if any(axis.kind is AccessKind.WINDOW for axis in read.axes):
        return float(max(1, consumer.reduced)) if consumer.kind is _WINDOW else 1.0
    return min(1.0, producer.points / max(1, consumer.points))
