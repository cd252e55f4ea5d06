"""Winograd's forms of a small convolution on a device with round numbers, the arithmetic shown; in microseconds."""

import numpy as np
import pytest

from fusesolve.candidates.pricing import price_workloads
from fusesolve.cost.gpu import contraction, convolution
from fusesolve.cost.gpu.device import read_device
from fusesolve.cost.table import PriceOptions
from fusesolve.group import Template
from fusesolve.study.operators import workload_of
from fusesolve.study.samples import Spec
from tests.unit.cost_device import GPU, columns, tiling, value, workload

DEVICE = read_device(GPU, "stream")
# Two images, 64 channels to 32, 16 x 16 results; 512 x 32 x 576 multiply-adds as an implicit GEMM.
IMAGES = workload(
    Template.CONTRACTION, m=512, n=32, k=576, mma=512.0 * 32 * 576, taps=9, image_rows=16, image_cols=16, plain=1,
    full_reads=2, full_writes=1, arrays=3, read_bytes=2 * 64 * 256 * 4 + 9 * 64 * 32 * 4, write_bytes=512 * 32 * 4,
)  # fmt: skip


def us(columns, name):
    return value(columns, name) * 1e6


def test_the_fused_form_runs_one_block_on_a_unit():
    res, found = convolution.evaluate_fused(DEVICE, columns(IMAGES), convolution.fused_tilings())
    assert value(res, "blocks") == 4  # an image of 16 x 16 is two areas of 8 x 16; 32 channels are one tile
    assert value(res, "shared_bytes") == 16 * (32 + 32) * 8 * 4  # both operands of a step of 8 channels
    # 16 x 32 x 32 x 64 products at 70 % of a unit's 6.4e10, and 3 us
    block = 1_048_576 / (0.7 * 6.4e10) * 1e6 + 3.0
    assert us(found, "fma") == pytest.approx(512 * 32 * 576 * 16 / 36 / 6.4e12 * 1e6)  # 16 products instead of 36
    assert us(found, "latency") == pytest.approx(block - us(found, "fma"))  # four blocks on 100 units: one wave
    # 9 values in and 16 out of each filter, from the cache at half of a stream's rate
    assert us(found, "prologue") == pytest.approx(25 * 64 * 32 * 4 / 2e12 / 0.5 * 1e6)
    assert us(found, "floor") == pytest.approx(2 * 1.2)  # two kernels


def test_the_form_apart_is_36_products_between_transforms():
    tile = tiling(tile_m=32, tile_n=32, split=1)
    _, found = convolution.evaluate_apart(DEVICE, columns(IMAGES), tile)
    tiles = 16 * 4 * 4  # two images cost what 16 do, of 16 x 16 results in tiles of 4 x 4
    read, written = 36 * 4 * (64 * tiles + 64 * 32), 36 * 4 * tiles * 32
    product = workload(
        Template.CONTRACTION, batch=36, m=tiles, n=32, k=64, mma=36.0 * tiles * 32 * 64, plain=1, full_reads=2,
        full_writes=1, arrays=3, read_bytes=read, write_bytes=written, warm_read_bytes=read, warm_write_bytes=written,
        footprint_bytes=1,
    )  # fmt: skip
    _, bare = contraction.evaluate(DEVICE, columns(product), tile, library=True)
    assert us(found, "fma") == pytest.approx(us(bare, "fma") / 0.8)  # the products reach 80 % of the library's GEMM
    assert us(found, "l2") == pytest.approx(us(bare, "l2"), rel=1e-6)
    images = (36 * 4 * 64 * tiles + 36 * 4 * tiles * 32 + 4 * 512 * (64 + 32)) / 2e12 / 0.6
    filters = (36 * 4 * 64 * 32 + 4 * 9 * 64 * 32) / 2e12 / 0.5
    assert us(found, "prologue") == pytest.approx((images + filters) * 1e6)
    assert us(found, "floor") == pytest.approx(us(bare, "floor") + 3 * 1.2)  # four kernels


def test_a_term_switched_off_leaves_the_rest():
    _, found = convolution.evaluate_fused(DEVICE, columns(IMAGES), convolution.fused_tilings())
    whole, less = (convolution.combine(found, off).item() for off in (frozenset(), frozenset({"prologue"})))
    assert (whole - less) * 1e6 == pytest.approx(us(found, "prologue"))


def test_a_large_bare_convolution_beats_its_implicit_gemm():
    """F(4 x 4) takes a quarter of the products; nothing of it is offered to a strided, wider or generated kernel."""
    sizes = (32, 256, 256, 3, 28, 1, 1)
    library = PriceOptions(implementation="library")
    found = workload_of(Spec("conv2d", "f32", sizes))
    plain = price_workloads([found], GPU, library)
    ideal = found.mma / DEVICE.fma
    assert plain.latency[0] < 0.8 * ideal
    assert plain.implementation[0] == 1
    assert price_workloads([found], GPU, PriceOptions(implementation="generated")).latency[0] > ideal


@pytest.mark.parametrize(
    ("dtype", "kernel", "stride", "image"),
    [("f32", 3, 1, (28, 28)), ("f32", 3, 2, (0, 0)), ("f32", 5, 1, (0, 0)), ("f16", 3, 1, (0, 0))],
)
def test_which_convolutions_have_the_forms(dtype, kernel, stride, image):
    found = workload_of(Spec("conv2d", dtype, (2, 8, 16, kernel, 28, stride, kernel // 2)))
    assert (found.image_rows, found.image_cols) == image
    assert found.taps == kernel * kernel
    assert (found.n, found.k) == (16, 8 * kernel * kernel)


def test_a_window_gathers_its_operands():
    """An f32 library's implicit GEMM reaches 90 % of the rate of its GEMM, and never splits the channels."""
    tile = tiling(tile_m=64, tile_n=64, split=4)
    res, _ = contraction.evaluate(DEVICE, columns(IMAGES), tile, library=True)
    assert value(res, "missing_blocks") == 1
    matrix = workload(
        Template.CONTRACTION, m=512, n=32, k=576, mma=512.0 * 32 * 576, plain=1, full_reads=2, full_writes=1, arrays=3,
        read_bytes=IMAGES.read_bytes, write_bytes=IMAGES.write_bytes,
    )  # fmt: skip
    whole = tiling(tile_m=64, tile_n=64, split=1)
    _, windowed = contraction.evaluate(DEVICE, columns(IMAGES), whole, library=True)
    _, bare = contraction.evaluate(DEVICE, columns(matrix), whole, library=True)
    assert np.asarray(windowed["fma"]) == pytest.approx(np.asarray(bare["fma"]) / 0.9)
