"""The profile's own functions: rates, peaks, launch, and changing one leaf."""

import json

import pytest

from fusesolve.errors import InputError
from fusesolve.hardware import (
    Launch,
    Pipe,
    Tensor,
    launch_overhead,
    per_clock,
    pipe_peak,
    read_leaf,
    replace_leaf,
    tensor_peak,
)
from fusesolve.hardware_yaml import load_profile, profile_from_definition, with_value


def test_peaks_are_units_times_rate_times_clock():
    a100 = load_profile("a100")
    # 108 SMs x 1024 multiply-adds x 2 x 1.41 GHz = 311.87 TFLOP/s; FMA pipe: 108 x 64 x 1.41 GHz results
    assert tensor_peak(a100, "f16") == pytest.approx(311.869e12, rel=1e-5)
    assert pipe_peak(a100, "fma", "f32") == pytest.approx(108 * 64 * 1.41e9)
    assert pipe_peak(a100, "sfu", "f32") == pytest.approx(108 * 16 * 1.41e9)


def test_the_tensor_clock_is_the_one_that_the_peak_is_quoted_at():
    h100 = load_profile("h100")
    assert tensor_peak(h100, "f16") == pytest.approx(989e12, rel=1e-3)  # 132 x 2048 x 2 x 1.83 GHz, not x 1.98
    assert h100.compute.clock == 1.98e9


def test_a_type_without_its_own_rate_is_computed_in_a_wider_one():
    pipe = Pipe(per_clock={"f32": 64.0, "i32": 32.0})
    assert per_clock(pipe, "f8e4m3") == 64.0
    assert per_clock(pipe, "bf16") == 64.0
    assert per_clock(pipe, "bool") == 32.0
    assert per_clock(pipe, "u8") == 32.0
    assert per_clock(pipe, "f64") == 32.0  # half of f32
    assert per_clock(pipe, "i64") == 16.0  # half of i32
    assert per_clock(Pipe(per_clock={"f32": 64.0}), "i8") == 64.0
    assert per_clock(None, "f32") is None


def test_floats_never_run_on_an_integer_only_device():
    ethos = load_profile("ethos-u55-128")
    assert per_clock(ethos.compute.pipes.fma, "f32") is None
    assert per_clock(ethos.compute.pipes.alu, "f16") is None
    assert per_clock(ethos.compute.pipes.fma, "i8") == pytest.approx(4 / 3, rel=1e-5)  # 0.75 cycles an element
    assert tensor_peak(ethos, "f16") is None
    assert tensor_peak(ethos, "i8") == 2 * 128 * 500e6


def test_the_matrix_pipe_has_no_fallback():
    tensor = Tensor(per_clock={"f16": 512.0})
    assert per_clock(tensor, "f16") == 512.0
    assert per_clock(tensor, "f32") is None
    assert per_clock(tensor, "f8e4m3") is None


def test_launch_cost_by_mode_and_dispatch_elsewhere():
    a100 = load_profile("a100")
    assert launch_overhead(a100, "stream") == 2.62e-6
    assert launch_overhead(a100, "graph") == 1.34e-6
    npu = load_profile("mobile-npu")
    assert npu.launch == Launch(dispatch=0.7e-6)
    assert launch_overhead(npu, "stream") == launch_overhead(npu, "graph") == 0.7e-6


def test_a_constant_or_the_callers_default():
    assert 0.8 < load_profile("a100").constant("gemm_efficiency", 0.5) < 1.1
    assert load_profile("mobile-npu").constant("gemm_efficiency", 0.5) == 0.5


def test_replacing_a_leaf_leaves_the_original_alone():
    profile = load_profile("h100")
    before = json.dumps(profile.definition)
    changed = replace_leaf(profile.definition, "memory.dram.bandwidth", "10 TB/s")
    assert json.dumps(profile.definition) == before
    assert read_leaf(changed, "memory.dram.bandwidth") == "10 TB/s"
    assert profile_from_definition(changed, "changed").memory.dram.bandwidth == 10e12


def test_sustained_bandwidth_and_knee_follow_what_they_are_a_share_of():
    profile = load_profile("h100")
    faster = with_value(profile, "memory.dram.bandwidth", "6.704 TB/s")
    assert faster.memory.dram.sustained == pytest.approx(2 * profile.memory.dram.sustained)
    larger = with_value(profile, "memory.l2.size", "100 MiB")
    assert larger.memory.l2 is not None
    assert larger.memory.l2.knee == int(0.77 * (100 << 20))
    assert faster.sha256 != profile.sha256
    assert faster.sources["memory.dram.bandwidth"].source == "what-if"


def test_doubling_or_halving_one_number_takes_its_dependants_along():
    profile = load_profile("h100")
    for size in ("456 KiB", "114 KiB"):
        shared = with_value(profile, "memory.shared.per_unit", size).memory.shared
        assert shared is not None
        assert shared.per_block_max == shared.per_unit - 1024
    for count in (131072, 32768):
        registers = with_value(profile, "registers.per_unit", count).registers
        assert registers is not None
        assert registers.per_block_max == count
    slower = with_value(profile, "compute.clock", "0.99 GHz")
    assert tensor_peak(slower, "f16") == pytest.approx(tensor_peak(profile, "f16") / 2)
    npu = load_profile("mobile-npu")
    faster = with_value(npu, "memory.dram.bandwidth", "154 GB/s")
    assert npu.dma is not None
    assert faster.dma is not None
    assert faster.dma.bandwidth == pytest.approx(2 * npu.dma.bandwidth)


def test_constants_are_leaves_like_any_other():
    profile = load_profile("h100")
    for path in ("calibration.gemm_t0", "calibration.gemm_t0.value"):
        assert with_value(profile, path, "3 us").constant("gemm_t0", 0.0) == 3e-6
    assert read_leaf(profile.definition, "calibration.gemm_t0.value").endswith(" us")


def test_a_new_leaf_may_be_set_in_a_block_that_exists():
    profile = with_value(load_profile("h100"), "compute.sustained_clock", "1.5 GHz")
    assert profile.compute.sustained_clock == 1.5e9


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("memory.dram.bandwith.x", "no key 'bandwith' there (there is size, bandwidth"),
        ("memroy.dram.bandwidth", "no key 'memroy' there"),
        ("memory.dram.bandwidth.deeper", "no key 'bandwidth' there"),
        ("memory.dram", "is a block, not a number: add one of size, bandwidth"),
    ],
)
def test_a_path_that_leads_nowhere_is_named(path, says):
    with pytest.raises(InputError) as caught:
        replace_leaf(load_profile("h100").definition, path, 1)
    assert says in str(caught.value)


def test_a_misspelt_new_leaf_is_caught_when_read_back():
    with pytest.raises(InputError, match=r"\$\.memory\.dram\.bandwith: unknown key.*did you mean 'bandwidth'"):
        with_value(load_profile("h100"), "memory.dram.bandwith", "1 TB/s")


def test_an_impossible_what_if_is_refused():
    with pytest.raises(
        InputError, match=r"\$\.memory\.shared\.per_block_max: .* is more than memory\.shared\.per_unit"
    ):
        with_value(load_profile("p100"), "memory.shared.per_unit", "40 KiB")


def test_reading_a_leaf_names_the_missing_key():
    with pytest.raises(InputError, match="no key 'l3' there"):
        read_leaf(load_profile("h100").definition, "memory.l3.size")


def test_profiles_are_hashable_and_equal_by_value():
    first, second = load_profile("h100"), load_profile("h100-sxm")
    assert first == second
    assert len({first, second}) == 1
