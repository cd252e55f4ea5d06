"""Fusion groups: the facts of a set of operators that would share one kernel, and the work that it does.

The candidates room finds the facts, the legality room judges them, the cost rooms price the workload, for one kind
of device each. Nothing here knows a device.
"""

from dataclasses import dataclass
from enum import StrEnum


class Template(StrEnum):
    """The kernel shapes that fusesolve knows."""

    POINTWISE = "pointwise"  # one iteration space, injective access
    ROW = "row"  # reductions over the innermost axes; one block (or warp) owns a row
    REDUCTION = "reduction"  # reductions over other axes; a block owns a strip of columns, or a split of it
    CONTRACTION = "contraction"  # one matmul or convolution with prologue and epilogue
    ATTENTION = "attention"  # two contractions around an online softmax
    MOVEMENT = "movement"  # nothing but index maps
    BLOCK = "block"  # small work of any shape in one block, results of reductions in shared memory
    OPAQUE = "opaque"  # a kernel that fusesolve cannot look into
    PACKED = "packed"  # independent kernels in one launch


TEMPLATES: tuple[Template, ...] = tuple(Template)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """What the structural rules look at. Every count is >= 0.

    `blocked` counts data edges inside the group that no loop nest can carry (indices that depend on data,
    sorts, a reshape that cuts across dimensions). `conflicts` counts operators that would need one loop
    variable for two of their dimensions. `stray` counts operators whose loops are not loops of the group.
    `reduction_sets` counts different sets of reduced axes. `late_reductions` counts reductions beside a
    contraction that are not those of an online softmax. `interior_writes` counts values that must be written
    but that the kernel never holds whole. `in_place` counts operators computed at the points of a window or shift.
    `side_by_side` counts contractions that read one operand and nothing of each other, all of the group's, else 0.
    `hazards` counts reads of a value that the kernel overwrites, in other loops than those that write it.
    `components` counts parts of the set that exchange no data. `one_block`: one block does all of it, which needs
    neither edges that loops carry nor one reduction and iteration space.
    """

    size: int
    opaque: int = 0
    contractions: int = 0
    reductions: int = 0
    blocked: int = 0
    conflicts: int = 0
    stray: int = 0
    reduction_sets: int = 0
    late_reductions: int = 0
    interior_writes: int = 0
    in_place: int = 0
    components: int = 1
    hazards: int = 0
    side_by_side: int = 0
    attention: bool = False
    one_block: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The numbers that the cost models price; one row of a columnar table.

    Iteration space: `outer` x `inner` points (rows x row length for reductions; 1 x points for pointwise), or
    `batch` contractions of `m` x `n` x `k`. Counts are totals over the kernel unless they say "per point".
    """

    template: int  # index into TEMPLATES
    outer: int = 1
    inner: int = 1
    batch: int = 1
    m: int = 1
    n: int = 1
    k: int = 1
    parts: int = 1  # contractions of one operand side by side; `n` (or what stands for it) is the sum of their columns
    joined: int = 1  # how many of them meet in an epilogue: a tile then has columns of each
    head: int = 0  # attention: width of a head of the second contraction
    contiguous: int = 1  # 1: the reduced axes are innermost in memory
    passes: int = 1  # times that a row has to be visited
    reductions: int = 0
    fma: float = 0.0  # instructions, all points
    alu: float = 0.0
    sfu: float = 0.0
    vector: float = 0.0  # the same on a CPU, as plain vector instructions of one element each
    mma: float = 0.0  # multiply-adds of contractions
    thin_fma: float = 0.0  # part of `fma`: multiply-adds of convolutions of few channels a group (depthwise)
    thin_mma: float = 0.0  # the same as a matrix array does them: its windows in steps of THIN_TAPS points
    side_work: float = 0.0  # contraction: fma-pipe instructions of prologues per operand element loaded
    left_made: int = 0  # contraction: arrays that the kernel makes an element of the left operand from; 0: it lies so
    right_made: int = 0  # the same for the right operand
    instructions: float = 0.0  # machine instructions of one point (code size), inlined copies
    scratch: int = 0  # worst extra registers of an inlined sequence
    once: float = 0.0  # machine instructions that first uses add to a kernel once (shared slow paths)
    windows: int = 0  # operators that loop over a window at every point
    branches: int = 0  # operators that choose by position where an element comes from (concat, pad, an update)
    index_parts: int = 0  # divisions and remainders that take a flat position apart, per point
    fold_bytes: int = 0  # rows: bytes that a warp passes on in all folds that are joined by shuffles
    tree_bytes: int = 0  # rows: bytes of a thread in all folds that are joined by a tree in shared memory
    kept_bytes: int = 0  # one block: bytes of the results of reductions, which wait in shared memory for their readers
    live: int = 1  # most live values of one point, loads first
    full_reads: int = 0  # arrays read along the inner axis
    row_reads: int = 0  # arrays constant along the inner axis
    full_writes: int = 0
    arrays: int = 1  # arrays in the argument list
    element_bytes: int = 4  # widest element read or written at full size
    operand_bytes: int = 4  # contraction operands
    sum_bytes: int = 4  # contraction: a partial sum, and an operand element in front of the FMA pipe
    tensor_rate: int = -1  # index into TENSOR_TYPES, -1: not eligible for a tensor pipe
    held_bytes: float = 0.0  # bytes per point that a held row keeps between passes
    held_loads: int = 0  # values per point that a held row keeps
    reread_bytes: float = 0.0  # bytes read again per extra pass when the row is not held
    read_bytes: int = 0  # compulsory, once each
    write_bytes: int = 0
    warm_read_bytes: int = 0  # part of read_bytes that another kernel of the plan has written
    warm_write_bytes: int = 0  # part of write_bytes that stays in the cache (a call that is repeated on the same data)
    footprint_bytes: int = 0  # bytes of the values touched, for cache residency
    staged: int = 0  # arrays whose contiguous axis is not the kernel's
    staged_bytes: int = 0
    weight_bytes: int = 0  # part of read_bytes that is weights of the model
    plain: int = 0  # 1: a contraction that a library call does alone
    batched: int = 0  # contraction: 1 where the library's batched product is called, were it for a batch of one
    tile_by_rows: int = 0  # contraction: 1 where the library knows a tile for a number of rows only, and does not split
    taps: int = 1  # contraction: points of a convolution's window (3 x 3: 9)
    image_rows: int = 0  # rows and columns of the result of an f32 convolution that Winograd's forms exist for: 3 x 3,
    image_cols: int = 0  # stride, dilation and groups 1; 0: any other contraction
    row_threads: int = 0  # > 0: a library's row kernel, this many threads to a row (`passes` as the library makes them)
    row_load_bytes: int = 16  # library's row kernel: bytes that a thread loads at once
    row_kind: int = 0  # a library's rows, which kind: `cost.gpu.library_rows`; 0: no particular one
    shared_heads: int = 1  # attention: query heads that share keys and values; `m` counts the rows of all of them
    causal: int = 0  # attention: 1 where the library call skips the keys behind each query
    sequences: int = 0  # attention: sequences of different lengths in a library call over a paged cache
    linear_tail: int = 1  # attention: what lies between softmax and the second contraction is linear
    double: int = 0  # 1: arithmetic in f64


THIN_TAPS = 4  # points of a window that a matrix array takes at once where there are no channels to sum over
TENSOR_TYPES: tuple[str, ...] = ("f64", "f32", "f16", "bf16", "f8e4m3", "f8e5m2", "i8", "u8")


@dataclass(frozen=True, slots=True, kw_only=True)
class FusionGroup:
    """A set of operators that could run as one kernel.

    `members` index the operators of the program, ascending. `reads` and `writes` are value numbers:
    storage read from memory (inputs and weights of the model too) and storage written.
    """

    members: tuple[int, ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    template: Template
    facts: GroupFacts
    workload: Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a group is not a kernel: the rule, its numbers in words, and what would make it fit."""

    rule: str
    message: str
    lever: str
    need: float | None = None
    limit: float | None = None
