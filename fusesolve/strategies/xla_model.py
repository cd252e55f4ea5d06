"""XLA's own estimate of a fusion: launches, arithmetic and bytes, as its priority fusion sees them."""

from collections.abc import Iterable

from fusesolve.ops.definition import OpKind
from fusesolve.strategies.context import Context

LAUNCH_S = 1e-6
OVERLAP = 0.95  # share of the shorter of arithmetic and memory that hides behind the longer
L2_GAIN, L1_GAIN = 2.5, 8.0  # speed of reading again: a tensor below the L2, and below all L1 caches together


class Estimate:
    """Times in seconds by XLA's analytical model, on the numbers of the profile.

    exec = arithmetic + memory - OVERLAP x min(arithmetic, memory). A tensor is read once from DRAM; further reads go
    at L2_GAIN (and L1_GAIN) times that speed where it fits. An operator inside a fusion is computed as often as its
    readers there need it (a producer below a broadcast is computed again for each element). Source: XLA fd2bea06,
    `gpu_performance_model.cc` and `gpu_performance_model_base.cc`.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        profile = context.profile
        fma = profile.compute.pipes.fma
        lanes = max(fma.per_clock.values()) if fma is not None and fma.per_clock else 1.0
        self.rate = profile.compute.units * (fma.per_clock.get("f32", lanes) if fma is not None else lanes)
        self.rate *= profile.compute.clock
        self.bandwidth = profile.memory.dram.bandwidth
        self.l2 = profile.memory.l2.size if profile.memory.l2 is not None else 0
        self.l1 = profile.memory.l1.size * profile.compute.units if profile.memory.l1 is not None else 0

    def seconds(self, members: Iterable[int], root: int) -> float:
        """Time of a fusion whose one result is that of the operator `root`, launch left out."""
        context = self.context
        inside = sorted(members, reverse=True)
        times = dict.fromkeys(inside, 0.0)
        times[root] = float(context.operators[root].points)
        accessed: dict[int, float] = {}
        arithmetic = 0.0
        for member in inside:
            operator = context.operators[member]
            count = times[member] * max(1, operator.reduced)
            work = operator.work
            arithmetic += count * max(1.0, work.fma + work.alu + work.sfu)
            for read in operator.reads:
                made = context.made_in(read)
                if made in times and made != member:
                    times[made] += self._needed(count, member)
                else:
                    accessed[read.storage] = accessed.get(read.storage, 0.0) + min(count, 1e18)
        written = sum(context.bytes_of(w) for w in context.operators[root].writes)
        memory = written / self.bandwidth + sum(self._read(s, n) for s, n in accessed.items())
        compute = arithmetic / self.rate
        return compute + memory - OVERLAP * min(compute, memory)

    def _needed(self, count: float, reader: int) -> float:
        """Elements of one operand that `count` steps of the reader ask for."""
        operator = self.context.operators[reader]
        return count / max(1, operator.reduced) if operator.kind is OpKind.CONTRACTION else count

    def _read(self, storage: int, accesses: float) -> float:
        tensor = self.context.program.storage[storage].type
        again = max(0.0, accesses - tensor.size) * tensor.dtype.itemsize
        speed = self.bandwidth
        if tensor.nbytes < self.l2:
            speed *= L2_GAIN
        if tensor.nbytes < self.l1:
            speed *= L1_GAIN
        return min(tensor.size, accesses) * tensor.dtype.itemsize / self.bandwidth + again / speed
