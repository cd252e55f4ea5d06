"""How the threads of a block share the tile of a contraction."""

from dataclasses import dataclass

from fusesolve.codegen.scalars import UnsupportedError
from fusesolve.cost.gpu.layout import thread_grid


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """How a block's threads share its tile: `down` x `across` threads, each `high` x `wide` points, strided."""

    m: int
    n: int
    down: int
    across: int

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.down * self.across

    @property
    def high(self) -> int:
        """Rows of a thread."""
        return self.m // self.down

    @property
    def wide(self) -> int:
        """Columns of a thread."""
        return self.n // self.across


def choose_tile(m: int, n: int, joined: int = 1) -> Tile:
    """The tile with the threads that the cost model gives it, each thread as near to square as they divide.

    `joined`: contractions that the columns are of, as many of each; a thread then has the same columns of all.
    UnsupportedError where nothing divides.
    """
    grid = thread_grid(m, n, joined)
    if grid is None:
        raise UnsupportedError(f"a tile of {m} x {n} for {joined} contractions does not divide over its threads")
    return Tile(m=m, n=n, down=grid[0], across=grid[1])
