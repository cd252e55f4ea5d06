"""The closed-form model of a CPU that runs groups as parallel vector loops.

Time of a generated kernel = call + arguments + parallel region + max(memory, compute) + `exposed`. Memory time is
bytes over the bandwidth of the smallest level that holds the kernel's footprint, a written byte counting
`cpu_write_factor` read ones (a cache line is read before it is written), `cpu_stream_factor` where stores go around the
caches; a pass over a row that comes again reads that level again only where the row is longer than a core's own cache.
Compute time is plain vector instructions (`Work.vector`, a load or store of each pass one more) over the rate of all
cores; a loop body of `cpu_window` of them takes twice as long as the rate says, because a core's instructions in flight
are fewer elements of a long body than it needs to hide the latency of their chains. Kernels of one task run on one
core. Contractions have rates of their own: the vector loops of the emitter, and the library that NumPy calls.

A row kernel reads memory in its first pass and writes it in its last one: each is the longer of its memory and its
share of the arithmetic, and neither hides the other: `exposed` is the difference. With nothing to read meanwhile a byte
around the caches counts `cpu_row_stream_factor`. In other kernels it is the part
(1 - `cpu_overlap`) of the shorter of memory and compute. Each pass over a row takes `cpu_row` to begin and end.

Every constant is measured by `fusesolve calibrate --device cpu`; a profile without them takes the defaults here.
"""

from dataclasses import dataclass

import numpy as np

from fusesolve.cost.sweep import Family, sweep
from fusesolve.cost.table import Allowed, Array, Columns, PriceOptions, Prices, WorkloadTable
from fusesolve.group import TEMPLATES, Template
from fusesolve.hardware import HardwareProfile, launch_overhead

TASK_POINTS = 16_384  # points of a task of the emitter: far above the cost of handing it out, small beside the caches
STREAMED = 64 << 20  # bytes that a kernel reads and writes from which its stores go around the caches
BATCHES: Columns = {"tiles": np.array([[1.0]])}
LIBRARY_CALL = 2e-6  # seconds of one NumPy call, default
ROW = 12e-9  # seconds of a pass over a row beside its elements, default: a Zen 3 core
WINDOW = 30.0  # vector instructions, default: a Zen 3 core
LONGEST = 64.0  # vector instructions of a loop body that is one element's chain at a time: it grows no slower than that


def price(table: WorkloadTable, profile: HardwareProfile, options: PriceOptions, allowed: Allowed) -> Prices:
    """Latency of every row on a CPU; see `Prices`. Plain contractions are also priced as a library call."""
    machine = Machine.of(profile)
    families = []
    if options.implementation != "library":
        families += [
            Family(
                template=TEMPLATES.index(template), tilings=BATCHES, library=False, wants=None,
                evaluate=machine.generated, combine=machine.combine,
            )
            for template in Template
            if template is not Template.BLOCK  # a device without blocks
        ]  # fmt: skip
    families.append(
        Family(
            template=TEMPLATES.index(Template.CONTRACTION), tilings=BATCHES, library=True,
            wants=lambda rows: rows["plain"], evaluate=machine.library, combine=machine.combine,
        )
    )  # fmt: skip
    if options.implementation == "generated":
        families = families[:-1]
    return sweep(table, families, options, allowed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Rates of the whole CPU: bytes/s, instructions/s, multiply-adds/s; sizes in bytes, overheads in seconds."""

    cores: float
    call: float
    argument: float
    region: float
    core_cache: float
    core_rate: float
    shared_cache: float
    shared_rate: float
    memory_rate: float
    write_factor: float
    stream_factor: float
    row_stream_factor: float
    stride_factor: float
    vector: float
    window: float
    row: float
    overlap: float
    contraction: float
    gemm: float
    library_call: float

    @classmethod
    def of(cls, profile: HardwareProfile) -> "Machine":
        """The rates of a profile, with defaults for constants that nobody has measured."""
        compute, memory = profile.compute, profile.memory
        scale = compute.units * compute.sustained_clock
        found = getattr(compute.pipes.fma, "per_clock", {})
        vector = scale * float(found.get("f32", max(found.values(), default=1.0)))
        dram = memory.dram.sustained
        last = memory.l2
        constant = profile.constant
        return cls(
            cores=float(compute.units), call=launch_overhead(profile, "stream"),
            argument=constant("cpu_argument", 0.0), region=constant("cpu_region", 0.0),
            core_cache=constant("cpu_core_cache", 262_144.0 * compute.units),
            core_rate=constant("cpu_core_bandwidth", 4.0 * (last.bandwidth if last else dram)),
            shared_cache=float(last.knee or last.size) if last else 0.0,
            shared_rate=last.bandwidth if last else dram, memory_rate=dram,
            write_factor=constant("cpu_write_factor", 1.0), stream_factor=constant("cpu_stream_factor", 1.0),
            row_stream_factor=constant("cpu_row_stream_factor", constant("cpu_stream_factor", 1.0)),
            stride_factor=constant("cpu_stride_factor", 4.0), vector=vector, overlap=constant("cpu_overlap", 0.7),
            window=constant("cpu_window", WINDOW), row=constant("cpu_row", ROW),
            contraction=0.5 * constant("cpu_contraction", vector / 2.0),
            gemm=0.5 * constant("cpu_gemm", 1.4 * vector), library_call=constant("cpu_library_call", LIBRARY_CALL),
        )  # fmt: skip

    def generated(self, w: Columns, tile: Columns) -> tuple[dict[str, Array], dict[str, Array]]:
        """Resources and terms of kernels of the emitter."""
        points = np.where(w["m"] * w["n"] > 1, w["batch"] * w["m"] * w["n"], w["outer"] * w["inner"])
        tasks = np.maximum(1.0, np.ceil(points / TASK_POINTS))
        share = np.minimum(1.0, tasks / self.cores)  # of all cores' rates
        footprint = w["footprint_bytes"]
        streamed = footprint >= STREAMED
        around = np.where(w["passes"] > 1, self.row_stream_factor, self.stream_factor)
        written = np.where(streamed, around, self.write_factor) * w["write_bytes"]
        long_row = w["reread_bytes"] > w["outer"] * self.core_cache / self.cores
        again = np.where(long_row, w["reread_bytes"] * np.maximum(w["passes"] - 1.0, 0.0), 0.0)
        level = np.where(streamed, self.memory_rate, self._bandwidth(footprint))
        level = level * np.where(level > self.shared_rate, share, 1.0)
        terms = {
            "launch": self.call + self.argument * w["arrays"] + np.where(tasks > 1, self.region, 0.0),
            "dram": (w["read_bytes"] + written) / level, "reread": again / level,
            "staging": w["staged_bytes"] * (self.stride_factor - 1.0) / level,
            "fma": self.instructions(w, points) / (self.vector * share),
            "tensor": w["mma"] / (self.contraction * share),
        }  # fmt: skip
        rows = np.where((w["reductions"] > 0) & (w["contiguous"] > 0) & (w["mma"] == 0), w["outer"] * w["passes"], 0.0)
        terms["latency"] = rows * self.row / (self.cores * share)
        terms["exposed"] = self._exposed(w["passes"], w["read_bytes"] / level, written / level, terms)
        return self._resources(w, tasks), terms

    def instructions(self, w: Columns, points: Array) -> Array:
        """Vector instructions of all points with their loads and stores, by the time that they take in a long body."""
        again = w["reread_bytes"] * np.maximum(w["passes"] - 1.0, 0.0) / w["element_bytes"]
        points = np.maximum(points, 1.0)
        moves = w["full_reads"] + again / points + w["full_writes"]
        body = w["vector"] / points + moves
        slower = np.where(w["windows"] > 0, 0.0, np.minimum(body, LONGEST) / self.window)
        return np.where(w["vector"] > 0, points * body * (1.0 + slower), 0.0)

    def _exposed(self, passes: Array, read: Array, write: Array, terms: Columns) -> Array:
        """Seconds that neither the longer of memory and arithmetic hides: between passes over rows, else by overlap."""
        memory, compute = terms["dram"] + terms["staging"], terms["fma"] + terms["tensor"] + terms["reread"]
        each = compute / np.maximum(passes, 1.0)
        apart = np.maximum(read, each) + np.maximum(write, each) + (passes - 2.0) * each
        rows = np.maximum(0.0, apart - np.maximum(read + write, compute))
        return np.where(passes > 1, rows, (1.0 - self.overlap) * np.minimum(memory, compute))

    def library(self, w: Columns, tile: Columns) -> tuple[dict[str, Array], dict[str, Array]]:
        """Resources and terms of a contraction that the library under NumPy computes."""
        moved = w["read_bytes"] + self.write_factor * w["write_bytes"]
        terms = {
            "launch": np.full_like(moved, self.library_call),
            "dram": moved / self._bandwidth(w["footprint_bytes"]),
            "tensor": w["mma"] / self.gemm,
        }
        terms["exposed"] = (1.0 - self.overlap) * np.minimum(terms["dram"], terms["tensor"])
        return self._resources(w, np.ones_like(moved)), terms

    def _bandwidth(self, footprint: Array) -> Array:
        """Bytes/s at a footprint: that of the smallest level that holds it.

        Blended up to 4/3 of what a level holds well: what is walked in turn and exceeds a cache finds nothing there.
        """
        rate = np.full_like(footprint, self.memory_rate)
        for size, fast in ((self.shared_cache, self.shared_rate), (self.core_cache, self.core_rate)):
            if size > 0:
                held = np.clip(4.0 - 3.0 * footprint / size, 0.0, 1.0)
                rate = 1.0 / (held / np.maximum(fast, rate) + (1.0 - held) / rate)
        return rate

    def _resources(self, w: Columns, tasks: Array) -> dict[str, Array]:
        zero = np.zeros_like(tasks)
        return {
            "threads": zero, "blocks": tasks, "shared_bytes": zero, "missing_blocks": zero,
            "dram_bytes": w["read_bytes"] + w["write_bytes"] + zero, "argument_bytes": 8.0 * w["arrays"] + zero,
            "occupancy": np.ones_like(tasks),
        }  # fmt: skip

    def combine(self, terms: Columns, off: frozenset[str]) -> Array:
        """Seconds: launch + max(memory, compute) + what is exposed beside it + the ends of rows."""

        def get(name: str) -> Array:
            part = terms.get(name)
            return np.zeros((1, 1)) if part is None or name in off else part

        memory = get("dram") + get("staging")
        compute = get("fma") + get("tensor") + get("reread")
        return get("launch") + np.maximum(memory, compute) + get("exposed") + get("latency")
