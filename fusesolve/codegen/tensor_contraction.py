"""Contractions of f16 and bf16 on the tensor pipe: strips in shared memory in several stages, products by mma.

An operand that is read as it lies in memory is copied 16 bytes at a time while earlier steps are multiplied; one that
the group computes is computed element by element while its strip is filled. The sums then take the place of the strips,
and what is behind them is computed in one loop over the tile.
"""

from collections.abc import Sequence

from fusesolve.codegen.contraction import Gemm, Head
from fusesolve.codegen.copies import Copy, copied
from fusesolve.codegen.kernel import Task, TaskSource, Workspace
from fusesolve.codegen.scalars import UnsupportedError
from fusesolve.codegen.tensor_source import CHUNK, STEP, Mma, swizzle
from fusesolve.cost.gpu.layout import WARP, gemm_bytes
from fusesolve.graph import DType

KINDS = (DType.F16, DType.BF16)
SUMS_PAD = 8  # f32 elements behind each row of the tile's sums
UNROLLED_COPIES = 8  # copies of a thread and step that are written one behind the other


class TensorGemm(Gemm):
    """Writes one contraction on the tensor pipe."""

    step = STEP

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        dtypes = {kind.dtype for kind in self.types[:2]}
        self.dtype = dtypes.pop()
        if dtypes or self.dtype not in KINDS:
            raise UnsupportedError(f"{self.dtype.value} is not supported on the tensor pipe of generated kernels")
        self.stages = task.tile("stages", 2)
        self.swapped = self.tile.m % 16 != 0  # the side of 16 is then that of the right operand
        rows, columns = self.side(left=not self.swapped), self.side(left=self.swapped)
        warps = self.tile.threads // WARP
        shapes = [
            (w, rows.width // (16 * w), columns.width // (8 * (warps // w)))
            for w in range(1, warps + 1)
            if warps % w == 0 and rows.width % (16 * w) == 0 and columns.width % (8 * (warps // w)) == 0
        ]
        if not shapes:
            raise UnsupportedError(f"a tile of {self.tile.m} x {self.tile.n} does not divide over {warps} warps")
        down, blocks_r, blocks_c = min(shapes, key=lambda item: (abs(2 * item[1] - item[2]), item[0]))
        self.mma = Mma(
            kind=self.dtype.value, rows=rows.width, columns=columns.width, warps=down, blocks_r=blocks_r,
            blocks_c=blocks_c, inner_r=self.along_k(left=not self.swapped), inner_c=self.along_k(left=self.swapped),
        )  # fmt: skip
        self.high, self.wide = 2 * blocks_r, 2 * blocks_c
        self.copies = {left: self._copies(left=left) for left in (True, False)}

    def shared_bytes(self) -> int:
        """All stages of both strips, asked for at launch; the tile's sums take their place at the end."""
        shared = gemm_bytes(self.tile.m, self.tile.n, STEP, self.stages, self.dtype.itemsize)
        if shared < 4 * self.tile.m * self.tile.n:
            raise UnsupportedError(f"{self.stages} stages of a tile of {self.tile.m} x {self.tile.n} hold no sums")
        return shared

    def declare(self, source: TaskSource) -> None:
        """Strips, accumulators, and the thread's first point in the tile."""
        mma = self.mma
        source.tensor_tiles.append(mma)
        source.line("strips = cuda.shared.array(0, d_u16)")
        source.line(f"warp = u32(tid // u32({WARP}))")
        source.line(f"row0 = u32(warp % u32({mma.warps}) * u32({mma.blocks_r * 16}) + tid % u32({WARP}) // u32(4))")
        source.line(f"column0 = u32(warp // u32({mma.warps}) * u32({mma.blocks_c * 8}) + tid % u32(4) * u32(2))")
        self.accumulators(source)

    # strips and products

    def walk(self, source: TaskSource) -> None:
        """Steps over the reduced axes: one is loaded while the one of `stages` - 1 before it is multiplied."""
        ahead, size = self.stages - 1, (self.tile.m + self.tile.n) * STEP
        source.tensor_waits.append(ahead - 1)
        self.bounds(source)
        source.line(f"steps = u32(0) if first >= end else u32((end - first + u32({STEP - 1})) // u32({STEP}))")
        source.line("at = u32(0)")
        with source.block(f"while at < steps + u32({ahead}):"):
            with source.block(f"if at >= u32({ahead}):"):
                source.line(f"copies_wait{ahead - 1}()")
                source.line("cuda.syncthreads()")
            with source.block("if at < steps:"):
                source.line(f"k_base = u32(first + at * u32({STEP}))")
                source.line(f"strip = u32(at % u32({self.stages}) * u32({size}))")
                self._fill(source, left=True)
                source.line(f"strip = u32(strip + u32({self.tile.m * STEP}))")
                self._fill(source, left=False)
            source.line("copies_end()")
            with source.block(f"if at >= u32({ahead}):"):
                self._products(source, ahead, size)
            source.line("at = u32(at + u32(1))")

    def _products(self, source: TaskSource, ahead: int, size: int) -> None:
        source.line(f"strip = u32((at - u32({ahead})) % u32({self.stages}) * u32({size}))")
        left, right = "where(strips, strip)", f"where(strips, u32(strip + u32({self.tile.m * STEP})))"
        rows, columns = (right, left) if self.swapped else (left, right)
        source.line(f"{self.mma.name}(where(acc, u32(0)), {rows}, {columns}, tid)")

    def _fill(self, source: TaskSource, *, left: bool) -> None:
        """One strip of one step: by copies of chunks, or element by element."""
        copy = self.copies[left]
        count = self.side(left=left).width * STEP // (CHUNK if copy else 1)
        threads = self.tile.threads
        if count % threads == 0 and count // threads <= UNROLLED_COPIES:
            with source.block(f"for q in range({count // threads}):"):
                source.line(f"f = u32(tid + u32(q) * u32({threads}))")
                self._slot(source, copy, left=left)
            return
        source.line("f = tid")
        with source.block(f"while f < u32({count}):"):
            self._slot(source, copy, left=left)
            source.line(f"f = u32(f + u32({threads}))")

    def _slot(self, source: TaskSource, copy: Sequence[Copy], *, left: bool) -> None:
        """The chunk or the element with number `f` of a strip, neighbours in memory by neighbouring threads."""
        along_k, width = self.along_k(left=left), self.side(left=left).width
        unit = CHUNK if copy else 1
        inner = (STEP if along_k else width) // unit
        outer_name, inner_name = ("w", "kk") if along_k else ("kk", "w")
        source.line(f"{outer_name} = u32(f // u32({inner}))")
        source.line(f"{inner_name} = u32(f % u32({inner}){f' * u32({unit})' if unit > 1 else ''})")
        if along_k:
            chunk, line = "(kk // u32(8) ^ w % u32(8))", f"w * u32({STEP})"
        else:
            apart, period = swizzle(width)
            turned = f" ^ kk // u32({apart}) % u32({period})" if period > 1 else ""
            chunk, line = f"(w // u32(8){turned})", f"kk * u32({width})"
        rest = "" if unit > 1 else f" + {inner_name} % u32(8)"
        source.line(f"slot = u32(strip + {line} + {chunk} * u32(8){rest})")
        if not copy:
            self.element(source, left=left)
            source.line(f"strips[slot] = pack_{self.dtype.value}(x)")
        else:
            self._copy(source, copy, left=left)

    def _copy(self, source: TaskSource, copies: Sequence[Copy], *, left: bool) -> None:
        side = self.side(left=left)
        source.line("ki = u32(k_base + kk)")
        source.line(f"{side.flat} = u32({side.base} + {side.place})")
        source.line(f"inside = {side.flat} < u32({side.extent}) and ki < end")
        place, depth = len(source.lines), source.depth
        for copy, _ in zip(copies, self.strips_of(source, left=left), strict=True):
            with source.scope():
                source.line(f"from_ = u32({source.index(copy.offset)}) if inside else u32(0)")
            bytes_ = "u32(16) if inside else u32(0)"
            source.line(f"copy16_{self.dtype.value}(where(strips, slot), where({copy.array}, from_), {bytes_})")
        source.unravel(side.flat, side.loops, place, depth)
        source.unravel("ki", self.loops.k, place, depth)

    def _copies(self, *, left: bool) -> list[Copy]:
        """Operands of which chunks can be copied as they lie, one of each contraction; none where one cannot be."""
        heads = self.heads[:1] if left else self.heads
        found = [self._copied(head, left=left) for head in heads]
        return [copy for copy in found if copy is not None] if None not in found else []

    def _copied(self, head: Head, *, left: bool) -> Copy | None:
        """The operand where chunks of it can be copied as they lie, else None."""
        loops = self.loops.k if self.along_k(left=left) else self.side(left=left).loops
        return copied(self.task, lambda probe, open_: self.operand(probe, open_, head, left=left), loops, self.dtype)

    # behind the sum

    def finish(self, source: TaskSource, space: Workspace | None) -> None:
        """Accumulators go through shared memory: one short loop over the tile, neighbours by neighbouring threads."""
        mma, tile = self.mma, self.tile
        source.line("cuda.syncthreads()")
        source.line("sums = cuda.shared.array(0, d_f32)")
        with source.block(f"for r in range({2 * mma.blocks_r}):"), source.block(f"for c in range({2 * mma.blocks_c}):"):
            source.line("row = u32(row0 + u32(r) * u32(8))")
            source.line("column = u32(column0 + u32(c // 2) * u32(8) + u32(c % 2))")
            slot = self._sum_slot(*(("column", "row") if self.swapped else ("row", "column")))
            source.line(f"sums[{slot}] = acc[(r // 2 * {mma.blocks_c} + c // 2) * 4 + r % 2 * 2 + c % 2]")
        source.line("cuda.syncthreads()")
        source.line("f = tid")
        with source.block(f"while f < u32({tile.m * self.own}):"):
            source.line(f"w = u32(f // u32({self.own}))")
            source.line(f"v = u32(f % u32({self.own}))")
            source.line("mi = u32(m_base + w)")
            source.line("ni = u32(n_base + v)")
            columns = [f"u32({n * self.own}) + v" if n else "v" for n in range(len(self.heads))]
            self.point(source, space, [f"sums[{self._sum_slot('w', column)}]" for column in columns])
            step = source.block_threads(tile.threads)  # not a number: the compiler would unroll all of it
            source.line(f"f = u32(f + {step})")

    def _sum_slot(self, m: str, n: str) -> str:
        """Where a point of the tile lies: rows are padded where there is room, so that fragments meet fewer banks."""
        padded = self.tile.n + SUMS_PAD
        fits = 4 * self.tile.m * padded <= self.shared_bytes()
        return f"u32({m} * u32({padded if fits else self.tile.n}) + {n})"
