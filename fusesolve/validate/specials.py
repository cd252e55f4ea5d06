"""Inputs that break careless kernels: NaN, infinities, negative zero, the largest and smallest numbers of a type."""

from typing import TYPE_CHECKING, Any

from fusesolve.graph import Graph
from fusesolve.reference import random_feeds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

EVERY = 7  # one element in so many is special


def special_feeds(graph: Graph, seed: int) -> "dict[str, Array]":
    """Random arrays for all inputs and weights, with special values strewn into the floats of the inputs.

    Integers stay as they are: they may be indices. Weights stay finite, so that not all of a graph becomes NaN.
    """
    import numpy as np

    feeds = random_feeds(graph, seed)
    generator = np.random.Generator(np.random.PCG64(seed + 1))
    for name in graph.inputs:
        kind = graph.type_of(name)
        if kind.dtype.is_float and kind.size:
            flat = feeds[name].reshape(-1)
            where = np.flatnonzero(generator.integers(0, EVERY, kind.size) == 0)
            flat[where] = generator.choice(_specials(flat), len(where))
    return feeds


def _specials(array: "Array") -> "Array":
    """The special values of an array's type."""
    import numpy as np

    ones = np.ones(1, array.dtype)
    with np.errstate(all="ignore"):
        large = np.asarray([1e300, 3e38, 6e4, 400.0]).astype(array.dtype)
        large = large[np.isfinite(large.astype(np.float64))][:1]
        plain = np.asarray([np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-3]).astype(array.dtype)
    return np.concatenate([plain, large, -large, ones, -ones])
