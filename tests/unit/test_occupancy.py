"""Occupancy: vendor vectors, hand-derived numbers, properties."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusesolve.cost.gpu_occupancy import blocks_per_unit, occupancy
from fusesolve.errors import InputError
from fusesolve.hardware_yaml import load_profile, with_value

V100, T4, A100, A40, L4, H100, B200, PRO = map(
    load_profile, ("v100", "t4", "a100", "a40", "l4", "h100", "b200", "rtx-pro-6000")
)

# Output of NVIDIA's cuda_occupancy.h (CUDA 13.0): block size, registers, shared bytes, carveout %, barriers,
# then blocks per SM on compute capability 7.0, 7.5, 8.0, 8.6, 8.9, 9.0, 10.0, 12.0.
VECTORS = [
    (32, 16, 0, None, 1, (32, 16, 32, 16, 24, 32, 32, 24)),
    (96, 56, 0, None, 1, (12, 10, 12, 12, 12, 12, 12, 12)),
    (100, 37, 1000, None, 1, (12, 8, 12, 12, 12, 12, 12, 12)),
    (128, 32, 0, None, 1, (16, 8, 16, 12, 12, 16, 16, 12)),
    (128, 40, 0, None, 1, (12, 8, 12, 12, 12, 12, 12, 12)),
    (128, 64, 16384, None, 1, (6, 4, 8, 5, 5, 8, 8, 5)),
    (128, 255, 0, None, 1, (2, 2, 2, 2, 2, 2, 2, 2)),
    (160, 168, 0, None, 1, (2, 2, 2, 2, 2, 2, 2, 2)),
    (192, 96, 66560, None, 1, (1, 0, 2, 1, 1, 3, 3, 1)),
    (256, 33, 0, None, 1, (6, 4, 6, 6, 6, 6, 6, 6)),
    (256, 65, 0, None, 1, (3, 3, 3, 3, 3, 3, 3, 3)),
    (256, 128, 49152, None, 1, (2, 1, 2, 2, 2, 2, 2, 2)),
    (288, 224, 0, None, 1, (0, 0, 0, 0, 0, 0, 0, 0)),
    (512, 128, 0, None, 1, (1, 1, 1, 1, 1, 1, 1, 1)),
    (512, 129, 0, None, 1, (0, 0, 0, 0, 0, 0, 0, 0)),
    (1024, 32, 0, None, 1, (2, 1, 2, 1, 1, 2, 2, 1)),
    (1024, 65, 0, None, 1, (0, 0, 0, 0, 0, 0, 0, 0)),
    (128, 128, 98304, None, 1, (1, 0, 1, 1, 1, 2, 2, 1)),
    (128, 168, 101376, None, 1, (0, 0, 1, 1, 1, 2, 2, 1)),
    (256, 255, 166912, None, 1, (0, 0, 1, 0, 0, 1, 1, 0)),
    (384, 168, 232448, None, 1, (0, 0, 0, 0, 0, 1, 1, 0)),
    (384, 168, 232449, None, 1, (0, 0, 0, 0, 0, 0, 0, 0)),
    (64, 32, 3072, None, 1, (32, 16, 32, 16, 24, 32, 32, 24)),
    (128, 32, 8192, 0, 1, (1, 4, 1, 1, 1, 1, 1, 1)),
    (128, 32, 8192, 50, 1, (8, 4, 11, 7, 7, 14, 14, 7)),
    (128, 32, 8192, 100, 1, (12, 8, 16, 11, 11, 16, 16, 11)),
    (64, 24, 0, None, 4, (32, 16, 32, 16, 24, 16, 16, 6)),
    (64, 24, 0, None, 16, (32, 16, 32, 16, 24, 4, 4, 1)),
    (1, 1, 0, None, 1, (32, 16, 32, 16, 24, 32, 32, 24)),
]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: "-".join(map(str, vector[:5])))
def test_blocks_per_sm_equal_the_vendors(vector):
    threads, registers, shared, carveout, barriers, expected = vector
    found = tuple(
        blocks_per_unit(profile, registers, threads, shared, barriers=barriers, carveout=carveout)
        for profile in (V100, T4, A100, A40, L4, H100, B200, PRO)
    )
    assert found == expected


@pytest.mark.parametrize("name", ["mi210", "mi300x"])
@pytest.mark.parametrize(
    ("threads", "registers", "shared", "expected"),
    [
        (64, 64, 0, 32),
        (64, 65, 0, 28),  # rounded to 72 registers: 7 waves on each of 4 SIMDs
        (64, 512, 0, 4),
        (256, 96, 0, 5),
        (256, 128, 16384, 4),
        (256, 128, 33000, 1),  # 33280 after rounding: one in 65536
        (1024, 128, 0, 1),
        (128, 48, 1000, 16),
    ],
)
def test_workgroups_per_compute_unit_equal_llvms(name, threads, registers, shared, expected):
    assert blocks_per_unit(load_profile(name), registers, threads, shared) == expected


def test_pascal_by_hand():
    # P100: 65536 registers in 2 partitions, 40 registers x 32 = 1280 a warp: 25 warps a partition, 50 in all, 8 a block
    assert blocks_per_unit(load_profile("p100"), 40, 256, 0) == 6
    # P4: 98304 bytes of shared memory, 20000 rounds to 20224: 4
    assert blocks_per_unit(load_profile("p4"), 32, 128, 20000) == 4


def test_arrays_give_what_integers_give():
    threads, registers = np.meshgrid(np.arange(0, 1100, 50), np.arange(0, 260, 10), indexing="ij")
    shared = np.int64(20_000)
    found = blocks_per_unit(H100, registers, threads, shared)
    for index in np.ndindex(found.shape):
        single = blocks_per_unit(H100, int(registers[index]), int(threads[index]), int(shared))
        assert isinstance(single, int)
        assert found[index] == single


def test_broadcasting():
    assert blocks_per_unit(H100, np.array([[32], [64]]), np.array([128, 256, 512]), 0).shape == (2, 3)


def test_what_cannot_run_is_zero():
    assert blocks_per_unit(A100, 32, 0, 0) == 0
    assert blocks_per_unit(A100, 32, 1025, 0) == 0
    assert blocks_per_unit(A100, 256, 32, 0) == 0
    assert blocks_per_unit(A100, 32, 128, 166913) == 0


def test_occupancy_is_the_share_of_warps():
    assert occupancy(A100, 256, 6) == 0.75  # 6 x 8 of 64 warps
    assert occupancy(A100, 100, 16) == 1.0  # 100 threads take 4 warps
    assert occupancy(A100, np.array([128, 256]), np.array([8, 8])).tolist() == [0.5, 1.0]


def test_a_device_without_the_blocks_is_named():
    npu = load_profile("mobile-npu")
    with pytest.raises(InputError, match="profile 'Hexagon-V75' lacks one"):
        blocks_per_unit(npu, 32, 128, 0)
    with pytest.raises(InputError, match="has none"):
        occupancy(npu, 128, 1)


@given(st.integers(1, 255), st.integers(1, 1024), st.integers(0, 100_000))
def test_more_of_anything_never_gives_more_blocks(registers, threads, shared):
    blocks = blocks_per_unit(H100, registers, threads, shared)
    assert blocks_per_unit(H100, registers + 1, threads, shared) <= blocks
    assert blocks_per_unit(H100, registers, threads, shared + 128) <= blocks
    assert blocks_per_unit(H100, registers, min(threads + 32, 1024), shared) <= blocks


BIGGER = with_value(H100, "registers.per_unit", 131072)


@given(st.integers(1, 255), st.integers(1, 1024), st.integers(0, 100_000))
def test_more_registers_in_the_unit_never_give_fewer_blocks(registers, threads, shared):
    assert blocks_per_unit(BIGGER, registers, threads, shared) >= blocks_per_unit(H100, registers, threads, shared)


@given(st.integers(1, 255), st.integers(1, 1024), st.integers(0, 232_448))
def test_resident_blocks_fit_every_resource(registers, threads, shared):
    blocks = blocks_per_unit(H100, registers, threads, shared)
    assert blocks * threads <= 2048
    assert blocks * registers * threads <= 65536
    assert blocks * (shared + 1024) <= 233_472
    assert blocks <= 32
