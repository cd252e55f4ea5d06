"""The body of a CPU kernel: values at indices as on a device, over loops that are merged where memory allows.

Loops that every index expression of the kernel walks as one (`a * extent + b`) become one run, so that the innermost
run is long and its accesses are contiguous: that is what the compiler turns into vector instructions.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod

from fusesolve.codegen.affine import Affine, Var, flatten, variable
from fusesolve.codegen.kernel import Task, TaskSource
from fusesolve.codegen.scalars import UnsupportedError
from fusesolve.cost.cpu import STREAMED
from fusesolve.graph import DType

NARROW = frozenset({DType.F16, DType.BF16})  # stored as 16 bits, widened at the load and rounded at the store
BLOCK = 32  # bytes that go around the caches at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Loops of the nest, outer to inner, walked as one loop of `extent` by the variable `name`."""

    loops: tuple[int, ...]
    extents: tuple[int, ...]
    name: str

    @property
    def extent(self) -> int:
        """Steps of the merged loop."""
        return prod(self.extents)


class CpuSource(TaskSource):
    """The body of one kernel of a task; `runs` are the merged loops once they are known."""

    def __init__(self, task: Task) -> None:
        storages = [*task.kernel.reads, *task.kernel.writes]
        super().__init__(task, {item: f"a{n}" for n, item in enumerate(storages)}, workspace=False)
        for item in storages:
            self._check(task.program.storage[item].type.dtype, task.program.storage[item].value)
        self.runs: tuple[Run, ...] = ()
        self.seen: list[Affine] = []
        self.streams = sum(task.program.storage[item].type.nbytes for item in storages) >= STREAMED
        self.strips: dict[int, str] = {}
        self.direct: set[int] = set()
        self._strip: Run | None = None
        self._strip_depth = 0
        self._leaving: list[tuple[int, Affine]] = []

    @staticmethod
    def _check(dtype: DType, name: str) -> None:
        if dtype in (DType.U32, DType.F8E4M3, DType.F8E5M2):
            raise UnsupportedError(f"{name}: {dtype.value} values have no CPU source")

    def index(self, expression: Affine) -> str:
        """An index expression over the runs; loops that a run cannot stand for keep their own variables."""
        self.seen.append(expression)
        for run in self.runs:
            expression = self._merged(run, expression)
        return super().index(expression)

    def _merged(self, run: Run, expression: Affine) -> Affine:
        terms = dict(expression.terms)
        step = 1
        wanted: dict[Var, int] = {}
        for loop, extent in zip(reversed(run.loops), reversed(run.extents), strict=True):
            if extent > 1:
                wanted[self.vars[loop]] = step
            step *= extent
        found = {var: terms[var] for var in wanted if var in terms}
        if not found or len(found) < len(wanted):
            return expression
        scale, rest = divmod(found[min(wanted, key=wanted.__getitem__)], min(wanted.values()))
        if rest or any(found[var] != scale * wanted[var] for var in wanted):
            return expression
        kept = Affine(tuple(term for term in expression.terms if term[0] not in wanted), expression.const)
        return kept + variable(Var(run.name, run.extent)).scaled(scale)

    def unravel_runs(self, place: int, depth: int, runs: Iterable[Run]) -> None:
        """Before line `place`, define the loops' own variables that the body uses, from the variables of `runs`."""
        for run in runs:
            self.unravel(run.name, run.loops, place, depth)

    @contextmanager
    def strip(self, run: Run) -> Iterator[None]:
        """Within it, stores that walk `run` element by element go around the caches.

        They do so at once where blocks of 32 bytes begin with the strip, else through an array of the strip's length.
        """
        self._strip, self._strip_depth = run, self.depth + 1
        yield
        self._strip = None
        if self._leaving:
            self.line(f"{run.name} = u32(s)")
        for storage, offset in self._leaving:
            self.line(f"stream({self.arrays[storage]}, {self.index(offset)}, {self.strips[storage]}, width)")
        self._leaving.clear()

    def store(self, storage: int, index: Sequence[Affine], text: str) -> None:
        """A store of one element, or its place in the strip."""
        offset = flatten(index, self.program.storage[storage].type.shape)
        if not self._in_strip(offset):
            super().store(storage, tuple(index), text)
            return
        if self._in_blocks(storage, offset):
            self.direct.add(storage)
            self.line(f"put({self.arrays[storage]}, {self.index(offset)}, {text})")
            return
        name = self.strips.get(storage) or self.strips.setdefault(storage, self.fresh("b"))
        self.line(f"{name}[c] = {text}")
        self._leaving.append((storage, offset))

    def _in_strip(self, offset: Affine) -> bool:
        """Whether a store here is one of neighbours along the strip's run, with nothing else to know than the runs."""
        if self._strip is None or self.depth != self._strip_depth:
            return False
        steps = self.steps(offset)
        return steps is not None and steps.get(self._strip.name) == 1

    def steps(self, offset: Affine) -> dict[str, int] | None:
        """The steps of a position along each run, by name; None where it needs more than the runs."""
        for run in self.runs:
            offset = self._merged(run, offset)
        steps = {var.name: step for var, step in offset.terms}
        return steps if steps.keys() <= {run.name for run in self.runs} else None

    def _in_blocks(self, storage: int, offset: Affine) -> bool:
        """Whether every strip of these stores begins at a block of 32 bytes, and the compiler makes vectors of them."""
        dtype = self.program.storage[storage].type.dtype
        if dtype not in (DType.F32, DType.F64) or self._strip is None:
            return False
        steps = [step for name, step in (self.steps(offset) or {}).items() if name != self._strip.name]
        return not any(step * dtype.itemsize % BLOCK for step in (*steps, offset.const))

    def fetch(self, storage: int, offset: Affine) -> str:
        """A load from a position, once in a scope."""
        found = self.recall((storage, offset))
        return found if found is not None else self.keep((storage, offset), self._load(storage, offset))

    def _load(self, storage: int, offset: Affine) -> str:
        dtype = self.program.storage[storage].type.dtype
        if dtype not in NARROW:
            return super().fetch(storage, offset)
        if storage not in self.arrays:
            raise UnsupportedError(f"{self.program.storage[storage].value} is not an argument of the kernel")
        return self.value(f"from_{dtype.value}({self.arrays[storage]}[{self.index(offset)}])")

    def through(self, dtype: DType, text: str) -> str:
        """An f32 rounded to a type of 16 bits, as an f32."""
        return f"from_{dtype.value}(to_{dtype.value}({text}))"

    def stored(self, storage: int, text: str) -> str:
        """A scalar as it is stored: floats of 16 bits as their bits."""
        dtype = self.program.storage[storage].type.dtype
        return f"to_{dtype.value}({text})" if dtype in NARROW else text


def merged_runs(source: CpuSource, order: Sequence[int], prefix: str) -> tuple[Run, ...]:
    """The loops of `order` (outer to inner) as few runs as the index expressions that `source` has seen allow."""
    extent = source.nest.extent
    groups: list[list[int]] = []
    for loop in (loop for loop in order if extent[loop] > 1):
        if groups and all(_follows(source, expression, groups[-1][-1], loop) for expression in source.seen):
            groups[-1].append(loop)
        else:
            groups.append([loop])
    return tuple(
        Run(loops=tuple(group), extents=tuple(extent[loop] for loop in group), name=f"{prefix}{n}")
        for n, group in enumerate(groups)
    )


def _follows(source: CpuSource, expression: Affine, outer: int, inner: int) -> bool:
    """Whether an expression walks two adjacent loops as one."""
    terms = dict(expression.terms)
    return terms.get(source.vars[outer], 0) == terms.get(source.vars[inner], 0) * source.nest.extent[inner]
