"""Attention on the FMA pipe.

`lanes` threads share a query row and take every `lanes`-th key of the tile in shared memory. Each keeps its own running
maximum, sum and part of the result; the lanes of a row are joined at the end.
"""

from fusesolve.codegen.attention import MAXIMUM, SUM, Attention
from fusesolve.codegen.kernel import EmittedKernel, Task, TaskSource, Workspace
from fusesolve.codegen.lanes import Partial, Team, join_lanes
from fusesolve.cost.gpu.layout import STATIC_SHARED, attention_bytes

COLUMNS = 16  # columns of the result that one loop joins and writes


class FmaAttention(Attention):
    """Writes one attention group on the FMA pipe."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.team = Team(lanes=self.threads // self.queries, rows=self.queries, neighbours=True)

    def main(self, space: Workspace | None) -> EmittedKernel:
        """Queries, then tiles of keys; every thread has a row and its share of the keys."""
        source = self.task.source(workspace=space is not None)
        elements = self.queries * self.inner + self.keys * (self.inner + self.head)
        shared = attention_bytes(self.queries, self.keys, self.inner, self.head, 4)
        dynamic = shared > STATIC_SHARED - 4096
        self.begin(source)
        self._declare(source, 0 if dynamic else elements)
        self.strip(source, "q", self.queries, 0)
        self._walk(source)
        self._lanes(source)
        self._finish(source, space)
        blocks = self.tiles * self.batch * self.split
        return source.emitted(blocks, self.threads, shared if dynamic else 0, space)

    def _declare(self, source: TaskSource, elements: int) -> None:
        """Lane, query row, shared memory; running maximum, sum and result."""
        source.line(f"lane = u32(tid % u32({self.team.lanes}))")
        source.line(f"local = u32(tid // u32({self.team.lanes}))")
        source.line(f"live = m_base + local < u32({self.m})")
        source.line(f"mrow = min(u32(m_base + local), u32({self.m - 1}))")
        source.line(f"sh = cuda.shared.array({elements}, {'f32' if elements else 'd_f32'})")
        source.line(f"acc = cuda.local.array({self.head}, f32)")
        with source.block(f"for d in range({self.head}):"):
            source.line("acc[d] = f32(0)")
        source.line("high = f32(-inf)")
        source.line("total = f32(0)")

    def _walk(self, source: TaskSource) -> None:
        """Tiles of keys: load keys and values, then every thread takes its keys of the tile."""
        source.line("n_base = first")
        k_start = self.queries * self.inner
        v_start = k_start + self.keys * self.inner
        with source.block("while n_base < end:"):
            source.line("cuda.syncthreads()")
            self.strip(source, "k", self.keys, k_start)
            self.strip(source, "v", self.keys, v_start)
            source.line("cuda.syncthreads()")
            source.line("w = lane")
            with source.block(f"while w < u32({self.keys}) and n_base + w < end:"):
                self._key(source, k_start, v_start)
                source.line(f"w = u32(w + u32({self.team.lanes}))")
            source.line(f"n_base = u32(n_base + u32({self.keys}))")

    def _key(self, source: TaskSource, k_start: int, v_start: int) -> None:
        """One key of one query row: its score, the running maximum and sum, and its share of the result."""
        source.line("ni = u32(n_base + w)")
        source.line("mi = mrow")
        source.line("dot = f32(0)")
        with source.block(f"for d in range({self.inner}):"):
            left, right = f"sh[local * u32({self.inner}) + u32(d)]", f"w * u32({self.inner}) + u32(d)"
            source.line(f"dot += {left} * sh[u32({k_start}) + {right}]")
        place, depth = len(source.lines), source.depth
        logit = self.logit(source, "dot")
        source.unravel("ni", self.score.n, place, depth)
        source.unravel("mi", self.score.m, place, depth)
        with source.block(f"if {logit} > high:"):
            source.line(f"shrink = exp(high - {logit})")
            source.line("total = total * shrink")
            with source.block(f"for d in range({self.head}):"):
                source.line("acc[d] = acc[d] * shrink")
            source.line(f"high = {logit}")
        source.line(f"weight = f32(0) if {logit} == f32(-inf) else exp({logit} - high)")
        source.line("total = total + weight")
        with source.block(f"for d in range({self.head}):"):
            source.line(f"acc[d] += weight * sh[u32({v_start}) + w * u32({self.head}) + u32(d)]")

    def _lanes(self, source: TaskSource) -> None:
        """Join the lanes of a row: the greatest maximum, and sums rescaled to it."""
        source.line("own = high")
        join_lanes(source, self.team, [Partial(MAXIMUM, "high")])
        source.line("shrink = f32(0) if own == f32(-inf) else exp(own - high)")
        source.line("total = total * shrink")
        join_lanes(source, self.team, [Partial(SUM, "total")])

    def _finish(self, source: TaskSource, space: Workspace | None) -> None:
        """Column by column: join the lanes, then one of them computes what is behind and stores."""
        rows = self.batch * self.m
        source.line("mi = mrow")
        base = ""
        if space is not None:
            base = f"part * u32({(2 + self.head) * rows}) + batch * u32({self.m}) + mrow"
            with source.block("if lane == u32(0) and live:"):
                source.line(f"w0[{base}] = high")
                source.line(f"w0[{base} + u32({rows})] = total")
        columns = COLUMNS if self.head % COLUMNS == 0 else self.head
        for start in range(0, self.head, columns):  # short loops: the compiler keeps the result in registers
            with source.scope(), source.block(f"for q in range({columns}):"):
                source.line(f"d = u32(u32({start}) + u32(q))")
                source.line(f"out = acc[{start} + q] * shrink")
                join_lanes(source, self.team, [Partial(SUM, "out")])
                with source.block(f"if d % u32({self.team.lanes}) == lane and live:"):
                    if space is not None:
                        source.line(f"w0[{base} + (d + u32(2)) * u32({rows})] = out")
                    else:
                        place, depth = len(source.lines), source.depth
                        self.behind(source, "high", "total", "out")
                        source.unravel("d", self.width, place, depth)
                        source.unravel("mi", self.score.m, place, depth)
