"""Kernels side by side in one launch: each has blocks of its own, one after the other in the grid.

A part is a device function of its block number. Threads that a part has no use for leave at once; barriers wait for
those that are left. All parts use the same shared memory, as a block runs only one of them.
"""

from collections.abc import Sequence

from fusesolve.codegen.kernel import EmittedKernel
from fusesolve.codegen.planned import PlannedKernel
from fusesolve.codegen.scalars import UnsupportedError
from fusesolve.codegen.source import INDENT
from fusesolve.cost.gpu.layout import WARP


def pack_parts(
    kernel: PlannedKernel, parts: Sequence[EmittedKernel], spaces: Sequence[int] = (), threads: int = 0
) -> EmittedKernel:
    """One launch of `parts` with blocks of `threads` threads, or those of the largest part.

    `spaces`: elements of the group's workspace that each part has, one after the other, where they use it.
    UnsupportedError where a part's warps are not whole.
    """
    threads = threads or max(part.threads for part in parts)
    if any(part.threads % WARP and part.threads < threads for part in parts):
        raise UnsupportedError("a part of the launch has a warp that is not whole")
    storages = tuple(dict.fromkeys((*kernel.reads, *kernel.writes, *((-1,) if spaces else ()))))
    name = {storage: f"a{n}" if storage >= 0 else "w0" for n, storage in enumerate(storages)}
    body = [f"{INDENT}block, tid = u32(cuda.blockIdx.x), u32(cuda.threadIdx.x)"]
    first = 0
    for n, part in enumerate(parts):
        last = 0 < n == len(parts) - 1
        test = "else:" if last else f"{'el' if n else ''}if block < u32({first + part.blocks}):"
        number = f"u32(block - u32({first}))" if first else "block"
        here = f"w0[{sum(spaces[:n])}:{sum(spaces[: n + 1])}]" if spaces else ""
        given = ", ".join(name[storage] if storage >= 0 else here for storage in part.arguments)
        own = f"if tid < u32({part.threads}): " if part.threads < threads else ""
        body += [INDENT + test, f"{INDENT * 2}{own}PART_{n}({number}, {given})"]
        first += part.blocks
    return EmittedKernel(
        names=tuple(name.values()), arguments=storages, body=tuple(body), blocks=first, threads=threads,
        shared=max(part.shared for part in parts), parts=tuple(parts),
        tensor_tiles=tuple(tile for part in parts for tile in part.tensor_tiles),
        tensor_waits=tuple(count for part in parts for count in part.tensor_waits),
        vectors=any(part.vectors for part in parts),
    )  # fmt: skip
