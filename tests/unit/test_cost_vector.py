"""Matrix-vector products in f32: a stream of the matrix, not a tile that is empty but for one column."""

import numpy as np
import pytest

from fusesolve.candidates.pricing import price_workloads
from fusesolve.cost.gpu import vector
from fusesolve.cost.table import PriceOptions
from fusesolve.group import TENSOR_TYPES, Template
from tests.unit.cost_device import GPU, workload

LIBRARY = PriceOptions(implementation="library")


def product(m: int, n: int, k: int, **numbers: object) -> object:
    """A bare f32 product, every operand once."""
    reads = 4 * (m * k + k * n)
    numbers = {"tensor_rate": TENSOR_TYPES.index("f32"), "operand_bytes": 4, "plain": 1, **numbers}
    return workload(
        Template.CONTRACTION, m=m, n=n, k=k, mma=float(m * n * k), arrays=3, read_bytes=reads, write_bytes=4 * m * n,
        footprint_bytes=reads + 4 * m * n, **numbers,
    )  # fmt: skip


def seconds(*items: object) -> list[float]:
    return price_workloads(items, GPU, LIBRARY).latency.tolist()


@pytest.mark.parametrize(("m", "n"), [(2048, 1), (1, 2048)])
def test_a_long_one_runs_at_the_rate_of_a_stream(m, n):
    """2048 x 1,048,576 numbers are 8.6 GB: 8.6 ms at 1e12 B/s, whichever operand is the vector."""
    found = seconds(product(m, n, 1 << 20))[0]
    assert found == pytest.approx(8.59e-3, rel=0.05)


def test_few_rows_are_split_over_blocks():
    found = price_workloads([product(16, 1, 1 << 22)], GPU, LIBRARY)
    assert found.tiling["split"][0] > 1
    assert found.terms["split"][0] > 0


def test_more_columns_are_a_product_of_tiles():
    found = price_workloads([product(2048, 1, 8192), product(2048, 2, 8192)], GPU, LIBRARY)
    assert found.tiling["tile_m"][0] == 0 < found.tiling["tile_m"][1]


def test_only_bare_products_on_the_fma_pipe_have_the_kernel():
    """A convolution's window, products side by side and operands of the tensor pipe keep their tiles."""
    half = TENSOR_TYPES.index("f16")
    items = [
        product(2048, 1, 8192, taps=9), product(2048, 1, 8192, parts=2),
        product(2048, 1, 8192, tensor_rate=half, operand_bytes=2),
    ]  # fmt: skip
    assert np.all(price_workloads(items, GPU, LIBRARY).tiling["tile_m"] > 0)


def test_its_rows_are_read_once():
    assert set(vector.tilings()["mode"][0]) == {2.0}
