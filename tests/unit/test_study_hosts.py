"""A host's share comes back from made-up measurements with the form that they were made with."""

from dataclasses import replace

import numpy as np
import pytest

from fusesolve.study.hosts import Host, add_hosts, estimate_hosts, with_true_kernels
from fusesolve.study.samples import Sample, Spec, Timing

US = 1e-6


def samples(latencies, timing=Timing.EAGER, resolution=0.0):
    spec = Spec("add", "f32", (8, 8))
    return [
        Sample(device="X", op="add", family="add", timing=timing, kernels=(spec,), latency=t, resolution=resolution)
        for t in latencies
    ]


def test_a_cuda_host_hides_what_follows_the_launch():
    kernels = np.array([1, 1, 2, 2, 3, 3, 40, 60, 80, 90, 100, 110]) * US
    measured = np.maximum(30 * US, 15 * US + kernels)
    found = estimate_hosts(samples(measured), kernels, "NVIDIA")["X", "add"]
    assert found.floor == pytest.approx(30 * US)
    assert found.offset == pytest.approx(15 * US)
    assert add_hosts(samples(measured), kernels, {("X", "add"): found}) == pytest.approx(measured)


def test_a_rocm_host_hides_next_to_nothing():
    kernels = np.array([1, 1, 1, 2, 2, 2, 30, 40, 50]) * US
    measured = 14 * US + kernels
    found = estimate_hosts(samples(measured), kernels, "AMD")["X", "add"]
    assert found.offset == pytest.approx(14 * US, rel=0.15)


def test_where_no_call_is_bare_the_gap_is_bounded():
    """Kernels of 1 ms that are priced 20 % too low must not become 200 us of host."""
    kernels = np.linspace(800, 900, 12) * US
    found = estimate_hosts(samples(kernels * 1.25), kernels, "NVIDIA")["X", "add"]
    assert found.offset == pytest.approx(30 * US)


def test_the_wall_clock_adds():
    kernels = np.array([10, 20, 30, 40, 50, 60]) * US
    rows = samples(kernels + 25 * US, Timing.WALL)
    found = estimate_hosts(rows, kernels, "NVIDIA")
    assert add_hosts(rows, kernels, found) == pytest.approx(kernels + 25 * US)


def test_kernel_times_have_no_host():
    rows = samples([3 * US], Timing.KERNEL)
    assert estimate_hosts(rows, np.array([2 * US]), "NVIDIA") == {}


def test_a_coarse_clock_cuts_the_rest_off_each_kernel():
    rows = samples([2 * US, 1 * US], Timing.KERNEL, resolution=US)
    assert add_hosts(rows, np.array([2.9 * US, 0.2 * US]), {}) == pytest.approx([2 * US, 1 * US])
    pair = [replace(row, kernels=row.kernels * 2) for row in rows]
    assert add_hosts(pair, np.array([5.8 * US, 0.2 * US]), {}) == pytest.approx([4 * US, 2 * US])


def test_calls_of_several_kernels_have_an_uneven_host():
    """Convolutions: gaps of 50, 100 and 300 us; the median by 1 / t is the middle one, and no vendor's bound holds."""
    spec = Spec("conv2d", "f32", (1, 8, 8, 3, 8, 1, 1))
    kernels = np.array([100, 100, 100, 5000, 6000]) * US
    measured = kernels + np.array([50, 100, 300, 100, 100]) * US
    rows = [
        Sample(device="X", op="conv2d", family="conv2d", timing=Timing.EAGER, kernels=(spec,), latency=t)
        for t in measured
    ]
    found = estimate_hosts(rows, kernels, "NVIDIA")["X", "conv2d"]
    assert found.offset == pytest.approx(100 * US)
    assert found.floor == pytest.approx(150 * US)  # no call took less


def test_exact_kernels_leave_the_hosts_noise():
    """Calls of 1 to 3 us all read about 30 us: an exact simulator says 30 for each, and what was measured beyond."""
    kernels = np.array([1, 2, 3, 3, 40, 60]) * US
    measured = np.array([31, 29, 30, 30, 56, 74]) * US
    host = Host(device="X", family="add", timing=Timing.EAGER, floor=30 * US, offset=15 * US, rows=4)
    found = with_true_kernels(samples(measured), kernels, {("X", "add"): host})
    assert found == pytest.approx(np.array([30, 30, 30, 30, 56, 74]) * US)


def test_without_a_host_exact_kernels_are_what_was_measured():
    measured = np.array([5.0, 1.0]) * US
    assert with_true_kernels(samples(measured), measured / 2, {}) == pytest.approx(measured)
