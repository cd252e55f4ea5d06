"""Small work of any shape in one block: a loop over all threads for every reduction and every value that is written.

Results of reductions go to shared memory, with a barrier behind each; whoever reads them takes them from there at any
index. Everything else is computed again at the index where it is read.
"""

from math import prod

from fusesolve.candidates.one_block import fold_lanes
from fusesolve.codegen.affine import Var
from fusesolve.codegen.kernel import EmittedKernel, Task, ceil_div
from fusesolve.codegen.lanes import Partial, Team, join_lanes
from fusesolve.codegen.rows import accumulate, flat_position, fold_of, start_fold
from fusesolve.ops.definition import OpKind


def emit_block(task: Task) -> tuple[EmittedKernel, ...]:
    """The one kernel, of one block."""
    return (_BlockKernel(task).emit(),)


class _BlockKernel:
    def __init__(self, task: Task) -> None:
        self.task = task
        self.nest = task.nest
        self.source = task.source()
        self.threads = task.tile("threads", 128)

    def emit(self) -> EmittedKernel:
        """Reductions in the order of the graph, then what is written."""
        self.source.line("tid = u32(cuda.threadIdx.x)")
        for i, member in enumerate(self.nest.members):
            if self.task.program.operators[member].kind is OpKind.REDUCE:
                self._fold(i)
        for storage in self.task.kernel.writes:
            self._write(storage)
        return self.source.emitted(1, self.threads)

    def _fold(self, i: int) -> None:
        """One reduction into shared memory: `lanes` threads fold each result, whole rounds of results at a time.

        Threads behind the last result fold that one again, so that all of them meet at every barrier.
        """
        source, fold = self.source, fold_of(self.task, i)
        count, length = self._size(self.nest.out[i]), self._size(self.nest.red[i])
        lanes = fold_lanes(count, length, self.threads)
        team = Team(lanes=lanes, rows=self.threads // lanes, neighbours=True)
        name = source.fresh("z")  # (b1 is a type)
        source.declare_shared(name, count, fold.result)
        source.line(f"lane = u32(tid % u32({lanes}))")
        source.line(f"local = u32(tid // u32({lanes}))")
        with source.block(f"for n in range({ceil_div(count, team.rows)}):"):
            source.line(f"row = u32(min(u32(u32(n) * u32({team.rows}) + local), u32({count - 1})))")
            place, depth = len(source.lines), source.depth
            source.aliases.append((flat_position(source, self.nest.out[i]), Var("row", count)))
            part = start_fold(source, self.task, i)
            self._walk(i, part, lanes, length)
            join_lanes(source, team, [part])
            result = part.place if fold.indexed else fold.finish(part.total)
            with source.block("if lane == u32(0):"):
                source.line(f"{source.slot(name, 'row')} = {result}")
            source.aliases.pop()
            source.unravel("row", self.nest.out[i], place, depth)
        source.line("cuda.syncthreads()")
        source.kept[self.task.node_outputs(i)[0]] = name

    def _walk(self, i: int, part: Partial, lanes: int, length: int) -> None:
        source, inner = self.source, self.nest.red[i]
        source.line("j = lane")
        with source.block(f"while j < u32({length}):"):
            place, depth = len(source.lines), source.depth
            source.aliases.append((flat_position(source, inner), Var("j", length)))
            accumulate(source, self.task, i, part)
            source.aliases.pop()
            source.unravel("j", inner, place, depth)
            source.line(f"j = u32(j + u32({lanes}))")

    def _write(self, storage: int) -> None:
        """All points of a value that the group writes."""
        source, order = self.source, self.nest.out[self.task.writer(storage)]
        points = self._size(order)
        source.line("p = tid")
        with source.block(f"while p < u32({points}):"):
            place, depth = len(source.lines), source.depth
            source.aliases.append((flat_position(source, order), Var("p", points)))
            source.write_at(storage, frozenset(order))
            source.aliases.pop()
            source.unravel("p", order, place, depth)
            source.line(f"p = u32(p + u32({self.threads}))")

    def _size(self, loops: tuple[int, ...]) -> int:
        return prod(self.nest.extent[loop] for loop in loops)
