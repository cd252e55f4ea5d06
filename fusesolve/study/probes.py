"""Probe kernels of a CPU: small graphs, each one kernel of the emitter, timed in turn.

What a probe moves and computes is counted by the same rules as a candidate's workload, so a measured rate is in the
model's own units (`fusesolve.cost.cpu`). None of them is a group of `benchmarks/bench_cpu.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass

from fusesolve.codegen.cpu.runtime import Timing
from fusesolve.cost.cpu import TASK_POINTS
from fusesolve.detect import CpuFacts
from fusesolve.errors import InternalError
from fusesolve.group import Workload
from fusesolve.importers.native import parse_native
from fusesolve.validate.cpu import Arrays, bind_group
from fusesolve.validate.parts import one_kernel

PLAIN_BYTES = 60 << 20  # of a copy that memory serves and whose stores still go through the caches
PLAIN = ("mul($, 0.5)", "add($, 1.5)", "sub($, 0.7)", "mul($, 1.1)")
CHAINS = (
    2 * PLAIN, 4 * PLAIN, ("exp($)",), ("erf($)", "add($, 1.5)"), ("tanh($)",), ("exp($)", "mul($, 0.5)", "exp($)"),
)  # fmt: skip
BALANCED = (("erf($)",), 4 * PLAIN)  # chains whose arithmetic takes about as long as memory
COPY = ("relu($)",)
SHORT, LONG = 256, 1024  # numbers of the rows whose ends are measured
PRODUCT = 512  # rows and columns of the matrices that are multiplied


@dataclass(frozen=True, slots=True)
class Spec:
    """A graph in native words: its inputs, its operators, and the value that leaves it."""

    inputs: tuple[str, ...]
    ops: tuple[str, ...]
    output: str = "y"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """A probe in place: what it moves and computes, and its call."""

    workload: Workload
    call: Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A probe's workload and the seconds that it took."""

    workload: Workload
    timing: Timing

    @property
    def seconds(self) -> float:
        """The median of the rounds, as of every other kernel that is measured."""
        return self.timing.median


def probe_specs(facts: CpuFacts) -> dict[str, Spec]:
    """The probes of a machine by name; sizes from its cores and caches."""
    task, cores = TASK_POINTS, facts.cores
    large = large_points(facts)
    return {
        "call": elementwise(16, *COPY), "two": _adding(2), "eight": _adding(8),
        "one task": elementwise(task, *COPY), "a task a core": elementwise(task * cores, *COPY),
        "two tasks a core": elementwise(2 * cores * task, *COPY),
        **{f"chain {n}": elementwise(2 * cores * task, *chain) for n, chain in enumerate(CHAINS)},
        **{f"near {n}": elementwise(2 * cores * task, *chain) for n, chain in enumerate(BALANCED)},
        "short rows": _norms(cores * task // SHORT, SHORT), "long rows": _norms(cores * task // LONG, LONG),
        "near the cores": elementwise(facts.last_level // 128, *COPY),
        "cached": elementwise(int(0.4 * facts.last_level) // 8, *COPY),
        "cached pair": Spec(
            (f"x: f32[{facts.last_level // 32}]", f"z: f32[{facts.last_level // 32}]"), ("y = sub(x, z)",)
        ),
        "product": Spec((f"a: f32[{PRODUCT},{PRODUCT}]", f"b: f32[{PRODUCT},{PRODUCT}]"), ("y = matmul(a, b)",)),
        "copy": elementwise(large, *COPY),
        "sum": Spec((f"x: f32[{large // 1024},1024]",), ("y = reduce_sum(x; axis=1)",)),
        "plain": elementwise(PLAIN_BYTES // 8, *COPY),
        "means": _rows(large // 2048, 2048, "reduce_mean", "sub(x, m)"),
        "peaks": _rows(large // 2048, 2048, "reduce_max", "sub(x, m)", "exp($)"),
        "near peaks": _rows(cores * task // LONG, LONG, "reduce_max", "sub(x, m)", "exp($)"),
        **{f"far {n}": elementwise(large, *chain) for n, chain in enumerate(BALANCED)},
        "turned": Spec(("x: f32[4096,4096]",), ("y = transpose(x; perm=1-0)",)),
    }  # fmt: skip


def large_points(facts: CpuFacts) -> int:
    """Numbers of an array that only memory holds: eight last caches, at least 128 MiB, over an input and a result."""
    return max(8 * facts.last_level, 128 << 20) // 8


def elementwise(count: int, *ops: str) -> Spec:
    """A chain of elementwise operators (`relu($)`: `$` is the one before) over `count` numbers."""
    return Spec((f"x: f32[{count}]",), _chain(ops))


def _chain(ops: tuple[str, ...]) -> tuple[str, ...]:
    values = ["x", *(f"v{n}" for n in range(len(ops) - 1)), "y"]
    return tuple(f"{values[n + 1]} = {op.replace('$', values[n])}" for n, op in enumerate(ops))


def _adding(count: int) -> Spec:
    """A sum of `count` arrays of 16 numbers."""
    names = [f"x{n}" for n in range(count)]
    ops = [f"v{n} = add({'x0' if n == 1 else f'v{n - 1}'}, x{n})" for n in range(1, count)]
    return Spec(tuple(f"{name}: f32[16]" for name in names), tuple(ops), f"v{count - 1}")


def _rows(rows: int, length: int, fold: str, *ops: str) -> Spec:
    """Rows folded to `m`, then elementwise operators."""
    return Spec((f"x: f32[{rows},{length}]",), (f"m = {fold}(x; axis=1, keepdims=true)", *_chain(ops)))


def _norms(rows: int, length: int) -> Spec:
    return Spec((f"x: f32[{rows},{length}]",), ("y = rmsnorm(x; axis=1)",))


def prepare(spec: Spec, arrays: Arrays) -> Kernel:
    """The probe as one kernel on `arrays`, compiled."""
    lines = ["format: fusesolve-graph/1", "name: probe", "inputs:", *(f'  - "{item}"' for item in spec.inputs), "ops:"]
    text = "\n".join([*lines, *(f'  - "{item}"' for item in spec.ops), f"outputs: [{spec.output}]"])
    planned, group = one_kernel(parse_native(text, "probe", {}, False))
    bound = bind_group(planned, planned.kernels[0], arrays, apart=False)
    if bound is None:
        raise InternalError(f"a probe has no source: {', '.join(spec.ops)}")
    return Kernel(workload=group.workload, call=bound.calls[0])
