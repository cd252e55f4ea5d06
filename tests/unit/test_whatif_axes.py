"""What a sweep varies: texts of the command line to values of a profile."""

import pytest

from fusesolve.errors import InputError
from fusesolve.hardware_yaml import load_profile, number_at, number_paths
from fusesolve.whatif.axes import parse_axis, parse_range

H100 = load_profile("h100")


def numbers(text, profile=H100):
    axis = parse_axis(text)
    return [axis.number.read(value) for value in axis.texts(profile)]


def test_values_are_kept_as_they_were_typed():
    assert parse_axis("launch.stream=0.5us, 2 us,5us").texts(H100) == ("0.5us", "2 us", "5us")


def test_a_range_has_both_its_ends():
    # 2 to 8 TB/s in 4 steps: 2, 4, 6, 8
    assert numbers("memory.dram.bandwidth=2TB/s..8TB/s:4") == [2e12, 4e12, 6e12, 8e12]


def test_a_log_range_has_a_constant_ratio():
    # 1 to 8 us in 4 steps: doubled each time
    assert numbers("launch.stream=1us..8us:4:log") == pytest.approx([1e-6, 2e-6, 4e-6, 8e-6])
    assert numbers("launch.stream=1us..8us:4:log")[-1] == 8e-6


def test_a_factor_is_of_the_profiles_own_number():
    own = H100.memory.dram.bandwidth
    assert numbers("memory.dram.bandwidth=x0.5,x2") == [0.5 * own, 2 * own]
    assert numbers("memory.dram.bandwidth=x1..x3:3") == [own, 2 * own, 3 * own]


def test_a_bare_number_takes_the_last_unit():
    assert numbers("memory.dram.bandwidth=2..8TB/s:2") == [2e12, 8e12]
    assert numbers("launch.stream=1,2us") == [1e-6, 2e-6]


def test_whole_numbers_are_rounded_and_repeats_left_out():
    # 1, 1.25, 1.5, 1.75, 2 rounds (half to even) to 1, 1, 2, 2, 2
    assert numbers("compute.units=1..2:5") == [1, 2]
    assert numbers("memory.shared.per_block_max=32KiB..33KiB:2") == [32 * 1024, 33 * 1024]


def test_every_number_of_a_profile_can_be_written_and_read_back():
    paths = number_paths(H100)
    assert len(paths) > 60
    for number in paths:
        assert number.read(number.write(number.of(H100))) == number.of(H100)


def test_calibrated_constants_have_paths_too():
    number = number_at("calibration.gemm_t0.value")
    assert number.path == "calibration.gemm_t0"
    assert number.of(H100) == H100.calibration["gemm_t0"].value


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("launch.stream", "expected PATH=VALUES"),
        ("launch.strem=1us", "did you mean launch.stream"),
        ("launch.stream=1", "has no unit"),
        ("launch.stream=1us,,2us", "an empty value"),
        ("launch.stream=1TB", "expected seconds"),
        ("launch.stream=xyz", "is no factor"),
        ("launch.stream=x-1", "is no factor"),
        ("launch.stream=1us..2us", "LO..HI:STEPS"),
        ("launch.stream=1us..2us:1", "STEPS is an integer from 2"),
        ("launch.stream=1us..2us:3:cubic", "LO..HI:STEPS"),
        ("launch.stream=1us..2us..3us:3", "expected LO..HI"),
        ("name=a,b", "is a text"),
        ("memory.dram=1GB", "no number at hardware path"),
    ],
)
def test_what_makes_no_sense_is_named(text, said):
    with pytest.raises(InputError, match=said.replace(".", r"\.")):
        parse_axis(text)


@pytest.mark.parametrize("text", ["launch.stream=2us..1us:3", "launch.stream=2us..2us:3"])
def test_a_range_goes_up(text):
    with pytest.raises(InputError, match="must be below"):
        parse_axis(text).texts(H100)


def test_a_factor_of_nothing_is_named():
    with pytest.raises(InputError, match="has no number there"):
        parse_axis("registers.per_unit=x2").texts(load_profile("mobile-npu"))


def test_a_threshold_has_no_steps():
    found = parse_range("memory.shared.per_block_max=32KiB..x1", "--threshold")
    assert found.ends(H100) == (32 * 1024, H100.memory.shared.per_block_max)
    with pytest.raises(InputError, match="without steps"):
        parse_range("launch.stream=1us..2us:3", "--threshold")
