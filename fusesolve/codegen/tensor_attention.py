"""Attention of f16 and bf16 on the tensor pipe: scores, weights and results stay in registers as accumulators of mma.

A warp has 16 query rows. The keys of a tile lie in shared memory in steps of `sub` keys a warp, in as many steps as fit
(a ring that is filled ahead); where a block has fewer than 64 query rows, its warps share the keys of a step. Four
neighbouring lanes have a query row together and share its running maximum; each has its own columns of the sum. At the
end results take the place of keys and values in shared memory, the warps of a row are joined, and what is behind runs
in one loop over the tile.
"""

from contextlib import ExitStack

import numpy as np

from fusesolve.codegen.attention import MAXIMUM, SUM, Attention, Merge
from fusesolve.codegen.copies import copied
from fusesolve.codegen.fma_attention import FmaAttention
from fusesolve.codegen.held_rows import HeldRows
from fusesolve.codegen.kernel import UNROLL_LIMIT, EmittedKernel, Task, TaskSource, Workspace
from fusesolve.codegen.lanes import Partial, Team, join_lanes
from fusesolve.codegen.tensor_flash import Flash
from fusesolve.codegen.tensor_source import CHUNK, swizzle
from fusesolve.cost.gpu.layout import FRAGMENT, WARP, flash_bytes, flash_keys, flash_width
from fusesolve.graph import DType

QUAD = 4  # lanes that have a query row together
WEIGHT = 25  # machine instructions of a score's exponential, maximum and sum


def emit_attention(task: Task) -> tuple[EmittedKernel, ...]:
    """The kernel of an attention group, or the two of one that is split over keys: 16-bit types on the tensor pipe."""
    if task.tile("mode", 1) > 1:
        return HeldRows(task).emit()
    plain = FmaAttention(task)
    return TensorAttention(task).emit() if plain.stored is not DType.F32 else plain.emit()


class TensorAttention(Attention):
    """Writes one attention group on the tensor pipe."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.down = self.queries // FRAGMENT  # warps along the query rows, and along the keys of a step
        self.across = self.threads // WARP // self.down
        sub = int(flash_keys(np.array(float(self.queries)), np.array(float(self.keys))))
        self.step = sub * self.across
        self.stages = max(1, self.keys // self.step)
        self.wide_inner, self.wide_head = flash_width(self.inner), flash_width(self.head)
        self.flash = Flash(kind=self.stored.value, sub=sub, inner=self.wide_inner, head=self.wide_head)
        self.team = Team(lanes=QUAD, rows=self.threads // QUAD, neighbours=True)

    def main(self, space: Workspace | None) -> EmittedKernel:
        """Queries, then steps of keys; the tile is written at the end."""
        source = self.task.source(workspace=space is not None)
        source.tensor_tiles.append(self.flash)
        self.begin(source)
        self._declare(source)
        self._walk(source)
        self._finish(source, space)
        sizes = (self.queries, self.keys, self.inner, self.head)
        shared = int(flash_bytes(*(np.array(float(size)) for size in sizes)))
        return source.emitted(self.tiles * self.batch * self.split, self.threads, shared, space)

    def _declare(self, source: TaskSource) -> None:
        """The thread's place, shared memory, queries, accumulators, running maxima and sums."""
        source.line(f"lane = u32(tid % u32({QUAD}))")
        source.line(f"local = u32(tid // u32({QUAD}))")
        source.line(f"warp = u32(tid // u32({WARP}))")
        source.line(f"across = u32(warp // u32({self.down}))")
        source.line(f"row_base = u32(warp % u32({self.down}) * u32({FRAGMENT}))")
        source.line(f"row0 = u32(row_base + tid % u32({WARP}) // u32({QUAD}))")
        source.line(f"column0 = u32(across * u32({self.flash.sub}) + lane * u32(2))")
        source.line("strips = cuda.shared.array(0, d_u16)")
        source.line(f"held = cuda.local.array({self.wide_inner // 4}, u32)")
        source.line(f"acc = cuda.local.array({self.wide_head // 2}, f32)")
        source.line(f"s = cuda.local.array({self.flash.sub // 2}, f32)")
        source.line("high = cuda.local.array(2, f32)")
        source.line("total = cuda.local.array(2, f32)")
        with source.block("for r in range(2):"):
            source.line("high[r] = f32(-inf)")
            source.line("total[r] = f32(0)")
        with source.block(f"for d in range({self.wide_head // 2}):"):
            source.line("acc[d] = f32(0)")

    # strips

    def _fill(self, source: TaskSource, which: str, rows: int) -> None:
        """Rows of an operand from element `strip` on, by copies of chunks or element by element, zero outside."""
        side = self.side(which)
        width, real = (self.wide_head, self.head) if which == "v" else (self.wide_inner, self.inner)
        copy = copied(self.task, lambda probe, open_: self.element(probe, open_, which), side.inner, self.stored)
        unit = 1 if copy is None else CHUNK
        apart, period = swizzle(width)
        source.line("f = tid")
        with source.block(f"while f < u32({rows * width // unit}):"):
            source.line(f"w = u32(f // u32({width // unit}))")
            source.line(f"ci = u32(f % u32({width // unit}){f' * u32({unit})' if unit > 1 else ''})")
            rest = "" if unit > 1 else " + ci % u32(8)"
            chunk = f"(ci // u32(8) ^ w // u32({apart}) % u32({period}))"
            source.line(f"slot = u32(strip + w * u32({width}) + {chunk} * u32(8){rest})")
            source.line(f"{side.flat} = u32({side.base} + w)")
            source.line(f"inside = {side.flat} < {side.end}{f' and ci < u32({real})' if real < width else ''}")
            if copy is None:
                source.line("x = f32(0)")
            with source.block("if inside:") if copy is None else source.scope():
                place, depth = len(source.lines), source.depth
                with ExitStack() as open_:
                    if copy is None:
                        source.line(f"x = {self.element(source, open_, which)}")
                    else:
                        source.line(f"from_ = u32({source.index(copy.offset)}) if inside else u32(0)")
                source.unravel(side.flat, side.loops, place, depth)
                source.unravel("ci", side.inner, place, depth)
            kind = self.stored.value
            source.line(
                f"strips[slot] = pack_{kind}(x)" if copy is None else
                f"copy16_{kind}(where(strips, slot), where({copy.array}, from_), u32(16) if inside else u32(0))"
            )  # fmt: skip
            source.line(f"f = u32(f + u32({self.threads}))")

    def _walk(self, source: TaskSource) -> None:
        """Queries into registers; then each step is loaded while the ones before it are computed."""
        ahead, size = self.stages - 1, self.step * (self.wide_inner + self.wide_head)
        ring = self.queries * self.wide_inner
        source.tensor_waits += [0, max(0, ahead - 1)]
        self._queries(source)
        source.line(
            f"steps = u32(0) if first >= end else u32((end - first + u32({self.step - 1})) // u32({self.step}))"
        )
        source.line("at = u32(0)")
        with source.block(f"while at < steps + u32({ahead}):" if ahead else "while at < steps:"):
            if ahead:
                with source.block(f"if at >= u32({ahead}):"):
                    source.line(f"copies_wait{ahead - 1}()")
                    source.line("cuda.syncthreads()")
            else:
                source.line("cuda.syncthreads()")
            with source.block("if at < steps:") if ahead else source.scope():
                source.line(f"n_base = u32(first + at * u32({self.step}))")
                source.line(f"strip = u32(u32({ring}) + at % u32({self.stages}) * u32({size}))")
                self._fill(source, "k", self.step)
                source.line(f"strip = u32(strip + u32({self.step * self.wide_inner}))")
                self._fill(source, "v", self.step)
            source.line("copies_end()")
            if not ahead:
                source.line("copies_wait0()")
                source.line("cuda.syncthreads()")
            with source.block(f"if at >= u32({ahead}):") if ahead else source.scope():
                source.line(f"n_base = u32(first + (at - u32({ahead})) * u32({self.step}))")
                source.line(f"strip = u32(u32({ring}) + (at - u32({ahead})) % u32({self.stages}) * u32({size}))")
                self._scores(source)
                self._values(source)
            source.line("at = u32(at + u32(1))")

    def _queries(self, source: TaskSource) -> None:
        source.line("strip = u32(0)")
        self._fill(source, "q", self.queries)
        source.line("copies_end()")
        source.line("copies_wait0()")
        source.line("cuda.syncthreads()")
        source.line(f"queries_{self.flash.name}(where(held, u32(0)), {self._query_rows()}, tid)")

    def _query_rows(self) -> str:
        return f"where(strips, u32(row_base * u32({self.wide_inner})))"

    # one step

    def _scores(self, source: TaskSource) -> None:
        """Scores of the warp's keys; per row the running maximum, the weights in their place, and the sum."""
        sub = self.flash.sub
        with source.block(f"for c in range({sub // 2}):"):
            source.line("s[c] = f32(0)")
        keys = f"where(strips, u32(strip + across * u32({sub * self.wide_inner})))"
        source.line(
            f"scores_{self.flash.name}(where(s, u32(0)), where(held, u32(0)), {self._query_rows()}, {keys}, tid)"
        )
        operators = self.task.program.operators
        each = WEIGHT + sum(operators[m].work.instructions for m in self.nest.members)
        if each * sub // 2 <= UNROLL_LIMIT:
            with source.block("for r in range(2):"):
                self._row(source, "r")
            return
        for row in range(2):  # the compiler would keep the scores in local memory
            with source.scope():
                self._row(source, str(row))

    def _row(self, source: TaskSource, row: str) -> None:
        sub = self.flash.sub
        slot = f"s[c // 2 * 4 + {row} * 2 + c % 2]"
        source.line(f"mi = min(u32(m_base + row0 + u32({row}) * u32(8)), u32({self.m - 1}))")
        source.line("top = f32(-inf)")
        place, depth = len(source.lines), source.depth
        with source.block(f"for c in range({sub // 4}):"):
            source.line("ni = u32(n_base + column0 + u32(c // 2) * u32(8) + u32(c % 2))")
            source.line(f"x = {slot}")
            whole = self.n % self.keys == 0
            source.line(f"{slot} = f32(-inf)")
            with source.scope() if whole else source.block("if ni < end:"):
                inner, deeper = len(source.lines), source.depth
                logit = self.logit(source, "x")
                source.unravel("ni", self.score.n, inner, deeper)
                source.line(f"{slot} = {logit}")
                source.line(f"top = {logit} if {logit} > top else top")
        source.unravel("mi", self.score.m, place, depth)
        join_lanes(source, self.team, [Partial(MAXIMUM, "top")])
        source.line(f"top = {MAXIMUM.join('top', f'high[{row}]')}")
        source.line(f"shrink = f32(0) if high[{row}] == f32(-inf) else exp(high[{row}] - top)")
        source.line(f"high[{row}] = top")
        source.line(f"sum_ = total[{row}] * shrink")
        with source.block(f"for c in range({sub // 4}):"):
            source.line(f"x = f32(0) if {slot} == f32(-inf) else exp({slot} - top)")
            source.line("sum_ = sum_ + x")
            source.line(f"{slot} = x")
        source.line(f"total[{row}] = sum_")
        with source.block(f"for d in range({self.wide_head // 4}):"):
            held = f"acc[d // 2 * 4 + {row} * 2 + d % 2]"
            source.line(f"{held} = {held} * shrink")

    def _values(self, source: TaskSource) -> None:
        """Weights times values; the simulator's lanes give each other their weights through shared memory."""
        sub, name = self.flash.sub, f"weighted_{self.flash.name}"
        values = (
            f"where(strips, u32(strip + u32({self.step * self.wide_inner}) + across * u32({sub * self.wide_head})))"
        )
        with source.block("if SHUFFLES:"):
            source.line(f"{name}(where(acc, u32(0)), where(s, u32(0)), {values}, tid)")
        with source.block("else:"):
            shared = source.fresh("s")
            source.line(f"{shared} = cuda.shared.array({self.threads // WARP * FRAGMENT * sub}, f32)")
            with source.block("for r in range(2):"), source.block(f"for c in range({sub // 4}):"):
                source.line(f"row = u32(warp * u32({FRAGMENT}) + tid % u32({WARP}) // u32({QUAD}) + u32(r) * u32(8))")
                source.line(f"f = u32(row * u32({sub}) + lane * u32(2) + u32(c // 2) * u32(8) + u32(c % 2))")
                source.line(f"{shared}[f] = s[c // 2 * 4 + r * 2 + c % 2]")
            source.line("cuda.syncthreads()")
            source.line(
                f"{name}(where(acc, u32(0)), where({shared}, u32(warp * u32({FRAGMENT * sub}))), {values}, tid)"
            )
            source.line("cuda.syncthreads()")

    # behind the keys

    def _finish(self, source: TaskSource, space: Workspace | None) -> None:
        """Results go through shared memory: warps of a row are joined in one loop over the tile, columns innermost."""
        rows = self.across * self.queries
        stats = rows * self.wide_head
        with source.block("for r in range(2):"):
            source.line("sum_ = total[r]")
            join_lanes(source, self.team, [Partial(SUM, "sum_")])
            source.line("total[r] = sum_")
        source.line("cuda.syncthreads()")
        source.line("sums = cuda.shared.array(0, d_f32)")
        with source.block("for r in range(2):"):
            source.line(f"row = u32(across * u32({self.queries}) + row0 + u32(r) * u32(8))")
            with source.block("if lane == u32(0):"):
                source.line(f"sums[u32({stats}) + row] = high[r]")
                source.line(f"sums[u32({stats + rows}) + row] = total[r]")
            with source.block(f"for d in range({self.wide_head // 4}):"):
                source.line("column = u32(lane * u32(2) + u32(d // 2) * u32(8) + u32(d % 2))")
                source.line(f"sums[{self._slot('row', 'column')}] = acc[d // 2 * 4 + r * 2 + d % 2]")
        source.line("cuda.syncthreads()")
        source.line("f = tid")
        with source.block(f"while f < u32({self.queries * self.head}):"):
            source.line(f"w = u32(f // u32({self.head}))")
            source.line(f"d = u32(f % u32({self.head}))")
            source.line("mi = u32(m_base + w)")
            with source.block(f"if mi < u32({self.m}):"):
                self._point(source, space, stats)
            source.line("f = u32(f + u32(cuda.blockDim.x))")  # not a number: the compiler would unroll all of it

    def _slot(self, row: str, column: str) -> str:
        """Where a result lies: chunks of a row are permuted, so that fragments meet fewer banks."""
        apart, period = swizzle(self.wide_head)
        chunk = f"({column} // u32(8) ^ {row} // u32({apart}) % u32({period}))"
        return f"u32({row} * u32({self.wide_head}) + {chunk} * u32(8) + {column} % u32(8))"

    def _point(self, source: TaskSource, space: Workspace | None, stats: int) -> None:
        """One point of the tile: its warps joined, then what is behind and the stores, or the part's numbers kept."""
        rows = self.across * self.queries
        if self.across == 1:
            source.line(f"best = sums[u32({stats}) + w]")
            source.line(f"sum_ = sums[u32({stats + rows}) + w]")
            source.line(f"out = sums[{self._slot('w', 'd')}]")
        else:
            row = f"u32(u32(c) * u32({self.queries}) + w)"
            self.merged(source, self.across, Merge(
                f"sums[u32({stats}) + {row}]", f"sums[u32({stats + rows}) + {row}]", f"sums[{self._slot(row, 'd')}]",
            ))  # fmt: skip
        if space is None:
            place, depth = len(source.lines), source.depth
            self.behind(source, "best", "sum_", "out")
            source.unravel("d", self.width, place, depth)
            source.unravel("mi", self.score.m, place, depth)
            return
        every = self.batch * self.m
        source.line(f"at_ = u32(part * u32({(2 + self.head) * every}) + batch * u32({self.m}) + mi)")
        source.line(f"w0[at_ + (d + u32(2)) * u32({every})] = out")
        with source.block("if d == u32(0):"):
            source.line("w0[at_] = best")
            source.line(f"w0[at_ + u32({every})] = sum_")
