"""How the threads of a block share the tile of a contraction."""

from dataclasses import dataclass

from fusesolve.codegen.scalars import UnsupportedError


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
    threads = int(min(256, max(32, m * n // 64)))
    shapes = [
        (down, threads // down)
        for down in range(1, threads + 1)
        if threads % down == 0 and m % down == 0 and n % (threads // down * joined) == 0
    ]
    if not shapes:
        raise UnsupportedError(f"a tile of {m} x {n} does not divide over {threads} threads")
    down, across = min(shapes, key=lambda item: (abs(m // item[0] - n // item[1]), item[0]))
    return Tile(m=m, n=n, down=down, across=across)
